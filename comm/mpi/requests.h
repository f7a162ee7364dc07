// The messages of one operation on its way: posted, tested together, cancelled together.
//
//   MESHIFT_RETURN_IF_ERROR(requests.Receive(in, 80, peer, tag));
//   MESHIFT_RETURN_IF_ERROR(requests.Send(out, 80, peer, tag));
//   bool done = false;
//   MESHIFT_RETURN_IF_ERROR(requests.Test(&done));        // again and again, until done
//
// Nothing waits. Messages of more than 1 GiB go in pieces, since MPI counts in int. Keeps its
// memory, so that the next operations allocate nothing.
#ifndef MESHIFT_COMM_MPI_REQUESTS_H_
#define MESHIFT_COMM_MPI_REQUESTS_H_

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/mpi/watch.h"

namespace meshift {

// INTERNAL with MPI's own words; OK for MPI_SUCCESS.
absl::Status MpiError(int code, const char* call);

// For one thread at a time.
class Requests {
 public:
  static constexpr int64_t kMaxPiece = int64_t{1} << 30;
  explicit Requests(MPI_Comm comm = MPI_COMM_NULL, int64_t max_piece = kMaxPiece)
      : comm_(comm), max_piece_(max_piece) {}

  // `watch`: of the thread that uses this; null: nobody watches it.
  void set_comm(MPI_Comm comm, MpiWatch* watch) {
    comm_ = comm;
    watch_ = watch;
  }
  // `peer` is a rank of the MPI communicator. Without bytes nothing is sent, on both sides.
  absl::Status Send(const void* data, int64_t bytes, int peer, int tag);
  absl::Status Receive(void* data, int64_t bytes, int peer, int tag);
  // As Send and Receive, but a message without bytes travels too.
  absl::Status SendSignal(int peer, int tag) { return SendPiece(nullptr, 0, peer, tag); }
  absl::Status ReceiveSignal(int peer, int tag) { return ReceivePiece(nullptr, 0, peer, tag); }

  // Sets `done` where all messages have arrived and left; forgets them then. FAILED_PRECONDITION
  // where one that has arrived has another size.
  absl::Status Test(bool* done);
  // The peers whose messages have not all arrived, ascending.
  std::vector<int> Missing();
  // Takes back what has not begun to arrive, and forgets all. What has begun, and what was sent,
  // MPI cannot take back: it may still touch its memory.
  void Cancel();
  bool empty() const { return requests_.empty(); }

 private:
  struct Expected {
    int peer = -1;  // of a message to receive; -1: it is sent
    int bytes = 0;
  };
  absl::Status SendPiece(const void* data, int bytes, int peer, int tag);
  absl::Status ReceivePiece(void* data, int bytes, int peer, int tag);

  MPI_Comm comm_;
  MpiWatch* watch_ = nullptr;
  int64_t max_piece_;
  std::vector<MPI_Request> requests_;
  std::vector<Expected> expected_;  // one per request
  std::vector<MPI_Status> statuses_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_REQUESTS_H_

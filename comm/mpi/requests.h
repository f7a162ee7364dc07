// The pending MPI messages of one operation: posted one by one, tested and cancelled together.
//
//   MESHIFT_RETURN_IF_ERROR(requests.Receive(in, 80, peer, tag));      // 80 bytes
//   MESHIFT_RETURN_IF_ERROR(requests.Send(out, 80, peer, tag));
//   bool done = false;
//   MESHIFT_RETURN_IF_ERROR(requests.Test(&done));        // repeat until done
//
// No call waits for a peer, unless MPI does. Messages over 1 GiB are split, since MPI counts in
// int. Buffers must stay valid until Test() reports done. An error of MPI is INTERNAL, except for a
// truncated message (Test). After an error call Cancel(); the destructor does not. The vectors keep
// their memory, so that later operations with no more messages do not allocate. Internal to
// comm/mpi.
#ifndef MESHIFT_COMM_MPI_REQUESTS_H_
#define MESHIFT_COMM_MPI_REQUESTS_H_

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/mpi/watchdog.h"

namespace meshift {

// INTERNAL with MPI's error text; OK for MPI_SUCCESS. `call` is the name of the MPI function.
absl::Status MpiError(int code, const char* call);

// For one thread at a time.
class Requests {
 public:
  static constexpr int64_t kMaxPiece = int64_t{1} << 30;
  explicit Requests(MPI_Comm comm = MPI_COMM_NULL, int64_t max_piece = kMaxPiece)
      : comm_(comm), max_piece_(max_piece) {}

  // `watch` watches the thread that uses this; null if it is not watched.
  void set_comm(MPI_Comm comm, MpiWatchdog* watch) {
    comm_ = comm;
    watch_ = watch;
  }
  // `peer` is a rank of the MPI communicator. A message of 0 bytes is neither sent nor received.
  absl::Status Send(const void* data, int64_t bytes, int peer, int tag);
  absl::Status Receive(void* data, int64_t bytes, int peer, int tag);
  // Send and receive an empty message.
  absl::Status SendSignal(int peer, int tag) { return SendPiece(nullptr, 0, peer, tag); }
  absl::Status ReceiveSignal(int peer, int tag) { return ReceivePiece(nullptr, 0, peer, tag); }

  // Sets `done` to whether all messages are complete, and then forgets them. FAILED_PRECONDITION if
  // one arrived with another size than expected.
  absl::Status Test(bool* done);
  // The peers whose messages have not all arrived, ascending.
  std::vector<int> Missing();
  // Cancels the receives that have not begun, and forgets all messages. Sends, and receives that
  // have begun, cannot be cancelled: MPI may still access their memory.
  void Cancel();
  bool empty() const { return requests_.empty(); }
  bool receives() const { return receives_; }  // whether one of the messages is received

 private:
  struct Expected {
    int peer = -1;  // the sender of a receive; -1 for a send
    int bytes = 0;
  };
  absl::Status SendPiece(const void* data, int bytes, int peer, int tag);
  absl::Status ReceivePiece(void* data, int bytes, int peer, int tag);

  MPI_Comm comm_;
  MpiWatchdog* watch_ = nullptr;
  int64_t max_piece_;
  bool receives_ = false;
  std::vector<MPI_Request> requests_;
  std::vector<Expected> expected_;  // one per request
  std::vector<MPI_Status> statuses_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_REQUESTS_H_

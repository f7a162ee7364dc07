// The MPI engine's Communicator and Stream: a call is checked, and queued as a task of the stream.
// comm/mpi/operation.h has the algorithms.
//
//   MpiCommunicator communicator(progress, group);
//   MpiStream stream(progress);
//   MESHIFT_RETURN_IF_ERROR(communicator.AllReduce(in, out, 8, DType::kF32, {}, stream));
//   MESHIFT_RETURN_IF_ERROR(progress->AwaitIdle(stream.state()));
//
// meshift/communicator.h has the rules for calls and threads. Refused arguments (INVALID_ARGUMENT),
// other than a stream of another engine, end the group on this rank. Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_MPI_COMMUNICATOR_H_
#define MESHIFT_COMM_MPI_MPI_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/mpi/executable.h"
#include "comm/mpi/group.h"
#include "comm/mpi/operation.h"
#include "comm/mpi/progress.h"
#include "comm/mpi/stream.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

// The destructor waits for the work; work that the engine gave up keeps its stream state alive.
class MpiStream final : public Stream {
 public:
  explicit MpiStream(std::shared_ptr<Progress> progress)
      : progress_(std::move(progress)), state_(progress_->AddStream()) {}
  ~MpiStream() override {
    if (progress_->AwaitIdle(state_).ok()) progress_->RemoveStream(state_);
  }
  const std::shared_ptr<StreamState>& state() const { return state_; }
  Progress& progress() const { return *progress_; }
  void Put(std::unique_ptr<MpiTask> task) {
    state_->Put(std::move(task));
    if (!state_->idle()) progress_->Nudge();
  }
  void Put(const std::shared_ptr<const MpiExecutable::Steps>& steps, const ListRange& range,
           const MpiBases& bases, std::shared_ptr<Event>* done) {
    state_->Put(steps, range, bases, done);
    if (!state_->idle()) progress_->Nudge();
  }

 private:
  const std::shared_ptr<Progress> progress_;
  const std::shared_ptr<StreamState> state_;
};

// INVALID_ARGUMENT for a stream of another engine; else the error of Progress::MayCall().
ABSL_ATTRIBUTE_HOT absl::StatusOr<MpiStream*> AsMpiStream(Stream& stream, const Progress& progress);

// Ends the group with `status` and puts the error on the stream, which then skips its later work.
// Returns the group's first error.
absl::Status RefuseCall(const absl::Status& status, MpiGroup& group, MpiStream& stream);

// Check a count, the members' block sizes, and the peers of a kSendRecv. INVALID_ARGUMENT names the
// group. They do not know the dtype: the last element of an odd count of f4e2m1 is not sent.
absl::Status CheckCount(const MpiGroup& group, int64_t count);
absl::Status CheckCounts(const MpiGroup& group, absl::Span<const int64_t> counts);
absl::Status CheckPeers(const MpiGroup& group, absl::Span<const PeerMessage> sends,
                        absl::Span<const PeerMessage> recvs);

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<Progress> progress, std::shared_ptr<MpiGroup> group)
      : progress_(std::move(progress)), group_(std::move(group)) {}

  int rank() const override { return group_->member(); }
  int size() const override { return group_->size(); }
  absl::Status AllReduce(const void* send, void* recv, int64_t count, DType dtype,
                         const Reduction& reduction, Stream& stream) override;
  absl::Status ReduceScatter(const void* send, void* recv, int64_t recv_count, DType dtype,
                             const Reduction& reduction, Stream& stream) override;
  absl::Status AllGather(const void* send, void* recv, int64_t send_count, DType dtype,
                         Stream& stream) override;
  absl::Status ReduceScatterV(const void* send, void* recv, absl::Span<const int64_t> counts,
                              DType dtype, const Reduction& reduction, Stream& stream) override;
  absl::Status AllGatherV(const void* send, void* recv, absl::Span<const int64_t> counts,
                          DType dtype, Stream& stream) override;
  absl::Status AllToAll(const void* send, void* recv, int64_t count, DType dtype,
                        Stream& stream) override;
  absl::Status SendRecv(absl::Span<const PeerMessage> sends, absl::Span<const PeerMessage> recvs,
                        DType dtype, Stream& stream) override;
  absl::Status Broadcast(void* data, int64_t count, DType dtype, int root, Stream& stream) override;
  absl::Status Barrier(Stream& stream) override;
  SymmetricSupport SupportOf(const SymmetricCall&) const override {
    return SymmetricSupport::kSameBits;
  }
  absl::Status CallSymmetric(const SymmetricCall& call, Stream& stream) override;
  void Abort() override;
  absl::Status Health() const override {
    return group_->ended() ? group_->Health() : progress_->Health();
  }
  std::string ToString() const override;

  MpiGroup& group() { return *group_; }
  const std::shared_ptr<MpiGroup>& shared_group() const { return group_; }
  const Progress* progress() const { return progress_.get(); }
  // Returns the number of earlier calls of this function. Split and SplitNoColor call it.
  int64_t TakeSplit() { return next_split_++; }

 private:
  absl::Status Call(MpiCall::Kind kind, const void* send, void* recv, int64_t count, DType dtype,
                    Stream& stream, const Reduction* reduction = nullptr, int root = 0);
  // A reduce_scatter or all_gather with one block size per member.
  absl::Status CallV(MpiCall::Kind kind, const void* send, void* recv,
                     absl::Span<const int64_t> counts, DType dtype, Stream& stream,
                     const Reduction* reduction = nullptr);
  // A task for the group's next call; the caller sets its buffers and counts.
  std::unique_ptr<MpiTask> NewCall(MpiCall::Kind kind, DType dtype, MpiStream& stream);
  absl::Status Put(MpiCall::Kind kind, const void* send, void* recv, int64_t count,
                   absl::Span<const int64_t> counts, DType dtype, const Reduction* reduction,
                   int root, MpiStream& stream);
  absl::Status Refuse(const absl::Status& status, MpiStream& stream) {
    return RefuseCall(status, *group_, stream);
  }

  const std::shared_ptr<Progress> progress_;
  const std::shared_ptr<MpiGroup> group_;
  std::atomic<int64_t> next_split_{0};
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_MPI_COMMUNICATOR_H_

// The Communicator of the in-process engine: one member's handle of a Group. meshift/communicator.h
// has the rules for calls and threads. Any error of a call ends the group for all members
// (group.h). Internal to comm/local.
#ifndef MESHIFT_COMM_LOCAL_LOCAL_COMMUNICATOR_H_
#define MESHIFT_COMM_LOCAL_LOCAL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/local/collective.h"
#include "comm/local/group.h"
#include "comm/local/reduction_order.h"
#include "comm/local/scheduler.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

class LocalCommunicator final : public Communicator {
 public:
  // The world owns `settings`, which must outlive all calls; the scheduler's lock guards it.
  LocalCommunicator(std::shared_ptr<Scheduler> scheduler, const ReductionSettings* settings,
                    std::shared_ptr<Group> group, int member);

  const Scheduler* scheduler() const { return scheduler_.get(); }
  const Group& group() const { return *group_; }
  // Ends the group with `status`.
  void Fail(const absl::Status& status);

  int rank() const override { return member_; }
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
  absl::Status Health() const override;
  std::string ToString() const override;

 private:
  absl::Status Post(MemberCall call, Stream& stream);

  const std::shared_ptr<Scheduler> scheduler_;
  const ReductionSettings* const settings_;
  const std::shared_ptr<Group> group_;
  const int member_;
};

// `stream` as a LocalStream. INVALID_ARGUMENT if it is not one of rank `rank` in `scheduler`'s
// world.
absl::StatusOr<LocalStream*> AsLocalStream(Stream& stream, const Scheduler& scheduler,
                                           int64_t rank);

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_LOCAL_COMMUNICATOR_H_

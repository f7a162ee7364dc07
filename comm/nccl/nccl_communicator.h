// One member's handle of an ncclComm_t. Not a public header: meshift/nccl_engine.h makes them.
//
// Blocks of any sizes go as a group of broadcasts, or of reductions to one member each. What NCCL
// cannot reduce with Meshift's arithmetic (native_reduction.h) goes in slices: each member gets its
// slice of every other's contribution, reduces them in ascending order of members (f32 inside, for
// the small floats), and the results are gathered. Small all-reduces gather the contributions
// instead, and every member reduces all of them. Both need scratch memory, which a communicator
// keeps once it has it; it grows where a call needs more than any before, which fails while a graph
// is captured.
#ifndef MESHIFT_COMM_NCCL_NCCL_COMMUNICATOR_H_
#define MESHIFT_COMM_NCCL_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/nccl/job.h"
#include "comm/nccl/streams.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

class NcclCommunicator final : public Communicator {
 public:
  // `group` is the job's, which keeps it to its end: others may use it too.
  NcclCommunicator(std::shared_ptr<NcclJob> job, std::shared_ptr<NcclGroup> group);
  ~NcclCommunicator() override;

  const NcclJob* job() const { return job_.get(); }
  const std::shared_ptr<NcclGroup>& group() const { return group_; }

  int rank() const override { return group_->member; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }
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
  // The ordinary calls of NCCL, which sees by the addresses that they are on registered windows.
  SymmetricSupport SupportOf(const SymmetricCall& call) const override;
  absl::Status CallSymmetric(const SymmetricCall& call, Stream& stream) override;
  absl::Status Reserve(ReduceCall call, int64_t count, DType dtype,
                       const Reduction& reduction) override;
  void Abort() override;
  absl::Status Health() const override { return job_->Health(); }
  std::string ToString() const override;

 private:
  // How an all-reduce that NCCL cannot do is cut up.
  struct Slices {
    bool gather = false;      // no slices: all contributions go to all members
    int64_t count = 0;        // elements of a slice; the last ones are shorter, or empty
    int64_t block_bytes = 0;  // from one member's contribution to the next one's, in scratch
  };
  Slices SlicesOf(int64_t count, DType dtype) const;
  int64_t ScratchBytes(ReduceCall call, int64_t count, DType dtype) const;

  absl::Status AllReduceSliced(const void* send, void* recv, int64_t count, DType dtype,
                               const Reduction& reduction, NcclStream& stream);
  // `begins`: where each member's block begins, and the last one ends.
  absl::Status ReduceScatterSliced(const void* send, void* recv, absl::Span<const int64_t> begins,
                                   DType dtype, const Reduction& reduction, NcclStream& stream);
  // Of blocks of any sizes: sets begins_, and checks what can be.
  absl::Status SetBegins(std::string_view call, absl::Span<const int64_t> counts);
  // Reduces the members' blocks in scratch, but for this member's own, which is at `own`.
  absl::Status ReduceBlocks(const void* own, void* out, int64_t count, int64_t block_bytes,
                            DType dtype, const Reduction& reduction, NcclStream& stream);
  absl::Status Launch(const CallText& text, NcclStream& stream,
                      absl::FunctionRef<NcclResult()> issue);
  // The calls that `issue` makes, whose results it passes on, as one group.
  using KeepResult = absl::FunctionRef<void(ncclResult_t, const char* function)>;
  absl::Status LaunchGroup(const CallText& text, NcclStream& stream,
                           absl::FunctionRef<void(const KeepResult&)> issue);
  // The messages as one group; each must be within the communicator.
  absl::Status Exchange(const CallText& text, absl::Span<const PeerMessage> sends,
                        absl::Span<const PeerMessage> recvs, DType dtype, NcclStream& stream);
  absl::Status CheckMessages(absl::Span<const PeerMessage> messages) const;

  // Grows the scratch memory to `bytes`. `capturing`: then it is refused.
  absl::Status GrowScratch(int64_t bytes, bool capturing);
  // Scratch memory of `bytes` for work on `stream`, which then waits for that before it.
  absl::StatusOr<char*> TakeScratch(int64_t bytes, NcclStream& stream);
  // Its work is all on `stream`.
  absl::Status ScratchTaken(NcclStream& stream);

  const std::shared_ptr<NcclJob> job_;
  const std::shared_ptr<NcclGroup> group_;
  std::vector<PeerMessage> sends_;  // of slices; kept for their memory
  std::vector<PeerMessage> recvs_;
  std::vector<int64_t> begins_;  // of blocks; likewise

  struct Scratch {
    CUdeviceptr memory = 0;
    int64_t bytes = 0;
    std::shared_ptr<DeviceStream> stream;  // of its last use
    CUevent done = nullptr;                // of its last use that was not captured
    bool in_graph = false;                 // a graph may use it for ever
    uint64_t capture = 0;                  // of its last use
  };
  Scratch scratch_;
  std::vector<CUdeviceptr> in_graphs_;  // outgrown scratch memory of graphs
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NCCL_COMMUNICATOR_H_

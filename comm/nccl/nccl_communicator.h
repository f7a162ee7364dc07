// The collectives of meshift/communicator.h over one ncclComm_t, on device memory.
//
//   NcclCommunicator communicator(context, group);         // from NcclContext::Split()
//   communicator.AllReduce(in, out, count, DType::kBF16, {.op = ReduceOp::kSum}, *stream);
//
// INVALID_ARGUMENT: a stream of another engine, or bad arguments; RESOURCE_EXHAUSTED: no scratch
// memory; UNIMPLEMENTED: CallSymmetric() where SupportOf() is kNone; otherwise the errors of the
// context and the driver. One thread at a time, but any thread may call Abort() and Health().
// Internal to comm/nccl.
//
// Reductions that NCCL does not do itself (native_reduction.h) are cut into slices: each member
// receives its slice of every other contribution, and reduces them in ascending order of members
// (f8, f16 and bf16 in f32). If the call is an all-reduce, the members then gather the results by
// messages or all_gather. Small all-reduces gather all contributions instead, and every member
// reduces them. Both need scratch memory. A communicator keeps it, and replaces it when a call
// needs more, but not while a graph is captured (FAILED_PRECONDITION). Reserve() allocates it
// beforehand. A graph that uses it must not run after the communicator is destroyed.
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
#include "comm/nccl/context.h"
#include "comm/nccl/streams.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

class NcclCommunicator final : public Communicator {
 public:
  // `context` keeps `group` until it is destroyed; other communicators may use it too.
  NcclCommunicator(std::shared_ptr<NcclContext> context, std::shared_ptr<NcclGroup> group);
  ~NcclCommunicator() override;

  const NcclContext* context() const { return context_.get(); }
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
  // CallSymmetric makes the ordinary NCCL calls: NCCL finds the registered windows by address.
  SymmetricSupport SupportOf(const SymmetricCall& call) const override;
  absl::Status CallSymmetric(const SymmetricCall& call, Stream& stream) override;
  absl::Status Reserve(ReduceCall call, int64_t count, DType dtype,
                       const Reduction& reduction) override;
  void Abort() override;
  absl::Status Health() const override { return context_->Health(); }
  std::string ToString() const override;

 private:
  // How an all-reduce that NCCL cannot do is cut into slices.
  struct Slices {
    bool gather = false;      // no slices: all contributions go to all members
    int64_t count = 0;        // elements per slice; the last ones may be shorter or empty
    int64_t block_bytes = 0;  // distance between members' contributions in scratch
  };
  Slices SlicesOf(int64_t count, DType dtype) const;
  int64_t ScratchBytes(ReduceCall call, int64_t count, DType dtype) const;

  absl::Status AllReduceSliced(const void* send, void* recv, int64_t count, DType dtype,
                               const Reduction& reduction, NcclStream& stream);
  // `begins`: the first element of each member's block, then the end of the last block.
  absl::Status ReduceScatterSliced(const void* send, void* recv, absl::Span<const int64_t> begins,
                                   DType dtype, const Reduction& reduction, NcclStream& stream);
  // Sets begins_ for blocks of `counts` elements. INVALID_ARGUMENT: a wrong number, or one below 0.
  absl::Status SetBegins(std::string_view call, absl::Span<const int64_t> counts);
  // Reduces the members' blocks in scratch into `out`. This member's own block is at `own`, or in
  // scratch too if that is null.
  absl::Status ReduceBlocks(const void* own, void* out, int64_t count, int64_t block_bytes,
                            DType dtype, const Reduction& reduction, NcclStream& stream);
  absl::Status Launch(const LaunchText& text, NcclStream& stream,
                      absl::FunctionRef<NcclResult()> issue);
  // Launches the NCCL calls of `issue` as one NCCL group. `issue` passes the result of each call to
  // its argument.
  using KeepResult = absl::FunctionRef<void(ncclResult_t, const char* function)>;
  absl::Status LaunchGroup(const LaunchText& text, NcclStream& stream,
                           absl::FunctionRef<void(const KeepResult&)> issue);
  // Sends and receives the messages as one NCCL group. Their peers must be valid members.
  absl::Status Exchange(const LaunchText& text, absl::Span<const PeerMessage> sends,
                        absl::Span<const PeerMessage> recvs, DType dtype, NcclStream& stream);
  absl::Status CheckMessages(absl::Span<const PeerMessage> messages) const;

  // Grows the scratch memory to `bytes`; FAILED_PRECONDITION if it has to grow while `capturing`.
  absl::Status GrowScratch(int64_t bytes, bool capturing);
  // Scratch memory of `bytes`. Makes `stream` wait for its previous use, unless one of the two is
  // captured and the other is not in that capture.
  absl::StatusOr<char*> TakeScratch(int64_t bytes, NcclStream& stream);
  // Ends this use of the scratch memory, all of whose work is on `stream`.
  absl::Status ScratchTaken(NcclStream& stream);

  const std::shared_ptr<NcclContext> context_;
  const std::shared_ptr<NcclGroup> group_;
  // Per call; members so that calls reuse their memory.
  std::vector<PeerMessage> sends_;
  std::vector<PeerMessage> recvs_;
  std::vector<int64_t> begins_;

  struct Scratch {
    CUdeviceptr memory = 0;
    int64_t bytes = 0;
    // The last use that was not captured, and an event after it.
    std::shared_ptr<DeviceStream> stream;
    CUevent done = nullptr;
    // The last use that was captured, and its capture; 0: none.
    std::shared_ptr<DeviceStream> captured_stream;
    uint64_t capture = 0;
    bool in_graph = false;  // a graph may use it, so it must not be freed
  };
  Scratch scratch_;
  std::vector<CUdeviceptr> in_graphs_;  // earlier scratch memory that graphs may use
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NCCL_COMMUNICATOR_H_

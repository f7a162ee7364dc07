#include "meshift/deterministic.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "comm/kernels/reduce.h"
#include "comm/redistribution/view_check.h"
#include "comm/tensor/strides.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"
#include "placement/cast.h"

namespace meshift {
namespace {

constexpr int64_t kAlignment = 16;  // bytes, of each part of the workspace

absl::Status CheckTensor(std::string_view name, const TensorView& view, int64_t rank) {
  MESHIFT_RETURN_IF_ERROR(CheckView(name, view, view.dtype, view.shape, rank));
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  const auto item = static_cast<uintptr_t>(Bytes(view.dtype, 1));
  if (NumElements(view.shape) == 0 || address % item == 0) return absl::OkStatus();
  return InvalidArgument("the {} at address {:#x} is not aligned to the {} bytes of {}", name,
                         address, item, Name(view.dtype));
}

absl::Status CheckTensors(const Communicator& group, const TensorView& in, const TensorView& out,
                          const Reduction& reduction) {
  MESHIFT_RETURN_IF_ERROR(CheckReduction(in.dtype, reduction));
  MESHIFT_RETURN_IF_ERROR(CheckTensor("input", in, group.rank()));
  MESHIFT_RETURN_IF_ERROR(CheckTensor("output", out, group.rank()));
  if (in.dtype != out.dtype || in.shape != out.shape) {
    return InvalidArgument("input {} and output {} must have the same dtype and shape",
                           in.ToString(), out.ToString());
  }
  MESHIFT_RETURN_IF_ERROR(CheckTarget(out));
  if (in.data == nullptr || out.data == nullptr) return absl::OkStatus();
  const bool in_place = in.data == out.data && in.strides == out.strides;
  if (!in_place && RangeOf(in).Overlaps(RangeOf(out))) {
    return InvalidArgument("input {} and output {} overlap but are not the same tensor",
                           in.ToString(), out.ToString());
  }
  return absl::OkStatus();
}

// One call whose arguments are checked. The workspace has, in this order: copies of strided
// tensors, the values in f32, and the contributions of all members.
class AllReducer {
 public:
  AllReducer(const Communicator& group, const TensorView& in, const TensorView& out,
             const DeterministicOptions& options, Reduction reduction)
      : size_(group.size()),
        self_(group.rank()),
        in_(in),
        out_(out),
        options_(options),
        reduction_(reduction),
        count_(NumElements(in.shape)) {
    const bool small = AccumulateDType(in.dtype) != in.dtype;
    rounds_ = small && !options.accumulate_in_f32;
    widens_ = options.mode == DeterministicMode::kNative && small && !rounds_;
    slice_ = CeilDiv(count_, size_);
    const bool ordered = options.mode == DeterministicMode::kOrdered;
    own_ = ordered ? SizeOf(self_) : count_;
    const bool reduces = options.mode == DeterministicMode::kOrdered ||
                         (options.mode == DeterministicMode::kRankReference && self_ == kRoot);
    Take(in.IsContiguous() ? 0 : Bytes(in.dtype, count_), &packed_in_);
    Take(out.IsContiguous() ? 0 : Bytes(out.dtype, count_), &packed_out_);
    Take(widens_ ? Bytes(DType::kF32, count_) : 0, &wide_);
    Take(reduces ? SaturatingMul(size_, Bytes(in.dtype, own_)) : 0, &blocks_);
  }

  int64_t bytes() const { return bytes_; }
  DeterministicResult ResultOn(const Engine& engine) const;
  absl::Status Run(Engine& engine, Communicator& group, char* workspace, Stream& stream) const;

 private:
  static constexpr int kRoot = 0;  // of kRankReference

  void Take(int64_t bytes, int64_t* offset) {
    *offset = bytes_;
    bytes_ = SaturatingAdd(bytes_, SaturatingMul(CeilDiv(bytes, kAlignment), kAlignment));
  }
  int64_t BeginOf(int64_t member) const { return std::min(count_, member * slice_); }
  int64_t SizeOf(int64_t member) const { return BeginOf(member + 1) - BeginOf(member); }
  char* SliceOf(void* whole, int64_t member) const {
    return static_cast<char*>(whole) + Bytes(in_.dtype, BeginOf(member));
  }
  absl::Status Native(Engine& engine, Communicator& group, void* send, void* recv, char* wide,
                      Stream& stream) const;
  absl::Status Ordered(Engine& engine, Communicator& group, char* send, char* recv, char* blocks,
                       Stream& stream) const;
  absl::Status Reference(Engine& engine, Communicator& group, char* send, char* recv, char* blocks,
                         Stream& stream) const;
  absl::Status Reduce(Engine& engine, char* blocks, char* out, Stream& stream) const;

  const int64_t size_;
  const int64_t self_;
  const TensorView& in_;
  const TensorView& out_;
  const DeterministicOptions options_;
  const Reduction reduction_;
  const int64_t count_;
  bool rounds_ = false;  // sums are rounded after every addition (kNative: as the engine does)
  bool widens_ = false;  // values are sent as f32
  int64_t slice_ = 0;    // elements of the largest slice
  int64_t own_ = 0;      // elements that this member reduces
  int64_t packed_in_ = 0;
  int64_t packed_out_ = 0;
  int64_t wide_ = 0;
  int64_t blocks_ = 0;
  int64_t bytes_ = 0;
};

BoxCopy CopyOf(const TensorView& from, const TensorView& to) {
  return {from.data, to.data, from.shape, from.strides, to.strides};
}

absl::Status AllReducer::Run(Engine& engine, Communicator& group, char* workspace,
                             Stream& stream) const {
  TensorView send = in_;
  TensorView recv = out_;
  if (!in_.IsContiguous()) {
    send = TensorView::Contiguous(workspace + packed_in_, in_.dtype, in_.shape);
    MESHIFT_RETURN_IF_ERROR(engine.CopyBoxes({CopyOf(in_, send)}, in_.dtype, stream));
  }
  if (!out_.IsContiguous()) {
    recv = TensorView::Contiguous(workspace + packed_out_, out_.dtype, out_.shape);
  }
  auto* const from = static_cast<char*>(send.data);
  auto* const to = static_cast<char*>(recv.data);
  switch (options_.mode) {
    case DeterministicMode::kNative:
      MESHIFT_RETURN_IF_ERROR(Native(engine, group, from, to, workspace + wide_, stream));
      break;
    case DeterministicMode::kOrdered:
      MESHIFT_RETURN_IF_ERROR(Ordered(engine, group, from, to, workspace + blocks_, stream));
      break;
    case DeterministicMode::kRankReference:
      MESHIFT_RETURN_IF_ERROR(Reference(engine, group, from, to, workspace + blocks_, stream));
      break;
  }
  if (out_.IsContiguous()) return absl::OkStatus();
  return engine.CopyBoxes({CopyOf(recv, out_)}, out_.dtype, stream);
}

absl::Status AllReducer::Native(Engine& engine, Communicator& group, void* send, void* recv,
                                char* wide, Stream& stream) const {
  if (!widens_) return group.AllReduce(send, recv, count_, in_.dtype, reduction_, stream);
  MESHIFT_RETURN_IF_ERROR(engine.Cast(send, in_.dtype, wide, DType::kF32, count_, stream));
  MESHIFT_RETURN_IF_ERROR(group.AllReduce(wide, wide, count_, DType::kF32, reduction_, stream));
  return engine.Cast(wide, DType::kF32, recv, in_.dtype, count_, stream);
}

absl::Status AllReducer::Ordered(Engine& engine, Communicator& group, char* send, char* recv,
                                 char* blocks, Stream& stream) const {
  const int64_t block = Bytes(in_.dtype, own_);
  std::vector<PeerMessage> sends;
  std::vector<PeerMessage> recvs;
  for (int64_t member = 0; member < size_; ++member) {
    if (member == self_) continue;
    const auto peer = static_cast<int>(member);
    if (SizeOf(member) > 0) sends.push_back({peer, SliceOf(send, member), SizeOf(member)});
    if (own_ > 0) recvs.push_back({peer, blocks + member * block, own_});
  }
  if (own_ > 0) {
    MESHIFT_RETURN_IF_ERROR(
        engine.CopyBoxes({BoxCopy{SliceOf(send, self_), blocks + self_ * block, {own_}, {1}, {1}}},
                         in_.dtype, stream));
  }
  MESHIFT_RETURN_IF_ERROR(group.SendRecv(sends, recvs, in_.dtype, stream));
  MESHIFT_RETURN_IF_ERROR(Reduce(engine, blocks, SliceOf(recv, self_), stream));
  if (count_ == size_ * slice_) {
    return group.AllGather(SliceOf(recv, self_), recv, slice_, in_.dtype, stream);
  }
  sends.clear();
  recvs.clear();
  for (int64_t member = 0; member < size_; ++member) {
    if (member == self_) continue;
    const auto peer = static_cast<int>(member);
    if (own_ > 0) sends.push_back({peer, SliceOf(recv, self_), own_});
    if (SizeOf(member) > 0) recvs.push_back({peer, SliceOf(recv, member), SizeOf(member)});
  }
  return group.SendRecv(sends, recvs, in_.dtype, stream);
}

absl::Status AllReducer::Reference(Engine& engine, Communicator& group, char* send, char* recv,
                                   char* blocks, Stream& stream) const {
  const int64_t block = Bytes(in_.dtype, count_);
  std::vector<PeerMessage> sends;
  std::vector<PeerMessage> recvs;
  if (self_ != kRoot) {
    sends.push_back({kRoot, send, count_});
  } else {
    for (int64_t member = 1; member < size_; ++member) {
      recvs.push_back({static_cast<int>(member), blocks + member * block, count_});
    }
    MESHIFT_RETURN_IF_ERROR(
        engine.CopyBoxes({BoxCopy{send, blocks, {count_}, {1}, {1}}}, in_.dtype, stream));
  }
  MESHIFT_RETURN_IF_ERROR(group.SendRecv(sends, recvs, in_.dtype, stream));
  if (self_ == kRoot) MESHIFT_RETURN_IF_ERROR(Reduce(engine, blocks, recv, stream));
  return group.Broadcast(recv, count_, in_.dtype, kRoot, stream);
}

absl::Status AllReducer::Reduce(Engine& engine, char* blocks, char* out, Stream& stream) const {
  if (own_ == 0) return absl::OkStatus();
  const int64_t block = Bytes(in_.dtype, own_);
  if (!rounds_ || size_ == 1) {
    std::vector<const void*> inputs(size_);
    for (int64_t member = 0; member < size_; ++member) inputs[member] = blocks + member * block;
    return engine.ReduceInOrder(inputs, out, own_, in_.dtype, reduction_, stream);
  }
  // Every sum is rounded to the dtype; the last one is divided before it is rounded.
  for (int64_t member = 1; member < size_; ++member) {
    const bool last = member + 1 == size_;
    const std::array<const void*, 2> inputs = {blocks, blocks + member * block};
    MESHIFT_RETURN_IF_ERROR(engine.ReduceInOrder(
        inputs, last ? out : blocks, own_, in_.dtype,
        last ? reduction_ : Reduction{.op = ReduceOp::kSum, .divisor = 1}, stream));
  }
  return absl::OkStatus();
}

DeterministicResult AllReducer::ResultOn(const Engine& engine) const {
  DeterministicResult result;
  result.rounded_once = !rounds_;
  result.accumulate_dtype = rounds_ ? in_.dtype : AccumulateDType(in_.dtype);
  const bool exact = IsInteger(in_.dtype);
  if (options_.mode == DeterministicMode::kNative) {
    // kAllReduce does not suffice: it holds only for groups with one channel (GroupOptions).
    const bool invariant =
        engine.Capabilities().native_invariance == NativeInvariance::kReduceScatter;
    result.batch_invariant = exact || invariant;
    result.ordered = exact;
    result.why = exact ? "the sum is exact in any order"
                 : invariant
                     ? "engine " + engine.name() + " adds every element in the same way"
                     : "engine " + engine.name() + " promises only equal bits on all members";
    return result;
  }
  result.batch_invariant = true;
  result.ordered = true;
  result.why = options_.mode == DeterministicMode::kOrdered
                   ? "owners of slices add in ascending order of members"
                   : "one member adds in ascending order of members";
  return result;
}

Reduction ReductionOf(const Communicator& group, const DeterministicOptions& options) {
  if (options.op == DeterministicOp::kSum) return {.op = ReduceOp::kSum, .divisor = 1};
  return {.op = ReduceOp::kAvg, .divisor = group.size()};
}

}  // namespace

std::string_view Name(DeterministicMode mode) {
  constexpr std::array<std::string_view, 3> kNames = {"native", "ordered", "rank-reference"};
  return kNames[static_cast<size_t>(mode)];
}

absl::StatusOr<int64_t> DeterministicWorkspace(const Communicator& group, const TensorView& in,
                                               const TensorView& out,
                                               const DeterministicOptions& options) {
  const Reduction reduction = ReductionOf(group, options);
  MESHIFT_RETURN_IF_ERROR(CheckTensors(group, in, out, reduction));
  return AllReducer(group, in, out, options, reduction).bytes();
}

absl::StatusOr<DeterministicResult> DeterministicAllReduce(
    Engine& engine, Communicator& group, const TensorView& in, const TensorView& out,
    const DeterministicOptions& options, const Workspace& workspace, Stream& stream) {
  const Reduction reduction = ReductionOf(group, options);
  MESHIFT_RETURN_IF_ERROR(CheckTensors(group, in, out, reduction));
  const AllReducer reducer(group, in, out, options, reduction);
  DeterministicResult result = reducer.ResultOn(engine);
  if (NumElements(in.shape) == 0) return result;
  if (in.data == nullptr || out.data == nullptr) {
    return InvalidArgument("the {} of {} elements is null", in.data == nullptr ? "input" : "output",
                           NumElements(in.shape));
  }
  MESHIFT_ASSIGN_OR_RETURN(const MemoryRange scratch,
                           CheckWorkspace(workspace.data, workspace.bytes, reducer.bytes()));
  MESHIFT_RETURN_IF_ERROR(CheckDisjoint("input", RangeOf(in), scratch));
  MESHIFT_RETURN_IF_ERROR(CheckDisjoint("output", RangeOf(out), scratch));
  MESHIFT_RETURN_IF_ERROR(reducer.Run(engine, group, static_cast<char*>(workspace.data), stream));
  return result;
}

}  // namespace meshift

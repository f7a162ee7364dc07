// Implements StepLowering::OrderedAllReduce and OrderedReduceScatter (step_lowering.h): reductions
// in ascending order of coordinates, in one stage (staged_lowering.cc has Step::reduce_stages).
// Each member owns a slice of the result, possibly empty. It receives every member's contribution
// to the slice and combines them in order. With Step::reduce_block, it combines each block of
// contributions first, then the blocks' results. An all_reduce then gathers the slices. So an
// element's bits depend neither on its position in the tensor nor on the links between ranks.
// Workspace: all contributions to this rank's slice. INVALID_ARGUMENT: an all_reduce that changes
// boxes, or a reduce_scatter that removes cuts.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "comm/program/step_lowering.h"
#include "meshift/status.h"

namespace meshift::lowering_internal {
namespace {

using Kind = Instruction::Kind;

Value Elements(Location at, DType dtype, int64_t count) {
  return Value::RowMajor(at, dtype, Box{Shape{0}, Shape{count}});
}

}  // namespace

Instruction& StepLowering::ReduceBlocks(Location blocks, Location dst, int64_t count,
                                        int64_t num_blocks, const Reduction& reduction) {
  const DType dtype = build_.in().dtype;
  Instruction& reduce = build_.Add(Kind::kReduceInOrder, dtype);
  reduce.src = blocks;
  reduce.dst = dst;
  reduce.count = count;
  reduce.reduction = reduction;
  reduce.blocks = num_blocks;
  reduce.block_bytes = Bytes(dtype, count);
  return reduce;
}

// Member k owns slice k of the box's row-major elements. Slices have ceil(count / n) elements; the
// last ones may have fewer, or none.
absl::Status StepLowering::OrderedAllReduce(const StepGeometry& g, const Step& step) {
  if (!g.moved().empty()) return InvalidArgument("{} must not change boxes", step.ToString());
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  const int64_t count = g.box_before().NumElements();
  if (count == 0) return absl::OkStatus();
  const Members members(mesh_, step.mesh_dims, me_);
  const int64_t n = members.size();
  const int64_t slice = CeilDiv(count, n);
  const int64_t self = SelfOf(members);
  const DType dtype = build_.in().dtype;
  const auto begin_of = [&](int64_t member) { return std::min(count, member * slice); };
  const auto size_of = [&](int64_t member) { return begin_of(member + 1) - begin_of(member); };
  const auto slice_of = [&](const Value& value, int64_t member) {
    return Shift(value.at, Bytes(dtype, begin_of(member)));
  };

  MESHIFT_ASSIGN_OR_RETURN(const Value recv, RowMajorLike(build_.out()));
  MESHIFT_ASSIGN_OR_RETURN(const Value send, RowMajorIn());
  build_.FlushCopies();
  MESHIFT_ASSIGN_OR_RETURN(const Location blocks,
                           build_.TakePiece(SaturatingMul(n, Bytes(dtype, slice))));
  const int64_t own = size_of(self);
  const auto block_of = [&](int64_t member) {
    return Shift(blocks, members.IndexOfNumber(member) * Bytes(dtype, own));
  };
  std::vector<ProgramMessage> sends;
  std::vector<ProgramMessage> recvs;
  for (int64_t member = 0; member < n; ++member) {
    if (member == self) continue;
    const auto peer = static_cast<int>(member);
    if (size_of(member) > 0) {
      sends.push_back({peer, slice_of(send, member), size_of(member)});
    }
    if (own > 0) recvs.push_back({peer, block_of(member), own});
  }
  build_.AddCopy(Elements(slice_of(send, self), dtype, own), Elements(block_of(self), dtype, own),
                 Box{Shape{0}, Shape{own}});
  build_.AddSendRecv(step.mesh_dims, sends, recvs);
  if (own > 0) ReduceBlocks(blocks, slice_of(recv, self), own, n, reduction);

  if (count == n * slice) {
    build_.AddCall(Kind::kAllGather, step.mesh_dims, slice_of(recv, self), recv.at, slice);
  } else {
    sends.clear();
    recvs.clear();
    for (int64_t member = 0; member < n; ++member) {
      if (member == self) continue;
      const auto peer = static_cast<int>(member);
      if (own > 0) sends.push_back({peer, slice_of(recv, self), own});
      if (size_of(member) > 0) {
        recvs.push_back({peer, slice_of(recv, member), size_of(member)});
      }
    }
    build_.AddSendRecv(step.mesh_dims, sends, recvs);
  }
  CopyToOut(recv);
  return absl::OkStatus();
}

absl::Status StepLowering::OrderedReduceScatter(const StepGeometry& g, const Step& step) {
  if (g.cut_before() != 0) return InvalidArgument("{} must not remove cuts", step.ToString());
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  if (g.box_before().IsEmpty()) return absl::OkStatus();
  const Members members(mesh_, step.mesh_dims, me_);
  const int64_t n = members.size();
  const int64_t self = SelfOf(members);
  const Blocks pieces = FindBlocks(g, members, /*after=*/true, /*exact=*/true);
  const DType dtype = build_.in().dtype;
  const int64_t own = g.box_after().NumElements();

  Value send = build_.in();
  Location packed;
  if (pieces.packed) {
    MESHIFT_ASSIGN_OR_RETURN(packed,
                             build_.TakePiece(Bytes(dtype, g.box_before().NumElements() - own)));
  } else {
    MESHIFT_ASSIGN_OR_RETURN(send, RowMajorIn());
    build_.FlushCopies();
  }
  MESHIFT_ASSIGN_OR_RETURN(const Location blocks,
                           build_.TakePiece(SaturatingMul(n, Bytes(dtype, own))));
  const auto block_of = [&](int64_t member) {
    return Shift(blocks, members.IndexOfNumber(member) * Bytes(dtype, own));
  };
  std::vector<ProgramMessage> sends;
  std::vector<ProgramMessage> recvs;
  Coordinate at = me_;
  for (int64_t member = 0; member < n; ++member) {
    if (member == self) continue;
    members.SetCoordinate(members.IndexOfNumber(member), &at);
    const Box box = g.BoxAfter(at);
    const int64_t count = box.NumElements();
    const auto peer = static_cast<int>(member);
    if (count > 0 && pieces.packed) {
      build_.AddCopy(build_.in(), Value::RowMajor(packed, dtype, box), box);
      sends.push_back({peer, packed, count});
      packed = Shift(packed, Bytes(dtype, count));
    } else if (count > 0) {
      sends.push_back({peer, Shift(send.at, Bytes(dtype, pieces.Begin(member))), count});
    }
    if (own > 0) recvs.push_back({peer, block_of(member), own});
  }
  build_.AddCopy(build_.in(), Value::RowMajor(block_of(self), dtype, g.box_after()), g.box_after());
  build_.AddSendRecv(step.mesh_dims, sends, recvs);
  if (own == 0) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const Value result, RowMajorLike(build_.out()));
  ReduceBlocks(blocks, result.at, own, n, reduction);
  CopyToOut(result);
  return absl::OkStatus();
}

}  // namespace meshift::lowering_internal

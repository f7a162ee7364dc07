#include "comm/program/step_lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"
#include "placement/op_table.h"

namespace meshift::lowering_internal {

using Kind = Instruction::Kind;

void StepLowering::AddGroupOf(const Step& step, ProgramBuilder* build) {
  if (!IsCollective(step.op) || NumElements(step.after.shape()) == 0) return;
  build->GroupOver(step.mesh_dims);
}

absl::Status StepLowering::Add(const StepGeometry& g, const Sharding& before, const Step& step) {
  if (IsCollective(step.op) && NumElements(step.after.shape()) == 0) return absl::OkStatus();
  AddGroupOf(step, &build_);
  // An all_reduce handles one buffer itself.
  if (!one_buffer_ || step.op == StepOp::kAllReduce) return LowerOp(g, before, step);
  return LowerApart([&] { return LowerOp(g, before, step); });
}

absl::Status StepLowering::AddWithoutSteps(const Value& source, const Value& target) {
  if (!one_buffer_) {
    build_.AddCopy(source, target, source.box);
    return absl::OkStatus();
  }
  if (source.strides == target.strides) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const Location piece, build_.TakePiece(source.bytes()));
  const Value apart = Value::RowMajor(piece, source.dtype, source.box);
  build_.AddCopy(source, apart, source.box);
  build_.FlushCopies();
  build_.AddCopy(apart, target, source.box);
  return absl::OkStatus();
}

absl::Status StepLowering::LowerApart(absl::FunctionRef<absl::Status()> lower) {
  const Value target = build_.out();
  const bool moves_in = build_.in().bytes() <= build_.out().bytes();
  const Value& moved = moves_in ? build_.in() : build_.out();
  MESHIFT_ASSIGN_OR_RETURN(const Location piece, build_.TakePiece(moved.bytes()));
  Value apart = Value::RowMajor(piece, moved.dtype, moved.box);
  if (moves_in) {
    build_.AddCopy(build_.in(), apart, apart.box);
    build_.FlushCopies();
    build_.set_in(std::move(apart));
  } else {
    build_.set_out(std::move(apart));
  }
  MESHIFT_RETURN_IF_ERROR(lower());
  if (!(build_.out().at == target.at)) {
    build_.FlushCopies();
    build_.AddCopy(build_.out(), target, target.box);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> StepLowering::RowMajorLike(const Value& value) {
  if (value.IsRowMajor()) return value;
  MESHIFT_ASSIGN_OR_RETURN(const Location piece, build_.TakePiece(value.bytes()));
  return Value::RowMajor(piece, value.dtype, value.box);
}

absl::StatusOr<Value> StepLowering::RowMajorIn() {
  MESHIFT_ASSIGN_OR_RETURN(Value place, RowMajorLike(build_.in()));
  if (!(place.at == build_.in().at)) build_.AddCopy(build_.in(), place, place.box);
  return place;
}

void StepLowering::CopyToOut(const Value& place) {
  if (!(place.at == build_.out().at)) build_.AddCopy(place, build_.out(), place.box);
}

absl::StatusOr<Reduction> StepLowering::ReductionOf(const Step& step) const {
  if (!step.reduce_op) return InvalidArgument("{} has no reduce_op", step.ToString());
  Reduction reduction{.op = *step.reduce_op, .divisor = step.divisor.value_or(1)};
  if (reduction.divisor < 1 || (reduction.op == ReduceOp::kAvg) != step.divisor.has_value()) {
    return InvalidArgument(
        "{}: the divisor of {} is {}; avg needs one of at least 1, and other ops must have none",
        step.ToString(), Name(reduction.op),
        step.divisor ? fmt::format("{}", *step.divisor) : "null");
  }
  if (step.reduce_block) {
    reduction.block = *step.reduce_block;
    if (reduction.block < 1 || step.reduce_order != ReduceOrder::kAscending) {
      return InvalidArgument("{}: reduce_block {} must be positive, and the order ascending",
                             step.ToString(), reduction.block);
    }
  }
  return reduction;
}

int64_t StepLowering::SelfOf(const Members& members) const {
  return members.NumberOf(members.IndexOf(me_));
}

absl::Status StepLowering::LowerOp(const StepGeometry& g, const Sharding& before,
                                   const Step& step) {
  const bool is_ordered = step.reduce_order == ReduceOrder::kAscending;
  if (is_ordered && step.reduce_stages) {
    return step.op == StepOp::kAllReduce ? StagedAllReduce(g, step) : StagedReduceScatter(g, step);
  }
  switch (step.op) {
    case StepOp::kAllReduce:
      return is_ordered ? OrderedAllReduce(g, step) : AllReduce(g, step);
    case StepOp::kReduceScatter:
      return is_ordered ? OrderedReduceScatter(g, step) : ReduceScatter(g, step);
    case StepOp::kAllGather:
      return AllGather(g, step);
    case StepOp::kAllToAll:
    case StepOp::kExchange:
      return Exchange(g, step);
    case StepOp::kPermute:
      return Permute(g, step);
    case StepOp::kSlice:
      return Slice(g, step);
    case StepOp::kMask:
      return Mask(g, before, step);
    case StepOp::kCast:
      return Cast();
    default:
      return Internal("{} cannot be lowered", step.ToString());
  }
}

absl::Status StepLowering::AllReduce(const StepGeometry& g, const Step& step) {
  if (!g.moved().empty()) return InvalidArgument("{} must not change boxes", step.ToString());
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  const int64_t count = g.box_before().NumElements();
  if (count == 0) return absl::OkStatus();
  const Value& in = build_.in();
  MESHIFT_ASSIGN_OR_RETURN(Value recv, RowMajorLike(build_.out()));
  Value send = in;
  if (!in.IsRowMajor()) {
    // The call may receive into the copy that it sends, unless the copy would overwrite the source.
    const bool shares = one_buffer_ && recv.at == build_.out().at;
    if (shares) {
      MESHIFT_ASSIGN_OR_RETURN(send, RowMajorLike(in));
    } else {
      send = recv;
    }
    build_.AddCopy(in, send, send.box);
  }
  build_.AddCall(Kind::kAllReduce, step.mesh_dims, send.at, recv.at, count).reduction = reduction;
  CopyToOut(recv);
  return absl::OkStatus();
}

// Calls fn(number, box) for all members in the order of the communicator.
template <typename Fn>
void StepLowering::ForEachMember(const StepGeometry& g, const Members& members, bool after,
                                 const Fn& fn) const {
  Coordinate at = me_;
  for (int64_t number = 0; number < members.size(); ++number) {
    members.SetCoordinate(members.IndexOfNumber(number), &at);
    fn(number, after ? g.BoxAfter(at) : g.BoxBefore(at));
  }
}

StepLowering::Blocks StepLowering::FindBlocks(const StepGeometry& g, const Members& members,
                                              bool after, bool exact) const {
  const Box& parent = after ? g.box_before() : g.box_after();
  Blocks blocks;
  if (exact) blocks.begins.push_back(0);
  int64_t end = 0;  // of the boxes so far, if they are contiguous
  ForEachMember(g, members, after, [&](int64_t number, const Box& box) {
    const int64_t count = box.NumElements();
    if (!exact && number > 0 && count != blocks.count) blocks.packed = true;
    blocks.count = std::max(blocks.count, count);
    if (count > 0 && !blocks.packed) {
      blocks.packed = !IsContiguousIn(box, parent) || OffsetIn(box, parent) != end;
      end += count;
    }
    if (exact) blocks.begins.push_back(blocks.begins.back() + count);
  });
  return blocks;
}

Instruction& StepLowering::AddBlocksCall(Kind kind, const Step& step, const Members& members,
                                         const Blocks& blocks, Location src, Location dst) {
  Instruction& call =
      build_.AddCall(kind, step.mesh_dims, src, dst, blocks.CountOf(SelfOf(members)));
  if (blocks.begins.empty()) return call;
  std::vector<int64_t> counts;
  for (int64_t number = 0; number < members.size(); ++number) {
    counts.push_back(blocks.CountOf(number));
  }
  build_.SetCounts(counts, &call);
  return call;
}

absl::Status StepLowering::ReduceScatter(const StepGeometry& g, const Step& step) {
  if (g.cut_before() != 0) return InvalidArgument("{} must not remove cuts", step.ToString());
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  const Members members(mesh_, step.mesh_dims, me_);
  const Blocks blocks =
      FindBlocks(g, members, /*after=*/true, /*exact=*/step.sizes == StepSizes::kExact);
  if (blocks.count == 0) return absl::OkStatus();
  const DType dtype = build_.in().dtype;
  const int64_t own = g.box_after().NumElements();
  const int64_t self = SelfOf(members);
  const int64_t block_bytes = Bytes(dtype, blocks.CountOf(self));
  const int64_t all_bytes = blocks.AllBytes(dtype, members.size());
  Location send = build_.in().at;
  if (blocks.packed) {
    MESHIFT_ASSIGN_OR_RETURN(send, build_.TakePiece(all_bytes));
    // Fill with zeros from `pad` to the next block, also over empty blocks.
    int64_t pad = 0;
    ForEachMember(g, members, /*after=*/true, [&](int64_t number, const Box& box) {
      const int64_t start = Bytes(dtype, blocks.Begin(number));
      if (box.IsEmpty()) return;
      build_.AddFillZero(Shift(send, pad), start - pad);
      build_.AddCopy(build_.in(), Value::RowMajor(Shift(send, start), dtype, box), box);
      pad = start + Bytes(dtype, box.NumElements());
    });
    build_.AddFillZero(Shift(send, pad), all_bytes - pad);
  } else if (!build_.in().IsRowMajor()) {
    MESHIFT_ASSIGN_OR_RETURN(const Value copy, RowMajorIn());
    send = copy.at;
  }
  const bool is_copy = !(send == build_.in().at);
  if (is_copy) build_.EndInput();
  // Receive this rank's block in place if possible.
  Location recv = build_.out().at;
  if (own < blocks.CountOf(self)) {
    MESHIFT_ASSIGN_OR_RETURN(recv, build_.TakePiece(block_bytes));
  } else if (!build_.out().IsRowMajor() && is_copy) {
    recv = Shift(send, Bytes(dtype, blocks.Begin(self)));
  } else if (!build_.out().IsRowMajor()) {
    MESHIFT_ASSIGN_OR_RETURN(recv, build_.TakePiece(block_bytes));
  }
  AddBlocksCall(Kind::kReduceScatter, step, members, blocks, send, recv).reduction = reduction;
  CopyToOut(Value::RowMajor(recv, dtype, g.box_after()));
  return absl::OkStatus();
}

absl::Status StepLowering::AllGather(const StepGeometry& g, const Step& step) {
  if (g.cut_after() != 0) return InvalidArgument("{} must not add cuts", step.ToString());
  const Members members(mesh_, step.mesh_dims, me_);
  const Blocks blocks =
      FindBlocks(g, members, /*after=*/false, /*exact=*/step.sizes == StepSizes::kExact);
  if (blocks.count == 0) return absl::OkStatus();
  const DType dtype = build_.in().dtype;
  const int64_t own = g.box_before().NumElements();
  const int64_t self = SelfOf(members);
  const int64_t block_bytes = Bytes(dtype, blocks.CountOf(self));
  Location send = build_.in().at;
  if (own < blocks.CountOf(self)) {
    MESHIFT_ASSIGN_OR_RETURN(send, build_.TakePiece(block_bytes));
    build_.AddCopy(build_.in(), Value::RowMajor(send, dtype, g.box_before()), g.box_before());
    build_.AddFillZero(Shift(send, Bytes(dtype, own)), block_bytes - Bytes(dtype, own));
    build_.EndInput();
  }
  Location recv = build_.out().at;
  const bool unpacks = blocks.packed || !build_.out().IsRowMajor();
  if (unpacks) {
    MESHIFT_ASSIGN_OR_RETURN(recv, build_.TakePiece(blocks.AllBytes(dtype, members.size())));
  }
  if (own == blocks.CountOf(self) && !build_.in().IsRowMajor()) {
    // Send from the place where the block will be received.
    send = Shift(recv, Bytes(dtype, blocks.Begin(self)));
    build_.AddCopy(build_.in(), Value::RowMajor(send, dtype, g.box_before()), g.box_before());
  }
  AddBlocksCall(Kind::kAllGather, step, members, blocks, send, recv);
  if (unpacks) {
    ForEachMember(g, members, /*after=*/false, [&](int64_t number, const Box& box) {
      const Location at = Shift(recv, Bytes(dtype, blocks.Begin(number)));
      build_.AddCopy(Value::RowMajor(at, dtype, box), build_.out(), box);
    });
  }
  return absl::OkStatus();
}

absl::Status StepLowering::Permute(const StepGeometry& g, const Step& step) {
  absl::InlinedVector<MovedMeshDims, 3> moved;
  for (const MovedDim& dim : g.moved()) {
    if (dim.before.size() != dim.after.size()) {
      return InvalidArgument(
          "{} is not a permutation: tensor dim {} has {} cuts before and {} after", step.ToString(),
          dim.tensor_dim, dim.before.size(), dim.after.size());
    }
    moved.push_back({dim.before.mesh_dims, dim.after.mesh_dims});
  }
  const DimPairs pairs = PermutePairs(moved, [&](int d) { return mesh_.dim(d).size; });
  for (const auto& [a, b] : pairs) {
    if (mesh_.dim(a).size != mesh_.dim(b).size) {
      return InvalidArgument("{} is not a permutation: mesh dims {} and {} differ in size",
                             step.ToString(), mesh_.dim(a).name, mesh_.dim(b).name);
    }
  }

  Coordinate source = me_;
  Coordinate target = me_;
  for (const auto& [a, b] : pairs) {
    source[a] = me_[b];
    target[b] = me_[a];
  }
  if (!(g.BoxBefore(source) == g.box_after()) || !(g.BoxAfter(target) == g.box_before())) {
    return InvalidArgument("{} is not a permutation on rank {}", step.ToString(), rank_);
  }
  if (source == me_) build_.AddCopy(build_.in(), build_.out(), g.box_after());
  const Members members(mesh_, step.mesh_dims, me_);
  absl::InlinedVector<ProgramMessage, 1> sends;
  absl::InlinedVector<ProgramMessage, 1> recvs;
  const auto number = [&](const Coordinate& at) {
    return static_cast<int>(members.NumberOf(members.IndexOf(at)));
  };
  if (!(target == me_) && !g.box_before().IsEmpty()) {
    MESHIFT_ASSIGN_OR_RETURN(const Value send, RowMajorIn());
    sends.push_back({number(target), send.at, send.count()});
  }
  Value recv = build_.out();
  if (!(source == me_) && !g.box_after().IsEmpty()) {
    MESHIFT_ASSIGN_OR_RETURN(recv, RowMajorLike(build_.out()));
    recvs.push_back({number(source), recv.at, recv.count()});
  }
  const auto any_member_receives = [&] {
    Coordinate at = me_;
    for (int64_t index = 0; index < members.size(); ++index) {
      members.SetCoordinate(index, &at);
      const bool stays = std::all_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
        return at[pair.first] == at[pair.second];
      });
      if (!stays && !g.BoxAfter(at).IsEmpty()) return true;
    }
    return false;
  };
  if (!sends.empty() || !recvs.empty() || any_member_receives()) {
    build_.AddSendRecv(step.mesh_dims, sends, recvs);
  }
  CopyToOut(recv);
  return absl::OkStatus();
}

absl::Status StepLowering::Slice(const StepGeometry& g, const Step& step) {
  if (!Contains(g.box_before(), g.box_after())) {
    return InvalidArgument("{}: rank {} holds {}, which does not contain {}", step.ToString(),
                           rank_, g.box_before().ToString(), g.box_after().ToString());
  }
  build_.AddCopy(build_.in(), build_.out(), g.box_after());
  return absl::OkStatus();
}

absl::Status StepLowering::Mask(const StepGeometry& g, const Sharding& before, const Step& step) {
  if (g.cut_after() != 0) return InvalidArgument("{} must not add cuts", step.ToString());
  bool keeps = true;                   // whether this rank keeps its value
  ReduceOp identity = ReduceOp::kAvg;  // whose identity to fill in; avg: none
  for (const int d : step.mesh_dims) {
    const Placement& placement = step.after.placement(d);
    if (!placement.IsPartial() || before.placement(d).IsPartial()) {
      return InvalidArgument("{}: mesh dim {} does not become partial", step.ToString(),
                             mesh_.dim(d).name);
    }
    const bool averages = placement.op() == ReduceOp::kAvg;
    if (averages && before.placement(d).IsShard()) {
      return InvalidArgument("{}: mesh dim {} is sharded and cannot become P(avg)", step.ToString(),
                             mesh_.dim(d).name);
    }
    if (averages) continue;
    identity = placement.op();
    if (before.placement(d).IsReplicate() && me_[d] != 0) keeps = false;
  }
  const Value& out = build_.out();
  if (out.count() == 0) return absl::OkStatus();
  if (!keeps || !(g.box_before() == g.box_after())) {
    // Fill a strided tensor with copies of one element.
    Location first = out.at;
    int64_t count = out.count();
    if (!out.IsRowMajor()) {
      MESHIFT_ASSIGN_OR_RETURN(first, build_.TakePiece(Bytes(out.dtype, 1)));
      count = 1;
    }
    Instruction& fill = build_.Add(Kind::kFillIdentity, out.dtype);
    fill.dst = first;
    fill.count = count;
    fill.reduction.op = identity;
    if (!out.IsRowMajor()) {
      build_.AddCopy({first, out.dtype, out.box, Shape(out.strides.size(), 0)}, out, out.box);
      build_.FlushCopies();
    }
  }
  if (keeps) build_.AddCopy(build_.in(), out, g.box_before());
  return absl::OkStatus();
}

absl::Status StepLowering::Cast() {
  if (build_.in().count() == 0) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const Value src, RowMajorIn());
  MESHIFT_ASSIGN_OR_RETURN(const Value dst, RowMajorLike(build_.out()));
  Instruction& cast = build_.Add(Kind::kCast, src.dtype);
  cast.src = src.at;
  cast.dst = dst.at;
  cast.count = src.count();
  cast.to_dtype = dst.dtype;
  CopyToOut(dst);
  return absl::OkStatus();
}

}  // namespace meshift::lowering_internal

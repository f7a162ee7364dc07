#include "comm/lowering.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/message_parts.h"
#include "comm/program_builder.h"
#include "comm/step_geometry.h"

namespace meshift {
namespace {

using Kind = Instruction::Kind;
using Space = Location::Space;
using lowering_internal::AnyMemberLacks;
using lowering_internal::Has;
using lowering_internal::Members;
using lowering_internal::MeshDims;
using lowering_internal::MovedDim;
using lowering_internal::Part;
using lowering_internal::ProgramBuilder;
using lowering_internal::Receivers;
using lowering_internal::Senders;
using lowering_internal::StepGeometry;

class Lowerer {
 public:
  Lowerer(const Plan& plan, int64_t rank, const Coordinate& me)
      : plan_(plan),
        rank_(rank),
        mesh_(plan.from().mesh()),
        me_(me),
        build_(mesh_, rank, me, plan.from().dtype(), static_cast<int>(plan.steps().size()),
               plan.total().workspace_bytes) {}

  absl::StatusOr<Program> Run() &&;

 private:
  absl::Status CheckStep(const Step& step) const;
  absl::Status LowerStep(const StepGeometry& g, const Sharding& before, const Step& step);

  absl::Status AllReduce(const StepGeometry& g, const Step& step);
  absl::Status ReduceScatter(const StepGeometry& g, const Step& step);
  absl::Status AllGather(const StepGeometry& g, const Step& step);
  absl::Status Exchange(const StepGeometry& g, const Step& step);
  absl::Status Permute(const StepGeometry& g, const Step& step);
  absl::Status Slice(const StepGeometry& g, const Step& step);
  absl::Status Mask(const StepGeometry& g, const Sharding& before, const Step& step);

  // The blocks of a reduce_scatter or all_gather: all as large as the largest member's box.
  struct Blocks {
    int64_t count = 0;    // elements of a block
    bool packed = false;  // else the boxes are the parent's content, in the order of the members
  };
  Blocks FindBlocks(const StepGeometry& g, const Members& members, bool after) const;
  template <typename Fn>
  void ForEachMember(const StepGeometry& g, const Members& members, bool after, const Fn& fn) const;
  absl::StatusOr<Reduction> ReductionOf(const Step& step) const;
  static Location Shift(Location at, int64_t bytes) { return ProgramBuilder::Shift(at, bytes); }

  const Plan& plan_;
  const int64_t rank_;
  const DeviceMesh& mesh_;
  const Coordinate me_;
  ProgramBuilder build_;
};

absl::Status CheckPlan(const Plan& plan) {
  const DeviceMesh& mesh = plan.from().mesh();
  if (plan.meshes().size() != 1 || !(plan.to().mesh() == mesh)) {
    return Unimplemented("plans over {} meshes cannot be run yet: {} to {}", plan.meshes().size(),
                         mesh.ToString(), plan.to().mesh().ToString());
  }
  if (plan.to().dtype() != plan.from().dtype()) {
    return Unimplemented("{} to {}: casts cannot be run yet", Name(plan.from().dtype()),
                         Name(plan.to().dtype()));
  }
  if (mesh.NumDims() > 64) {
    return Unimplemented("mesh {} has more than 64 dims", mesh.ToString());
  }
  if (plan.total().workspace_bytes < 0) {
    return InvalidArgument("workspace_bytes {} is negative", plan.total().workspace_bytes);
  }
  for (const Sharding* sharding : {&plan.from(), &plan.to()}) {
    for (const Placement& placement : sharding->placements()) {
      if (placement.IsShard() && placement.IsRagged()) {
        return Unimplemented("{}: ragged shards cannot be run yet", placement.ToString());
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Lowerer::CheckStep(const Step& step) const {
  if (step.op == StepOp::kCast || step.op == StepOp::kRelabel) {
    return Unimplemented("a {} cannot be run yet", Name(step.op));
  }
  if (step.mesh != 0 || !(step.after.mesh() == mesh_) ||
      !(step.after.tensor() == plan_.from().tensor())) {
    return InvalidArgument("{}: {} is not {} on {}", step.ToString(), step.after.ToString(),
                           plan_.from().tensor().ToString(), mesh_.ToString());
  }
  if (step.mesh_dims.empty()) return InvalidArgument("{} is over no mesh dim", step.ToString());
  int last = -1;
  for (const int d : step.mesh_dims) {
    if (d <= last || d >= mesh_.NumDims()) {
      return InvalidArgument("{}: mesh dim {} does not stand in mesh order", Name(step.op), d);
    }
    if (mesh_.dim(d).size == 1) {
      return InvalidArgument("{}: mesh dim {} has size 1", step.ToString(), mesh_.dim(d).name);
    }
    last = d;
  }
  if (step.wire_dtype.value_or(plan_.from().dtype()) != plan_.from().dtype()) {
    return Unimplemented("{}: {} cannot travel as {} yet", step.ToString(),
                         Name(plan_.from().dtype()), Name(*step.wire_dtype));
  }
  return absl::OkStatus();
}

absl::StatusOr<Program> Lowerer::Run() && {
  const Box source = plan_.from().BoxAt(me_);
  const Box target = plan_.to().BoxAt(me_);
  build_.program().source_shape = source.size;
  build_.program().target_shape = target.size;
  const std::vector<Step>& steps = plan_.steps();
  const Box last = steps.empty() ? source : steps.back().after.BoxAt(me_);
  if (!(last == target)) {
    return InvalidArgument("the plan ends with {} on rank {}, not with {}", last.ToString(), rank_,
                           target.ToString());
  }
  if (steps.empty()) {
    build_.AddCopy({Space::kSource, 0}, source, {Space::kTarget, 0}, target, source);
  }
  const Sharding* before = &plan_.from();
  for (const Step& step : steps) {
    MESHIFT_RETURN_IF_ERROR(CheckStep(step));
    MESHIFT_ASSIGN_OR_RETURN(const StepGeometry g, StepGeometry::Create(*before, step, me_));
    MESHIFT_RETURN_IF_ERROR(build_.BeginStep(build_.BytesOf(g.box_before().NumElements()),
                                             build_.BytesOf(g.box_after().NumElements())));
    MESHIFT_RETURN_IF_ERROR(LowerStep(g, *before, step));
    before = &step.after;
  }
  return std::move(build_).Finish();
}

absl::StatusOr<Reduction> Lowerer::ReductionOf(const Step& step) const {
  if (!step.reduce_op) return InvalidArgument("{} has no reduce_op", step.ToString());
  if (step.reduce_order == ReduceOrder::kAscending &&
      !IsExact(*step.reduce_op, plan_.from().dtype())) {
    return Unimplemented("{}: a fixed order of reduction cannot be run yet", step.ToString());
  }
  Reduction reduction{.op = *step.reduce_op, .divisor = step.divisor.value_or(1)};
  if (reduction.divisor < 1 || (reduction.op == ReduceOp::kAvg) != step.divisor.has_value()) {
    return InvalidArgument("{}: divisor {} does not go with {}", step.ToString(), reduction.divisor,
                           Name(reduction.op));
  }
  return reduction;
}

absl::Status Lowerer::LowerStep(const StepGeometry& g, const Sharding& before, const Step& step) {
  // Every rank names every partition, whether its group has anything to do or not. A tensor without
  // elements is one on every rank.
  if (IsCollective(step.op)) {
    if (NumElements(step.after.shape()) == 0) return absl::OkStatus();
    build_.GroupOver(step.mesh_dims);
  }
  switch (step.op) {
    case StepOp::kAllReduce:
      return AllReduce(g, step);
    case StepOp::kReduceScatter:
      return ReduceScatter(g, step);
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
    default:
      return Internal("{} cannot be lowered", step.ToString());
  }
}

absl::Status Lowerer::AllReduce(const StepGeometry& g, const Step& step) {
  if (!g.moved().empty()) return InvalidArgument("{} changes boxes", step.ToString());
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  const int64_t count = g.box_before().NumElements();
  if (count == 0) return absl::OkStatus();
  build_.AddCall(Kind::kAllReduce, step.mesh_dims, build_.in(), build_.out(), count).reduction =
      reduction;
  return absl::OkStatus();
}

// Calls fn(number, box) for all members in the order of the communicator.
template <typename Fn>
void Lowerer::ForEachMember(const StepGeometry& g, const Members& members, bool after,
                            const Fn& fn) const {
  Coordinate at = me_;
  for (int64_t number = 0; number < members.size(); ++number) {
    members.SetCoordinate(members.IndexOfNumber(number), &at);
    fn(number, after ? g.BoxAfter(at) : g.BoxBefore(at));
  }
}

Lowerer::Blocks Lowerer::FindBlocks(const StepGeometry& g, const Members& members,
                                    bool after) const {
  const Box& parent = after ? g.box_before() : g.box_after();
  Blocks blocks;
  int64_t end = 0;  // of the members so far, if they lie one behind the other
  ForEachMember(g, members, after, [&](int64_t number, const Box& box) {
    const int64_t count = box.NumElements();
    if (number > 0 && count != blocks.count) blocks.packed = true;
    blocks.count = std::max(blocks.count, count);
    if (count > 0 && !blocks.packed) {
      blocks.packed = !IsContiguousIn(box, parent) || OffsetIn(box, parent) != end;
      end += count;
    }
  });
  return blocks;
}

absl::Status Lowerer::ReduceScatter(const StepGeometry& g, const Step& step) {
  if (g.cut_before() != 0) return InvalidArgument("{} removes cuts", step.ToString());
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  const Members members(mesh_, step.mesh_dims, me_);
  const Blocks blocks = FindBlocks(g, members, /*after=*/true);
  if (blocks.count == 0) return absl::OkStatus();
  const int64_t own = g.box_after().NumElements();
  const int64_t block_bytes = build_.BytesOf(blocks.count);
  Location send = build_.in();
  Location recv = build_.out();
  if (blocks.packed) {
    MESHIFT_ASSIGN_OR_RETURN(send, build_.TakePiece(SaturatingMul(members.size(), block_bytes)));
    // Padding from pad to the block that is next, over empty blocks.
    int64_t pad = 0;
    ForEachMember(g, members, /*after=*/true, [&](int64_t number, const Box& box) {
      const int64_t start = number * block_bytes;
      if (box.IsEmpty()) return;
      build_.AddFillZero(Shift(send, pad), start - pad);
      build_.AddCopy(build_.in(), g.box_before(), Shift(send, start), box, box);
      pad = start + build_.BytesOf(box.NumElements());
    });
    build_.AddFillZero(Shift(send, pad), members.size() * block_bytes - pad);
    if (own < blocks.count) {
      MESHIFT_ASSIGN_OR_RETURN(recv, build_.TakePiece(block_bytes));
    }
  }
  build_.AddCall(Kind::kReduceScatter, step.mesh_dims, send, recv, blocks.count).reduction =
      reduction;
  if (!(recv == build_.out())) {
    build_.AddCopy(recv, g.box_after(), build_.out(), g.box_after(), g.box_after());
  }
  return absl::OkStatus();
}

absl::Status Lowerer::AllGather(const StepGeometry& g, const Step& step) {
  if (g.cut_after() != 0) return InvalidArgument("{} adds cuts", step.ToString());
  const Members members(mesh_, step.mesh_dims, me_);
  const Blocks blocks = FindBlocks(g, members, /*after=*/false);
  if (blocks.count == 0) return absl::OkStatus();
  const int64_t own = g.box_before().NumElements();
  const int64_t block_bytes = build_.BytesOf(blocks.count);
  Location send = build_.in();
  Location recv = build_.out();
  if (own < blocks.count) {
    MESHIFT_ASSIGN_OR_RETURN(send, build_.TakePiece(block_bytes));
    build_.AddCopy(build_.in(), g.box_before(), send, g.box_before(), g.box_before());
    build_.AddFillZero(Shift(send, build_.BytesOf(own)), block_bytes - build_.BytesOf(own));
  }
  if (blocks.packed) {
    MESHIFT_ASSIGN_OR_RETURN(recv, build_.TakePiece(SaturatingMul(members.size(), block_bytes)));
  }
  build_.AddCall(Kind::kAllGather, step.mesh_dims, send, recv, blocks.count);
  if (blocks.packed) {
    ForEachMember(g, members, /*after=*/false, [&](int64_t number, const Box& box) {
      build_.AddCopy(Shift(recv, number * block_bytes), box, build_.out(), g.box_after(), box);
    });
  }
  return absl::OkStatus();
}

absl::Status Lowerer::Exchange(const StepGeometry& g, const Step& step) {
  const Members members(mesh_, step.mesh_dims, me_);
  const int64_t self = members.NumberOf(members.IndexOf(me_));
  // Lays the parts of other members one behind the other.
  const auto lay = [&](const std::vector<Part>& parts,
                       std::vector<ProgramMessage>* messages) -> absl::Status {
    int64_t total = 0;
    for (const Part& part : parts) {
      if (part.number != self) total += part.box.NumElements();
    }
    MESHIFT_ASSIGN_OR_RETURN(Location at, build_.TakePiece(build_.BytesOf(total)));
    messages->reserve(parts.size());
    for (const Part& part : parts) {
      if (part.number == self) continue;
      const int64_t count = part.box.NumElements();
      messages->push_back({static_cast<int>(part.number), at, count});
      at.offset += build_.BytesOf(count);
    }
    return absl::OkStatus();
  };
  const std::vector<Part> receivers = Receivers(g, members, me_);
  const std::vector<Part> senders = Senders(g, members, me_);
  std::vector<ProgramMessage> sends;
  std::vector<ProgramMessage> recvs;
  MESHIFT_RETURN_IF_ERROR(lay(receivers, &sends));
  MESHIFT_RETURN_IF_ERROR(lay(senders, &recvs));

  size_t next = 0;
  for (const Part& part : receivers) {
    if (part.number == self) continue;
    build_.AddCopy(build_.in(), g.box_before(), sends[next++].at, part.box, part.box);
  }
  for (const Part& part : senders) {
    if (part.number != self) continue;
    build_.AddCopy(build_.in(), g.box_before(), build_.out(), g.box_after(), part.box);
  }
  if (!sends.empty() || !recvs.empty() || AnyMemberLacks(g, members, me_)) {
    build_.AddSendRecv(step.mesh_dims, sends, recvs);
  }
  next = 0;
  for (const Part& part : senders) {
    if (part.number == self) continue;
    build_.AddCopy(recvs[next++].at, part.box, build_.out(), g.box_after(), part.box);
  }
  return absl::OkStatus();
}

absl::Status Lowerer::Permute(const StepGeometry& g, const Step& step) {
  // The sender's coordinate on `first` is the receiver's on `second`.
  absl::InlinedVector<std::pair<int, int>, 6> pairs;
  MeshDims only_before;
  MeshDims only_after;
  for (const MovedDim& dim : g.moved()) {
    if (dim.before.size() != dim.after.size()) {
      return InvalidArgument("{} is no permutation: tensor dim {} has {} cuts before and {} after",
                             step.ToString(), dim.tensor_dim, dim.before.size(), dim.after.size());
    }
    for (size_t i = 0; i < dim.before.size(); ++i) pairs.emplace_back(dim.before[i], dim.after[i]);
  }
  for (const int d : step.mesh_dims) {
    if (Has(g.cut_before() & ~g.cut_after(), d)) only_before.push_back(d);
    if (Has(g.cut_after() & ~g.cut_before(), d)) only_after.push_back(d);
  }
  const auto by_size = [&](int a, int b) { return mesh_.dim(a).size < mesh_.dim(b).size; };
  std::stable_sort(only_before.begin(), only_before.end(), by_size);
  std::stable_sort(only_after.begin(), only_after.end(), by_size);
  for (size_t i = 0; i < std::min(only_before.size(), only_after.size()); ++i) {
    pairs.emplace_back(only_after[i], only_before[i]);
  }
  for (const auto& [a, b] : pairs) {
    if (mesh_.dim(a).size != mesh_.dim(b).size) {
      return InvalidArgument("{} is no permutation: mesh dims {} and {} differ in size",
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
    return InvalidArgument("{} is no permutation on rank {}", step.ToString(), rank_);
  }
  if (source == me_) {
    build_.AddCopy(build_.in(), g.box_before(), build_.out(), g.box_after(), g.box_after());
  }
  const Members members(mesh_, step.mesh_dims, me_);
  absl::InlinedVector<ProgramMessage, 1> sends;
  absl::InlinedVector<ProgramMessage, 1> recvs;
  const auto number = [&](const Coordinate& at) {
    return static_cast<int>(members.NumberOf(members.IndexOf(at)));
  };
  if (!(target == me_) && !g.box_before().IsEmpty()) {
    sends.push_back({number(target), build_.in(), g.box_before().NumElements()});
  }
  if (!(source == me_) && !g.box_after().IsEmpty()) {
    recvs.push_back({number(source), build_.out(), g.box_after().NumElements()});
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
  if (!sends.empty() || !recvs.empty() || any_member_receives())
    build_.AddSendRecv(step.mesh_dims, sends, recvs);
  return absl::OkStatus();
}

absl::Status Lowerer::Slice(const StepGeometry& g, const Step& step) {
  if (!Contains(g.box_before(), g.box_after())) {
    return InvalidArgument("{}: rank {} holds {}, which lacks part of {}", step.ToString(), rank_,
                           g.box_before().ToString(), g.box_after().ToString());
  }
  build_.AddCopy(build_.in(), g.box_before(), build_.out(), g.box_after(), g.box_after());
  return absl::OkStatus();
}

absl::Status Lowerer::Mask(const StepGeometry& g, const Sharding& before, const Step& step) {
  if (g.cut_after() != 0) return InvalidArgument("{} adds cuts", step.ToString());
  bool keeps = true;                   // what this rank held
  ReduceOp identity = ReduceOp::kAvg;  // avg: nothing is filled
  for (const int d : step.mesh_dims) {
    const Placement& placement = step.after.placement(d);
    if (!placement.IsPartial() || before.placement(d).IsPartial()) {
      return InvalidArgument("{}: mesh dim {} does not become partial", step.ToString(),
                             mesh_.dim(d).name);
    }
    const bool averages = placement.op() == ReduceOp::kAvg;
    if (averages && before.placement(d).IsShard()) {
      return InvalidArgument("{}: mesh dim {} is a cut and cannot become P(avg)", step.ToString(),
                             mesh_.dim(d).name);
    }
    if (averages) continue;
    identity = placement.op();
    if (before.placement(d).IsReplicate() && me_[d] != 0) keeps = false;
  }
  const Box& held = g.box_before();
  const int64_t count = g.box_after().NumElements();
  if (count == 0) return absl::OkStatus();
  if (!keeps || !(held == g.box_after())) {
    Instruction& fill = build_.Add(Kind::kFillIdentity);
    fill.dst = build_.out();
    fill.count = count;
    fill.reduction.op = identity;
  }
  if (keeps) build_.AddCopy(build_.in(), held, build_.out(), g.box_after(), held);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> Lower(const Plan& plan, int64_t rank) {
  MESHIFT_RETURN_IF_ERROR(CheckPlan(plan));
  const DeviceMesh& mesh = plan.from().mesh();
  const std::optional<Coordinate> me = mesh.CoordinateOf(rank);
  if (!me) return InvalidArgument("rank {} is not in mesh {}", rank, mesh.ToString());
  return Lowerer(plan, rank, *me).Run();
}

}  // namespace meshift

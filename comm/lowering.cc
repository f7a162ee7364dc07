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
#include "comm/step_geometry.h"

namespace meshift {
namespace {

using Kind = Instruction::Kind;
using Space = Location::Space;
using namespace lowering_internal;  // NOLINT(google-build-using-namespace): its own helpers

// What goes to or comes from one member, numbered as the communicator does.
struct Part {
  int64_t number = 0;
  Box box;
};

// Ways to choose the coordinates of some mesh dims: what each adds to a member's index, and which
// part of a tensor dim it means.
struct Choice {
  int64_t index = 0;
  Interval part;
};
struct Choices {
  int tensor_dim = -1;  // -1: the choice does not matter to the box
  absl::InlinedVector<Choice, 8> list;
};
using ChoiceLists = absl::InlinedVector<Choices, 4>;

class Lowerer {
 public:
  Lowerer(const Plan& plan, int64_t rank) : plan_(plan), mesh_(plan.from().mesh()) {
    program_.rank = rank;
    program_.num_steps = static_cast<int>(plan.steps().size());
    program_.dtype = plan.from().dtype();
    program_.workspace_bytes = plan.total().workspace_bytes;
  }

  absl::StatusOr<Program> Run();

 private:
  absl::Status CheckPlan() const;
  absl::Status CheckStep(const Step& step) const;
  absl::Status PlaceValues(int step);
  absl::Status LowerStep(const Sharding& before, const Step& step);

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

  void AddChoices(const StepGeometry& g, const MovedDim& dim, const MeshDims& cuts,
                  const Members& members, const Interval& mine, ChoiceLists* lists) const;
  std::vector<Part> Combine(const StepGeometry& g, const Members& members,
                            const ChoiceLists& lists) const;
  std::vector<Part> Senders(const StepGeometry& g, const Members& members) const;
  std::vector<Part> Receivers(const StepGeometry& g, const Members& members) const;
  static bool AnyMemberLacks(const StepGeometry& g, const Members& members, Coordinate at);

  int64_t BytesOf(int64_t elements) const { return Bytes(program_.dtype, elements); }
  static Location Shift(Location at, int64_t bytes) { return {at.space, at.offset + bytes}; }
  absl::StatusOr<Location> TakePiece(int64_t bytes);
  void AddCopy(Location src, const Box& src_box, Location dst, const Box& dst_box, const Box& part);
  // Makes one instruction of all copies since the last one.
  void FlushCopies();
  void AddFillZero(Location dst, int64_t bytes);
  Instruction& Add(Kind kind);
  void AddSendRecv(const Step& step, absl::Span<const ProgramMessage> sends,
                   absl::Span<const ProgramMessage> recvs);
  int GroupOf(const Step& step);
  absl::StatusOr<Reduction> ReductionOf(const Step& step) const;

  const Plan& plan_;
  const DeviceMesh mesh_;
  Coordinate me_;
  Program program_;
  int32_t flushed_copies_ = 0;
  std::vector<int64_t> value_bytes_;  // before step i; behind the last step: the target's

  // Of the step that is being lowered.
  int step_ = 0;
  Location in_;
  Location out_;
  int64_t middle_begin_ = 0;  // the workspace between the values
  int64_t middle_end_ = 0;
};

absl::Status Lowerer::CheckPlan() const {
  const PlanFields& fields = plan_.fields();
  if (fields.meshes.size() != 1 || !(plan_.to().mesh() == mesh_)) {
    return Unimplemented("plans over {} meshes cannot be run yet: {} to {}", fields.meshes.size(),
                         mesh_.ToString(), plan_.to().mesh().ToString());
  }
  if (plan_.to().dtype() != program_.dtype) {
    return Unimplemented("{} to {}: casts cannot be run yet", Name(program_.dtype),
                         Name(plan_.to().dtype()));
  }
  if (mesh_.NumDims() > 64) {
    return Unimplemented("mesh {} has more than 64 dims", mesh_.ToString());
  }
  if (program_.workspace_bytes < 0) {
    return InvalidArgument("workspace_bytes {} is negative", program_.workspace_bytes);
  }
  for (const Sharding* sharding : {&plan_.from(), &plan_.to()}) {
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
  if (step.wire_dtype.value_or(program_.dtype) != program_.dtype) {
    return Unimplemented("{}: {} cannot travel as {} yet", step.ToString(), Name(program_.dtype),
                         Name(*step.wire_dtype));
  }
  return absl::OkStatus();
}

absl::StatusOr<Program> Lowerer::Run() {
  MESHIFT_RETURN_IF_ERROR(CheckPlan());
  const std::optional<Coordinate> me = mesh_.CoordinateOf(program_.rank);
  if (!me) {
    return InvalidArgument("rank {} is not in mesh {}", program_.rank, mesh_.ToString());
  }
  me_ = *me;
  const Box source = plan_.from().BoxAt(me_);
  const Box target = plan_.to().BoxAt(me_);
  program_.source_shape = source.size;
  program_.target_shape = target.size;
  const std::vector<Step>& steps = plan_.steps();
  const Box last = steps.empty() ? source : steps.back().after.BoxAt(me_);
  if (!(last == target)) {
    return InvalidArgument("the plan ends with {} on rank {}, not with {}", last.ToString(),
                           program_.rank, target.ToString());
  }
  if (steps.empty()) {
    AddCopy({Space::kSource, 0}, source, {Space::kTarget, 0}, target, source);
    FlushCopies();
    return std::move(program_);
  }
  value_bytes_.reserve(steps.size() + 1);
  value_bytes_.push_back(BytesOf(source.NumElements()));
  const Sharding* before = &plan_.from();
  for (size_t i = 0; i < steps.size(); ++i) {
    MESHIFT_RETURN_IF_ERROR(CheckStep(steps[i]));
    value_bytes_.push_back(BytesOf(steps[i].after.BoxAt(me_).NumElements()));
    MESHIFT_RETURN_IF_ERROR(PlaceValues(static_cast<int>(i)));
    MESHIFT_RETURN_IF_ERROR(LowerStep(*before, steps[i]));
    FlushCopies();
    before = &steps[i].after;
  }
  return std::move(program_);
}

// Value i is the one before step i: odd ones lie at the low end, even ones at the high end.
absl::Status Lowerer::PlaceValues(int step) {
  step_ = step;
  middle_begin_ = 0;
  middle_end_ = program_.workspace_bytes / kWorkspaceAlignment * kWorkspaceAlignment;
  const auto place = [&](int value) -> Location {
    if (value == 0) return {Space::kSource, 0};
    if (value == program_.num_steps) return {Space::kTarget, 0};
    const int64_t bytes = RoundUp(value_bytes_[value], kWorkspaceAlignment);
    if (value % 2 == 1) {
      middle_begin_ = bytes;
      return {Space::kWorkspace, 0};
    }
    middle_end_ -= bytes;
    return {Space::kWorkspace, middle_end_};
  };
  in_ = place(step);
  out_ = place(step + 1);
  return TakePiece(0).status();
}

absl::StatusOr<Location> Lowerer::TakePiece(int64_t bytes) {
  const Location piece = {Space::kWorkspace, middle_begin_};
  if (bytes > middle_end_ - middle_begin_) {
    return InvalidArgument("step {} needs {} bytes beyond the workspace's {} on rank {}", step_,
                           bytes - (middle_end_ - middle_begin_), program_.workspace_bytes,
                           program_.rank);
  }
  middle_begin_ += RoundUp(bytes, kWorkspaceAlignment);
  return piece;
}

Instruction& Lowerer::Add(Kind kind) {
  FlushCopies();
  Instruction& instruction = program_.instructions.emplace_back();
  instruction.kind = kind;
  instruction.step = step_;
  return instruction;
}

void Lowerer::FlushCopies() {
  const auto size = static_cast<int32_t>(program_.copies.size());
  if (size == flushed_copies_) return;
  Instruction& instruction = program_.instructions.emplace_back();
  instruction.kind = Kind::kCopy;
  instruction.step = step_;
  instruction.copies = {flushed_copies_, size - flushed_copies_};
  flushed_copies_ = size;
}

void Lowerer::AddFillZero(Location dst, int64_t bytes) {
  if (bytes == 0) return;
  Instruction& fill = Add(Kind::kFillZero);
  fill.dst = dst;
  fill.count = bytes;
}

// Copies `part` from where the content of src_box begins to where that of dst_box begins.
void Lowerer::AddCopy(Location src, const Box& src_box, Location dst, const Box& dst_box,
                      const Box& part) {
  if (part.IsEmpty()) return;
  ProgramCopy copy;
  copy.src = Shift(src, BytesOf(OffsetIn(part, src_box)));
  copy.dst = Shift(dst, BytesOf(OffsetIn(part, dst_box)));
  int64_t src_stride = 1;
  int64_t dst_stride = 1;
  for (size_t t = part.size.size(); t-- > 0;) {
    const int64_t size = part.size[t];
    if (size > 1) {
      if (!copy.shape.empty() && copy.shape.back() * copy.src_strides.back() == src_stride &&
          copy.shape.back() * copy.dst_strides.back() == dst_stride) {
        copy.shape.back() *= size;
      } else {
        copy.shape.push_back(size);
        copy.src_strides.push_back(src_stride);
        copy.dst_strides.push_back(dst_stride);
      }
    }
    src_stride *= src_box.size[t];
    dst_stride *= dst_box.size[t];
  }
  if (copy.shape.empty()) {
    copy.shape = copy.src_strides = copy.dst_strides = {1};
  }
  std::reverse(copy.shape.begin(), copy.shape.end());
  std::reverse(copy.src_strides.begin(), copy.src_strides.end());
  std::reverse(copy.dst_strides.begin(), copy.dst_strides.end());
  program_.copies.push_back(std::move(copy));
}

int Lowerer::GroupOf(const Step& step) {
  for (size_t g = 0; g < program_.groups.size(); ++g) {
    if (program_.groups[g].mesh_dims == step.mesh_dims) return static_cast<int>(g);
  }
  ProgramGroup group{.mesh_dims = step.mesh_dims,
                     .number = GroupNumber(mesh_, step.mesh_dims, me_),
                     .ranks = mesh_.GroupOf(step.mesh_dims, program_.rank)};
  if (!mesh_.IsRowMajor()) std::sort(group.ranks.begin(), group.ranks.end());
  program_.groups.push_back(std::move(group));
  return static_cast<int>(program_.groups.size()) - 1;
}

absl::StatusOr<Reduction> Lowerer::ReductionOf(const Step& step) const {
  if (!step.reduce_op) return InvalidArgument("{} has no reduce_op", step.ToString());
  if (step.reduce_order == ReduceOrder::kAscending && !IsExact(*step.reduce_op, program_.dtype)) {
    return Unimplemented("{}: a fixed order of reduction cannot be run yet", step.ToString());
  }
  Reduction reduction{.op = *step.reduce_op, .divisor = step.divisor.value_or(1)};
  if (reduction.divisor < 1 || (reduction.op == ReduceOp::kAvg) != step.divisor.has_value()) {
    return InvalidArgument("{}: divisor {} does not go with {}", step.ToString(), reduction.divisor,
                           Name(reduction.op));
  }
  return reduction;
}

absl::Status Lowerer::LowerStep(const Sharding& before, const Step& step) {
  MESHIFT_ASSIGN_OR_RETURN(const StepGeometry g, StepGeometry::Create(before, step, me_));
  // Every rank names every partition, whether its group has anything to do or not. A tensor without
  // elements is one on every rank.
  if (IsCollective(step.op)) {
    if (NumElements(step.after.shape()) == 0) return absl::OkStatus();
    GroupOf(step);
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
  Instruction& call = Add(Kind::kAllReduce);
  call.group = GroupOf(step);
  call.src = in_;
  call.dst = out_;
  call.count = count;
  call.reduction = reduction;
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
  const int64_t block_bytes = BytesOf(blocks.count);
  Location send = in_;
  Location recv = out_;
  if (blocks.packed) {
    MESHIFT_ASSIGN_OR_RETURN(send, TakePiece(SaturatingMul(members.size(), block_bytes)));
    // Padding from pad to the block that is next, over empty blocks.
    int64_t pad = 0;
    ForEachMember(g, members, /*after=*/true, [&](int64_t number, const Box& box) {
      const int64_t start = number * block_bytes;
      if (box.IsEmpty()) return;
      AddFillZero(Shift(send, pad), start - pad);
      AddCopy(in_, g.box_before(), Shift(send, start), box, box);
      pad = start + BytesOf(box.NumElements());
    });
    AddFillZero(Shift(send, pad), members.size() * block_bytes - pad);
    if (own < blocks.count) {
      MESHIFT_ASSIGN_OR_RETURN(recv, TakePiece(block_bytes));
    }
  }
  Instruction& call = Add(Kind::kReduceScatter);
  call.group = GroupOf(step);
  call.src = send;
  call.dst = recv;
  call.count = blocks.count;
  call.reduction = reduction;
  if (!(recv == out_)) AddCopy(recv, g.box_after(), out_, g.box_after(), g.box_after());
  return absl::OkStatus();
}

absl::Status Lowerer::AllGather(const StepGeometry& g, const Step& step) {
  if (g.cut_after() != 0) return InvalidArgument("{} adds cuts", step.ToString());
  const Members members(mesh_, step.mesh_dims, me_);
  const Blocks blocks = FindBlocks(g, members, /*after=*/false);
  if (blocks.count == 0) return absl::OkStatus();
  const int64_t own = g.box_before().NumElements();
  const int64_t block_bytes = BytesOf(blocks.count);
  Location send = in_;
  Location recv = out_;
  if (own < blocks.count) {
    MESHIFT_ASSIGN_OR_RETURN(send, TakePiece(block_bytes));
    AddCopy(in_, g.box_before(), send, g.box_before(), g.box_before());
    AddFillZero(Shift(send, BytesOf(own)), block_bytes - BytesOf(own));
  }
  if (blocks.packed) {
    MESHIFT_ASSIGN_OR_RETURN(recv, TakePiece(SaturatingMul(members.size(), block_bytes)));
  }
  Instruction& call = Add(Kind::kAllGather);
  call.group = GroupOf(step);
  call.src = send;
  call.dst = recv;
  call.count = blocks.count;
  if (blocks.packed) {
    ForEachMember(g, members, /*after=*/false, [&](int64_t number, const Box& box) {
      AddCopy(Shift(recv, number * block_bytes), box, out_, g.box_after(), box);
    });
  }
  return absl::OkStatus();
}

// The choices of the coordinates on those of `cuts` that cut before the step, as far as their piece
// of `dim` has a part in `mine`; other coordinates are this rank's.
void Lowerer::AddChoices(const StepGeometry& g, const MovedDim& dim, const MeshDims& cuts,
                         const Members& members, const Interval& mine, ChoiceLists* lists) const {
  Coordinate at = me_;
  MeshDims loop;
  for (const int d : cuts) {
    if (!Has(g.cut_before(), d)) continue;
    loop.push_back(d);
    at[d] = 0;
  }
  Choices& choices = lists->emplace_back();
  choices.tensor_dim = dim.tensor_dim;
  while (true) {
    const Interval part = Intersect(mine, Piece(mesh_, dim.parent, cuts, at));
    if (part.size() > 0) {
      int64_t index = 0;
      for (const int d : loop) index += at[d] * members.stride(d);
      choices.list.push_back({index, part});
    }
    size_t i = loop.size();
    while (i > 0 && ++at[loop[i - 1]] == mesh_.dim(loop[i - 1]).size) at[loop[--i]] = 0;
    if (i == 0) return;
  }
}

// One part per combination of choices, in the order of the members.
std::vector<Part> Lowerer::Combine(const StepGeometry& g, const Members& members,
                                   const ChoiceLists& lists) const {
  std::vector<Part> parts;
  size_t size = 1;
  for (const Choices& choices : lists) size *= choices.list.size();
  Box box = g.box_before();
  for (const MovedDim& dim : g.moved()) box.size[dim.tensor_dim] = 1;
  if (size == 0 || box.IsEmpty()) return parts;
  parts.reserve(size);
  int64_t base = 0;
  for (const int d : members.mesh_dims()) {
    if (!Has(g.cut_before(), d)) base += me_[d] * members.stride(d);
  }
  absl::InlinedVector<size_t, 4> chosen(lists.size(), 0);
  bool sorted = true;
  while (true) {
    int64_t index = base;
    for (size_t i = 0; i < lists.size(); ++i) {
      const Choice& choice = lists[i].list[chosen[i]];
      index += choice.index;
      if (lists[i].tensor_dim < 0) continue;
      box.offset[lists[i].tensor_dim] = choice.part.begin;
      box.size[lists[i].tensor_dim] = choice.part.size();
    }
    const int64_t number = members.NumberOf(index);
    sorted &= parts.empty() || parts.back().number < number;
    parts.push_back({number, box});
    size_t i = lists.size();
    while (i > 0 && ++chosen[i - 1] == lists[i - 1].list.size()) chosen[--i] = 0;
    if (i == 0) break;
  }
  if (!sorted) {
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.number < b.number; });
  }
  return parts;
}

// Who holds, before the step, the parts of this rank's box after it; itself among them.
std::vector<Part> Lowerer::Senders(const StepGeometry& g, const Members& members) const {
  ChoiceLists lists;
  for (const MovedDim& dim : g.moved()) {
    AddChoices(g, dim, dim.before, members, Piece(mesh_, dim.parent, dim.after, me_), &lists);
  }
  return Combine(g, members, lists);
}

// Who takes parts of this rank's box before the step; itself among them. A receiver has this rank's
// coordinates on all dims of the group that do not cut before; it is free in those that cut before,
// also in those that cut nothing after: each of these receivers wants a copy.
std::vector<Part> Lowerer::Receivers(const StepGeometry& g, const Members& members) const {
  ChoiceLists lists;
  for (const MovedDim& dim : g.moved()) {
    AddChoices(g, dim, dim.after, members, Piece(mesh_, dim.parent, dim.before, me_), &lists);
  }
  for (int d = 0; d < mesh_.NumDims(); ++d) {
    if (!Has(g.cut_before() & ~g.cut_after(), d)) continue;
    Choices& copies = lists.emplace_back();
    for (int64_t i = 0; i < mesh_.dim(d).size; ++i) {
      copies.list.push_back({i * members.stride(d), {}});
    }
  }
  return Combine(g, members, lists);
}

// Whether some member's box after the step is not inside its box before it.
bool Lowerer::AnyMemberLacks(const StepGeometry& g, const Members& members, Coordinate at) {
  for (size_t t = 0; t < g.box_before().size.size(); ++t) {
    bool moves = false;
    for (const MovedDim& dim : g.moved()) moves |= dim.tensor_dim == static_cast<int>(t);
    if (!moves && g.box_before().size[t] == 0) return false;
  }
  for (int64_t index = 0; index < members.size(); ++index) {
    members.SetCoordinate(index, &at);
    bool empty = false;
    bool lacks = false;
    for (const MovedDim& dim : g.moved()) {
      const Interval after = Piece(g.mesh(), dim.parent, dim.after, at);
      empty |= after.size() == 0;
      lacks |= !Piece(g.mesh(), dim.parent, dim.before, at).Contains(after);
    }
    if (lacks && !empty) return true;
  }
  return false;
}

void Lowerer::AddSendRecv(const Step& step, absl::Span<const ProgramMessage> sends,
                          absl::Span<const ProgramMessage> recvs) {
  Instruction& call = Add(Kind::kSendRecv);
  call.group = GroupOf(step);
  std::vector<ProgramMessage>& messages = program_.messages;
  call.sends = {static_cast<int32_t>(messages.size()), static_cast<int32_t>(sends.size())};
  messages.insert(messages.end(), sends.begin(), sends.end());
  call.recvs = {static_cast<int32_t>(messages.size()), static_cast<int32_t>(recvs.size())};
  messages.insert(messages.end(), recvs.begin(), recvs.end());
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
    MESHIFT_ASSIGN_OR_RETURN(Location at, TakePiece(BytesOf(total)));
    messages->reserve(parts.size());
    for (const Part& part : parts) {
      if (part.number == self) continue;
      const int64_t count = part.box.NumElements();
      messages->push_back({static_cast<int>(part.number), at, count});
      at.offset += BytesOf(count);
    }
    return absl::OkStatus();
  };
  const std::vector<Part> receivers = Receivers(g, members);
  const std::vector<Part> senders = Senders(g, members);
  std::vector<ProgramMessage> sends;
  std::vector<ProgramMessage> recvs;
  MESHIFT_RETURN_IF_ERROR(lay(receivers, &sends));
  MESHIFT_RETURN_IF_ERROR(lay(senders, &recvs));

  size_t next = 0;
  for (const Part& part : receivers) {
    if (part.number == self) continue;
    AddCopy(in_, g.box_before(), sends[next++].at, part.box, part.box);
  }
  for (const Part& part : senders) {
    if (part.number == self) AddCopy(in_, g.box_before(), out_, g.box_after(), part.box);
  }
  if (!sends.empty() || !recvs.empty() || AnyMemberLacks(g, members, me_)) {
    AddSendRecv(step, sends, recvs);
  }
  next = 0;
  for (const Part& part : senders) {
    if (part.number == self) continue;
    AddCopy(recvs[next++].at, part.box, out_, g.box_after(), part.box);
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
    return InvalidArgument("{} is no permutation on rank {}", step.ToString(), program_.rank);
  }
  if (source == me_) {
    AddCopy(in_, g.box_before(), out_, g.box_after(), g.box_after());
  }
  const Members members(mesh_, step.mesh_dims, me_);
  absl::InlinedVector<ProgramMessage, 1> sends;
  absl::InlinedVector<ProgramMessage, 1> recvs;
  const auto number = [&](const Coordinate& at) {
    return static_cast<int>(members.NumberOf(members.IndexOf(at)));
  };
  if (!(target == me_) && !g.box_before().IsEmpty()) {
    sends.push_back({number(target), in_, g.box_before().NumElements()});
  }
  if (!(source == me_) && !g.box_after().IsEmpty()) {
    recvs.push_back({number(source), out_, g.box_after().NumElements()});
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
  if (!sends.empty() || !recvs.empty() || any_member_receives()) AddSendRecv(step, sends, recvs);
  return absl::OkStatus();
}

absl::Status Lowerer::Slice(const StepGeometry& g, const Step& step) {
  if (!Contains(g.box_before(), g.box_after())) {
    return InvalidArgument("{}: rank {} holds {}, which lacks part of {}", step.ToString(),
                           program_.rank, g.box_before().ToString(), g.box_after().ToString());
  }
  AddCopy(in_, g.box_before(), out_, g.box_after(), g.box_after());
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
    Instruction& fill = Add(Kind::kFillIdentity);
    fill.dst = out_;
    fill.count = count;
    fill.reduction.op = identity;
  }
  if (keeps) AddCopy(in_, held, out_, g.box_after(), held);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> Lower(const Plan& plan, int64_t rank) { return Lowerer(plan, rank).Run(); }

}  // namespace meshift

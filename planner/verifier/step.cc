#include "planner/verifier/step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/status.h"
#include "placement/cast.h"
#include "planner/verifier/boxes.h"

namespace meshift::verifier_internal {
namespace {

using Result = std::optional<Violation>;

// Ops whose mesh_dims are exactly the moving dims.
bool PlacesMovingDims(StepOp op) {
  return op == StepOp::kAllToAll || op == StepOp::kPermute || op == StepOp::kExchange ||
         op == StepOp::kSlice;
}

// Whether the op may leave `state` on a mesh dim that it names.
bool Leaves(StepOp op, const DimState& state) {
  switch (op) {
    case StepOp::kAllReduce:
    case StepOp::kAllGather:
      return state.IsReplicated();
    case StepOp::kReduceScatter:
    case StepOp::kAllToAll:
      return state.IsCut();
    case StepOp::kPermute:
    case StepOp::kExchange:
    case StepOp::kSlice:  // R only of a tensor without elements: CheckBoxes
      return !state.IsPartial();
    case StepOp::kMask:
      return state.IsPartial();
    case StepOp::kCast:  // names no mesh dims
    case StepOp::kRelabel:
    case StepOp::kBroadcast:  // WithOpsOnCuts() has replaced the rooted ops
    case StepOp::kReduce:
    case StepOp::kGather:
    case StepOp::kScatter:
    case StepOp::kSend:
      break;
  }
  return false;
}

std::string_view LeavesText(StepOp op) {
  switch (op) {
    case StepOp::kAllReduce:
    case StepOp::kAllGather:
      return "R";
    case StepOp::kMask:
      return "a partial value";
    case StepOp::kPermute:
    case StepOp::kExchange:
    case StepOp::kSlice:
      return "R or a shard";
    default:
      return "a shard";
  }
}

// Checks the change of each mesh dim.
Result CheckKinds(const StepView& view) {
  const Step& step = view.step;
  const bool moves = PlacesMovingDims(step.op);
  for (int d = 0; d < static_cast<int>(view.before.dims.size()); ++d) {
    const DimState& before = view.before.dims[d];
    const DimState& after = view.after.dims[d];
    if (Contains(step.mesh_dims, d)) {
      if (Leaves(step.op, after)) continue;
      return MakeViolation("after", "mesh dim {} is {} after {}; it must be {}", view.Name(d),
                           after.ToString(), Name(step.op), LeavesText(step.op));
    }
    if (before == after) continue;
    return MakeViolation(
        moves ? "mesh_dims" : "after",
        "mesh dim {} changes from {} to {}, and the step's mesh_dims [{}] do not include it",
        view.Name(d), before.ToString(), after.ToString(), view.mesh_shape.Names(step.mesh_dims));
  }
  return std::nullopt;
}

std::string SizesText(const Sizes& sizes) {
  if (sizes.empty()) return "no ragged sizes";
  return fmt::format("the ragged sizes {{{}}}", fmt::join(sizes.begin(), sizes.end(), ","));
}

// Checks the change of the order of cuts of each tensor dim.
Result CheckCuts(const StepView& view) {
  const Step& step = view.step;
  if (PlacesMovingDims(step.op)) {
    if (step.mesh_dims == view.change.moving) return std::nullopt;
    const std::string mesh_dims = view.mesh_shape.Names(step.mesh_dims);
    if (view.change.moving.empty()) {
      return MakeViolation("mesh_dims", "mesh_dims are {}, but no cut changes", mesh_dims);
    }
    return MakeViolation("mesh_dims",
                         "mesh_dims are {}, but the mesh dims whose cuts change are {}", mesh_dims,
                         view.mesh_shape.Names(view.change.moving));
  }
  for (const CutChange& cut : view.change.cuts) {
    const Cuts& before = view.before.cuts[cut.tensor_dim];
    const Sizes& sizes = view.before.sizes[cut.tensor_dim];
    Cuts expected;
    if (step.op == StepOp::kReduceScatter) {
      if (cut.before.empty()) continue;  // new cuts are last, in any order
      expected = before;
      for (const int d : cut.after) {
        if (!Contains(before, d)) expected.push_back(d);
      }
    } else if (step.op == StepOp::kAllReduce || step.op == StepOp::kCast) {
      expected = before;
    } else {
      for (const int d : before) {
        if (!Contains(step.mesh_dims, d)) expected.push_back(d);
      }
    }
    const bool keeps_first = !before.empty() && !expected.empty() && before[0] == expected[0];
    if (view.after.cuts[cut.tensor_dim] == expected) {
      const Sizes& have = view.after.sizes[cut.tensor_dim];
      const Sizes want = keeps_first ? sizes : Sizes{};
      if (have == want) continue;
      return MakeViolation("after", "{} has {} after {}; it must have {}",
                           view.mesh_shape.DimText(cut.tensor_dim), SizesText(have), Name(step.op),
                           SizesText(want));
    }
    return MakeViolation("after", "{} is cut by [{}] after {}; it must be cut by [{}]",
                         view.mesh_shape.DimText(cut.tensor_dim),
                         view.mesh_shape.Names(view.after.cuts[cut.tensor_dim]), Name(step.op),
                         view.mesh_shape.Names(expected));
  }
  return std::nullopt;
}

Result CheckGroup(const StepView& view) {
  const Step& step = view.step;
  std::optional<int64_t> size;
  std::optional<int64_t> groups;
  if (IsCollective(step.op)) {
    size = view.mesh_shape.GroupSize(step.mesh_dims);
    groups = view.mesh_shape.mesh.NumRanks() / *size;
  }
  if (auto broken = ExpectNumber("group", "group_size", step.group_size, size)) return broken;
  return ExpectNumber("group", "groups", step.groups, groups);
}

Result CheckTensorDims(const StepView& view) {
  DimSet right;
  if (view.mesh_shape.owners.num == 0) {
    for (const CutChange& cut : view.change.cuts) right.push_back(cut.tensor_dim);
  }
  for (size_t t = 0; t < view.before.written.size(); ++t) {
    if (view.before.written[t] != view.after.written[t]) right.push_back(static_cast<int>(t));
  }
  if (view.step.tensor_dims == right) return std::nullopt;
  return MakeViolation("tensor_dims",
                       "tensor_dims are [{}]; the tensor dims whose cuts change are [{}]",
                       fmt::join(view.step.tensor_dims, ","), fmt::join(right, ","));
}

Result CheckReduction(const StepView& view) {
  const Step& step = view.step;
  ReductionFields right;
  if (IsReduction(step.op)) {
    right = FieldsOfReduction(view.mesh_shape, view.before, step.mesh_dims);
    // Without a partial mesh dim there is nothing to compare; CheckData refuses that.
    if (!right.op) right.op = step.reduce_op;
    if (!step.reduce_order) {
      return MakeViolation("reduce_order", "reduce_order is null; {} reduces", Name(step.op));
    }
  } else if (step.reduce_order) {
    return MakeViolation("reduce_order", "reduce_order is {}; {} reduces nothing",
                         Name(*step.reduce_order), Name(step.op));
  }
  if (step.reduce_block && step.reduce_order != ReduceOrder::kAscending) {
    return MakeViolation("reduce_block", "reduce_block is {}; {} is not in ascending order",
                         *step.reduce_block, Name(step.op));
  }
  if (step.reduce_stages) {
    // Needs two or more whole blocks, each of two or more contributions.
    const int64_t block = step.reduce_block.value_or(0);
    const int64_t size = view.mesh_shape.GroupSize(step.mesh_dims);
    if (block <= 1 || block >= size || size % block != 0 || *step.reduce_stages != 2) {
      return MakeViolation("reduce_stages",
                           "reduce_stages is {}; reduce_block is {} in groups of {}",
                           *step.reduce_stages, block, size);
    }
  }
  if (IsReduction(step.op) && !right.op) {
    return MakeViolation("reduce_op", "reduce_op is null; {} reduces", Name(step.op));
  }
  if (auto broken = ExpectName("reduce_op", "reduce_op", step.reduce_op, right.op)) return broken;
  return ExpectNumber("divisor", "divisor", step.divisor, right.divisor);
}

Result CheckSizes(const StepView& view) {
  const Step& step = view.step;
  std::optional<StepSizes> right;
  if (IsCollective(step.op)) {
    const bool pads = (step.op == StepOp::kReduceScatter &&
                       (step.reduce_order != ReduceOrder::kAscending || step.reduce_stages)) ||
                      step.op == StepOp::kAllGather;
    right = IsEven(view) ? StepSizes::kEven : pads ? StepSizes::kPadded : StepSizes::kExact;
    // Blocks may also have exactly their boxes' sizes.
    if (right == StepSizes::kPadded && step.sizes == StepSizes::kExact && !step.reduce_stages) {
      return std::nullopt;
    }
  }
  return ExpectName("sizes", "sizes", step.sizes, right);
}

Result CheckDTypes(const StepView& view) {
  const Step& step = view.step;
  std::optional<DType> wire;
  std::optional<DType> accumulate;
  if (IsCollective(step.op)) wire = view.before.dtype;
  if (IsReduction(step.op)) accumulate = AccumulateDType(view.before.dtype);
  if (auto broken = ExpectName("dtype", "wire_dtype", step.wire_dtype, wire)) return broken;
  return ExpectName("dtype", "accumulate_dtype", step.accumulate_dtype, accumulate);
}

// Checks the placements that the op needs on its mesh dims.
Result CheckNeeds(const StepView& view) {
  const Step& step = view.step;
  for (const int d : step.mesh_dims) {
    const DimState& before = view.before.dims[d];
    const auto is = [&](std::string_view why) {
      return MakeViolation("data", "mesh dim {} is {} before the step: {}", view.Name(d),
                           before.ToString(), why);
    };
    if (IsReduction(step.op)) {
      if (before.IsPartial()) continue;
      if (before.IsCut()) return is("its ranks hold different elements, which would be mixed");
      return is(fmt::format("its value would be counted {} times", view.mesh_shape.sizes[d]));
    }
    const bool needs_cut = step.op == StepOp::kAllGather || step.op == StepOp::kAllToAll;
    if (before.IsReplicated() && needs_cut) {
      return MakeViolation("op", "{} needs a shard on mesh dim {}, which is R before the step",
                           Name(step.op), view.Name(d));
    }
    if (before.IsPartial() && step.op == StepOp::kMask) {
      return MakeViolation("op",
                           "mask needs R or a shard on mesh dim {}, which is {} before the step",
                           view.Name(d), before.ToString());
    }
    if (before.IsPartial()) return is("contributions would be lost");
    if (step.op == StepOp::kMask && before.IsCut() && view.after.dims[d].op == ReduceOp::kAvg) {
      return is("avg has no identity to fill the other elements with");
    }
  }
  return std::nullopt;
}

Violation NotCovered(const MeshShape& mesh_shape, const Uncovered& uncovered, int tensor_dim) {
  const std::string rank =
      uncovered.where.empty() ? "every rank" : fmt::format("the rank at {}", uncovered.where);
  if (mesh_shape.IsOwnerDim(tensor_dim)) {
    if (uncovered.twice) {
      return MakeViolation("data", "{} would get the value from several owners", rank);
    }
    return MakeViolation("data", "{} should hold the value, but gets it from no owner", rank);
  }
  const std::string dim = mesh_shape.DimText(tensor_dim);
  if (uncovered.twice) {
    return MakeViolation("data", "{} would get indices of {} twice", rank, dim);
  }
  return MakeViolation("data", "{} can have {} of the {} indices of {} that it should hold", rank,
                       uncovered.found, uncovered.wanted, dim);
}

// Checks that the boxes that the op brings together cover the boxes after, each index once.
Result CheckBoxes(const StepView& view) {
  const Step& step = view.step;
  const StepOp op = step.op;
  // After a slice or a reduction, a rank has parts of its own box only.
  const bool gathers = op != StepOp::kSlice && !IsReduction(op);
  for (const CutChange& cut : view.change.cuts) {
    const std::optional<Uncovered> uncovered =
        FindUncovered(view.mesh_shape, cut,
                      gathers ? absl::Span<const int>(step.mesh_dims) : absl::Span<const int>());
    if (!uncovered) continue;
    if (op != StepOp::kSlice) {
      return NotCovered(view.mesh_shape, *uncovered, cut.tensor_dim);
    }
    const std::optional<Uncontained> uncontained = FindUncontained(view.mesh_shape, view.change);
    if (!uncontained) return std::nullopt;
    return NotCovered(view.mesh_shape, uncontained->uncovered, uncontained->tensor_dim);
  }
  return std::nullopt;
}

// Checks the op's needs on the order of cuts that the data alone does not show.
Result CheckPlaces(const StepView& view) {
  const Step& step = view.step;
  if (step.op == StepOp::kPermute && !SourcesOfPermute(view.mesh_shape, view.change)) {
    return MakeViolation(
        "data",
        "the cuts before and after do not have equal sizes pairwise: no member holds the "
        "box that a rank needs");
  }
  for (const CutChange& cut : view.change.cuts) {
    for (const int d : cut.before) {
      const bool gathers = step.op == StepOp::kAllGather || step.op == StepOp::kMask;
      if (!gathers || Contains(step.mesh_dims, d)) continue;
      return MakeViolation("op", "{} needs the last cuts of {}; the cut by {} comes after them",
                           Name(step.op), view.mesh_shape.DimText(cut.tensor_dim), view.Name(d));
    }
  }
  return std::nullopt;
}

// Only a cast changes the dtype, and every cast does.
Result CheckDTypeAfter(const Step& step, DType before) {
  const DType after = step.after.dtype();
  if (step.op != StepOp::kCast) {
    if (after == before) return std::nullopt;
    return MakeViolation("dtype", "the dtype is {} after {}; it must stay {}", Name(after),
                         Name(step.op), Name(before));
  }
  if (after == before)
    return MakeViolation(
        "dtype", "the dtype is {} before and after the cast; a cast must change it", Name(before));
  const absl::Status status = CheckCast(before, after);
  if (status.ok()) return std::nullopt;
  return MakeViolation("dtype", "{}", Message(status));
}

}  // namespace

DimSet StepView::ReducedDims() const {
  if (!Crosses()) return step.mesh_dims;
  DimSet dims;
  for (int d = 0; d < static_cast<int>(before.dims.size()); ++d) {
    if (before.dims[d].IsPartial()) dims.push_back(d);
  }
  return dims;
}

ReductionFields FieldsOfReduction(const MeshShape& mesh_shape, const State& before,
                                  absl::Span<const int> mesh_dims) {
  ReductionFields fields;
  for (const int d : mesh_dims) {
    const DimState& state = before.dims[d];
    if (!state.IsPartial()) continue;
    if (state.op == ReduceOp::kAvg) {
      fields.divisor = fields.divisor.value_or(1) * mesh_shape.sizes[d];
      fields.op = ReduceOp::kAvg;
    } else if (fields.op != ReduceOp::kAvg) {
      fields.op = state.op;
    }
  }
  return fields;
}

std::optional<Violation> CheckOp(const Step& step, const Sharding& like, int mesh,
                                 DType dtype_before) {
  if (static_cast<int>(step.op) >= kNumStepOps) {
    return MakeViolation("op", "op {} is not known", static_cast<int>(step.op));
  }
  if (step.mesh != mesh) {
    return MakeViolation("mesh", "the step is on mesh {}, the value on mesh {}", step.mesh, mesh);
  }
  if (step.op == StepOp::kRelabel) {
    return MakeViolation("op", "relabel leads to another mesh; the value is on mesh {} already",
                         mesh);
  }
  if (step.after.mesh() != like.mesh() || step.after.shape() != like.shape()) {
    return MakeViolation("after", "'{}' is not a sharding of {} on {}", step.after.ToString(),
                         like.tensor().ToString(), like.mesh().ToString());
  }
  if (auto broken = CheckDTypeAfter(step, dtype_before)) return broken;
  if (step.op == StepOp::kCast) {
    if (!step.mesh_dims.empty()) {
      return MakeViolation("mesh_dims", "a cast has no mesh dims; this one has {}",
                           step.mesh_dims.size());
    }
  } else if (step.mesh_dims.empty()) {
    if (step.op != StepOp::kExchange) return MakeViolation("mesh_dims", "mesh_dims are empty");
    return MakeViolation(
        "mesh_dims",
        "an exchange over no mesh dims leads to another mesh; the value is on mesh {} "
        "already",
        mesh);
  }
  int last = -1;
  for (const int d : step.mesh_dims) {
    if (d <= last || d >= like.mesh().NumDims()) {
      return MakeViolation("mesh_dims",
                           "mesh dim {} is out of range, not in mesh order, or named twice", d);
    }
    last = d;
    if (like.mesh().dim(d).size > 1) continue;
    return MakeViolation("mesh_dims", "mesh dim {} has size 1: nothing happens over it",
                         like.mesh().dim(d).name);
  }
  return std::nullopt;
}

std::optional<Violation> CheckFields(const StepView& view) {
  for (const auto check : {CheckKinds, CheckCuts, CheckGroup, CheckTensorDims, CheckReduction,
                           CheckSizes, CheckDTypes}) {
    if (auto broken = check(view)) return broken;
  }
  if (view.mesh_shape.GroupSize(view.change.moving) > kMaxMoving) {
    return MakeViolation(
        "scale", "a step that moves data between {} ranks is too large to verify; the limit is {}",
        view.mesh_shape.GroupSize(view.change.moving), kMaxMoving);
  }
  // Ragged cuts leave parents of many sizes; every combination of them is checked.
  Int128 choices = 1;
  for (const CutChange& cut : view.change.cuts) choices *= std::max<size_t>(cut.parents.size(), 1);
  if (choices * view.mesh_shape.GroupSize(view.change.moving) > kMaxChoices) {
    return MakeViolation(
        "scale",
        "a step that moves data between {} ranks in each of {} kinds of groups is too "
        "large to verify; "
        "the limit is {} moves",
        view.mesh_shape.GroupSize(view.change.moving), static_cast<int64_t>(choices), kMaxChoices);
  }
  return std::nullopt;
}

std::optional<Violation> CheckData(const StepView& view) {
  for (const auto check : {CheckNeeds, CheckBoxes, CheckPlaces}) {
    if (auto broken = check(view)) return broken;
  }
  return std::nullopt;
}

bool IsEven(const StepView& view) {
  if (view.mesh_shape.empty) return true;
  // The pieces of a non-empty parent cover it, so they have equal sizes if their number divides its
  // size.
  for (const CutChange& cut : view.change.cuts) {
    for (const Sizes* sizes : {&cut.sizes_before, &cut.sizes_after}) {
      if (std::adjacent_find(sizes->begin(), sizes->end(), std::not_equal_to<>()) != sizes->end()) {
        return false;
      }
    }
    for (const int64_t parent : cut.parents) {
      if (parent % view.mesh_shape.GroupSize(cut.before) != 0) return false;
      if (parent % view.mesh_shape.GroupSize(cut.after) != 0) return false;
    }
  }
  return true;
}

bool IsExactReduction(const StepView& view) {
  if (view.mesh_shape.empty) return true;
  switch (*view.step.reduce_op) {
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kAnd:
    case ReduceOp::kOr:
    case ReduceOp::kXor:
      return true;
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kProduct:
      break;
  }
  const DType dtype = view.before.dtype;
  return !IsFloat(dtype) && !IsComplex(dtype);
}

}  // namespace meshift::verifier_internal

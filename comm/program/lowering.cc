#include "comm/program/lowering.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/program/packed_plan.h"
#include "comm/program/program_builder.h"
#include "comm/program/step_geometry.h"
#include "comm/program/step_lowering.h"
#include "comm/tensor/strides.h"
#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "placement/cast.h"
#include "placement/local_box.h"
#include "placement/unit_dims.h"
#include "planner/plan/crossing.h"
#include "planner/plan/expanded_plan.h"

namespace meshift {
namespace {

using Space = Location::Space;
using lowering_internal::ProgramBuilder;
using lowering_internal::ProgramMemory;
using lowering_internal::StepGeometry;
using lowering_internal::StepLowering;
using lowering_internal::Value;

absl::Status CheckPlan(const Plan& plan) {
  const std::vector<DeviceMesh>& meshes = plan.meshes();
  const bool crosses = meshes.size() == 2;
  if (meshes.size() != 1 && (!crosses || meshes[0] == meshes[1])) {
    return InvalidArgument("the plan has {} meshes; expected one, or two different ones",
                           meshes.size());
  }
  const PlanFields& fields = plan.fields();
  if (fields.from_mesh != 0 || fields.to_mesh != (crosses ? 1 : 0) ||
      !(plan.from().mesh() == meshes.front()) || !(plan.to().mesh() == meshes.back())) {
    return InvalidArgument(
        "the plan starts on mesh {} and ends on mesh {}; expected its first and its last mesh",
        plan.from().mesh().ToString(), plan.to().mesh().ToString());
  }
  for (const DeviceMesh& mesh : meshes) {
    if (mesh.NumDims() > 64) {
      return Unimplemented("mesh {} has more than 64 dims", mesh.ToString());
    }
  }
  if (plan.total().workspace_bytes < 0) {
    return InvalidArgument("workspace_bytes {} is negative", plan.total().workspace_bytes);
  }
  if (plan.to().shape() != plan.from().shape()) {
    return InvalidArgument("the source is {} and the target {}; expected equal shapes",
                           plan.from().tensor().ToString(), plan.to().tensor().ToString());
  }
  return absl::OkStatus();
}

// Whether a mesh dim of more than one rank is partial.
bool IsPartial(const Sharding& sharding) {
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    if (sharding.placement(d).IsPartial() && sharding.mesh().dim(d).size > 1) return true;
  }
  return false;
}

// Whether the step goes from the plan's first mesh to its second.
bool IsCrossing(const Plan& plan, const Sharding& before, const Step& step) {
  return step.mesh == 1 && plan.meshes().size() == 2 && before.mesh() == plan.meshes()[0];
}

absl::Status CheckWire(const Sharding& before, const Step& step) {
  if (step.wire_dtype.value_or(before.dtype()) == before.dtype()) return absl::OkStatus();
  return Unimplemented("{}: {} cannot be sent as {} yet", step.ToString(), Name(before.dtype()),
                       Name(*step.wire_dtype));
}

absl::Status CheckCrossing(const Plan& plan, const Sharding& before, const Step& step) {
  const DeviceMesh& mesh = plan.meshes()[1];
  if (step.op != StepOp::kExchange && step.op != StepOp::kRelabel) {
    return InvalidArgument("{} cannot go from mesh {} to mesh {}", step.ToString(),
                           before.mesh().ToString(), mesh.ToString());
  }
  if (!(step.after.mesh() == mesh) || !(step.after.tensor() == before.tensor())) {
    return InvalidArgument("{}: the step yields {}; expected {} on mesh {}", step.ToString(),
                           step.after.ToString(), before.tensor().ToString(), mesh.ToString());
  }
  if (!step.mesh_dims.empty())
    return InvalidArgument("{} must not name mesh dims", step.ToString());
  const bool reduces = step.reduce_op.has_value();
  if (IsPartial(step.after) || IsPartial(before) != reduces) {
    return InvalidArgument("{}: {} cannot become {}", step.ToString(), before.ToString(),
                           step.after.ToString());
  }
  if (reduces && (step.op != StepOp::kExchange || step.reduce_order != ReduceOrder::kAscending)) {
    return InvalidArgument("{} must reduce by an exchange in ascending order", step.ToString());
  }
  return CheckWire(before, step);
}

// Checks a step that stays on its mesh.
absl::Status CheckStep(const Plan& plan, const Sharding& before, const Step& step) {
  const DeviceMesh& mesh = before.mesh();
  if (step.op == StepOp::kRelabel) {
    return InvalidArgument("{} must lead to a mesh other than {}", step.ToString(),
                           mesh.ToString());
  }
  const bool casts = step.op == StepOp::kCast;
  const bool on_mesh =
      step.mesh >= 0 && step.mesh < std::ssize(plan.meshes()) && plan.meshes()[step.mesh] == mesh;
  if (!on_mesh || !(step.after.mesh() == mesh) || step.after.shape() != before.shape() ||
      (!casts && step.after.dtype() != before.dtype())) {
    return InvalidArgument("{}: the step yields {}; expected {} on mesh {}", step.ToString(),
                           step.after.ToString(), before.tensor().ToString(), mesh.ToString());
  }
  if (casts) {
    MESHIFT_RETURN_IF_ERROR(CheckCast(before.dtype(), step.after.dtype()));
    if (!step.mesh_dims.empty())
      return InvalidArgument("{} must not name mesh dims", step.ToString());
    for (int d = 0; d < mesh.NumDims(); ++d) {
      if (mesh.dim(d).size == 1) continue;
      if (before.placement(d) == step.after.placement(d)) continue;
      return InvalidArgument("{} must not change mesh dim {}", step.ToString(), mesh.dim(d).name);
    }
    return absl::OkStatus();
  }
  if (step.mesh_dims.empty()) return InvalidArgument("{} must name mesh dims", step.ToString());
  int last = -1;
  for (const int d : step.mesh_dims) {
    if (d <= last || d >= mesh.NumDims()) {
      return InvalidArgument("{}: mesh dim {} is out of range or not in mesh order", Name(step.op),
                             d);
    }
    if (mesh.dim(d).size == 1) {
      return InvalidArgument("{}: mesh dim {} has size 1", step.ToString(), mesh.dim(d).name);
    }
    last = d;
  }
  return CheckWire(before, step);
}

// A local tensor in the caller's memory. Empty strides mean row-major.
absl::StatusOr<Value> TensorAt(Space space, DType dtype, const Box& box, const Shape& strides) {
  Value value = Value::RowMajor({space, 0}, dtype, box);
  if (strides.empty()) return value;
  const char* const name = space == Space::kSource ? "source" : "target";
  if (strides.size() != box.size.size()) {
    return InvalidArgument("the {} {} has {} strides", name, box.ToString(), strides.size());
  }
  if (!ExtentOf(box.size, strides)) {
    return InvalidArgument("the strides of the {} {} exceed the address range", name,
                           box.ToString());
  }
  if (space == Space::kTarget && FindOverlap(box.size, strides) != Overlap::kNo) {
    return InvalidArgument("elements of the target {} overlap each other", box.ToString());
  }
  if (!box.IsEmpty()) value.strides = strides;
  return value;
}

// Whether the plan is batch-invariant only if the step's all-reduce runs on one channel: the
// engine's own all-reduce (NCCL's tree) then adds every element in the same way.
bool NeedsOneChannel(const Plan& plan, const Step& step) {
  if (plan.kept() != Reproducibility::kBatchInvariant || step.op != StepOp::kAllReduce ||
      step.reduce_order != ReduceOrder::kAny || !step.reduce_op ||
      IsExact(*step.reduce_op, step.after.dtype())) {
    return false;
  }
  return plan.options().engine.native_invariance == NativeInvariance::kAllReduce;
}

// The workspace limit if the program determines the size itself.
constexpr int64_t kUnlimited = int64_t{1} << 61;

// Lowers the steps of a plan in order, for one rank.
class PlanLowering {
 public:
  // `one_buffer`: the plan's source and target share memory. All must outlive this.
  PlanLowering(const Plan& plan, int64_t rank, bool one_buffer, ProgramBuilder* build)
      : plan_(plan), rank_(rank), shares_(one_buffer && plan.steps().size() <= 1), build_(*build) {}

  absl::Status Add(const Sharding& before, const Step& step) {
    if (IsCrossing(plan_, before, step)) return AddCrossing(before, step);
    MESHIFT_RETURN_IF_ERROR(CheckStep(plan_, before, step));
    const DeviceMesh& mesh = before.mesh();
    build_.SetMesh(step.mesh);
    build_.set_one_channel(NeedsOneChannel(plan_, step));
    const std::optional<Coordinate> me = mesh.CoordinateOf(rank_);
    if (!me) {
      StepLowering::AddGroupOf(step, &build_);
      return build_.BeginStep(step.after.dtype(), NoBox());
    }
    // Nothing happens among ranks that an At of several coordinates leaves out.
    if (!before.HoldsAt(*me) && !step.after.HoldsAt(*me)) {
      StepLowering::AddGroupOf(step, &build_);
      return build_.BeginStep(step.after.dtype(), step.after.BoxAt(*me));
    }
    MESHIFT_ASSIGN_OR_RETURN(const StepGeometry g, StepGeometry::Create(before, step, *me));
    MESHIFT_RETURN_IF_ERROR(build_.BeginStep(step.after.dtype(), g.box_after()));
    return StepLowering(mesh, rank_, *me, &build_, shares_).Add(g, before, step);
  }

  absl::Status AddWithoutSteps(const ProgramMemory& memory) {
    return StepLowering(plan_.from().mesh(), rank_, {}, &build_, shares_)
        .AddWithoutSteps(memory.source, memory.target);
  }

 private:
  absl::Status AddCrossing(const Sharding& before, const Step& step) {
    MESHIFT_RETURN_IF_ERROR(CheckCrossing(plan_, before, step));
    const Box after = LocalBoxOf(step.after, rank_);
    MESHIFT_RETURN_IF_ERROR(build_.BeginStep(step.after.dtype(), after));
    if (NumElements(before.shape()) == 0) return absl::OkStatus();
    const Crossing crossing = Crossing::Of(before, step.after, plan_.options().topology);
    const absl::Span<const CrossingMessage> messages = crossing.messages();
    if (step.op == StepOp::kExchange && messages.empty()) {
      return InvalidArgument("{} sends nothing; expected a relabel", step.ToString());
    }
    if (step.op == StepOp::kRelabel && !messages.empty()) {
      return InvalidArgument("{}: rank {} needs data of rank {}; expected an exchange",
                             step.ToString(), messages[0].receiver, messages[0].sender);
    }
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh all, UnionMesh(before.mesh(), step.after.mesh()));
    build_.set_one_channel(false);
    if (step.op == StepOp::kExchange) {
      build_.AddMesh(all);
      build_.GroupOver({0});
    }
    // A rank in neither mesh has no work.
    if (!all.PositionOf(rank_)) return absl::OkStatus();
    return StepLowering(all, rank_, {}, &build_, shares_).AddCrossing(step, crossing);
  }

  const Plan& plan_;
  const int64_t rank_;
  const bool shares_;
  ProgramBuilder& build_;
};

absl::StatusOr<Program> LowerInto(const Plan& plan, int64_t rank, const ProgramMemory& memory,
                                  bool one_buffer) {
  ProgramBuilder build(plan.meshes(), rank, memory, static_cast<int>(plan.steps().size()));
  PlanLowering lower(plan, rank, one_buffer, &build);
  const Sharding* before = &plan.from();
  for (const Step& step : plan.steps()) {
    MESHIFT_RETURN_IF_ERROR(lower.Add(*before, step));
    before = &step.after;
  }
  if (plan.steps().empty()) MESHIFT_RETURN_IF_ERROR(lower.AddWithoutSteps(memory));
  if (before->dtype() != plan.to().dtype()) {
    return InvalidArgument("the plan ends with {}, not with {}", Name(before->dtype()),
                           Name(plan.to().dtype()));
  }
  Program program = std::move(build).Finish();
  program.one_buffer = one_buffer;
  return program;
}

// Lower() for a checked plan whose owners are cuts.
absl::StatusOr<Program> LowerCuts(const Plan& plan, int64_t rank, const LoweringOptions& options) {
  const Box source = LocalBoxOf(plan.from(), rank);
  const Box target = LocalBoxOf(plan.to(), rank);
  if (plan.from().dtype() == DType::kF4E2M1) {
    MESHIFT_ASSIGN_OR_RETURN(const Plan bytes, PlanOfBytes(plan));
    LoweringOptions of_bytes = options;
    absl::StatusOr<Shape> strides = StridesOfBytes(source.size, options.source_strides);
    if (!strides.ok()) return Annotate(strides.status(), "the source");
    of_bytes.source_strides = *std::move(strides);
    strides = StridesOfBytes(target.size, options.target_strides);
    if (!strides.ok()) return Annotate(strides.status(), "the target");
    of_bytes.target_strides = *std::move(strides);
    return LowerCuts(bytes, rank, of_bytes);
  }

  const Sharding& end = plan.steps().empty() ? plan.from() : plan.steps().back().after;
  if (!(end.mesh() == plan.to().mesh())) {
    return InvalidArgument("the plan ends on mesh {}, not on {}", end.mesh().ToString(),
                           plan.to().mesh().ToString());
  }
  if (const Box last = LocalBoxOf(end, rank);
      !(last == target) && !(last.IsEmpty() && target.IsEmpty())) {
    return InvalidArgument("the plan ends with {} on rank {}, not with {}", last.ToString(), rank,
                           target.ToString());
  }
  ProgramMemory memory;
  MESHIFT_ASSIGN_OR_RETURN(
      memory.source, TensorAt(Space::kSource, plan.from().dtype(), source, options.source_strides));
  MESHIFT_ASSIGN_OR_RETURN(
      memory.target, TensorAt(Space::kTarget, plan.to().dtype(), target, options.target_strides));
  memory.consume_source =
      options.consume_source && !options.one_buffer && memory.source.IsRowMajor();
  const bool as_planned = plan.options().buffers == Buffers::kTwo && !memory.consume_source &&
                          !options.one_buffer && memory.source.IsRowMajor() &&
                          memory.target.IsRowMajor();
  memory.workspace_bytes = as_planned ? plan.total().workspace_bytes : kUnlimited;
  MESHIFT_ASSIGN_OR_RETURN(Program program, LowerInto(plan, rank, memory, options.one_buffer));
  if (as_planned) {
    const bool takes_part =
        plan.from().mesh().PositionOf(rank) || plan.to().mesh().PositionOf(rank);
    program.workspace_bytes = takes_part ? plan.total().workspace_bytes : 0;
    return program;
  }
  // Values, too, lie in a consumed source if they fit, which usually needs the smallest workspace.
  // But a rank may then need more than the plan says; then only pieces lie there.
  if (memory.consume_source && plan.options().buffers == Buffers::kConsumed &&
      program.workspace_bytes > plan.total().workspace_bytes) {
    memory.only_pieces = true;
    MESHIFT_ASSIGN_OR_RETURN(program, LowerInto(plan, rank, memory, options.one_buffer));
  }
  // Lower again with the exact size, since values with even numbers lie at the end of the
  // workspace.
  memory.workspace_bytes = program.workspace_bytes;
  return LowerInto(plan, rank, memory, options.one_buffer);
}

// The strides of a rank's part of a tensor with unit dims in front. The part is empty and has one
// dim on a rank outside the mesh, which gets no unit dims, and on a rank that holds nothing of a
// tensor without dims.
Shape ExpandedStrides(const Shape& strides, const Sharding& sharding, int64_t rank, int units) {
  const size_t tensor_rank = sharding.shape().size();
  const bool fits = strides.size() == tensor_rank || (tensor_rank == 0 && strides.size() == 1);
  if (strides.empty() || !fits || !sharding.mesh().PositionOf(rank)) return strides;
  Shape expanded(units, 1);
  if (tensor_rank > 0) expanded.insert(expanded.end(), strides.begin(), strides.end());
  return expanded;
}

}  // namespace

absl::StatusOr<Program> Lower(const Plan& plan, int64_t rank, const LoweringOptions& options) {
  MESHIFT_RETURN_IF_ERROR(CheckPlan(plan));
  if (rank < 0) return InvalidArgument("rank {} is negative", rank);
  if (const std::optional<RootedFault> fault = FindRootedFault(plan.fields())) {
    return InvalidArgument("step {}: {}", fault->step, fault->message);
  }
  const UnitDims units = UnitDimsOf(plan.fields());
  // A cut with one owner is lowered like other cuts where that is possible.
  if (units.empty() || !HasAt(plan.fields())) {
    absl::StatusOr<Program> program = LowerCuts(plan, rank, options);
    if (program.ok() || units.empty()) return program;
  }
  MESHIFT_ASSIGN_OR_RETURN(PlanFields cuts, ExpandPlan(plan.fields(), units));
  LoweringOptions of_cuts = options;
  of_cuts.source_strides = ExpandedStrides(options.source_strides, plan.from(), rank, units.size());
  of_cuts.target_strides = ExpandedStrides(options.target_strides, plan.to(), rank, units.size());
  return LowerCuts(Plan::FromParts(std::move(cuts), plan.fingerprint()), rank, of_cuts);
}

}  // namespace meshift

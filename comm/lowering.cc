#include "comm/lowering.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/packed_plan.h"
#include "comm/program_builder.h"
#include "comm/step_geometry.h"
#include "comm/step_lowering.h"
#include "comm/strides.h"
#include "placement/cast.h"
#include "placement/placement.h"
#include "planner/capabilities.h"

namespace meshift {
namespace {

using Space = Location::Space;
using lowering_internal::ProgramBuilder;
using lowering_internal::ProgramMemory;
using lowering_internal::StepGeometry;
using lowering_internal::StepLowering;
using lowering_internal::Value;

absl::Status CheckPlan(const Plan& plan) {
  const DeviceMesh& mesh = plan.from().mesh();
  if (plan.meshes().size() != 1 || !(plan.to().mesh() == mesh)) {
    return Unimplemented("plans over {} meshes cannot be run yet: {} to {}", plan.meshes().size(),
                         mesh.ToString(), plan.to().mesh().ToString());
  }
  if (mesh.NumDims() > 64) {
    return Unimplemented("mesh {} has more than 64 dims", mesh.ToString());
  }
  if (plan.total().workspace_bytes < 0) {
    return InvalidArgument("workspace_bytes {} is negative", plan.total().workspace_bytes);
  }
  if (plan.to().shape() != plan.from().shape()) {
    return InvalidArgument("the source is {}, the target {}", plan.from().tensor().ToString(),
                           plan.to().tensor().ToString());
  }
  return absl::OkStatus();
}

absl::Status CheckStep(const Plan& plan, const Sharding& before, const Step& step) {
  const DeviceMesh& mesh = plan.from().mesh();
  if (step.op == StepOp::kRelabel) return Unimplemented("a {} cannot be run yet", Name(step.op));
  const bool casts = step.op == StepOp::kCast;
  if (step.mesh != 0 || !(step.after.mesh() == mesh) || step.after.shape() != before.shape() ||
      (!casts && step.after.dtype() != before.dtype())) {
    return InvalidArgument("{}: {} is not {} on {}", step.ToString(), step.after.ToString(),
                           before.tensor().ToString(), mesh.ToString());
  }
  if (casts) {
    MESHIFT_RETURN_IF_ERROR(CheckCast(before.dtype(), step.after.dtype()));
    if (!step.mesh_dims.empty()) return InvalidArgument("{} is over mesh dims", step.ToString());
    for (int d = 0; d < mesh.NumDims(); ++d) {
      if (mesh.dim(d).size == 1) continue;
      if (before.placement(d) == step.after.placement(d)) continue;
      return InvalidArgument("{} moves mesh dim {}", step.ToString(), mesh.dim(d).name);
    }
    return absl::OkStatus();
  }
  if (step.mesh_dims.empty()) return InvalidArgument("{} is over no mesh dim", step.ToString());
  int last = -1;
  for (const int d : step.mesh_dims) {
    if (d <= last || d >= mesh.NumDims()) {
      return InvalidArgument("{}: mesh dim {} does not stand in mesh order", Name(step.op), d);
    }
    if (mesh.dim(d).size == 1) {
      return InvalidArgument("{}: mesh dim {} has size 1", step.ToString(), mesh.dim(d).name);
    }
    last = d;
  }
  if (step.wire_dtype.value_or(before.dtype()) != before.dtype()) {
    return Unimplemented("{}: {} cannot travel as {} yet", step.ToString(), Name(before.dtype()),
                         Name(*step.wire_dtype));
  }
  return absl::OkStatus();
}

// A local tensor in its caller's memory. Its box is `box`, of row-major strides where there are
// none.
absl::StatusOr<Value> TensorAt(Space space, DType dtype, const Box& box, const Shape& strides) {
  Value value = Value::RowMajor({space, 0}, dtype, box);
  if (strides.empty()) return value;
  const char* const name = space == Space::kSource ? "source" : "target";
  if (strides.size() != box.size.size()) {
    return InvalidArgument("the {} {} has {} strides", name, box.ToString(), strides.size());
  }
  if (!ExtentOf(box.size, strides)) {
    return InvalidArgument("the strides of the {} {} reach beyond what can be addressed", name,
                           box.ToString());
  }
  if (space == Space::kTarget && FindOverlap(box.size, strides) != Overlap::kNo) {
    return InvalidArgument("elements of the target {} overlap each other", box.ToString());
  }
  if (!box.IsEmpty()) value.strides = strides;
  return value;
}

// Whether the step keeps the promise by the engine's own all-reduce being a tree of one channel.
bool NeedsOneChannel(const Plan& plan, const Step& step) {
  if (plan.kept() != Reproducibility::kBatchInvariant || step.op != StepOp::kAllReduce ||
      step.reduce_order != ReduceOrder::kAny || !step.reduce_op ||
      IsExact(*step.reduce_op, step.after.dtype())) {
    return false;
  }
  for (const auto& [name, value] : plan.inputs().options) {
    if (name == "native_invariance") return value == Name(NativeInvariance::kAllReduce);
  }
  return false;
}

// The workspace's size where the program itself says how much it needs.
constexpr int64_t kUnlimited = int64_t{1} << 61;

absl::StatusOr<Program> LowerInto(const Plan& plan, int64_t rank, const Coordinate& me,
                                  const ProgramMemory& memory, bool one_buffer) {
  const std::vector<Step>& steps = plan.steps();
  ProgramBuilder build(plan.from().mesh(), rank, me, memory, static_cast<int>(steps.size()));
  StepLowering lower(plan.from().mesh(), rank, me, &build, one_buffer && steps.size() <= 1);
  const Sharding* before = &plan.from();
  for (const Step& step : steps) {
    MESHIFT_RETURN_IF_ERROR(CheckStep(plan, *before, step));
    MESHIFT_ASSIGN_OR_RETURN(const StepGeometry g, StepGeometry::Create(*before, step, me));
    MESHIFT_RETURN_IF_ERROR(build.BeginStep(step.after.dtype(), g.box_after()));
    build.set_one_channel(NeedsOneChannel(plan, step));
    MESHIFT_RETURN_IF_ERROR(lower.Add(g, *before, step));
    before = &step.after;
  }
  if (steps.empty()) MESHIFT_RETURN_IF_ERROR(lower.AddWithoutSteps(memory.source, memory.target));
  if (before->dtype() != plan.to().dtype()) {
    return InvalidArgument("the plan ends with {}, not with {}", Name(before->dtype()),
                           Name(plan.to().dtype()));
  }
  Program program = std::move(build).Finish();
  program.one_buffer = one_buffer;
  return program;
}

}  // namespace

absl::StatusOr<Program> Lower(const Plan& plan, int64_t rank, const LoweringOptions& options) {
  MESHIFT_RETURN_IF_ERROR(CheckPlan(plan));
  const DeviceMesh& mesh = plan.from().mesh();
  const std::optional<Coordinate> me = mesh.CoordinateOf(rank);
  if (!me) return InvalidArgument("rank {} is not in mesh {}", rank, mesh.ToString());
  if (plan.from().dtype() == DType::kF4E2M1) {
    MESHIFT_ASSIGN_OR_RETURN(const Plan bytes, PlanOfBytes(plan));
    LoweringOptions of_bytes = options;
    const Shape source = plan.from().BoxAt(*me).size;
    const Shape target = plan.to().BoxAt(*me).size;
    absl::StatusOr<Shape> strides = StridesOfBytes(source, options.source_strides);
    if (!strides.ok()) return Annotate(strides.status(), "the source");
    of_bytes.source_strides = *std::move(strides);
    strides = StridesOfBytes(target, options.target_strides);
    if (!strides.ok()) return Annotate(strides.status(), "the target");
    of_bytes.target_strides = *std::move(strides);
    return Lower(bytes, rank, of_bytes);
  }

  const Box source = plan.from().BoxAt(*me);
  const Box target = plan.to().BoxAt(*me);
  const Box last = plan.steps().empty() ? source : plan.steps().back().after.BoxAt(*me);
  if (!(last == target)) {
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
  const bool as_planned = !memory.consume_source && !options.one_buffer &&
                          memory.source.IsRowMajor() && memory.target.IsRowMajor();
  memory.workspace_bytes = as_planned ? plan.total().workspace_bytes : kUnlimited;
  MESHIFT_ASSIGN_OR_RETURN(Program program, LowerInto(plan, rank, *me, memory, options.one_buffer));
  if (as_planned) {
    program.workspace_bytes = plan.total().workspace_bytes;
    return program;
  }
  // Where values lie depends on where the workspace ends.
  memory.workspace_bytes = program.workspace_bytes;
  return LowerInto(plan, rank, *me, memory, options.one_buffer);
}

}  // namespace meshift

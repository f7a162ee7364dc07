#include "planner/verifier_cases.h"

#include <fmt/format.h>

#include "base/checked_math.h"
#include "planner/verifier.h"

namespace meshift {
namespace {

// Without mesh dims of size 1.
Cuts CutsOf(const Sharding& sharding, int tensor_dim) {
  Cuts cuts;
  for (const int d : sharding.CutsOf(tensor_dim)) {
    if (sharding.mesh().dim(d).size > 1) cuts.push_back(d);
  }
  return cuts;
}

Step MakeStep(const Row& row, const Sharding& before) {
  const DeviceMesh& mesh = before.mesh();
  Step step{.op = row.op,
            .mesh_dims = {},
            .group_size = {},
            .groups = {},
            .tensor_dims = {},
            .reduce_op = {},
            .reduce_order = {},
            .divisor = {},
            .sizes = {},
            .wire_dtype = {},
            .accumulate_dtype = {},
            .after = before.WithDType(row.dtype.value_or(before.dtype()))
                         .value()
                         .WithPlacements(row.after)
                         .value()};
  int64_t group = 1;
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (fmt::format(",{},", row.dims).find(fmt::format(",{},", mesh.dim(d).name)) ==
        std::string::npos) {
      continue;
    }
    step.mesh_dims.push_back(d);
    group *= mesh.dim(d).size;
  }
  for (int t = 0; t < static_cast<int>(before.shape().size()); ++t) {
    const Cuts cuts = CutsOf(before, t);
    const bool alike = cuts == CutsOf(step.after, t) &&
                       (cuts.empty() ||
                        before.placement(cuts[0]).sizes() == step.after.placement(cuts[0]).sizes());
    if (!alike) step.tensor_dims.push_back(t);
  }
  if (IsCollective(row.op)) {
    step.group_size = group;
    step.groups = mesh.NumRanks() / group;
    step.sizes = row.sizes;
    step.wire_dtype = before.dtype();
  }
  if (IsReduction(row.op)) {
    step.reduce_op = row.reduce_op;
    step.reduce_order = ReduceOrder::kAny;
    if (row.divisor != 0) step.divisor = row.divisor;
    const bool small = before.dtype() == DType::kF16 || before.dtype() == DType::kBF16;
    step.accumulate_dtype = small ? DType::kF32 : before.dtype();
  }
  step.bytes_in = row.bytes_in;
  step.bytes_out = row.bytes_out;
  step.bytes_sent = row.bytes_sent;
  step.est_ns = 1000;
  return step;
}

}  // namespace

PlanFields MakeFields(const Case& c) {
  const DeviceMesh mesh = DeviceMesh::Parse(c.mesh).value();
  const Sharding from = Sharding::Parse(c.tensor, mesh, c.from).value();
  PlanFields plan{
      .meshes = {mesh},
      .from = from,
      .to = from.WithDType(c.to_dtype.value_or(from.dtype())).value().WithPlacements(c.to).value(),
      .why = "",
      .steps = {},
      .total = {},
      .lower_bound = {},
      .inputs = {}};
  if (c.reduce_dtype) {
    plan.inputs.options.emplace_back("reduce_dtype", std::string(Name(*c.reduce_dtype)));
  }
  Sharding before = from;
  for (const Row& row : c.rows) {
    plan.steps.push_back(MakeStep(row, before));
    before = plan.steps.back().after;
    plan.total.collectives += IsCollective(row.op) ? 1 : 0;
    plan.total.bytes_sent += row.bytes_sent;
    plan.total.est_ns += plan.steps.back().est_ns;
  }
  plan.total.workspace_bytes = c.workspace;
  plan.total.peak_bytes = c.workspace;
  for (const Sharding* sharding : {&plan.from, &plan.to}) {
    plan.total.peak_bytes = SaturatingAdd(plan.total.peak_bytes,
                                          Bytes(sharding->dtype(), sharding->MaxLocalElements()));
  }
  return plan;
}

std::string Judge(const PlanFields& plan) {
  // Not sealed: a damaged plan need not have a canonical text.
  const Verdict verdict = Verify(Plan::FromParts(plan, {}), {.check_fingerprint = false});
  if (verdict.ok()) return "";
  return fmt::format("{} {}: {}",
                     verdict.fault->step ? fmt::format("{}", *verdict.fault->step) : "-",
                     verdict.fault->rule, verdict.fault->message);
}

}  // namespace meshift

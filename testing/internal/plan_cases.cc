#include "testing/internal/plan_cases.h"

#include <fmt/format.h>

#include <set>

#include "base/checked_math.h"
#include "meshift/sharding.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

// The cuts of a tensor dim, without mesh dims of size 1.
Cuts CutsOf(const Sharding& sharding, int tensor_dim) {
  Cuts cuts;
  for (const int d : sharding.CutsOf(tensor_dim)) {
    if (sharding.mesh().dim(d).size > 1) cuts.push_back(d);
  }
  return cuts;
}

// The number of ranks in either mesh.
int64_t RanksInEither(const DeviceMesh& a, const DeviceMesh& b) {
  std::set<int64_t> ranks;
  for (const DeviceMesh* mesh : {&a, &b}) {
    for (const int64_t rank : mesh->Ranks()) ranks.insert(rank);
  }
  return static_cast<int64_t>(ranks.size());
}

// `on`: a sharding on the step's mesh.
Step MakeStep(const Row& row, const Sharding& before, const Sharding& on) {
  const bool crosses = row.dims == "->";
  const DeviceMesh& mesh = on.mesh();
  Step step{.op = row.op,
            .after = on.WithDType(row.dtype.value_or(before.dtype()))
                         .value()
                         .WithPlacements(row.after)
                         .value()};
  int64_t group = crosses ? RanksInEither(before.mesh(), mesh) : 1;
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (fmt::format(",{},", row.dims).find(fmt::format(",{},", mesh.dim(d).name)) ==
        std::string::npos) {
      continue;
    }
    step.mesh_dims.push_back(d);
    group *= mesh.dim(d).size;
  }
  for (int t = 0; !crosses && t < static_cast<int>(before.shape().size()); ++t) {
    const Cuts cuts = CutsOf(before, t);
    const bool alike = cuts == CutsOf(step.after, t) &&
                       (cuts.empty() ||
                        before.placement(cuts[0]).sizes() == step.after.placement(cuts[0]).sizes());
    if (!alike) step.tensor_dims.push_back(t);
  }
  if (IsCollective(row.op)) {
    step.group_size = group;
    step.groups = crosses ? 1 : mesh.NumRanks() / group;
    step.sizes = row.sizes;
    step.wire_dtype = before.dtype();
  }
  if (IsReduction(row.op) || row.adds) {
    step.reduce_op = row.reduce_op;
    step.reduce_order = row.adds ? ReduceOrder::kAscending : ReduceOrder::kAny;
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
  const DeviceMesh to_mesh = c.to_mesh.empty() ? mesh : DeviceMesh::Parse(c.to_mesh).value();
  const DType to_dtype = c.to_dtype.value_or(from.dtype());
  PlanFields plan{.meshes = {mesh},
                  .from = from,
                  .to = Sharding::Parse(TensorType{to_dtype, from.shape()}, to_mesh, c.to).value()};
  // An engine without known limits.
  plan.inputs.options.engine = EngineCapabilities::Full("any");
  plan.inputs.options.topology = Topology::Parse(c.topology).value();
  if (!c.to_mesh.empty()) {
    plan.meshes.push_back(to_mesh);
    plan.to_mesh = 1;
  }
  plan.inputs.options.reduce_dtype = c.reduce_dtype;
  Sharding before = from;
  bool crossed = false;
  for (const Row& row : c.rows) {
    crossed = crossed || row.dims == "->";
    plan.steps.push_back(MakeStep(row, before, crossed ? plan.to : before));
    plan.steps.back().mesh = crossed ? plan.to_mesh : 0;
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
  // Not sealed, since a damaged plan may not have a canonical text.
  const Verdict verdict = Verify(Plan::FromParts(plan, {}), {.check_fingerprint = false});
  if (verdict.ok()) return "";
  return fmt::format("{} {}: {}",
                     verdict.fault->step ? fmt::format("{}", *verdict.fault->step) : "-",
                     verdict.fault->rule, verdict.fault->message);
}

}  // namespace meshift

#include "planner/intra_mesh/reduction_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "meshift/placement.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

// On larger meshes groups are not compared one by one, but by a closed form.
constexpr int64_t kMaxListedRanks = 4096;

constexpr std::string_view kExact = "the reduction is exact in any order";

bool IsReduced(const Problem& problem, int d) {
  return problem.source().IsPartial(d) && !problem.StaysPartial(d);
}

// The shape of one group, for comparison: for each member in coordinate order its index among the
// group's ranks; then for each level the domains of the members, numbered by their first members.
std::vector<int64_t> SignatureOf(const std::vector<int64_t>& ranks, const Topology& topology) {
  std::vector<int64_t> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> signature;
  for (const int64_t rank : ranks) {
    signature.push_back(std::lower_bound(sorted.begin(), sorted.end(), rank) - sorted.begin());
  }
  for (int level = 0; level + 1 < topology.NumLevels(); ++level) {
    std::vector<int64_t> domains;
    for (const int64_t rank : ranks) {
      const int64_t domain = topology.DomainOf(level, rank);
      const auto it = std::find(domains.begin(), domains.end(), domain);
      signature.push_back(it - domains.begin());
      if (it == domains.end()) domains.push_back(domain);
    }
  }
  return signature;
}

// A closed form for row-major meshes: whether at each level with several domains one of two
// conditions holds. (1) Domains consist of whole inner mesh dims and a factor of the next one. Then
// the coordinates of a member determine its domain in the same way in every group. (2) Domains are
// not longer than the least distance of two members, so that each holds at most one. If neither
// holds, groups may or may not be equivalent.
bool DomainsFit(const DeviceMesh& mesh, absl::Span<const int> mesh_dims, const Topology& topology) {
  for (int level = 0; level + 1 < topology.NumLevels(); ++level) {
    const int64_t domain = topology.level(level).domain_size;
    if (domain >= mesh.NumRanks()) continue;
    int64_t stride = 1;
    bool fits = false;
    int64_t distance = 0;
    for (int d = mesh.NumDims() - 1; d >= 0; --d) {
      const int64_t size = mesh.dim(d).size;
      const bool grouped = std::find(mesh_dims.begin(), mesh_dims.end(), d) != mesh_dims.end();
      if (grouped && distance == 0 && size > 1) distance = stride;
      const bool ends_here = stride <= domain && domain < stride * size;
      fits |= ends_here && domain % stride == 0 && size % (domain / stride) == 0;
      stride *= size;
    }
    if (!fits && distance < domain) return false;
  }
  return true;
}

std::string InBrackets(const std::string& text) {
  return text.empty() ? "" : fmt::format(" ({})", text);
}

// Why the engine's own reductions do not reduce every element in the same way; empty if they do.
std::string WhyNotNative(const Problem& problem, const PlannerOptions& options) {
  const NativeInvariance native = options.engine.native_invariance;
  if (native == NativeInvariance::kNone) {
    return fmt::format("engine {} does not promise to reduce every element in the same way{}",
                       options.engine.name(), InBrackets(options.engine.native_why));
  }
  DimSet reduced;
  for (int d = 0; d < problem.num_dims(); ++d) {
    const std::string& name = problem.mesh().dim(problem.mesh_dim(d)).name;
    if (IsReduced(problem, d)) {
      reduced.push_back(problem.mesh_dim(d));
      if (native == NativeInvariance::kAllReduce && !problem.target().IsReplicate(d)) {
        return fmt::format(
            "engine {} reduces every element in the same way by all_reduce only, not by "
            "reduce_scatter over {}",
            options.engine.name(), name);
      }
    } else if (problem.source().IsReplicate(d)) {
      return fmt::format("several groups would reduce the same value: {} is replicated", name);
    }
  }
  if (GroupsAreEquivalent(problem.mesh(), reduced, options.topology)) return "";
  return "the groups are not equivalent on the topology";
}

}  // namespace

bool GroupsAreEquivalent(const DeviceMesh& mesh, absl::Span<const int> mesh_dims,
                         const Topology& topology) {
  int64_t size = 1;
  for (const int d : mesh_dims) size *= mesh.dim(d).size;
  if (size == mesh.NumRanks()) return true;
  if (mesh.IsRowMajor() && topology.NumLevels() == 1) return true;
  if (mesh.NumRanks() > kMaxListedRanks) {
    return mesh.IsRowMajor() && DomainsFit(mesh, mesh_dims, topology);
  }
  std::optional<std::vector<int64_t>> first;
  for (const std::vector<int64_t>& ranks : mesh.Groups(mesh_dims)) {
    std::vector<int64_t> signature = SignatureOf(ranks, topology);
    if (!first) {
      first = std::move(signature);
    } else if (*first != signature) {
      return false;
    }
  }
  return true;
}

CostOptions CostOptionsOf(const PlannerOptions& options, const ReductionChoice& choice) {
  CostOptions cost{.ordered = choice.ordered, .reduce_block = options.reduce_block};
  if (options.ragged_sizes == RaggedSizes::kMax) cost.ragged = StepSizes::kPadded;
  if (options.ragged_sizes == RaggedSizes::kSum) cost.ragged = StepSizes::kExact;
  return cost;
}

absl::StatusOr<ReductionChoice> ChooseReductions(const Problem& problem,
                                                 const PlannerOptions& options) {
  if (options.reduce_block < 0) {
    return InvalidArgument("a reduce_block of {} is below 0", options.reduce_block);
  }
  if (options.reduce_block > 0 && options.reproducibility != Reproducibility::kOrdered) {
    return InvalidArgument("a reduce_block of {} needs reproducibility 'ordered'; it is '{}'",
                           options.reduce_block, Name(options.reproducibility));
  }
  if (options.max_value.value_or(0) < 0) {
    return InvalidArgument("a max_value of {} is below 0", *options.max_value);
  }
  ReductionChoice choice;
  choice.exact = true;
  const DType dtype = problem.dtype(problem.reduce_stage());
  const auto is_exact = [&](ReduceOp op) {
    const bool always = op != ReduceOp::kMin && op != ReduceOp::kMax;
    return IsExact(op, dtype) && (always || IsInteger(dtype) || options.engine.min_max_exact);
  };
  std::vector<ReduceOp> ops;
  int averaged = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!IsReduced(problem, d)) continue;
    const ReduceOp op = problem.source().op(d);
    choice.exact &= is_exact(op);
    averaged += op == ReduceOp::kAvg ? 1 : 0;
    ops.push_back(op);
  }
  choice.reduces = !ops.empty();
  const bool per_dim = options.planner == PlannerKind::kPerDim;
  if (per_dim && averaged > 0 && ops.size() > 1 && IsInteger(dtype)) {
    return Unimplemented(
        "the per-dim planner cannot average {} and reduce over {} mesh dims: a step would truncate "
        "before the last sum",
        Name(dtype), ops.size());
  }
  choice.rules = {.single_sourced = options.reproducibility >= Reproducibility::kReplicas,
                  .exact = choice.exact};
  if (options.max_value) {
    choice.rules.max_value = options.max_value;
  } else if (options.max_memory) {
    choice.rules.max_value = INT64_MAX;
  }
  const bool one_dtype = problem.num_stages() == 1 && options.reduce_dtype.value_or(dtype) == dtype;
  if (!choice.reduces) {
    choice.why = "nothing is reduced";
    // But a value that becomes partial may be added to identities.
    const ReduceOp op = problem.cut_mask_op();
    choice.rules.masks_cuts = problem.MasksTarget() && one_dtype && !per_dim &&
                              options.reproducibility <= Reproducibility::kReplicas &&
                              CheckReduce(op, dtype).ok() && options.engine.CanReduce(op, dtype);
    if (choice.rules.masks_cuts) choice.exact = choice.rules.exact = is_exact(op);
    if (choice.exact) choice.why_masked = kExact;
  } else if (choice.exact) {
    choice.why = kExact;
  } else if (options.reproducibility > Reproducibility::kReplicas && !per_dim) {
    choice.rules.at_once = true;
    std::string because;
    if (options.reproducibility == Reproducibility::kBatchInvariant) {
      because = WhyNotNative(problem, options);
      choice.ordered = !because.empty();
    } else {
      choice.ordered = true;
    }
    if (choice.ordered && !options.ordered_reductions) {
      return FailedPrecondition(
          "reproducibility '{}' needs reductions in order, which the options forbid{}{}",
          Name(options.reproducibility), because.empty() ? "" : ": ", because);
    }
    if (choice.ordered) {
      // In order, several groups that reduce the same value get equal bits.
      choice.rules.single_sourced = false;
      choice.why = fmt::format("contributions are combined in ascending order of coordinates{}{}",
                               because.empty() ? "" : ": ", because);
      if (options.reduce_block > 0) {
        choice.why += fmt::format(", in blocks of {}", options.reduce_block);
      }
    } else {
      choice.rules.scatters = options.engine.native_invariance == NativeInvariance::kReduceScatter;
      choice.why = fmt::format(
          "engine {} reduces every element in the same way{}, in one step by equivalent groups",
          options.engine.name(), InBrackets(options.engine.native_why));
    }
  }
  if (choice.ordered) return choice;
  for (const ReduceOp op : ops) {
    if (options.engine.CanReduce(op, dtype)) continue;
    return Unimplemented("engine '{}' cannot reduce {} by {}", options.engine.name(), Name(dtype),
                         Name(op));
  }
  // A reduced value may be reduced again, with identities, if that needs the same op: a value has
  // one op.
  if (choice.reduces && !choice.rules.at_once) {
    choice.rules.masks_cuts = problem.MasksTarget() && one_dtype && !per_dim &&
                              problem.cut_mask_op() == problem.mask_op();
  }
  return choice;
}

}  // namespace meshift

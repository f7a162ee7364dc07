#include "planner/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/status.h"

namespace meshift {
namespace {

constexpr std::array<std::string_view, 4> kReproducibilityNames = {"none", "replicas",
                                                                   "batch-invariant", "ordered"};
constexpr std::array<std::string_view, kNumStepOps> kStepOpNames = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute",
    "exchange",   "slice",          "mask",       "cast",       "relabel"};
constexpr std::array<std::string_view, 2> kReduceOrderNames = {"any", "ascending"};
constexpr std::array<std::string_view, 3> kStepSizesNames = {"even", "padded", "exact"};

template <typename Enum, size_t kSize>
absl::StatusOr<Enum> FindName(const std::array<std::string_view, kSize>& names,
                              std::string_view name, std::string_view what) {
  for (size_t i = 0; i < kSize; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return InvalidArgument("'{}' is no {}; known are {}", name, what, fmt::join(names, ", "));
}

std::string JoinOrDash(const std::vector<std::string>& items) {
  return items.empty() ? "-" : fmt::format("{}", fmt::join(items, ","));
}

std::string MeshDimNames(const Step& step) {
  std::vector<std::string> names;
  for (int d : step.mesh_dims) names.push_back(step.after.mesh().dim(d).name);
  return JoinOrDash(names);
}

template <typename T>
std::string NumberOrDash(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "-";
}

template <typename T>
std::string NameOrDash(const std::optional<T>& value) {
  return value ? std::string(Name(*value)) : "-";
}

std::string ChangeOfDType(DType before, DType after) {
  return before == after ? "" : fmt::format(" dtype {}", Name(after));
}

}  // namespace

std::string_view Name(Reproducibility r) { return kReproducibilityNames[static_cast<int>(r)]; }

absl::StatusOr<Reproducibility> ParseReproducibility(std::string_view name) {
  return FindName<Reproducibility>(kReproducibilityNames, name, "reproducibility");
}

std::string_view Name(StepOp op) { return kStepOpNames[static_cast<int>(op)]; }

absl::StatusOr<StepOp> ParseStepOp(std::string_view name) {
  return FindName<StepOp>(kStepOpNames, name, "op");
}

bool IsCollective(StepOp op) { return op <= StepOp::kExchange; }

bool IsReduction(StepOp op) { return op == StepOp::kAllReduce || op == StepOp::kReduceScatter; }

std::string_view Name(ReduceOrder order) { return kReduceOrderNames[static_cast<int>(order)]; }

absl::StatusOr<ReduceOrder> ParseReduceOrder(std::string_view name) {
  return FindName<ReduceOrder>(kReduceOrderNames, name, "reduce_order");
}

std::string_view Name(StepSizes sizes) { return kStepSizesNames[static_cast<int>(sizes)]; }

absl::StatusOr<StepSizes> ParseStepSizes(std::string_view name) {
  return FindName<StepSizes>(kStepSizesNames, name, "kind of sizes");
}

std::string Step::Label() const {
  return fmt::format("{}{{{}}}", Name(op),
                     op == StepOp::kCast ? std::string(Name(after.dtype())) : MeshDimNames(*this));
}

std::string Step::ToString() const {
  return fmt::format("{} -> {}", Label(), after.PlacementsText());
}

Fingerprint Fingerprint::Of(std::string_view text) {
  unsigned __int128 hash =
      (static_cast<unsigned __int128>(0x6c62272e07bb0142) << 64) | 0x62b821756295c58d;
  constexpr unsigned __int128 kPrime = (static_cast<unsigned __int128>(1) << 88) | 0x13b;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= kPrime;
  }
  return {.high = static_cast<uint64_t>(hash >> 64), .low = static_cast<uint64_t>(hash)};
}

absl::StatusOr<Fingerprint> Fingerprint::Parse(std::string_view hex) {
  Fingerprint result;
  if (hex.size() != 32) {
    return InvalidArgument("fingerprint '{}' has not 32 hex digits", hex);
  }
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) {
      return InvalidArgument("fingerprint '{}' has '{}', which is no lower-case hex digit", hex, c);
    }
    uint64_t& half = i < 16 ? result.high : result.low;
    half = half << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return result;
}

std::string Fingerprint::ToString() const { return fmt::format("{:016x}{:016x}", high, low); }

Plan Plan::Seal(PlanFields fields) {
  auto rep = std::make_shared<Rep>(Rep{std::move(fields), {}});
  Rep& sealed = *rep;
  Plan plan(std::move(rep));
  sealed.fingerprint = Fingerprint::Of(plan.CanonicalText());
  return plan;
}

Plan Plan::FromParts(PlanFields fields, Fingerprint stated) {
  return Plan(std::make_shared<Rep>(Rep{std::move(fields), stated}));
}

std::optional<DType> Plan::reduce_dtype() const {
  for (const auto& [name, value] : inputs().options) {
    if (name != "reduce_dtype") continue;
    if (const absl::StatusOr<DType> dtype = ParseDType(value); dtype.ok()) return *dtype;
  }
  return std::nullopt;
}

std::string Plan::CanonicalText() const {
  const PlanFields& f = fields();
  std::string text = "meshift.plan 1\n";
  auto out = std::back_inserter(text);
  for (const DeviceMesh& mesh : f.meshes) fmt::format_to(out, "mesh {}\n", mesh.ToString());
  fmt::format_to(out, "tensor {}\n", f.from.tensor().ToString());
  fmt::format_to(out, "from {} {}\n", f.from_mesh, f.from.PlacementsText());
  fmt::format_to(out, "to {} {}{}\n", f.to_mesh, f.to.PlacementsText(),
                 ChangeOfDType(f.from.dtype(), f.to.dtype()));
  DType dtype = f.from.dtype();
  for (const Step& s : f.steps) {
    fmt::format_to(
        out,
        "step {} mesh {} dims {} group_size {} groups {} tensor_dims {} reduce {} {} divisor {} "
        "sizes {} wire {} accumulate {} after {}{}\n",
        Name(s.op), s.mesh, MeshDimNames(s), NumberOrDash(s.group_size), NumberOrDash(s.groups),
        s.tensor_dims.empty() ? "-" : fmt::format("{}", fmt::join(s.tensor_dims, ",")),
        NameOrDash(s.reduce_op), NameOrDash(s.reduce_order), NumberOrDash(s.divisor),
        NameOrDash(s.sizes), NameOrDash(s.wire_dtype), NameOrDash(s.accumulate_dtype),
        s.after.PlacementsText(), ChangeOfDType(dtype, s.after.dtype()));
    dtype = s.after.dtype();
  }
  return text;
}

}  // namespace meshift

#include "planner/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

// All of it here: there is nothing to link.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <charconv>

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

// A step that somebody made may name a mesh dim that is none, "#7"; no mesh dim is called so.
std::string MeshDimName(const Step& step, int d) {
  const DeviceMesh& mesh = step.after.mesh();
  return d >= 0 && d < mesh.NumDims() ? mesh.dim(d).name : fmt::format("#{}", d);
}

std::string MeshDimNames(const Step& step) {
  std::vector<std::string> names;
  for (int d : step.mesh_dims) names.push_back(MeshDimName(step, d));
  return JoinOrDash(names);
}

// Of a value that is none of the enum's, "?".
template <typename Enum, size_t kSize>
std::string_view NameIn(const std::array<std::string_view, kSize>& names, Enum value) {
  const auto i = static_cast<size_t>(value);
  return i < kSize ? names[i] : "?";
}

}  // namespace

std::string_view Name(Reproducibility r) { return NameIn(kReproducibilityNames, r); }

absl::StatusOr<Reproducibility> ParseReproducibility(std::string_view name) {
  return FindName<Reproducibility>(kReproducibilityNames, name, "reproducibility");
}

std::string_view Name(StepOp op) { return NameIn(kStepOpNames, op); }

absl::StatusOr<StepOp> ParseStepOp(std::string_view name) {
  return FindName<StepOp>(kStepOpNames, name, "op");
}

bool IsCollective(StepOp op) { return op <= StepOp::kExchange; }

bool IsReduction(StepOp op) { return op == StepOp::kAllReduce || op == StepOp::kReduceScatter; }

bool IsCrossing(const Step& step) {
  return step.op == StepOp::kRelabel || (step.op == StepOp::kExchange && step.mesh_dims.empty());
}

std::string_view Name(ReduceOrder order) { return NameIn(kReduceOrderNames, order); }

absl::StatusOr<ReduceOrder> ParseReduceOrder(std::string_view name) {
  return FindName<ReduceOrder>(kReduceOrderNames, name, "reduce_order");
}

std::string_view Name(StepSizes sizes) { return NameIn(kStepSizesNames, sizes); }

absl::StatusOr<StepSizes> ParseStepSizes(std::string_view name) {
  return FindName<StepSizes>(kStepSizesNames, name, "kind of sizes");
}

std::string Step::Label() const {
  std::string what = op == StepOp::kCast ? std::string(Name(after.dtype())) : MeshDimNames(*this);
  if (IsCrossing(*this)) what = fmt::format("onto mesh {}", mesh);
  return fmt::format("{}{{{}}}", Name(op), what);
}

std::string Step::ToString() const {
  return fmt::format("{} -> {}", Label(), after.PlacementsText());
}

Fingerprint Fingerprint::Of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {.high = hash.high64, .low = hash.low64};
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
  auto rep = std::make_shared<Rep>(std::move(fields));
  Rep& sealed = *rep;
  Plan plan(std::move(rep));
  sealed.fingerprint = Fingerprint::Of(plan.CanonicalText());
  return plan;
}

Plan Plan::FromParts(PlanFields fields, Fingerprint stated) {
  return Plan(std::make_shared<Rep>(std::move(fields), stated));
}

Buffers Plan::buffers() const {
  for (const auto& [name, value] : inputs().options) {
    if (name == "buffers") return ParseBuffers(value).value_or(Buffers::kTwo);
  }
  return Buffers::kTwo;
}

std::optional<DType> Plan::reduce_dtype() const {
  for (const auto& [name, value] : inputs().options) {
    if (name != "reduce_dtype") continue;
    if (const absl::StatusOr<DType> dtype = ParseDType(value); dtype.ok()) return *dtype;
  }
  return std::nullopt;
}

// Appended piece by piece: every plan that is made says this text once, for its fingerprint.
std::string Plan::CanonicalText() const {
  const PlanFields& f = fields();
  std::string text;
  text.reserve(256 * (1 + f.steps.size()));
  const auto add = [&text](const auto&... parts) { (text.append(std::string_view(parts)), ...); };
  const auto add_number = [&text](std::optional<int64_t> value) {
    if (!value) {
      text += '-';
      return;
    }
    std::array<char, 20> digits;
    text.append(digits.data(),
                std::to_chars(digits.data(), digits.data() + digits.size(), *value).ptr);
  };
  const auto add_name = [&](const auto& value) { add(value ? Name(*value) : "-"); };
  // add_item(i) for each of `items`, between commas.
  const auto add_list = [&](const DimSet& items, auto add_item) {
    if (items.empty()) text += '-';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text += ',';
      add_item(items[i]);
    }
  };
  const auto add_change = [&](DType before, DType after) {
    if (before != after) add(" dtype ", Name(after));
  };
  add("meshift.plan 1\n");
  for (const DeviceMesh& mesh : f.meshes) add("mesh ", mesh.ToString(), "\n");
  add("tensor ", f.from.tensor().ToString(), "\nfrom ");
  add_number(f.from_mesh);
  add(" ");
  f.from.AppendPlacementsTo(&text);
  add("\nto ");
  add_number(f.to_mesh);
  add(" ");
  const size_t to_begin = text.size();
  f.to.AppendPlacementsTo(&text);
  const size_t to_size = text.size() - to_begin;
  add_change(f.from.dtype(), f.to.dtype());
  // Who sends what onto another mesh depends on the links.
  if (f.meshes.size() > 1) add("\ntopology ", f.inputs.topology);
  DType dtype = f.from.dtype();
  for (const Step& s : f.steps) {
    add("\nstep ", Name(s.op), " mesh ");
    add_number(s.mesh);
    add(" dims ");
    add_list(s.mesh_dims, [&](int d) { add(MeshDimName(s, d)); });
    add(" group_size ");
    add_number(s.group_size);
    add(" groups ");
    add_number(s.groups);
    add(" tensor_dims ");
    add_list(s.tensor_dims, add_number);
    add(" reduce ");
    add_name(s.reduce_op);
    add(" ");
    add_name(s.reduce_order);
    if (s.reduce_block) {
      add(" block ");
      add_number(s.reduce_block);
    }
    if (s.reduce_stages) {
      add(" stages ");
      add_number(s.reduce_stages);
    }
    add(" divisor ");
    add_number(s.divisor);
    add(" sizes ");
    add_name(s.sizes);
    add(" wire ");
    add_name(s.wire_dtype);
    add(" accumulate ");
    add_name(s.accumulate_dtype);
    add(" after ");
    if (s.after == f.to) {  // as the last step's: said once
      text.append(text, to_begin, to_size);
    } else {
      s.after.AppendPlacementsTo(&text);
    }
    add_change(dtype, s.after.dtype());
    dtype = s.after.dtype();
  }
  text += '\n';
  return text;
}

}  // namespace meshift

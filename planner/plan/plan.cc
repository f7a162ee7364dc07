// Implements meshift/plan.h, except Algorithm's name and TimeParts (planner/cost): names of enums,
// labels of steps, the canonical text, the fingerprint. Parse functions return INVALID_ARGUMENT for
// an unknown name, or a text that is not 32 lower-case hex digits. No function checks a plan. The
// fingerprint finds accidental differences; XXH3 does not resist forgery.
#include "meshift/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

// Header-only, so that nothing has to be linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/status.h"
#include "planner/plan/expanded_plan.h"

namespace meshift {
namespace {

constexpr std::array<std::string_view, kNumStepOps> kStepOpNames = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute",
    "exchange",   "slice",          "mask",       "cast",       "relabel",
    "broadcast",  "reduce",         "gather",     "scatter",    "send"};
constexpr std::array<std::string_view, 2> kReduceOrderNames = {"any", "ascending"};
constexpr std::array<std::string_view, 3> kStepSizesNames = {"even", "padded", "exact"};

template <typename Enum, size_t kSize>
absl::StatusOr<Enum> FindName(const std::array<std::string_view, kSize>& names,
                              std::string_view name, std::string_view what) {
  for (size_t i = 0; i < kSize; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return InvalidArgument("unknown {} '{}'; expected {}", what, name, fmt::join(names, ", "));
}

std::string JoinOrDash(const std::vector<std::string>& items) {
  return items.empty() ? "-" : fmt::format("{}", fmt::join(items, ","));
}

// A step from outside may name a mesh dim that does not exist: "#7". No real mesh dim has such a
// name.
std::string MeshDimName(const Step& step, int d) {
  const DeviceMesh& mesh = step.after.mesh();
  return d >= 0 && d < mesh.NumDims() ? mesh.dim(d).name : fmt::format("#{}", d);
}

std::string MeshDimNames(const Step& step) {
  std::vector<std::string> names;
  for (int d : step.mesh_dims) names.push_back(MeshDimName(step, d));
  return JoinOrDash(names);
}

// "?" for a value outside the enum.
template <typename Enum, size_t kSize>
std::string_view NameIn(const std::array<std::string_view, kSize>& names, Enum value) {
  const auto i = static_cast<size_t>(value);
  return i < kSize ? names[i] : "?";
}

// A text of many short parts. Plan::Seal() builds the canonical text, for the fingerprint.
class Text {
 public:
  // memcpy instead of append(), which is a call: most parts are short literals.
  void Add(std::string_view part) {
    const size_t size = buffer_.size();
    buffer_.resize(size + part.size());
    std::memcpy(buffer_.data() + size, part.data(), part.size());
  }
  void AddNumber(int64_t value) {
    const fmt::format_int digits(value);
    Add({digits.data(), digits.size()});
  }
  std::string_view view() const { return {buffer_.data(), buffer_.size()}; }

 private:
  fmt::basic_memory_buffer<char, 1024> buffer_;  // enough for most plans
};

void AddNumberOrDash(std::optional<int64_t> value, Text* text) {
  if (value) {
    text->AddNumber(*value);
  } else {
    text->Add("-");
  }
}

template <typename Enum>
void AddNameOrDash(std::optional<Enum> value, Text* text) {
  if (value) {
    text->Add(Name(*value));
  } else {
    text->Add("-");
  }
}

// Calls add_item(i) for each of `items`, with commas between; "-" if there are none.
template <typename Fn>
void AddList(const DimSet& items, Text* text, Fn add_item) {
  if (items.empty()) text->Add("-");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text->Add(",");
    add_item(items[i]);
  }
}

void AddChange(DType before, DType after, Text* text) {
  if (before == after) return;
  text->Add(" dtype ");
  text->Add(Name(after));
}

void AddStep(const Step& s, const Sharding& to, std::string_view to_placements, Text* text) {
  text->Add("\nstep ");
  text->Add(Name(s.op));
  text->Add(" mesh ");
  text->AddNumber(s.mesh);
  text->Add(" dims ");
  AddList(s.mesh_dims, text, [&](int d) { text->Add(MeshDimName(s, d)); });
  text->Add(" group_size ");
  AddNumberOrDash(s.group_size, text);
  text->Add(" groups ");
  AddNumberOrDash(s.groups, text);
  text->Add(" tensor_dims ");
  AddList(s.tensor_dims, text, [&](int k) { text->AddNumber(k); });
  text->Add(" reduce ");
  AddNameOrDash(s.reduce_op, text);
  text->Add(" ");
  AddNameOrDash(s.reduce_order, text);
  if (s.reduce_block) {
    text->Add(" block ");
    text->AddNumber(*s.reduce_block);
  }
  if (s.reduce_stages) {
    text->Add(" stages ");
    text->AddNumber(*s.reduce_stages);
  }
  text->Add(" divisor ");
  AddNumberOrDash(s.divisor, text);
  text->Add(" sizes ");
  AddNameOrDash(s.sizes, text);
  text->Add(" wire ");
  AddNameOrDash(s.wire_dtype, text);
  text->Add(" accumulate ");
  AddNameOrDash(s.accumulate_dtype, text);
  text->Add(" after ");
  text->Add(s.after == to ? to_placements : s.after.PlacementsText());
}

// Writes Plan::CanonicalText().
void AddCanonical(const PlanFields& f, Text* text) {
  text->Add(HasAt(f) ? "meshift.plan 2\n" : "meshift.plan 1\n");
  for (const DeviceMesh& mesh : f.meshes) {
    text->Add("mesh ");
    text->Add(mesh.ToString());
    text->Add("\n");
  }
  text->Add("tensor ");
  text->Add(f.from.tensor().ToString());
  text->Add("\nfrom ");
  text->AddNumber(f.from_mesh);
  text->Add(" ");
  text->Add(f.from.PlacementsText());
  text->Add("\nto ");
  text->AddNumber(f.to_mesh);
  text->Add(" ");
  const std::string to_placements = f.to.PlacementsText();
  text->Add(to_placements);
  AddChange(f.from.dtype(), f.to.dtype(), text);
  // A crossing's messages depend on the links.
  if (f.meshes.size() > 1) {
    text->Add("\ntopology ");
    text->Add(f.inputs.options.topology.ToString());
  }
  DType dtype = f.from.dtype();
  for (const Step& step : f.steps) {
    AddStep(step, f.to, to_placements, text);
    AddChange(dtype, step.after.dtype(), text);
    dtype = step.after.dtype();
  }
  text->Add("\n");
}

}  // namespace

std::string_view Name(StepOp op) { return NameIn(kStepOpNames, op); }

absl::StatusOr<StepOp> ParseStepOp(std::string_view name) {
  return FindName<StepOp>(kStepOpNames, name, "op");
}

bool IsCollective(StepOp op) { return op <= StepOp::kExchange || op >= StepOp::kBroadcast; }

bool IsReduction(StepOp op) {
  return op == StepOp::kAllReduce || op == StepOp::kReduceScatter || op == StepOp::kReduce;
}

bool IsCrossing(const Step& step) {
  return step.op == StepOp::kRelabel || (step.op == StepOp::kExchange && step.mesh_dims.empty());
}

std::string_view Name(ReduceOrder order) { return NameIn(kReduceOrderNames, order); }

absl::StatusOr<ReduceOrder> ParseReduceOrder(std::string_view name) {
  return FindName<ReduceOrder>(kReduceOrderNames, name, "reduce_order");
}

std::string_view Name(StepSizes sizes) { return NameIn(kStepSizesNames, sizes); }

absl::StatusOr<StepSizes> ParseStepSizes(std::string_view name) {
  return FindName<StepSizes>(kStepSizesNames, name, "sizes");
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
    return InvalidArgument("fingerprint '{}' does not have 32 hex digits", hex);
  }
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) {
      return InvalidArgument("fingerprint '{}' has '{}', which is not a lower-case hex digit", hex,
                             c);
    }
    uint64_t& half = i < 16 ? result.high : result.low;
    half = half << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return result;
}

std::string Fingerprint::ToString() const { return fmt::format("{:016x}{:016x}", high, low); }

Plan Plan::Seal(PlanFields fields) {
  auto rep = std::make_shared<Rep>(std::move(fields));
  Text text;
  AddCanonical(rep->fields, &text);
  rep->fingerprint = Fingerprint::Of(text.view());
  return Plan(std::move(rep));
}

Plan Plan::FromParts(PlanFields fields, Fingerprint stated) {
  return Plan(std::make_shared<Rep>(std::move(fields), stated));
}

std::string Plan::CanonicalText() const {
  Text text;
  AddCanonical(fields(), &text);
  return std::string(text.view());
}

}  // namespace meshift

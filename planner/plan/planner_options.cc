// Implements the names of the enums in meshift/planner_options.h. The parse functions return
// INVALID_ARGUMENT, which lists the known names. Name() REQUIRES a value of the enum.
#include "meshift/planner_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {
namespace {

// In the order of the enums' values.
constexpr std::array<std::string_view, 3> kBuffers = {"two", "consumed", "one"};
constexpr std::array<std::string_view, 4> kReproducibilities = {"none", "replicas",
                                                                "batch-invariant", "ordered"};
constexpr std::array<std::string_view, 2> kPlannerKinds = {"best", "per-dim"};
constexpr std::array<std::string_view, 3> kRaggedSizes = {"cost", "max", "sum"};
constexpr std::array<std::string_view, 3> kInvariances = {"none", "all_reduce", "reduce_scatter"};

template <typename Enum, size_t kSize>
absl::StatusOr<Enum> Find(const std::array<std::string_view, kSize>& names, std::string_view name,
                          std::string_view what) {
  for (size_t i = 0; i < kSize; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return InvalidArgument("unknown {} '{}'; expected {}", what, name, fmt::join(names, ", "));
}

}  // namespace

std::string_view Name(Buffers buffers) { return kBuffers[static_cast<size_t>(buffers)]; }
absl::StatusOr<Buffers> ParseBuffers(std::string_view name) {
  return Find<Buffers>(kBuffers, name, "buffer mode");
}

std::string_view Name(Reproducibility r) { return kReproducibilities[static_cast<size_t>(r)]; }
absl::StatusOr<Reproducibility> ParseReproducibility(std::string_view name) {
  return Find<Reproducibility>(kReproducibilities, name, "reproducibility");
}

std::string_view Name(PlannerKind kind) { return kPlannerKinds[static_cast<size_t>(kind)]; }
absl::StatusOr<PlannerKind> ParsePlannerKind(std::string_view name) {
  return Find<PlannerKind>(kPlannerKinds, name, "planner");
}

std::string_view Name(RaggedSizes sizes) { return kRaggedSizes[static_cast<size_t>(sizes)]; }
absl::StatusOr<RaggedSizes> ParseRaggedSizes(std::string_view name) {
  return Find<RaggedSizes>(kRaggedSizes, name, "ragged_sizes");
}

std::string_view Name(NativeInvariance invariance) {
  return kInvariances[static_cast<size_t>(invariance)];
}
absl::StatusOr<NativeInvariance> ParseNativeInvariance(std::string_view name) {
  return Find<NativeInvariance>(kInvariances, name, "native invariance");
}

}  // namespace meshift

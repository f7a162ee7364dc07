#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/status.h"
#include "meshift/testing.h"

namespace meshift::testkit {
namespace {

// Fills targets and the bytes around them before a call, so that elements that are not written, and
// writes outside the target, are detected.
constexpr std::byte kPoison{0xa5};
constexpr size_t kGuard = 64;  // a multiple of the alignment

struct Buffer {
  std::vector<std::byte> memory;  // guard, tensor, guard
  explicit Buffer(int64_t bytes) : memory(static_cast<size_t>(bytes) + 2 * kGuard) {}
  absl::Span<std::byte> Tensor() {
    return absl::MakeSpan(memory).subspan(kGuard, memory.size() - 2 * kGuard);
  }
  void Poison() { std::fill(memory.begin(), memory.end(), kPoison); }
  bool GuardsHold() const {
    const auto is_poison = [](std::byte b) { return b == kPoison; };
    return std::all_of(memory.begin(), memory.begin() + kGuard, is_poison) &&
           std::all_of(memory.end() - kGuard, memory.end(), is_poison);
  }
};

class LayerRunner {
 public:
  explicit LayerRunner(const Oracle& oracle) : oracle_(oracle) {
    const DeviceMesh& from = oracle.source().mesh();
    const DeviceMesh& to = oracle.target().mesh();
    for (int64_t p = 0; p < from.NumRanks(); ++p) sources_.emplace_back(oracle.SourceBytes(p));
    for (int64_t p = 0; p < to.NumRanks(); ++p) targets_.emplace_back(oracle.TargetBytes(p));
    for (Buffer& buffer : sources_) source_views_.emplace_back(buffer.Tensor());
    for (Buffer& buffer : targets_) target_views_.push_back(buffer.Tensor());
  }

  absl::StatusOr<CheckResult> Run(const Fill& fill, LayerFn layer) {
    for (size_t p = 0; p < sources_.size(); ++p) {
      sources_[p].Poison();
      MESHIFT_RETURN_IF_ERROR(
          oracle_.FillSource(fill, static_cast<int64_t>(p), sources_[p].Tensor()));
    }
    for (Buffer& buffer : targets_) buffer.Poison();
    MESHIFT_RETURN_IF_ERROR(layer(LocalTensors(source_views_, target_views_)));
    MESHIFT_RETURN_IF_ERROR(CheckMemory(fill));
    const std::vector<absl::Span<const std::byte>> held(target_views_.begin(), target_views_.end());
    return oracle_.Check(fill, held);
  }

 private:
  absl::Status CheckMemory(const Fill& fill) {
    std::vector<std::byte> before;
    for (size_t p = 0; p < sources_.size(); ++p) {
      const absl::Span<std::byte> source = sources_[p].Tensor();
      before.resize(source.size());
      MESHIFT_RETURN_IF_ERROR(
          oracle_.FillSource(fill, static_cast<int64_t>(p), absl::MakeSpan(before)));
      if (std::equal(before.begin(), before.end(), source.begin()) && sources_[p].GuardsHold()) {
        continue;
      }
      return FailedPrecondition("the layer wrote to the source of rank {}, which is read-only",
                                oracle_.source().mesh().RankAt(static_cast<int64_t>(p)));
    }
    for (size_t p = 0; p < targets_.size(); ++p) {
      if (targets_[p].GuardsHold()) continue;
      return FailedPrecondition("the layer wrote next to the target of rank {}, which has {} bytes",
                                oracle_.target().mesh().RankAt(static_cast<int64_t>(p)),
                                targets_[p].Tensor().size());
    }
    return absl::OkStatus();
  }

  const Oracle& oracle_;
  std::vector<Buffer> sources_;  // by position
  std::vector<Buffer> targets_;
  std::vector<absl::Span<const std::byte>> source_views_;
  std::vector<absl::Span<std::byte>> target_views_;
};

}  // namespace

absl::StatusOr<CheckResult> CheckLayer(const LayerCheck& check, LayerFn layer) {
  MESHIFT_ASSIGN_OR_RETURN(const Oracle oracle, Oracle::Create(check.from, check.to));
  LayerRunner runner(oracle);
  std::vector<Fill> fills = {{Values::kExact, check.seed},
                             {Values::kExact, check.seed + 1},
                             {Values::kRounding, check.seed + 2}};
  if (check.special_values) fills.push_back({Values::kSpecial, check.seed + 3});
  CheckResult sum;
  for (const Fill& fill : fills) {
    MESHIFT_ASSIGN_OR_RETURN(const CheckResult result, runner.Run(fill, layer));
    sum.Add(result);
  }
  return sum;
}

}  // namespace meshift::testkit

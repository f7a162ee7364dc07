#include "cli/run_buffers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "base/checked_math.h"

namespace meshift::cli {
namespace {

void CopyBytes(absl::Span<const std::byte> from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

int64_t RunBufferBytes(Buffers buffers, int64_t source_bytes, int64_t target_bytes) {
  return buffers == Buffers::kOne ? std::max(source_bytes, target_bytes)
                                  : SaturatingAdd(source_bytes, target_bytes);
}

int64_t TensorBytesBeside(Buffers buffers, int64_t source_bytes, int64_t target_bytes) {
  if (buffers == Buffers::kTwo) return 0;
  return buffers == Buffers::kOne ? SaturatingAdd(source_bytes, target_bytes) : source_bytes;
}

RunBuffers::RunBuffers(const Plan& plan, const LocalTensors& sources, LocalTensors* targets)
    : buffers_(plan.options().buffers),
      sources_(sources),
      targets_(*targets),
      source_data_(sources.data().begin(), sources.data().end()),
      target_data_(targets->data().begin(), targets->data().end()) {
  if (buffers_ == Buffers::kTwo) return;
  for (size_t p = 0; p < source_data_.size(); ++p) {
    Copy copy{.source = static_cast<int64_t>(p)};
    size_t bytes = sources_.SizeAt(copy.source);
    if (buffers_ == Buffers::kOne) {
      const std::optional<int64_t> target =
          plan.to().mesh().PositionOf(plan.from().mesh().RankAt(copy.source));
      if (!target) continue;  // the rank has no target, so its source stays as it is
      copy.target = *target;
      bytes = std::max(bytes, targets_.SizeAt(copy.target));
    }
    if (bytes == 0) continue;
    copy.memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (source_data_[p] != nullptr) source_data_[p] = copy.memory.get();
    if (copy.target != kNone && target_data_[copy.target] != nullptr) {
      target_data_[copy.target] = copy.memory.get();
    }
    copies_.push_back(std::move(copy));
  }
}

void RunBuffers::Fill() {
  for (const Copy& copy : copies_) {
    if (copy.target != kNone) CopyBytes(targets_.at(copy.target), copy.memory.get());
    CopyBytes(sources_.at(copy.source), copy.memory.get());
  }
}

void RunBuffers::Take() {
  for (const Copy& copy : copies_) {
    if (copy.target == kNone) continue;
    const absl::Span<std::byte> target = targets_.at(copy.target);
    CopyBytes({copy.memory.get(), target.size()}, target.data());
  }
}

}  // namespace meshift::cli

#include "meshift/symmetric.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/checked_math.h"
#include "base/status.h"
#include "base/status_macros.h"

namespace meshift {
namespace {

// What windows of NCCL begin at, and pages.
constexpr int64_t kBufferAlignment = 4096;
constexpr int64_t kMaxBufferBytes = int64_t{1} << 38;
constexpr int64_t kMaxBuffers = 4096;

}  // namespace

std::string_view Name(SymmetricMiss miss) {
  constexpr std::array<std::string_view, kNumSymmetricMisses> kNames = {
      "source", "target", "operation", "group", "size", "overlap", "promise", "engine", "list"};
  return kNames[static_cast<size_t>(miss)];
}

absl::Status CheckOptions(const SymmetricPoolOptions& options) {
  if (options.buffer_bytes < 1 || options.buffer_bytes > kMaxBufferBytes) {
    return InvalidArgument("buffer_bytes {} is not between 1 and {}", options.buffer_bytes,
                           kMaxBufferBytes);
  }
  if (options.buffers < 1 || options.buffers > options.max_buffers ||
      options.max_buffers > kMaxBuffers) {
    return InvalidArgument("buffers {} is not between 1 and max_buffers {}, which is at most {}",
                           options.buffers, options.max_buffers, kMaxBuffers);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SymmetricPool>> SymmetricPool::Create(
    Engine* engine, Communicator* communicator, const SymmetricPoolOptions& options) {
  MESHIFT_RETURN_IF_ERROR(CheckOptions(options));
  SymmetricPoolOptions rounded = options;
  rounded.buffer_bytes = RoundUp(options.buffer_bytes, kBufferAlignment);
  auto pool = std::unique_ptr<SymmetricPool>(new SymmetricPool(engine, communicator, rounded));
  MESHIFT_RETURN_IF_ERROR(pool->Reserve(options.buffers));
  return pool;
}

absl::Status SymmetricPool::Reserve(int64_t buffers) {
  const MutexLock growing(growing_);
  int64_t have = 0;
  {
    const MutexLock lock(mutex_);
    have = space_.num_buffers();
  }
  if (buffers > options_.max_buffers) {
    return absl::ResourceExhaustedError(fmt::format("{}: {} buffers are more than max_buffers {}",
                                                    ToString(), buffers, options_.max_buffers));
  }
  if (buffers <= have) return absl::OkStatus();
  const SymmetricRequest request{
      .first = have, .count = buffers - have, .bytes = options_.buffer_bytes};
  absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> made =
      engine_->AllocateSymmetric(*communicator_, request);
  if (!made.ok()) return Annotate(made.status(), ToString());
  const MutexLock lock(mutex_);
  for (std::unique_ptr<SymmetricBuffer>& buffer : *made) {
    by_address_.emplace(reinterpret_cast<uintptr_t>(buffer->data()),
                        static_cast<int64_t>(buffers_.size()));
    buffers_.push_back(std::move(buffer));
  }
  space_.AddBuffers(request.count);
  return absl::OkStatus();
}

absl::StatusOr<SymmetricBlock> SymmetricPool::Allocate(int64_t bytes) {
  if (bytes < 1 || bytes > kMaxBufferBytes) {
    return InvalidArgument("{}: a block of {} bytes", ToString(), bytes);
  }
  const MutexLock lock(mutex_);
  const std::optional<SymmetricSpace::Range> range = space_.Take(RoundUp(bytes, kAlignment));
  if (!range) {
    ++refused_;
    return absl::ResourceExhaustedError(fmt::format(
        "{}: no block of {} bytes: {} bytes are free in {} ranges, the largest of {}; {} of {} "
        "buffers are registered",
        ToString(), bytes, space_.free_bytes(), space_.num_free_ranges(), space_.largest_free(),
        space_.num_buffers(), options_.max_buffers));
  }
  const int64_t number = ++allocations_;
  blocks_.emplace(number, *range);
  by_place_.emplace(std::pair(range->buffer, range->offset), number);
  high_water_ =
      std::max(high_water_, space_.num_buffers() * options_.buffer_bytes - space_.free_bytes());
  return SymmetricBlock{.number = number,
                        .data = static_cast<char*>(buffers_[range->buffer]->data()) + range->offset,
                        .bytes = range->bytes,
                        .buffer = range->buffer,
                        .offset = range->offset};
}

absl::Status SymmetricPool::Free(int64_t block) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return InvalidArgument("{} has no block {}", ToString(), block);
  const SymmetricSpace::Range range = found->second;
  blocks_.erase(found);
  by_place_.erase({range.buffer, range.offset});
  space_.GiveBack(range);
  return absl::OkStatus();
}

absl::StatusOr<SymmetricBlock> SymmetricPool::Find(int64_t block) const {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) {
    return absl::NotFoundError(fmt::format("{} has no block {}", ToString(), block));
  }
  const SymmetricSpace::Range& range = found->second;
  return SymmetricBlock{.number = block,
                        .data = static_cast<char*>(buffers_[range.buffer]->data()) + range.offset,
                        .bytes = range.bytes,
                        .buffer = range.buffer,
                        .offset = range.offset};
}

SymmetricTensor SymmetricPool::TensorAt(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const MutexLock lock(mutex_);
  auto buffer = by_address_.upper_bound(address);
  if (buffer == by_address_.begin()) return {};
  --buffer;
  const auto at = static_cast<int64_t>(address - buffer->first);
  if (at >= options_.buffer_bytes) return {};
  auto block = by_place_.upper_bound({buffer->second, at});
  if (block == by_place_.begin()) return {};
  --block;
  const auto& [place, number] = *block;
  if (place.first != buffer->second) return {};
  const int64_t offset = at - place.second;
  if (offset >= blocks_.find(number)->second.bytes) return {};
  return {.block = number, .offset = offset};
}

SymmetricPlace SymmetricPool::PlaceOf(const SymmetricBlock& block, int64_t offset) const {
  const MutexLock lock(mutex_);
  return {.buffer = buffers_[block.buffer].get(), .offset = block.offset + offset};
}

SymmetricPoolStats SymmetricPool::stats() const {
  const MutexLock lock(mutex_);
  SymmetricPoolStats stats;
  stats.buffers = space_.num_buffers();
  stats.registered_bytes = stats.buffers * options_.buffer_bytes;
  stats.free_bytes = space_.free_bytes();
  stats.bytes_in_use = stats.registered_bytes - stats.free_bytes;
  stats.high_water_bytes = high_water_;
  stats.blocks = static_cast<int64_t>(blocks_.size());
  stats.allocations = allocations_;
  stats.refused = refused_;
  stats.largest_free = space_.largest_free();
  stats.free_ranges = space_.num_free_ranges();
  stats.calls.hits = hits_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < misses_.size(); ++i) {
    stats.calls.misses[i] = misses_[i].load(std::memory_order_relaxed);
  }
  return stats;
}

std::string SymmetricPool::ToString() const {
  return fmt::format("the symmetric pool of {}", communicator_->ToString());
}

}  // namespace meshift

// Implements SymmetricPool, CheckOptions and Name of meshift/symmetric.h. SymmetricSpace chooses
// the places of blocks; the engine allocates the buffers, which live as long as the pool.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "base/checked_math.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/symmetric/symmetric_space.h"
#include "meshift/status.h"
#include "meshift/symmetric.h"

namespace meshift {
namespace {

// The alignment that NCCL's windows need: a page.
constexpr int64_t kBufferAlignment = 4096;
// These keep the sum of all bytes far below 2^63.
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

struct SymmetricPool::State {
  explicit State(int64_t buffer_bytes) : space(buffer_bytes) {}

  Mutex growing;  // serialises Reserve, and is held while it waits for peers; taken before `mutex`
  mutable Mutex mutex;
  std::vector<std::unique_ptr<SymmetricBuffer>> buffers MESHIFT_GUARDED_BY(mutex);
  std::map<uintptr_t, int64_t> by_address MESHIFT_GUARDED_BY(mutex);  // buffer of a first address
  SymmetricSpace space MESHIFT_GUARDED_BY(mutex);
  absl::flat_hash_map<int64_t, SymmetricSpace::Range> blocks MESHIFT_GUARDED_BY(mutex);
  // Blocks by buffer and offset.
  std::map<std::pair<int64_t, int64_t>, int64_t> by_place MESHIFT_GUARDED_BY(mutex);
  int64_t high_water MESHIFT_GUARDED_BY(mutex) = 0;
  int64_t allocations MESHIFT_GUARDED_BY(mutex) = 0;
  int64_t refused MESHIFT_GUARDED_BY(mutex) = 0;
  std::atomic<int64_t> hits{0};
  std::array<std::atomic<int64_t>, kNumSymmetricMisses> misses = {};
};

SymmetricPool::SymmetricPool(Engine* engine, Communicator* communicator,
                             const SymmetricPoolOptions& options)
    : engine_(engine),
      communicator_(communicator),
      options_(options),
      state_(std::make_unique<State>(options.buffer_bytes)) {}

SymmetricPool::~SymmetricPool() = default;

void SymmetricPool::CountHit() { state_->hits.fetch_add(1, std::memory_order_relaxed); }

void SymmetricPool::CountMiss(SymmetricMiss miss) {
  state_->misses[static_cast<size_t>(miss)].fetch_add(1, std::memory_order_relaxed);
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
  const MutexLock growing(state_->growing);
  int64_t have = 0;
  {
    const MutexLock lock(state_->mutex);
    have = state_->space.num_buffers();
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
  const MutexLock lock(state_->mutex);
  for (std::unique_ptr<SymmetricBuffer>& buffer : *made) {
    state_->by_address.emplace(reinterpret_cast<uintptr_t>(buffer->data()),
                               static_cast<int64_t>(state_->buffers.size()));
    state_->buffers.push_back(std::move(buffer));
  }
  state_->space.AddBuffers(request.count);
  return absl::OkStatus();
}

absl::StatusOr<SymmetricBlock> SymmetricPool::Allocate(int64_t bytes) {
  if (bytes < 1 || bytes > kMaxBufferBytes) {
    return InvalidArgument("{}: block size {} is not between 1 and {} bytes", ToString(), bytes,
                           kMaxBufferBytes);
  }
  const MutexLock lock(state_->mutex);
  const std::optional<SymmetricSpace::Range> range = state_->space.Take(RoundUp(bytes, kAlignment));
  if (!range) {
    ++state_->refused;
    return absl::ResourceExhaustedError(fmt::format(
        "{}: no block of {} bytes: {} bytes are free in {} ranges, the largest of {}; {} of {} "
        "buffers are registered",
        ToString(), bytes, state_->space.free_bytes(), state_->space.num_free_ranges(),
        state_->space.largest_free(), state_->space.num_buffers(), options_.max_buffers));
  }
  const int64_t number = ++state_->allocations;
  state_->blocks.emplace(number, *range);
  state_->by_place.emplace(std::pair(range->buffer, range->offset), number);
  state_->high_water =
      std::max(state_->high_water,
               state_->space.num_buffers() * options_.buffer_bytes - state_->space.free_bytes());
  return SymmetricBlock{
      .number = number,
      .data = static_cast<char*>(state_->buffers[range->buffer]->data()) + range->offset,
      .bytes = range->bytes,
      .buffer = range->buffer,
      .offset = range->offset};
}

absl::Status SymmetricPool::Free(int64_t block) {
  const MutexLock lock(state_->mutex);
  const auto found = state_->blocks.find(block);
  if (found == state_->blocks.end())
    return InvalidArgument("{} has no block {}", ToString(), block);
  const SymmetricSpace::Range range = found->second;
  state_->blocks.erase(found);
  state_->by_place.erase({range.buffer, range.offset});
  state_->space.GiveBack(range);
  return absl::OkStatus();
}

absl::StatusOr<SymmetricBlock> SymmetricPool::Find(int64_t block) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->blocks.find(block);
  if (found == state_->blocks.end()) {
    return absl::NotFoundError(fmt::format("{} has no block {}", ToString(), block));
  }
  const SymmetricSpace::Range& range = found->second;
  return SymmetricBlock{
      .number = block,
      .data = static_cast<char*>(state_->buffers[range.buffer]->data()) + range.offset,
      .bytes = range.bytes,
      .buffer = range.buffer,
      .offset = range.offset};
}

SymmetricTensor SymmetricPool::TensorAt(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const MutexLock lock(state_->mutex);
  auto buffer = state_->by_address.upper_bound(address);
  if (buffer == state_->by_address.begin()) return {};
  --buffer;
  const auto at = static_cast<int64_t>(address - buffer->first);
  if (at >= options_.buffer_bytes) return {};
  auto block = state_->by_place.upper_bound({buffer->second, at});
  if (block == state_->by_place.begin()) return {};
  --block;
  const auto& [place, number] = *block;
  if (place.first != buffer->second) return {};
  const int64_t offset = at - place.second;
  if (offset >= state_->blocks.find(number)->second.bytes) return {};
  return {.block = number, .offset = offset};
}

SymmetricPlace SymmetricPool::PlaceOf(const SymmetricBlock& block, int64_t offset) const {
  const MutexLock lock(state_->mutex);
  return {.buffer = state_->buffers[block.buffer].get(), .offset = block.offset + offset};
}

SymmetricPoolStats SymmetricPool::stats() const {
  const MutexLock lock(state_->mutex);
  SymmetricPoolStats stats;
  stats.buffers = state_->space.num_buffers();
  stats.registered_bytes = stats.buffers * options_.buffer_bytes;
  stats.free_bytes = state_->space.free_bytes();
  stats.bytes_in_use = stats.registered_bytes - stats.free_bytes;
  stats.high_water_bytes = state_->high_water;
  stats.blocks = static_cast<int64_t>(state_->blocks.size());
  stats.allocations = state_->allocations;
  stats.refused = state_->refused;
  stats.largest_free = state_->space.largest_free();
  stats.free_ranges = state_->space.num_free_ranges();
  stats.calls.hits = state_->hits.load(std::memory_order_relaxed);
  for (size_t i = 0; i < state_->misses.size(); ++i) {
    stats.calls.misses[i] = state_->misses[i].load(std::memory_order_relaxed);
  }
  return stats;
}

std::string SymmetricPool::ToString() const {
  return fmt::format("the symmetric pool of {}", communicator_->ToString());
}

}  // namespace meshift

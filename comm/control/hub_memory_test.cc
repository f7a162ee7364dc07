// A rank whose frames do not fit into memory is dropped; the hub continues.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "comm/control/connect.h"
#include "comm/control/frame.h"
#include "meshift/bootstrap.h"
#include "testing/internal/played_peer.h"

namespace {

// Larger allocations fail.
std::atomic<size_t> most = SIZE_MAX;

void* Allocate(size_t size) {
  void* const memory = size > most ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace meshift {
namespace {

constexpr std::chrono::seconds kLong(20);

TEST(HubMemoryTest, ARankThatSaysMoreThanThereIsMemoryForEndsAlone) {
  const auto zero = *Bootstrap::Listen({.world_size = 3}, 0, kLong);
  const auto one = *Bootstrap::Connect({.rank = 1, .world_size = 3}, zero->address(), kLong);
  const auto pair0 = *zero->control()->Join({0, 1}, nullptr);
  const auto pair1 = *one->control()->Join({0, 1}, nullptr);
  const HubAddress hub = *ParseHubAddress(zero->address());
  PlayedRank two(DialPort(hub.port), {.rank = 2, .world_size = 3}, hub.key);
  ASSERT_TRUE(two.Greet().ok());
  const std::string large =
      Encode({.kind = Frame::Kind::kExchange, .text = std::string(size_t{4} << 20, 'x')});
  most = size_t{1} << 20;
  two.socket().SendAll(large).IgnoreError();  // as much as the hub reads
  const absl::Status status = one->Exchange("x").status();
  most = SIZE_MAX;
  EXPECT_TRUE(Contains(status, "rank 2 is gone")) << status;
  const std::string plan = "a plan";
  pair0->Post({.call = 0, .what = &plan}, true);
  pair1->Post({.call = 0, .what = &plan}, true);
  EXPECT_EQ(pair0->Await(0, kLong), absl::OkStatus());
}

}  // namespace
}  // namespace meshift

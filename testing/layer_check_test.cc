#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/testing.h"

namespace meshift::testkit {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A gradient sync on dp=3, tp=2: the sum over dp, with rank = 2 * dp + tp.
constexpr int kDp = 3;
constexpr int kTp = 2;

class GradientSync : public ::testing::Test {
 protected:
  absl::StatusOr<CheckResult> Check(LayerFn layer) const {
    return CheckLayer({.from = from_, .to = to_, .seed = 5}, layer);
  }

  // The correct layer.
  static absl::Status Sum(const LocalTensors& local) {
    for (int rank = 0; rank < kDp * kTp; ++rank) {
      const absl::Span<float> out = local.target<float>(rank);
      for (size_t i = 0; i < out.size(); ++i) {
        float sum = local.source<float>(rank % kTp)[i];
        for (int d = 1; d < kDp; ++d) sum += local.source<float>(d * kTp + rank % kTp)[i];
        out[i] = sum;
      }
    }
    return absl::OkStatus();
  }

  const Sharding from_ = *Sharding::Parse("f32[7,5] on dp=3,tp=2 as P,S(0)");
  const Sharding to_ = *from_.WithPlacements("R,S(0)");
};

TEST_F(GradientSync, ARightLayerPasses) {
  const auto result = Check(Sum);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok()) << result->ToString();
}

TEST_F(GradientSync, LocalTensorsAreTheBoxes) {
  const auto result = Check([](const LocalTensors& local) {
    EXPECT_EQ(local.num_sources(), 6);
    EXPECT_EQ(local.num_targets(), 6);
    for (int rank = 0; rank < 6; ++rank) {
      const size_t rows = rank % kTp == 0 ? 4 : 3;
      EXPECT_EQ(local.source<float>(rank).size(), rows * 5);
      EXPECT_EQ(local.target_bytes(rank).size(), rows * 5 * sizeof(float));
      EXPECT_EQ(local.source_bytes(rank).size(), rows * 5 * sizeof(float));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(local.target<float>(rank).data()) % 16, 0);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(local.source<float>(rank).data()) % 16, 0);
    }
    return Sum(local);
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok()) << result->ToString();
}

TEST_F(GradientSync, ALostContributionIsFound) {
  const auto result = Check([](const LocalTensors& local) {
    EXPECT_TRUE(Sum(local).ok());
    for (int rank = 0; rank < 6; ++rank) {
      // The last element is missing the last rank's gradient.
      local.target<float>(rank).back() -= local.source<float>(4 + rank % kTp).back();
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->wrong, 0);
  EXPECT_THAT(result->first_wrong, StartsWith("rank "));
  EXPECT_THAT(result->first_wrong, ::testing::AnyOf(HasSubstr("at [3,4]"), HasSubstr("at [6,4]")));
}

TEST_F(GradientSync, WhatIsNotWrittenIsFound) {
  const auto result = Check([](const LocalTensors&) { return absl::OkStatus(); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->wrong, 4 * kDp * 7 * 5);  // four calls
}

// Every rank adds in a different order: right up to rounding, but with different bits.
TEST_F(GradientSync, ReplicasThatDifferInRoundingAreFound) {
  const auto result = Check([](const LocalTensors& local) {
    for (int rank = 0; rank < 6; ++rank) {
      const absl::Span<float> out = local.target<float>(rank);
      for (size_t i = 0; i < out.size(); ++i) {
        float sum = 0;
        for (int d = 0; d < kDp; ++d) {
          sum += local.source<float>((rank / kTp + d) % kDp * kTp + rank % kTp)[i];
        }
        out[i] = sum;
      }
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->wrong, 0) << result->first_wrong;
  EXPECT_GT(result->replicas_differ, 0);
  EXPECT_THAT(result->first_difference, StartsWith("ranks "));
}

TEST_F(GradientSync, MayUseAThreadPerRank) {
  const auto result = Check([](const LocalTensors& local) {
    std::vector<std::thread> threads;
    for (int tp = 0; tp < kTp; ++tp) {
      threads.emplace_back([tp, &local] {
        std::vector<float> sum(local.source<float>(tp).size(), 0);
        for (int d = 0; d < kDp; ++d) {
          const absl::Span<const float> in = local.source<float>(d * kTp + tp);
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += in[i];
        }
        for (int d = 0; d < kDp; ++d) {
          const absl::Span<std::byte> out = local.target_bytes(d * kTp + tp);
          std::memcpy(out.data(), sum.data(), out.size());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return absl::OkStatus();
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok()) << result->ToString();
}

TEST_F(GradientSync, WritingToASourceIsAnError) {
  const auto result = Check([](const LocalTensors& local) {
    auto* const source = const_cast<float*>(local.source<float>(3).data());
    source[1] += 1;
    return Sum(local);
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(result.status()),
            "the layer wrote to the source of rank 3, which is read-only");
}

TEST_F(GradientSync, WritingNextToATargetIsAnError) {
  for (const int at : {-1, 15}) {
    const auto result = Check([at](const LocalTensors& local) {
      local.target<float>(5).data()[at] = 1;
      return Sum(local);
    });
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Message(result.status()),
              "the layer wrote next to the target of rank 5, which has 60 bytes");
  }
}

TEST_F(GradientSync, ErrorsOfTheLayerComeBack) {
  const auto result = Check([](const LocalTensors&) { return absl::DataLossError("gone"); });
  EXPECT_EQ(result.status(), absl::DataLossError("gone"));
}

// A maximum that loses NaN, which is right only if there is none.
TEST(CheckLayer, SpecialValuesCanBeLeftOut) {
  const Sharding from = *Sharding::Parse("f32[64] on a=3 as P(max)");
  const Sharding to = *from.WithPlacements("R");
  const auto layer = [](const LocalTensors& local) {
    for (int rank = 0; rank < 3; ++rank) {
      const absl::Span<float> out = local.target<float>(rank);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = std::fmax(std::fmax(local.source<float>(0)[i], local.source<float>(1)[i]),
                           local.source<float>(2)[i]);
      }
    }
    return absl::OkStatus();
  };
  const auto with = CheckLayer({.from = from, .to = to}, layer);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_GT(with->wrong, 0);
  const auto without = CheckLayer({.from = from, .to = to, .special_values = false}, layer);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_TRUE(without->ok()) << without->ToString();
}

// An unshard onto another mesh, with ranks in a different order.
TEST(CheckLayer, TwoMeshes) {
  const Sharding from = *Sharding::Parse("f64[5] on a=2 as S(0)");
  const Sharding to = *Sharding::Parse("f64[5] on b=3@2,0,1 as R");
  const auto result = CheckLayer({.from = from, .to = to}, [](const LocalTensors& local) {
    for (int64_t p = 0; p < local.num_targets(); ++p) {
      const absl::Span<std::byte> out = local.target_bytes(p);
      std::memcpy(out.data(), local.source_bytes(0).data(), 24);
      std::memcpy(out.data() + 24, local.source_bytes(1).data(), 16);
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok()) << result->ToString();
}

TEST(CheckLayer, RefusesWhatHasNoDefinition) {
  const Sharding from = *Sharding::Parse("f64[5] on a=2 as P");
  const Sharding to = *from.WithPlacements("P(max)");
  const auto result =
      CheckLayer({.from = from, .to = to}, [](const LocalTensors&) { return absl::OkStatus(); });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace meshift::testkit

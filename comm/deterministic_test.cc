// DeterministicAllReduce on the local engine, compared with a plain loop.
#include "meshift/deterministic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/local/reduction_order.h"
#include "meshift/local_world.h"
#include "testing/random.h"
#include "tests/plain_arithmetic.h"

namespace meshift {
namespace {

using Mode = DeterministicMode;

constexpr Mode kModes[] = {Mode::kNative, Mode::kOrdered, Mode::kRankReference};

// A local tensor: a view of some elements of a buffer.
struct Layout {
  Shape shape;
  Shape strides;
  int64_t offset = 0;  // of the first element
  int64_t size = 0;    // of the buffer, in elements
};
Layout Contiguous(Shape shape) {
  Layout layout{shape, TensorView::Contiguous(nullptr, DType::kF32, shape).strides, 0,
                NumElements(shape)};
  return layout;
}

uint64_t Number(DType dtype, testkit::Random& random) {
  const auto any = random.Next();
  const auto exponent = static_cast<uint64_t>(random.Below(5));
  switch (dtype) {
    case DType::kF32:
      return (any & 0x807fffff) | (125 + exponent) << 23;
    case DType::kBF16:
      return (any & 0x807f) | (125 + exponent) << 7;
    case DType::kF16:
      return (any & 0x83ff) | (13 + exponent) << 10;
    case DType::kF8E5M2:
      return (any & 0x83) | (13 + exponent) << 2;
    case DType::kF64:
      return (any & 0x800fffffffffffff) | (1021 + exponent) << 52;
    default:
      return any & 0xffffffff;
  }
}

class DeterministicTest : public testing::Test {
 protected:
  void Start(int64_t ranks, ReductionOrder order = ReductionOrder::kRanks) {
    world_ = LocalWorld::Create({.num_ranks = ranks, .num_workers = 1}).value();
    world_->SetReductionOrder(order, 3);
    ranks_ = ranks;
  }

  struct Outcome {
    std::string refused;                     // the error of all ranks
    std::vector<std::vector<uint64_t>> out;  // by rank and element, row-major
    DeterministicResult result;
  };

  // `in_place`: the output is the input. `shift`: added to the addresses, in bytes.
  Outcome Run(DType dtype, const Layout& in, const Layout& out, const DeterministicOptions& options,
              bool in_place = false, int64_t shift = 0, int64_t missing_workspace = 0) {
    const int64_t item = Bytes(dtype, 1);
    std::vector<std::vector<char>> sources(ranks_);
    std::vector<std::vector<char>> targets(ranks_);
    std::vector<std::unique_ptr<Buffer>> workspaces(ranks_);
    std::vector<std::unique_ptr<Stream>> streams(ranks_);
    std::vector<TensorView> results(ranks_);
    Outcome outcome;
    contributions_.assign(ranks_, {});
    for (int64_t r = 0; r < ranks_; ++r) {
      testkit::Random random(static_cast<uint64_t>(r) + 100);
      sources[r].assign(in.size * item + 16 + shift, '\x5a');
      targets[r].assign(out.size * item + 16 + shift, '\x5a');
      const auto view = [&](std::vector<char>& memory, const Layout& layout) {
        TensorView v;
        v.data = memory.data() + shift + layout.offset * item;
        v.dtype = dtype;
        v.shape = layout.shape;
        v.strides = layout.strides;
        return v;
      };
      const TensorView input = view(sources[r], in);
      ForEach(input, [&](char* at) {
        const uint64_t bits = Number(dtype, random);
        contributions_[r].push_back(bits);
        std::memcpy(at, &bits, item);
      });
      // Elements that share memory have the value that was written last.
      size_t i = 0;
      ForEach(input, [&](char* at) {
        contributions_[r][i] = 0;
        std::memcpy(&contributions_[r][i++], at, item);
      });
      results[r] = in_place ? input : view(targets[r], out);
      Engine& engine = *world_->engine(r);
      const auto bytes = DeterministicWorkspace(*engine.world(), input, results[r], options);
      if (!bytes.ok()) {
        outcome.refused = Message(bytes.status());
        continue;
      }
      const int64_t given = std::max<int64_t>(*bytes - missing_workspace, 0);
      workspaces[r] = engine.Allocate(given).value();
      streams[r] = engine.CreateStream().value();
      const auto result =
          DeterministicAllReduce(engine, *engine.world(), input, results[r], options,
                                 {workspaces[r]->data(), given}, *streams[r]);
      if (!result.ok()) {
        outcome.refused = Message(result.status());
        continue;
      }
      outcome.result = *result;
    }
    if (!outcome.refused.empty()) return outcome;
    outcome.out.resize(ranks_);
    for (int64_t r = 0; r < ranks_; ++r) {
      EXPECT_TRUE(world_->engine(r)->Synchronize(*streams[r]).ok());
      ForEach(results[r], [&](char* at) {
        outcome.out[r].push_back(0);
        std::memcpy(&outcome.out[r].back(), at, item);
      });
      // Nothing between the elements was written.
      if (in_place) continue;
      int64_t untouched = std::count(targets[r].begin(), targets[r].end(), '\x5a');
      EXPECT_GE(untouched, static_cast<int64_t>(targets[r].size()) - NumElements(out.shape) * item);
    }
    return outcome;
  }

  // The sum of the last run's contributions, by a loop over the ranks.
  std::vector<uint64_t> Plain(DType dtype, const DeterministicOptions& options) const {
    const PlainArithmetic plain(dtype);
    const bool mean = options.op == DeterministicOp::kMean;
    const bool rounds = !options.accumulate_in_f32 && plain.IsSmallFloat();
    std::vector<uint64_t> out;
    for (size_t i = 0; i < contributions_[0].size(); ++i) {
      std::vector<Bits> list;
      for (int64_t r = 0; r < ranks_; ++r) list.push_back({contributions_[r][i], 0});
      while (rounds && list.size() > 2) {
        list[1] = plain.Reduce(ReduceOp::kSum, 1, {list[0], list[1]});
        list.erase(list.begin());
      }
      out.push_back(
          plain.Reduce(mean ? ReduceOp::kAvg : ReduceOp::kSum, mean ? ranks_ : 1, list)[0]);
    }
    return out;
  }

  template <typename Fn>
  static void ForEach(const TensorView& view, Fn fn) {
    Shape index(view.shape.size(), 0);
    for (int64_t i = 0; i < NumElements(view.shape); ++i) {
      int64_t offset = 0;
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * view.strides[d];
      fn(static_cast<char*>(view.data) + offset * Bytes(view.dtype, 1));
      for (size_t d = index.size(); d > 0 && ++index[d - 1] == view.shape[d - 1]; --d) {
        index[d - 1] = 0;
      }
    }
  }

  std::unique_ptr<LocalWorld> world_;
  int64_t ranks_ = 0;
  std::vector<std::vector<uint64_t>> contributions_;
};

TEST_F(DeterministicTest, EveryModeIsThePlainLoop) {
  for (const int64_t ranks : {1, 2, 5, 8}) {
    Start(ranks);
    for (const DType dtype :
         {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E5M2, DType::kF64, DType::kI32}) {
      for (const Mode mode : kModes) {
        for (const auto op : {DeterministicOp::kSum, DeterministicOp::kMean}) {
          for (const bool f32 : {true, false}) {
            // The engine's own sums are in f32 too.
            if (mode == Mode::kNative && !f32) continue;
            const DeterministicOptions options{mode, op, f32};
            for (const Shape& shape : {Shape{1}, Shape{40}, Shape{3, 11}}) {
              const Outcome outcome = Run(dtype, Contiguous(shape), Contiguous(shape), options);
              ASSERT_EQ(outcome.refused, "");
              for (int64_t r = 0; r < ranks; ++r) {
                EXPECT_EQ(outcome.out[r], Plain(dtype, options))
                    << Name(mode) << " " << Name(dtype) << " on rank " << r << " of " << ranks;
              }
            }
          }
        }
      }
    }
  }
}

// Against an engine that adds in another order, only native sums differ.
TEST_F(DeterministicTest, OnlyNativeBitsAreTheEngines) {
  for (const ReductionOrder order : {ReductionOrder::kTopology, ReductionOrder::kAdversarial}) {
    Start(8, order);
    for (const Mode mode : kModes) {
      const DeterministicOptions options{.mode = mode};
      const Outcome outcome = Run(DType::kF32, Contiguous({100}), Contiguous({100}), options);
      for (int64_t r = 1; r < 8; ++r) EXPECT_EQ(outcome.out[r], outcome.out[0]);
      EXPECT_EQ(outcome.out[0] == Plain(DType::kF32, options), mode != Mode::kNative) << Name(mode);
    }
  }
}

TEST_F(DeterministicTest, TheResultSaysWhatWasGuaranteed) {
  Start(4);
  const auto run = [&](Mode mode, DType dtype, bool f32) {
    return Run(dtype, Contiguous({8}), Contiguous({8}), {.mode = mode, .accumulate_in_f32 = f32})
        .result;
  };
  DeterministicResult result = run(Mode::kNative, DType::kBF16, true);
  EXPECT_TRUE(result.replicas_equal && result.batch_invariant);
  EXPECT_FALSE(result.ordered);
  EXPECT_TRUE(result.rounded_once);
  EXPECT_EQ(result.accumulate_dtype, DType::kF32);
  EXPECT_EQ(result.why, "engine local adds every element in the same way");
  result = run(Mode::kNative, DType::kBF16, false);
  EXPECT_FALSE(result.rounded_once);
  EXPECT_EQ(result.accumulate_dtype, DType::kBF16);
  result = run(Mode::kOrdered, DType::kBF16, true);
  EXPECT_TRUE(result.replicas_equal && result.batch_invariant && result.ordered);
  EXPECT_TRUE(result.rounded_once);
  EXPECT_EQ(result.accumulate_dtype, DType::kF32);
  result = run(Mode::kRankReference, DType::kBF16, false);
  EXPECT_TRUE(result.ordered);
  EXPECT_FALSE(result.rounded_once);
  EXPECT_EQ(result.accumulate_dtype, DType::kBF16);
  EXPECT_TRUE(run(Mode::kNative, DType::kI32, true).ordered);
}

TEST_F(DeterministicTest, StridedTensorsAreRightInEveryMode) {
  Start(3);
  const Layout transposed{{5, 7}, {1, 5}, 0, 35};
  const Layout spread{{5, 7}, {30, 2}, 3, 160};
  const Layout backwards{{5, 7}, {-7, -1}, 34, 35};
  const Layout repeated{{5, 7}, {0, 1}, 0, 7};  // the rows of a source may share memory
  for (const Mode mode : kModes) {
    for (const Layout& in : {transposed, spread, backwards, repeated}) {
      for (const Layout& out : {Contiguous({5, 7}), transposed, spread, backwards}) {
        const DeterministicOptions options{.mode = mode, .op = DeterministicOp::kMean};
        const Outcome outcome = Run(DType::kBF16, in, out, options);
        ASSERT_EQ(outcome.refused, "");
        for (int64_t r = 0; r < 3; ++r) {
          EXPECT_EQ(outcome.out[r], Plain(DType::kBF16, options)) << Name(mode);
        }
      }
    }
  }
}

TEST_F(DeterministicTest, InPlaceIsRightInEveryMode) {
  Start(5);
  for (const Mode mode : kModes) {
    for (const Layout& layout : {Contiguous({23}), Layout{{5, 7}, {1, 5}, 0, 35}}) {
      for (const DType dtype : {DType::kF32, DType::kF16}) {
        const DeterministicOptions options{.mode = mode};
        const Outcome outcome = Run(dtype, layout, layout, options, /*in_place=*/true);
        ASSERT_EQ(outcome.refused, "");
        for (int64_t r = 0; r < 5; ++r) EXPECT_EQ(outcome.out[r], Plain(dtype, options));
      }
    }
  }
}

TEST_F(DeterministicTest, NothingIsMisread) {
  Start(2);
  for (const Mode mode : kModes) {
    const DeterministicOptions options{.mode = mode};
    const auto refused = [&](const Layout& in, const Layout& out, bool in_place = false,
                             int64_t shift = 0, int64_t missing = 0) {
      return Run(DType::kF32, in, out, options, in_place, shift, missing).refused;
    };
    // Zero elements: no call, and the right result.
    EXPECT_EQ(refused(Contiguous({0, 4}), Contiguous({0, 4})), "");
    EXPECT_EQ(refused(Contiguous({4}), Contiguous({2, 2})),
              "input f32[4] and output f32[2,2] must have the same dtype and shape");
    EXPECT_NE(refused(Contiguous({4}), {{4}, {0}, 0, 4}).find("overlap each other"),
              std::string::npos);
    // In place, with a contribution whose rows share memory.
    EXPECT_NE(refused({{4}, {0}, 0, 4}, {{4}, {0}, 0, 4}, true).find("overlap each other"),
              std::string::npos);
    EXPECT_NE(refused(Contiguous({4}), Contiguous({4}), false, 2)
                  .find("is not aligned to the 4 bytes of f32"),
              std::string::npos);
    if (mode == Mode::kOrdered) {
      EXPECT_EQ(refused(Contiguous({40}), Contiguous({40}), false, 0, 16),
                "the workspace has 144 bytes; the plan needs 160");
    }
  }
  Engine& engine = *world_->engine(0);
  {
    std::vector<float> in(40);
    std::vector<float> out(40);
    const auto stream = engine.CreateStream().value();
    EXPECT_EQ(Message(DeterministicAllReduce(engine, *engine.world(),
                                             TensorView::Contiguous(in.data(), DType::kF32, {40}),
                                             TensorView::Contiguous(out.data(), DType::kF32, {40}),
                                             {}, {.data = nullptr, .bytes = 160}, *stream)
                          .status()),
              "the workspace is null; the plan needs 160 bytes");
  }
  // Two parts of one buffer.
  std::vector<float> memory(16);
  const auto view = [&](int64_t offset) {
    return TensorView::Contiguous(memory.data() + offset, DType::kF32, {8});
  };
  for (const Mode mode : kModes) {
    EXPECT_EQ(
        Message(DeterministicWorkspace(*engine.world(), view(0), view(4), {.mode = mode}).status()),
        "input f32[8] and output f32[8] overlap but are not the same tensor");
    TensorView bools = view(0);
    bools.dtype = DType::kBool;
    EXPECT_NE(
        Message(DeterministicWorkspace(*engine.world(), bools, bools, {.mode = mode}).status())
            .find("sum of bool is refused"),
        std::string::npos);
  }
}

TEST_F(DeterministicTest, WorkspaceThatNobodyHasSaturates) {
  Start(8);
  const TensorView huge = TensorView::Contiguous(nullptr, DType::kF64, {int64_t{1} << 57});
  const auto bytes = DeterministicWorkspace(*world_->engine(0)->world(), huge, huge,
                                            {.mode = Mode::kRankReference});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, INT64_MAX);
}

}  // namespace
}  // namespace meshift

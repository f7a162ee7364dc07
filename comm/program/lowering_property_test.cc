// Interprets programs of random plans byte by byte: any dtypes, ragged shards, strided tensors, one
// buffer, and consumed sources.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/program/lowering.h"
#include "comm/program/program.h"
#include "comm/tensor/strides.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "testing/internal/program_check.h"
#include "testing/random.h"
#include "testing/shardings.h"

namespace meshift {
namespace {

class LoweringProperty : public testing::Test {
 protected:
  int Pick(int n) { return static_cast<int>(random_() % n); }

  // A plan over at most 8 ranks. The last dim of f4e2m1 tensors is a multiple of 4, so that no byte
  // is cut.
  Plan RandomPlan() {
    const std::vector<std::string> meshes = {
        "a=4", "a=2,b=3", "a=3,b=1,c=2", "a=2,b=2,c=2", "a=2,b=2@3,0,2,1", "a=2,b=3@9,4,1,0,2,5"};
    const std::vector<std::pair<DType, DType>> dtypes = {
        {DType::kBF16, DType::kBF16}, {DType::kF32, DType::kBF16}, {DType::kBF16, DType::kF32},
        {DType::kF32, DType::kF32},   {DType::kI8, DType::kC128},  {DType::kF4E2M1, DType::kF4E2M1},
    };
    while (true) {
      const DeviceMesh mesh = DeviceMesh::Parse(meshes[Pick(6)]).value();
      const auto [from, to] = dtypes[Pick(6)];
      const bool packed = from == DType::kF4E2M1;
      TensorType type{from, {}};
      for (int t = packed ? 1 + Pick(3) : Pick(4); t > 0; --t) type.shape.push_back(Pick(6));
      if (packed) type.shape.back() *= 4;
      const auto source = RandomSharding(mesh, type, !packed);
      type.dtype = to;
      const auto target = RandomSharding(mesh, type, false);
      if (!source.ok() || !target.ok()) continue;
      const PlannerKind planner = Pick(2) == 0 ? PlannerKind::kBest : PlannerKind::kPerDim;
      const auto sizes = static_cast<RaggedSizes>(Pick(3));
      const auto promise = Pick(2) == 0 ? Reproducibility::kReplicas : Reproducibility::kOrdered;
      return MakePlan(*source, *target,
                      {.reproducibility = promise, .planner = planner, .ragged_sizes = sizes})
          .value();
    }
  }

  // Random strides: in any order of dims, with or without holes, sometimes negative; zero too if
  // the tensor may repeat elements (a source).
  Shape RandomStrides(const Shape& shape, bool packed, bool may_repeat) {
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    if (packed) {  // the last dim stays innermost
      std::erase(order, shape.size() - 1);
      order.push_back(shape.size() - 1);
    }
    Shape strides(shape.size());
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const size_t d = order[i];
      const bool inner = packed && d + 1 == shape.size();
      if (!inner) stride += packed ? 2 * Pick(2) : Pick(3);
      strides[d] = !inner && Pick(4) == 0 ? -stride : stride;
      if (may_repeat && !inner && Pick(5) == 0) strides[d] = 0;
      stride *= std::max<int64_t>(shape[d], 1);
    }
    return strides;
  }

 private:
  Placement RandomRagged(int tensor_dim, int64_t extent, int64_t pieces) {
    Placement::Sizes sizes(pieces, 0);
    const int sharing = 1 + Pick(static_cast<int>(pieces));
    for (int64_t i = 0; i < extent; ++i) ++sizes[Pick(sharing)];
    return Placement::RaggedShard(tensor_dim, std::move(sizes));
  }

  absl::StatusOr<Sharding> RandomSharding(const DeviceMesh& mesh, const TensorType& type,
                                          bool partial) {
    std::vector<Placement> placements;
    for (int d = 0; d < mesh.NumDims(); ++d) {
      const int choice = Pick(partial ? 3 : 2);
      if (choice == 2) {
        placements.push_back(Placement::Partial());
      } else if (choice == 1 && !type.shape.empty()) {
        const int t = Pick(static_cast<int>(type.shape.size()));
        placements.push_back(Pick(3) == 0 ? RandomRagged(t, type.shape[t], mesh.dim(d).size)
                                          : Placement::Shard(t));
      } else {
        placements.push_back(Placement::Replicate());
      }
    }
    return Sharding::Create(mesh, type, std::move(placements));
  }

  std::mt19937_64 random_{7};
};

// Every byte that is read was written, every byte of the target is, and nothing leaves its buffer.
TEST_F(LoweringProperty, ProgramsStayInBounds) {
  int steps = 0;
  int casts = 0;
  for (int round = 0; round < 1500; ++round) {
    const Plan plan = RandomPlan();
    steps += static_cast<int>(plan.steps().size());
    casts += plan.from().dtype() != plan.to().dtype() ? 1 : 0;
    for (const int64_t rank : plan.from().mesh().Ranks()) {
      const absl::StatusOr<Program> program = Lower(plan, rank);
      ASSERT_TRUE(program.ok()) << program.status() << "\n" << plan.CanonicalText();
      ASSERT_EQ(CheckProgram(*program), "") << plan.CanonicalText() << program->ToString();
    }
  }
  EXPECT_GT(steps, 1500);
  EXPECT_GT(casts, 500);
}

TEST_F(LoweringProperty, StridedTensorsAreReadAndWrittenOnTheirElements) {
  int64_t staged = 0;
  for (int round = 0; round < 1500; ++round) {
    const Plan plan = RandomPlan();
    const bool packed = plan.from().dtype() == DType::kF4E2M1;
    for (const int64_t rank : plan.from().mesh().Ranks()) {
      LoweringOptions options;
      if (Pick(3) > 0) {
        options.source_strides = RandomStrides(plan.from().LocalBox(rank).size, packed, true);
      }
      if (Pick(3) > 0) {
        options.target_strides = RandomStrides(plan.to().LocalBox(rank).size, packed, false);
      }
      const absl::StatusOr<Program> program = Lower(plan, rank, options);
      ASSERT_TRUE(program.ok()) << program.status() << "\n" << plan.CanonicalText();
      ASSERT_EQ(CheckProgram(*program), "") << plan.CanonicalText() << program->ToString();
      staged += program->workspace_bytes > plan.total().workspace_bytes ? 1 : 0;
    }
  }
  EXPECT_GT(staged, 500);
}

TEST_F(LoweringProperty, OneBufferIsNotReadOnceItIsWritten) {
  for (int round = 0; round < 1500; ++round) {
    const Plan plan = RandomPlan();
    const bool packed = plan.from().dtype() == DType::kF4E2M1;
    for (const int64_t rank : plan.from().mesh().Ranks()) {
      LoweringOptions options{.one_buffer = true};
      if (Pick(3) == 0) {
        options.source_strides = RandomStrides(plan.from().LocalBox(rank).size, packed, true);
      }
      if (Pick(3) == 0) {
        options.target_strides = RandomStrides(plan.to().LocalBox(rank).size, packed, false);
      }
      const absl::StatusOr<Program> program = Lower(plan, rank, options);
      ASSERT_TRUE(program.ok()) << program.status() << "\n" << plan.CanonicalText();
      ASSERT_EQ(CheckProgram(*program), "") << plan.CanonicalText() << program->ToString();
    }
  }
}

TEST_F(LoweringProperty, ConsumedSourcesSaveWorkspace) {
  int64_t saved = 0;
  for (int round = 0; round < 1500; ++round) {
    const Plan plan = RandomPlan();
    for (const int64_t rank : plan.from().mesh().Ranks()) {
      const absl::StatusOr<Program> program = Lower(plan, rank, {.consume_source = true});
      ASSERT_TRUE(program.ok()) << program.status() << "\n" << plan.CanonicalText();
      ASSERT_EQ(CheckProgram(*program), "") << plan.CanonicalText() << program->ToString();
      ASSERT_LE(program->workspace_bytes, plan.total().workspace_bytes);
      saved += program->workspace_bytes < plan.total().workspace_bytes ? 1 : 0;
    }
  }
  EXPECT_GT(saved, 500);
}

// Values in a consumed source may leave a rank no space there for pieces that the plan places
// there. The values then lie in the workspace.
TEST(ConsumedSource, ARankTakesNoMoreThanItsPlanSays) {
  int64_t more = 0;
  int64_t saved = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    testkit::Random random(seed);
    std::vector<DeviceMesh::Dim> dims = {{"a", 2 + random.Below(2)}, {"b", 2 + random.Below(2)}};
    if (random.OneIn(2)) dims.push_back({"c", 2 + random.Below(2)});
    const std::vector<bool> may_be_partial(dims.size(), true);
    const DeviceMesh mesh = DeviceMesh::Create(std::move(dims)).value();
    const TensorType tensor{DType::kF32, {5 + random.Below(20), 5 + random.Below(20)}};
    const Sharding from =
        testkit::RandomSharding(mesh, tensor, may_be_partial, ReduceOp::kSum, random);
    const std::vector<bool> never(may_be_partial.size(), false);
    const Sharding to = testkit::RandomSharding(mesh, tensor, never, ReduceOp::kSum, random);
    PlannerOptions options{.buffers = Buffers::kConsumed};
    if (random.OneIn(2)) options.max_memory = LeastMemory(from, to, options).value();
    const Plan plan = MakePlan(from, to, options).value();
    // The same steps in a plan without consumed sources.
    PlanFields fields = plan.fields();
    fields.inputs.options = {};
    const Plan apart = Plan::Seal(std::move(fields));
    for (const int64_t rank : mesh.Ranks()) {
      const absl::StatusOr<Program> program = Lower(plan, rank, {.consume_source = true});
      ASSERT_TRUE(program.ok()) << program.status() << "\n" << plan.CanonicalText();
      ASSERT_EQ(CheckProgram(*program), "") << plan.CanonicalText() << program->ToString();
      const int64_t planned = plan.total().workspace_bytes;
      ASSERT_LE(program->workspace_bytes, planned) << plan.CanonicalText();
      saved += program->workspace_bytes < planned ? 1 : 0;
      more += Lower(apart, rank, {.consume_source = true})->workspace_bytes > planned ? 1 : 0;
    }
  }
  EXPECT_GT(more, 10);
  EXPECT_GT(saved, 1000);
}

}  // namespace
}  // namespace meshift

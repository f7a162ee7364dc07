// Batch invariance over the stand-in, whose trees add in another order on each channel. Whatever
// the environment, an element's bits do not depend on its index or on the tensor's size.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/nccl_engine.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/fake_gpu/fake_report.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 3;
// The sum of these depends on the order of addition.
constexpr float kContributions[kRanks] = {1e8F, 3, -1e8F};

using Variables = std::map<std::string, std::string>;

const Variables kFit = {{"NCCL_ALGO", "allreduce:tree"},
                        {"NCCL_PROTO", "Simple"},
                        {"NCCL_NVLS_ENABLE", "0"},
                        {"NCCL_TUNER_PLUGIN", "none"},
                        {"NCCL_ENV_PLUGIN", "none"}};

struct Seen {
  std::set<float> sums;  // of all elements, sizes and ranks
  bool native = false;   // by NCCL's own all-reduce
};

// All-reduces tensors of several sizes under the promise, in a process with these variables.
Seen Reduce(const Variables& variables, Reproducibility promise) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  Seen seen;
  auto ranks = NcclThreads::Create(kRanks);
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  if (!ranks.ok()) return seen;
  const DeviceMesh mesh = DeviceMesh::Parse("a=3").value();
  std::mutex mutex;
  (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
    auto redistribute =
        Redistributor::Create(mesh, &engine, {.planning = {.reproducibility = promise}});
    ASSERT_TRUE(redistribute.ok()) << redistribute.status();
    for (const int64_t count : {1, 7, 48, 1000}) {
      const std::string tensor = "f32[" + std::to_string(count) + "]";
      const Sharding from = Sharding::Parse(tensor, mesh, "P").value();
      const Sharding to = from.WithPlacements("R").value();
      const std::vector<float> mine(count, kContributions[rank]);
      auto data = PutBytes(
          engine, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(mine.data()), 4 * count));
      ASSERT_TRUE(data.ok()) << data.status();
      const TensorView view = TensorView::Contiguous((*data)->data(), DType::kF32, {count});
      const auto run = (*redistribute)({.from = from, .to = to, .source = view, .target = view});
      ASSERT_TRUE(run.ok()) << run.status();
      ASSERT_TRUE(run->Wait().ok());
      const auto bytes = GetBytes(engine, (*data)->data(), 4 * count);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      std::vector<float> sums(count);
      std::memcpy(sums.data(), bytes->data(), bytes->size());
      const std::lock_guard<std::mutex> lock(mutex);
      seen.sums.insert(sums.begin(), sums.end());
    }
    const std::lock_guard<std::mutex> lock(mutex);
    seen.native = TheFake()->call_count("ncclAllReduce") > 0;
  });
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  EXPECT_EQ(Violations(), "");
  return seen;
}

TEST(TreeBitsTest, BitsAreThoseOfNoPlaceAndNoSize) {
  EXPECT_TRUE(Reduce(kFit, Reproducibility::kBatchInvariant).native);
  const Variables changes = {{"NCCL_ALGO", "ring"},
                             {"NCCL_MAX_CTAS", "16"},
                             {"NCCL_MIN_NRINGS", "4"},
                             {"NCCL_MIN_NCHANNELS", "0x8"},
                             {"NCCL_NVLS_ENABLE", "1"},
                             {"NCCL_MAX_NCHANNELS", "1"},
                             {"NCCL_PROTO", "LL;allreduce:Simple"}};
  for (const auto& [name, value] : changes) {
    Variables variables = kFit;
    variables[name] = value;
    EXPECT_EQ(Reduce(variables, Reproducibility::kBatchInvariant).sums.size(), 1U)
        << name << "=" << value;
  }
}

// Shows that the test above can fail.
TEST(TreeBitsTest, WithoutThePromiseTheyDiffer) {
  Variables variables = kFit;
  variables["NCCL_MAX_CTAS"] = "16";
  EXPECT_GT(Reduce(variables, Reproducibility::kReplicas).sums.size(), 1U);
}

}  // namespace
}  // namespace meshift

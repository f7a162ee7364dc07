// Batch invariance by NCCL's tree, over the stand-in libraries. If the environments of all ranks
// allow it, plans use the tree, on communicators of one channel, one call at a time; else ordered
// sums. Also stream modes: a stream per group, or one for all.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/nccl/environment.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/nccl_engine.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "meshift/topology.h"
#include "testing/fake_gpu/fake_report.h"
#include "testing/internal/nccl/fake_environment.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 4;

// The variables that `meshift env --profile batch-invariant` prints.
FakeEnvironment Fit() {
  FakeEnvironment fit({});
  for (const NcclSetting& setting :
       NcclProfileSettings(NcclProfile::kBatchInvariant, NcclVersion{})) {
    fit.Set(setting.name, setting.value);
  }
  return fit;
}

// A call that the stand-in has recorded.
struct Call {
  std::string thread;
  std::string function;
  std::string details;
  // The word after `key`.
  std::string After(const std::string& key) const {
    std::istringstream words(details);
    for (std::string word; words >> word;) {
      if (word == key && words >> word) return word;
    }
    return "";
  }
};

std::vector<Call> Calls(const std::function<bool(const Call&)>& wanted) {
  std::vector<Call> calls;
  const FakeReport& fake = *TheFake();
  char line[1024];
  for (int64_t i = 0; i < fake.log_size(); ++i) {
    fake.log_line(i, line, sizeof(line));
    std::istringstream words(line);
    Call call;
    std::string number;
    words >> number >> call.thread >> call.function;
    std::getline(words, call.details);
    if (wanted(call)) calls.push_back(call);
  }
  return calls;
}

// Whether the call only connects a group: those calls have one i32.
bool Connects(const Call& call) {
  return call.details.find("(count 1, type 2,") != std::string::npos;
}

std::vector<Call> CallsOf(const std::string& function) {
  return Calls([&](const Call& call) { return call.function == function && !Connects(call); });
}

// The communicators that were split with this number of channels ("1 to 1"), or all if it is empty.
std::set<std::string> SplitWith(const std::string& channels) {
  std::set<std::string> made;
  for (const Call& call : CallsOf("communicator")) {
    if (call.details.find("ctas " + channels) == std::string::npos) continue;
    made.insert(call.details.substr(1, call.details.find(' ', 1) - 1));
  }
  return made;
}

absl::StatusOr<std::unique_ptr<NcclThreads>> Start(
    const std::vector<FakeEnvironment>& environments) {
  return NcclThreads::CreateEach(kRanks, [&](int64_t rank) {
    NcclOptions options;
    options.environment = &environments[rank];
    return options;
  });
}

// Redistributes f32[8]; all elements of rank r's source are r + 1. Returns this rank's result.
absl::StatusOr<std::vector<float>> Move(NcclEngine& engine, Redistributor& redistribute,
                                        const DeviceMesh& mesh, const std::string& from_text,
                                        const std::string& to_text) {
  const Sharding from = Sharding::Parse("f32[8]", mesh, from_text).value();
  const Sharding to = from.WithPlacements(to_text).value();
  const int64_t rank = engine.rank();
  const int64_t in_count = from.LocalBox(rank).NumElements();
  const int64_t out_count = to.LocalBox(rank).NumElements();
  const std::vector<float> mine(in_count, static_cast<float>(rank + 1));
  auto in = PutBytes(engine, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(mine.data()),
                                                 mine.size() * sizeof(float)));
  if (!in.ok()) return in.status();
  auto out = engine.Allocate(out_count * 4);
  if (!out.ok()) return out.status();
  const auto run =
      redistribute({.from = from,
                    .to = to,
                    .source = TensorView::Contiguous((*in)->data(), DType::kF32, {in_count}),
                    .target = TensorView::Contiguous((*out)->data(), DType::kF32, {out_count})});
  if (!run.ok()) return run.status();
  if (absl::Status status = run->Wait(); !status.ok()) return status;
  const auto bytes = GetBytes(engine, (*out)->data(), out_count * 4);
  if (!bytes.ok()) return bytes.status();
  std::vector<float> result(out_count);
  std::memcpy(result.data(), bytes->data(), bytes->size());
  return result;
}

// The engine's plan under the promise of batch invariance.
Plan PlanOn(const NcclEngine& engine, const DeviceMesh& mesh, const std::string& from,
            const std::string& to, const Topology& topology = Topology::Flat()) {
  const Sharding source = Sharding::Parse("f32[8]", mesh, from).value();
  return MakePlan(source, source.WithPlacements(to).value(),
                  {.reproducibility = Reproducibility::kBatchInvariant,
                   .topology = topology,
                   .engine = engine.Capabilities()})
      .value();
}

TEST(NcclTreeTest, IsTakenWhereAllEnvironmentsAreFit) {
  const std::vector<FakeEnvironment> fit(kRanks, Fit());
  auto ranks = Start(fit);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
    EXPECT_EQ(engine.Capabilities().native_invariance, NativeInvariance::kAllReduce);
    const auto make = [&](Reproducibility promise) {
      return Redistributor::Create(mesh, &engine, {.planning = {.reproducibility = promise}});
    };
    auto invariant = make(Reproducibility::kBatchInvariant);
    auto usual = make(Reproducibility::kReplicas);
    ASSERT_TRUE(invariant.ok() && usual.ok());
    const float sum = rank % 2 == 0 ? 1 + 3 : 2 + 4;
    const auto own = Move(engine, *invariant, mesh, "P,S(0)", "R,S(0)");
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_EQ(*own, std::vector<float>(4, sum));
    // Over the same group without the promise, on a communicator with as many channels as ever.
    const auto other = Move(engine, *usual, mesh, "P,S(0)", "R,S(0)");
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(*other, std::vector<float>(4, sum));
    // The group of all ranks is split too, since the root has more than one channel.
    const auto all = Move(engine, *invariant, mesh, "P,P", "R,R");
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(*all, std::vector<float>(8, 10));
  });
  const Plan plan = PlanOn((*ranks)->engine(0), mesh, "P,S(0)", "R,S(0)");
  EXPECT_EQ(plan.steps()[0].reduce_order, ReduceOrder::kAny);
  EXPECT_EQ(plan.why(),
            "engine nccl reduces every element in the same way (by tree, as the environment of "
            "every rank says, on one channel), in one step by equivalent groups");

  const std::set<std::string> narrow = SplitWith("1 to 1 collnet 0");
  EXPECT_EQ(narrow.size(), 2 * kRanks);         // one over a, one over all
  EXPECT_EQ(SplitWith("").size(), 4 * kRanks);  // and one over a, and the world
  std::map<bool, int> calls;                    // on communicators of one channel
  for (const Call& call : CallsOf("ncclAllReduce")) ++calls[narrow.contains(call.After("comm"))];
  EXPECT_EQ(calls, (std::map<bool, int>{{false, kRanks}, {true, 2 * kRanks}}));
  // Tree calls are not in an NCCL group, where NCCL would choose one algorithm for all its calls.
  std::map<std::string, int> open;
  for (const Call& call : Calls([](const Call&) { return true; })) {
    open[call.thread] += call.function == "ncclGroupStart" ? 1
                         : call.function == "ncclGroupEnd" ? -1
                                                           : 0;
    if (narrow.contains(call.After("comm")) && !Connects(call)) {
      EXPECT_EQ(call.function, "ncclAllReduce");
      EXPECT_EQ(open[call.thread], 0);
    }
  }
  EXPECT_EQ(Violations(), "");
}

TEST(NcclTreeTest, AReduceScatterIsDoneInOrder) {
  const std::vector<FakeEnvironment> fit(kRanks, Fit());
  auto ranks = Start(fit);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const DeviceMesh mesh = DeviceMesh::Parse("a=4").value();
  (*ranks)->Run([&](NcclEngine& engine, int64_t) {
    auto redistribute = Redistributor::Create(
        mesh, &engine, {.planning = {.reproducibility = Reproducibility::kBatchInvariant}});
    ASSERT_TRUE(redistribute.ok()) << redistribute.status();
    const auto sums = Move(engine, *redistribute, mesh, "P", "S(0)");
    ASSERT_TRUE(sums.ok()) << sums.status();
    EXPECT_EQ(*sums, std::vector<float>(2, 10));
  });
  const Plan plan = PlanOn((*ranks)->engine(0), mesh, "P", "S(0)");
  EXPECT_EQ(plan.steps()[0].reduce_order, ReduceOrder::kAscending);
  EXPECT_EQ(plan.why(),
            "contributions are combined in ascending order of coordinates: engine nccl reduces "
            "every element in the same way by all_reduce only, not by reduce_scatter over a");
  EXPECT_EQ(CallsOf("ncclReduceScatter").size(), 0);
  EXPECT_EQ(CallsOf("ncclSend").size(), kRanks * (kRanks - 1));
  EXPECT_EQ(Violations(), "");
}

// If one rank's environment is unfit, all ranks make the plan for it, whatever their own.
TEST(NcclTreeTest, OneRanksEnvironmentDecidesForAll) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const struct {
    int64_t rank;
    std::string name;
    std::optional<std::string> value;
    std::string why;
  } cases[] = {
      {2, "NCCL_ALGO", "ring", "rank 2: NCCL_ALGO is 'ring': all-reduce may take 'ring'"},
      {0, "NCCL_PROTO", std::nullopt, "rank 0: NCCL_PROTO is not set: NCCL picks the protocol"},
      {3, "NCCL_NVLS_ENABLE", "1", "rank 3: NCCL_NVLS_ENABLE is '1': sums in NVSwitch"},
      {1, "NCCL_COLLNET_ENABLE", "1", "rank 1: NCCL_COLLNET_ENABLE is '1'"},
      {3, "NCCL_MIN_NCHANNELS", "4", "rank 3: NCCL_MIN_NCHANNELS is '4': overrides the one"},
      {2, "NCCL_MAX_CTAS", "16", "rank 2: NCCL_MAX_CTAS is '16': overrides the one"},
      {1, "NCCL_ALGO", "Tree", "rank 1: NCCL_ALGO is 'Tree': excludes ring for broadcast, reduce,"},
  };
  for (const auto& c : cases) {
    std::vector<FakeEnvironment> environments(kRanks, Fit());
    environments[c.rank].Set(c.name, c.value);
    auto ranks = Start(environments);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    (*ranks)->Run([&](NcclEngine& engine, int64_t) {
      const EngineCapabilities capabilities = engine.Capabilities();
      EXPECT_EQ(capabilities.native_invariance, NativeInvariance::kNone);
      EXPECT_EQ(capabilities.native_why.find(c.why), 0) << capabilities.native_why;
      auto redistribute = Redistributor::Create(
          mesh, &engine, {.planning = {.reproducibility = Reproducibility::kBatchInvariant}});
      ASSERT_TRUE(redistribute.ok()) << redistribute.status();
      const auto sums = Move(engine, *redistribute, mesh, "P,P", "R,R");
      ASSERT_TRUE(sums.ok()) << sums.status();
      EXPECT_EQ(*sums, std::vector<float>(8, 10));
      const Plan plan = PlanOn(engine, mesh, "P,P", "R,R");
      EXPECT_EQ(plan.steps()[0].reduce_order, ReduceOrder::kAscending);
      EXPECT_NE(plan.why().find(c.why), std::string::npos) << plan.why();
    });
    EXPECT_EQ(CallsOf("ncclAllReduce").size(), 0);
    EXPECT_EQ(SplitWith("").size(), kRanks);  // the world does
    EXPECT_EQ(Violations(), "");
  }
}

TEST(NcclTreeTest, GroupsThatDoNotLieAlikeAddInOrder) {
  const std::vector<FakeEnvironment> fit(kRanks, Fit());
  auto ranks = Start(fit);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const Topology jagged = Topology::Parse("nvlink=3").value();  // 0 and 1 share one, 2 and 3 do not
  const Plan plan = PlanOn((*ranks)->engine(0), mesh, "S(0),P", "S(0),R", jagged);
  EXPECT_EQ(plan.steps()[0].reduce_order, ReduceOrder::kAscending);
  EXPECT_NE(plan.why().find("the groups are not equivalent"), std::string::npos) << plan.why();
  const Plan one = PlanOn((*ranks)->engine(0), mesh, "P,P", "R,R", jagged);
  EXPECT_EQ(one.steps()[0].reduce_order, ReduceOrder::kAny);
}

// Calls over two groups: of one stream the device sees one, of streams per group two.
TEST(NcclStreamsTest, ASingleStreamCarriesAllGroups) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  for (const StreamMode mode : {StreamMode::kPerGroup, StreamMode::kSingleStream}) {
    auto ranks = NcclThreads::Create(kRanks);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
      auto redistribute = Redistributor::Create(mesh, &engine, {.expert = {.streams = mode}});
      ASSERT_TRUE(redistribute.ok()) << redistribute.status();
      for (int round = 0; round < 3; ++round) {
        const auto over_a = Move(engine, *redistribute, mesh, "S(0),R", "R,R");
        const auto over_b = Move(engine, *redistribute, mesh, "R,S(0)", "R,R");
        ASSERT_TRUE(over_a.ok() && over_b.ok()) << over_a.status() << over_b.status();
        const auto low_a = static_cast<float>(rank % 2 + 1);
        const auto low_b = static_cast<float>(rank - rank % 2 + 1);
        EXPECT_EQ(*over_a, (std::vector<float>{low_a, low_a, low_a, low_a, low_a + 2, low_a + 2,
                                               low_a + 2, low_a + 2}));
        EXPECT_EQ(*over_b, (std::vector<float>{low_b, low_b, low_b, low_b, low_b + 1, low_b + 1,
                                               low_b + 1, low_b + 1}));
      }
    });
    std::set<std::string> streams;
    const std::vector<Call> gathers = CallsOf("ncclAllGather");
    for (const Call& call : gathers) streams.insert(call.After("stream"));
    EXPECT_EQ(gathers.size(), kRanks * 6);
    EXPECT_EQ(streams.size(), kRanks * (mode == StreamMode::kSingleStream ? 1 : 2));
    EXPECT_EQ(Violations(), "");
  }
}

}  // namespace
}  // namespace meshift

// With a budget of groups no sequence of transitions is cheaper than the plan: compares with all
// paths by the groups that they use (tests/brute_force.h). The test computes the allowed sets of
// groups from the ranks of the groups. Plans are proven, and some are run: no element is wrong, no
// replicas differ, and the engine's caches hold only allowed groups.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/local_run.h"
#include "meshift/local_world.h"
#include "meshift/planner.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "meshift/verifier.h"
#include "planner/cost/cross_cost.h"
#include "planner/inter_mesh/cross_ends.h"
#include "planner/inter_mesh/near_ends.h"
#include "planner/plan/crossing.h"
#include "testing/cross_world.h"
#include "testing/random.h"
#include "testing/small_world.h"
#include "tests/brute_force.h"
#include "tests/world_tally.h"

namespace meshift {
namespace {

constexpr int kNumShards = 8;  // as shard_count in BUILD; a test case per shard

// The ranks of each group of some mesh dims.
using Groups = std::set<std::set<int64_t>>;

std::vector<DeviceMesh> MeshesOf(const Sharding& from, const Sharding& to) {
  if (from.mesh() == to.mesh()) return {from.mesh()};
  return {from.mesh(), to.mesh()};
}

DimSet DimsOf(const DeviceMesh& mesh, uint32_t mask) {
  DimSet dims;
  int bit = 0;
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (mesh.dim(d).size == 1) continue;
    if ((mask >> bit++ & 1) != 0) dims.push_back(d);
  }
  return dims;
}

int NumDims(const DeviceMesh& mesh) {
  return static_cast<int>(std::count_if(mesh.dims().begin(), mesh.dims().end(),
                                        [](const auto& d) { return d.size > 1; }));
}

Groups GroupsOver(const DeviceMesh& mesh, uint32_t mask) {
  Groups groups;
  for (const std::vector<int64_t>& ranks : mesh.Groups(DimsOf(mesh, mask))) {
    groups.insert({ranks.begin(), ranks.end()});
  }
  return groups;
}

Groups WholeOf(const std::vector<DeviceMesh>& meshes) {
  std::set<int64_t> all;
  for (const DeviceMesh& mesh : meshes) {
    for (const int64_t rank : mesh.Ranks()) all.insert(rank);
  }
  return {all};
}

// The groups of a plan, and its cost without set-up.
struct Option {
  PlanCost cost;
  int64_t least_memory = 0;
  std::set<Groups> groups;
};

int64_t CommunicatorsOf(const std::set<Groups>& used) {
  std::map<int64_t, int64_t> count;
  int64_t most = 0;
  for (const Groups& groups : used) {
    for (const std::set<int64_t>& group : groups) {
      for (const int64_t rank : group) most = std::max(most, ++count[rank]);
    }
  }
  return most;
}

std::set<Groups> ExistingOf(const GroupBudget& budget, const std::vector<DeviceMesh>& meshes) {
  std::set<Groups> existing = {WholeOf(meshes)};
  if (budget.existing_groups) {
    for (const auto& [mesh, dims] : *budget.existing_groups) {
      Groups groups;
      for (const std::vector<int64_t>& ranks : mesh.Groups(dims)) {
        groups.insert({ranks.begin(), ranks.end()});
      }
      existing.insert(std::move(groups));
    }
    return existing;
  }
  for (const DeviceMesh& mesh : meshes) {
    for (int i = 0; i < NumDims(mesh); ++i) existing.insert(GroupsOver(mesh, uint32_t{1} << i));
  }
  return existing;
}

// A random budget.
GroupBudget RandomBudget(const std::vector<DeviceMesh>& meshes, testkit::Random* random) {
  GroupBudget budget{.allow_new_groups = random->OneIn(2)};
  if (!random->OneIn(4)) {
    budget.existing_groups.emplace();
    for (const DeviceMesh& mesh : meshes) {
      for (uint32_t mask = 1; mask >> NumDims(mesh) == 0; ++mask) {
        if (random->OneIn(2)) budget.existing_groups->push_back({mesh, DimsOf(mesh, mask)});
      }
    }
  }
  if (random->OneIn(2)) budget.max_communicators = random->Below(4);
  // From a set-up cost that decides everything to one that decides nothing.
  constexpr int64_t kUses[] = {1, 1000, 10'000, 30'000, 100'000, 1'000'000, 1'000'000'000};
  if (!random->OneIn(3)) budget.expected_uses = kUses[random->Below(std::size(kUses))];
  return budget;
}

std::string TextOf(const GroupBudget& budget, const std::vector<DeviceMesh>& meshes) {
  std::string text = budget.allow_new_groups ? "new groups" : "no new groups";
  if (budget.existing_groups) {
    text += ", existing";
    for (const auto& [mesh, dims] : *budget.existing_groups) {
      text += mesh == meshes[0] ? " 0:" : " 1:";
      for (const int d : dims) text += mesh.dim(d).name;
    }
  }
  if (budget.max_communicators) text += fmt::format(", at most {}", *budget.max_communicators);
  if (budget.expected_uses) text += fmt::format(", {} uses", *budget.expected_uses);
  return text;
}

// Whether all ranks hold the whole value between two steps.
bool GoesThroughReplicas(const Plan& plan) {
  return std::any_of(plan.steps().begin(), plan.steps().end(), [](const Step& step) {
    return step.after.MaxLocalElements() == NumElements(step.after.shape()) &&
           !step.after.HasPartial();
  });
}

class GroupBudgetTest : public testing::TestWithParam<int> {
 protected:
  // All paths of a case on one mesh.
  std::vector<Option> OptionsOf(const Sharding& from, const Sharding& to,
                                const PlannerOptions& options) {
    std::vector<Option> all;
    const BruteForce::ByGroups paths = brute_force_.FindByGroups(from, to, options).value();
    for (const auto& [set, over] : paths) {
      Option& option = all.emplace_back(Option{over.cost, over.least_memory, {}});
      for (uint32_t mask = 1; mask < 32; ++mask) {
        if ((set >> mask & 1) != 0) option.groups.insert(GroupsOver(from.mesh(), mask));
      }
    }
    return all;
  }
  // To another mesh: all ends of a crossing, with all paths to and from them.
  std::vector<Option> CrossOptionsOf(const Sharding& from, const Sharding& to,
                                     const PlannerOptions& options);

  void Judge(const Sharding& from, const Sharding& to, PlannerOptions options,
             const std::vector<Option>& all);
  void JudgeMemory(const Sharding& from, const Sharding& to, PlannerOptions options, int64_t least);
  void RunPlan(const Plan& plan, const PlannerOptions& options, const std::string& where);
  void Report(const char* name) const {
    EXPECT_EQ(wrong_plans_, 0);
    fmt::print(
        "groups, {}, shard {} of {}: {} budgets, {} other plans than without, {} refused, {} with "
        "set-up; {} not optimal; {} run, {} groups made, {} budgets of memory\n",
        name, GetParam(), kNumShards, budgets_, changed_, refused_, set_up_, wrong_plans_, run_,
        made_, memories_);
  }

  BruteForce brute_force_;
  Runners runners_;
  testkit::Random random_{static_cast<uint64_t>(GetParam()) + 77};
  int64_t budgets_ = 0;
  int64_t changed_ = 0;
  int64_t refused_ = 0;
  int64_t set_up_ = 0;
  int64_t wrong_plans_ = 0;
  int64_t run_ = 0;
  int64_t made_ = 0;
  int64_t memories_ = 0;
};

// `all`: all possible paths.
void GroupBudgetTest::Judge(const Sharding& from, const Sharding& to, PlannerOptions options,
                            const std::vector<Option>& all) {
  if (from.mesh() == to.mesh() && NumElements(from.shape()) == 0) return;  // no steps
  const std::vector<DeviceMesh> meshes = MeshesOf(from, to);
  options.groups = RandomBudget(meshes, &random_);
  const GroupBudget& budget = options.groups;
  const std::set<Groups> existing = ExistingOf(budget, meshes);
  const int64_t setup_ns = options.topology.constants().group_setup_ns;
  std::optional<PlanCost> best;  // including set-up
  bool has_groups = false;       // some path uses only allowed groups
  int64_t least_count = INT64_MAX;
  int64_t least_memory = INT64_MAX;
  for (const Option& option : all) {
    const int64_t made = std::count_if(option.groups.begin(), option.groups.end(),
                                       [&](const Groups& g) { return !existing.contains(g); });
    if (!budget.allow_new_groups && made > 0) continue;
    has_groups = true;
    const int64_t count = CommunicatorsOf(option.groups);
    least_count = std::min(least_count, count);
    if (count > budget.max_communicators.value_or(count)) continue;
    least_memory = std::min(least_memory, option.least_memory);
    PlanCost cost = option.cost;
    if (budget.expected_uses) {
      cost.est_ns += made * ((setup_ns + *budget.expected_uses - 1) / *budget.expected_uses);
    }
    if (!best || cost < *best) best = cost;
  }

  ++budgets_;
  const std::string where = fmt::format("{} -> {} on {}, {}", from.ToString(), to.ToString(),
                                        options.topology.ToString(), TextOf(budget, meshes));
  const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
  if (!has_groups) {
    // A plan need not keep contributions partial: they may be reduced, and masked again.
    if (plan.ok() && GoesThroughReplicas(*plan)) return;
    ++refused_;
    ASSERT_TRUE(absl::IsFailedPrecondition(plan.status())) << where << ": " << plan.status();
    return;
  }
  if (!best) {
    ++refused_;
    ASSERT_EQ(plan.status(), absl::ResourceExhaustedError(fmt::format(
                                 "max_communicators is {}; the smallest sufficient value is {}",
                                 *budget.max_communicators, least_count)))
        << where;
    return;
  }
  ASSERT_TRUE(plan.ok()) << where << ": " << plan.status();
  PlanCost cost = CostOf(*plan);
  cost.est_ns += plan->total().setup_ns;
  set_up_ += plan->total().setup_ns > 0 ? 1 : 0;
  if (cost != *best && ++wrong_plans_ <= 3) {
    std::string steps;
    for (const Step& step : plan->steps()) steps += step.ToString() + "; ";
    ADD_FAILURE() << where << ": " << steps << cost.ToString() << "; but the least is "
                  << best->ToString();
  }
  const Verdict verdict = Verify(*plan);
  EXPECT_TRUE(verdict.ok()) << where << ": " << verdict.fault->rule << ": "
                            << verdict.fault->message;
  PlannerOptions free = options;
  free.groups = {};
  const bool other = CostOf(MakePlan(from, to, free).value()) != CostOf(*plan);
  changed_ += other ? 1 : 0;
  if (other && random_.OneIn(4)) RunPlan(*plan, options, where);
  if (meshes.size() == 1 && random_.OneIn(8)) JudgeMemory(from, to, options, least_memory);
}

// The least memory with a budget of groups suffices, and one byte less does not.
void GroupBudgetTest::JudgeMemory(const Sharding& from, const Sharding& to, PlannerOptions options,
                                  int64_t least) {
  ++memories_;
  ASSERT_EQ(LeastMemory(from, to, options).value(), least) << from.ToString();
  options.max_memory = least;
  EXPECT_TRUE(MakePlan(from, to, options).ok()) << from.ToString();
  if (least == 0) return;
  options.max_memory = least - 1;
  const absl::Status refused = MakePlan(from, to, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused))
      << from.ToString() << " -> " << to.ToString() << ", max_memory " << *options.max_memory
      << ", " << TextOf(options.groups, MeshesOf(from, to)) << ": " << refused;
}

// Runs the plan, and a redistributor that makes the plan and its groups.
void GroupBudgetTest::RunPlan(const Plan& plan, const PlannerOptions& options,
                              const std::string& where) {
  ++run_;
  const absl::StatusOr<RunOutcome> outcome = runners_.For(plan.from(), plan.to()).Run(plan);
  ASSERT_TRUE(outcome.ok()) << where << ": " << outcome.status();
  EXPECT_EQ(outcome->wrong, 0) << where << ": " << outcome->message;
  if (options.reproducibility > Reproducibility::kNone) {
    EXPECT_EQ(outcome->replicas_differ, 0) << where << ": " << outcome->message;
  }

  const DeviceMesh mesh = UnionMesh(plan.from().mesh(), plan.to().mesh()).value();
  const std::vector<int64_t> ranks = mesh.Ranks();
  const std::unique_ptr<LocalWorld> world =
      LocalWorld::Create(
          {.num_ranks = *std::max_element(ranks.begin(), ranks.end()) + 1, .num_workers = 0})
          .value();
  const std::unique_ptr<LocalRunner> runner =
      LocalRunner::Create(world.get(), mesh,
                          {.planning = {.reproducibility = options.reproducibility,
                                        .topology = options.topology,
                                        .reduce_block = options.reduce_block,
                                        .groups = options.groups}})
          .value();
  const auto memory = [](const Sharding& sharding, std::vector<std::vector<float>>* tensors) {
    std::vector<void*> data;
    for (int64_t p = 0; p < sharding.mesh().NumRanks(); ++p) {
      std::vector<float>& tensor = tensors->emplace_back(sharding.MaxLocalElements());
      data.push_back(tensor.empty() ? nullptr : tensor.data());
    }
    return data;
  };
  std::vector<std::vector<float>> sources;
  std::vector<std::vector<float>> targets;
  const absl::StatusOr<LocalRun> run = runner->Run(
      plan.from(), plan.to(), memory(plan.from(), &sources), memory(plan.to(), &targets));
  ASSERT_TRUE(run.ok()) << where << ": " << run.status();
  const std::vector<DeviceMesh> meshes = MeshesOf(plan.from(), plan.to());
  std::set<Groups> allowed = ExistingOf(options.groups, meshes);
  const Groups root = WholeOf(meshes);
  int64_t new_groups = 0;
  std::set<Groups> used;
  for (const Step& step : plan.steps()) {
    if (!IsCollective(step.op)) continue;
    Groups groups = root;
    if (!IsCrossing(step)) {
      groups.clear();
      for (const auto& group : plan.meshes()[step.mesh].Groups(step.mesh_dims)) {
        groups.insert({group.begin(), group.end()});
      }
    }
    if (used.insert(groups).second && !allowed.contains(groups)) ++new_groups;
  }
  EXPECT_TRUE(options.groups.allow_new_groups || new_groups == 0) << where;
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    // The engine's groups on this rank: no more than the plan uses, besides the root.
    const int64_t size = runner->at(p).stats().groups.size;
    made_ += size;
    std::set<std::set<int64_t>> own;
    for (const Groups& groups : used) {
      for (const std::set<int64_t>& group : groups) {
        if (groups != root && group.contains(mesh.RankAt(p))) own.insert(group);
      }
    }
    EXPECT_LE(size, std::ssize(own)) << where;
    const bool has_root = used.contains(root);
    EXPECT_LE(size + (has_root ? 1 : 0), options.groups.max_communicators.value_or(INT64_MAX))
        << where;
  }
}

std::vector<Option> GroupBudgetTest::CrossOptionsOf(const Sharding& from, const Sharding& to,
                                                    const PlannerOptions& options) {
  const std::vector<DeviceMesh> meshes = {from.mesh(), to.mesh()};
  const int64_t larger =
      Bytes(from.dtype(), std::max(from.MaxLocalElements(), to.MaxLocalElements()));
  const int64_t limit = std::max(larger + larger / 4, int64_t{4} << 20);
  PlannerOptions half = options;
  half.max_value = limit;
  std::vector<Sharding> firsts = CrossSources(from, from.dtype());
  for (const Sharding& partial : PartialSources(from, from.dtype(), /*at_once=*/false)) {
    firsts.push_back(partial);
  }
  std::vector<Sharding> ends = CrossTargets(to, to.dtype());
  for (const Sharding& near : NearEndsOfBoth(from, to, to.dtype(), options.topology)) {
    (near.mesh() == from.mesh() ? firsts : ends).push_back(near);
  }
  std::vector<std::pair<Sharding, std::vector<Option>>> seconds;
  for (const Sharding& second : ends) {
    if (Bytes(second.dtype(), second.MaxLocalElements()) > limit) continue;
    seconds.emplace_back(second, OptionsOf(second, to, half));
  }
  std::map<std::set<Groups>, PlanCost> least;
  for (const Sharding& first : firsts) {
    if (Bytes(first.dtype(), first.MaxLocalElements()) > limit) continue;
    const std::vector<Option> before = OptionsOf(from, first, half);
    for (const auto& [second, after] : seconds) {
      const Crossing crossing = Crossing::Of(first, second, options.topology);
      const Traffic traffic = MeasureCrossing(crossing, first, second, options.topology);
      int64_t crossed = 0;
      for (const CrossingMessage& message : crossing.messages()) {
        crossed += Bytes(first.dtype(), message.elements);
      }
      for (const Option& a : before) {
        for (const Option& b : after) {
          std::set<Groups> used = a.groups;
          used.insert(b.groups.begin(), b.groups.end());
          if (!crossing.messages().empty()) used.insert(WholeOf(meshes));
          const PlanCost cost{a.cost.est_ns + traffic.est_ns + b.cost.est_ns,
                              a.cost.bytes_sent + traffic.bytes_sent + b.cost.bytes_sent,
                              a.cost.total_bytes + crossed + b.cost.total_bytes,
                              a.cost.steps + 1 + b.cost.steps};
          const auto [at, is_new] = least.try_emplace(std::move(used), cost);
          if (!is_new && cost < at->second) at->second = cost;
        }
      }
    }
  }
  std::vector<Option> all;
  for (auto& [used, cost] : least) all.push_back({cost, 0, used});
  return all;
}

// Only bytes across domains cost: collectives around a crossing pay.
const Topology& BytesOnly() {
  static const Topology kTopology = *Topology::Create({{"wire", 2, 100, 10}, {"net", 0, 1, 30}},
                                                      {.collective_latency_ns = 100,
                                                       .message_latency_ns = 10,
                                                       .copy_latency_ns = 20,
                                                       .copy_bandwidth_bytes_per_us = 400});
  return kTopology;
}

TEST_P(GroupBudgetTest, NoSequenceIsCheaper) {
  int64_t number = 0;
  testkit::ForEachSmallWorldCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = 1536 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        PlannerOptions options;
        if (++number % 2 == 0) options.topology = testkit::SlowLinks();
        const std::vector<Option> all = OptionsOf(from, to, options);
        for (int i = 0; i < 8; ++i) Judge(from, to, options, all);
      });
  Report("small world");
}

// Ordered reductions, in blocks of two, and without a promise.
TEST_P(GroupBudgetTest, NoSequenceOfAnotherPromiseIsCheaper) {
  int64_t number = 0;
  testkit::ForEachSmallWorldCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = 4096 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        PlannerOptions options{.reproducibility = Reproducibility::kOrdered,
                               .topology = testkit::SlowLinks()};
        if (++number % 3 == 0) options.reproducibility = Reproducibility::kNone;
        if (number % 3 == 1) options.reduce_block = 2;
        const std::vector<Option> all = OptionsOf(from, to, options);
        for (int i = 0; i < 4; ++i) Judge(from, to, options, all);
      });
  Report("other promises");
}

TEST_P(GroupBudgetTest, NoSequenceOntoAnotherMeshIsCheaper) {
  int64_t number = 0;
  testkit::ForEachCrossCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = 72 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        for (const Sharding* sharding : {&from, &to}) {
          for (int d = 0; d < sharding->mesh().NumDims(); ++d) {
            const Placement& placement = sharding->placement(d);
            if (placement.IsPartial() && placement.op() != ReduceOp::kSum) return;
          }
        }
        PlannerOptions options;
        if (++number % 4 != 0)
          options.topology = number % 4 == 1 ? testkit::SlowLinks() : BytesOnly();
        const std::vector<Option> all = CrossOptionsOf(from, to, options);
        for (int i = 0; i < 6; ++i) Judge(from, to, options, all);
      });
  Report("cross world");
}

INSTANTIATE_TEST_SUITE_P(Shards, GroupBudgetTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift

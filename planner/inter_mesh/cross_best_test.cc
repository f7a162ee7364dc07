// No other ends of the crossing give a cheaper plan. The test tries every sharding of either mesh,
// with the best plan to and from it; on the first mesh also those that keep P of the source.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/topology.h"
#include "planner/cost/cross_cost.h"
#include "planner/plan/crossing.h"
#include "planner/plan/plan_text.h"

namespace meshift {
namespace {

// All lists of R, S(0) and S(1), with every order of cuts; also of P, if `partial`.
std::vector<std::string> Placements(int dims, bool partial) {
  if (dims == 1) {
    return partial ? std::vector<std::string>{"R", "S(0)", "S(1)", "P"}
                   : std::vector<std::string>{"R", "S(0)", "S(1)"};
  }
  std::vector<std::string> texts;
  const std::vector<std::string> one = Placements(1, partial);
  for (const std::string& a : one) {
    for (const std::string& b : one) {
      texts.push_back(a + "," + b);
      if (a == b && a[0] == 'S') texts.push_back(a + "[1]," + b + "[0]");
    }
  }
  return texts;
}

// Only the source's P may be left.
bool MayStopAt(const Sharding& stop, const Sharding& from) {
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (stop.placement(d).IsPartial() && !from.placement(d).IsPartial()) return false;
  }
  return true;
}

TEST(CrossBest, NoOtherEndsAreCheaper) {
  struct World {
    const char* from;
    const char* to;
    const char* topology;
  };
  int64_t count = 0;
  for (const World& world :
       {World{"a=4", "b=2,c=2", "flat"}, World{"a=2,b=2", "c=4@4-7", "flat"},
        World{"a=2,b=2", "c=4@4-7", "nvlink=4"}, World{"a=2,b=2", "c=2,d=2@2-5", "nvlink=2"},
        World{"a=6", "b=2,c=2@2-5", "nvlink=4"}, World{"a=2,b=3", "c=8@8-15", "nvlink=8"}}) {
    const DeviceMesh from_mesh = DeviceMesh::Parse(world.from).value();
    const DeviceMesh to_mesh = DeviceMesh::Parse(world.to).value();
    const PlannerOptions options{.topology = Topology::Parse(world.topology).value()};
    // Ordered sums prevent reductions after the crossing.
    PlannerOptions second_options = options;
    second_options.reproducibility = Reproducibility::kOrdered;
    for (const char* tensor : {"f32[24,48]", "f32[2400,4800]"}) {
      std::vector<Sharding> firsts;
      std::vector<Sharding> seconds;
      for (const std::string& p : Placements(from_mesh.NumDims(), true)) {
        firsts.push_back(Sharding::Parse(tensor, from_mesh, p).value());
      }
      for (const std::string& p : Placements(to_mesh.NumDims(), false)) {
        seconds.push_back(Sharding::Parse(tensor, to_mesh, p).value());
      }
      std::vector<std::vector<int64_t>> crossing_ns;
      for (const Sharding& x : firsts) {
        crossing_ns.emplace_back();
        for (const Sharding& y : seconds) {
          const Crossing crossing = Crossing::Of(x, y, options.topology);
          crossing_ns.back().push_back(MeasureCrossing(crossing, x, y, options.topology).est_ns);
        }
      }
      for (const std::string& from_text : Placements(from_mesh.NumDims(), true)) {
        const Sharding from = Sharding::Parse(tensor, from_mesh, from_text).value();
        std::vector<int64_t> first_ns;
        for (const Sharding& x : firsts) {
          first_ns.push_back(MayStopAt(x, from) ? MakePlan(from, x, options)->total().est_ns
                                                : INT64_MAX / 4);
        }
        for (const std::string& to_text : Placements(to_mesh.NumDims(), true)) {
          const Sharding to = Sharding::Parse(tensor, to_mesh, to_text).value();
          const int64_t larger = std::max(from.MaxLocalElements(), to.MaxLocalElements());
          const int64_t limit = std::max(larger + larger / 4, int64_t{1} << 20);  // of f32
          const Plan plan = MakePlan(from, to, options).value();
          int64_t best = INT64_MAX;
          std::string how;
          for (size_t j = 0; j < seconds.size(); ++j) {
            if (seconds[j].MaxLocalElements() > limit) continue;
            const int64_t second_ns = MakePlan(seconds[j], to, second_options)->total().est_ns;
            for (size_t i = 0; i < firsts.size(); ++i) {
              if (firsts[i].MaxLocalElements() > limit) continue;
              const int64_t ns = first_ns[i] + crossing_ns[i][j] + second_ns;
              if (ns >= best) continue;
              best = ns;
              how = firsts[i].PlacementsText() + " | " + seconds[j].PlacementsText();
            }
          }
          ++count;
          ASSERT_LE(plan.total().est_ns, best)
              << from.ToString() << " -> " << to.ToString() << " on " << world.topology << ": "
              << how << " is cheaper than\n"
              << PlanToText(plan);
        }
      }
    }
  }
  EXPECT_EQ(count, 1368);
}

bool HasRaggedValues(const Plan& plan) {
  return std::any_of(plan.steps().begin(), plan.steps().end(), [](const Step& step) {
    const absl::Span<const Placement> placements = step.after.placements();
    return std::any_of(placements.begin(), placements.end(), [](const Placement& p) {
      return (p.IsShard() && p.IsRagged()) || p.IsAt();
    });
  });
}

// Splitting mesh dims, with equal boxes, makes a plan at most 1/16 more expensive: there are more
// groups, but not all ends of that many dims are tried. Plans through ragged values or owners are
// left out: one ragged cut may need several ragged cuts of finer dims, and a tensor dim has at most
// one. Searches from them take long with many mesh dims, and share a budget.
TEST(CrossBest, FinerDimsCostHardlyMore) {
  int num_ragged = 0;
  struct Case {
    const char* coarse;
    const char* fine;
    int split;  // the second dim of `coarse` begins at this one of `fine`
    int dims;
  };
  for (const Case& c : {Case{"a=2,b=4", "a=2,b=2,c=2", 1, 3}, Case{"a=4,b=2", "a=2,b=2,c=2", 2, 3},
                        Case{"a=2,b=8", "a=2,b=2,c=2,d=2", 1, 4}}) {
    for (const auto& [first, second] :
         {std::pair("S(1)", "S(1)"), std::pair("S(0)", "S(1)"), std::pair("R", "S(2)"),
          std::pair("S(1)", "R"), std::pair("P", "S(0)"), std::pair("P", "P")}) {
      std::string fine;
      for (int d = 0; d < c.dims; ++d) {
        fine += std::string(d > 0 ? "," : "") + (d < c.split ? first : second);
      }
      const auto at = [](const char* mesh, const std::string& placements) {
        return Sharding::Parse("bf16[64,1024,1024]", DeviceMesh::Parse(mesh).value(), placements)
            .value();
      };
      const PlannerOptions options{.topology = Topology::Parse("nvlink=4").value()};
      const Sharding one = at(c.coarse, std::string(first) + "," + second);
      const Sharding same = at(c.fine, fine);
      const auto expect_like = [&](const Plan& plan, const Plan& coarse) {
        if (HasRaggedValues(coarse)) {
          ++num_ragged;
          return;
        }
        const int64_t ns = coarse.total().est_ns;
        EXPECT_LE(plan.total().est_ns, ns + ns / 16) << PlanToText(plan) << PlanToText(coarse);
      };
      for (const Sharding& other : {at("t=6", "R"), at("t=6", "S(1)")}) {
        expect_like(*MakePlan(same, other, options), *MakePlan(one, other, options));
        expect_like(*MakePlan(other, same, options), *MakePlan(other, one, options));
      }
    }
  }
  EXPECT_LE(num_ragged, 27);  // of 72
}

// The ranks of P(avg) hold the replicas' value: at most the cost of a plan to replicas, and a mask.
TEST(CrossBest, AveragesCostNoMoreThanReplicasAndAMask) {
  for (const char* from_text : {"R", "S(0)", "P"}) {
    for (const bool two : {false, true}) {
      const char* to_mesh = two ? "b=2,c=4@8-15" : "b=8@8-15";
      const auto at = [](const std::string& mesh, const std::string& placements) {
        return Sharding::Parse("bf16[8192,8192]", DeviceMesh::Parse(mesh).value(), placements)
            .value();
      };
      const PlannerOptions options{.topology = Topology::Parse("h100").value()};
      const Sharding from = at("a=2", from_text);
      const Sharding replicas = at(to_mesh, two ? "R,R" : "R");
      const Sharding to = at(to_mesh, two ? "R,P(avg)" : "P(avg)");
      EXPECT_LE(MakePlan(from, to, options)->total().est_ns,
                MakePlan(from, replicas, options)->total().est_ns +
                    MakePlan(replicas, to, options)->total().est_ns)
          << from.ToString() << " -> " << to.ToString();
    }
  }
}

}  // namespace
}  // namespace meshift

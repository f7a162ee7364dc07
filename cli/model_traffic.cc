#include "cli/model_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/checked_math.h"
#include "cli/text.h"
#include "mesh/device_mesh.h"
#include "mesh/topology.h"
#include "planner/cost/cross_cost.h"
#include "planner/plan/crossing.h"
#include "planner/plan/plan.h"
#include "planner/plan/rank_bytes.h"

namespace meshift::cli {
namespace {

// Bytes by rank, then level.
class Ledger {
 public:
  Ledger(const Plan& first, const Topology& topology) : topology_(topology) {
    for (const DeviceMesh& mesh : first.meshes()) {
      const std::vector<int64_t> ranks = mesh.Ranks();
      ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
    }
    std::sort(ranks_.begin(), ranks_.end());
    ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
    bytes_.assign(ranks_.size() * topology.NumLevels(), 0);
  }

  void Add(const Plan& plan, int64_t count) {
    for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
      const Step& step = plan.steps()[i];
      if (step.bytes_sent == 0) continue;
      if (IsCrossing(step)) {
        const Sharding& before = i == 0 ? plan.from() : plan.steps()[i - 1].after;
        const Crossing crossing = Crossing::Of(before, step.after, topology_);
        for (size_t r = 0; r < ranks_.size(); ++r) {
          for (int level = 0; level < topology_.NumLevels(); ++level) {
            Add(r, level, SaturatingBytes(before.dtype(), crossing.SentBy(ranks_[r], level)),
                count);
          }
        }
        continue;
      }
      for (const std::vector<int64_t>& group : step.after.mesh().Groups(step.mesh_dims)) {
        const auto [least, most] = std::minmax_element(group.begin(), group.end());
        const int level = topology_.LevelBetween(*least, *most);
        for (const int64_t rank : group) {
          const auto r = std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin();
          Add(r, level, BytesSent(plan, i, rank), count);
        }
      }
    }
  }

  ModelTraffic Sum() const {
    ModelTraffic traffic;
    traffic.ranks = static_cast<int64_t>(ranks_.size());
    for (int level = 0; level < topology_.NumLevels(); ++level) {
      traffic.levels.push_back({topology_.level(level).name, 0, {ranks_[0], 0}});
    }
    traffic.busiest.rank = ranks_[0];
    for (size_t r = 0; r < ranks_.size(); ++r) {
      int64_t sent = 0;
      for (int level = 0; level < topology_.NumLevels(); ++level) {
        const int64_t bytes = bytes_[r * topology_.NumLevels() + level];
        sent = SaturatingAdd(sent, bytes);
        LevelTraffic& of_level = traffic.levels[level];
        of_level.total = SaturatingAdd(of_level.total, bytes);
        if (bytes > of_level.busiest.bytes) of_level.busiest = {ranks_[r], bytes};
      }
      traffic.total = SaturatingAdd(traffic.total, sent);
      if (sent > traffic.busiest.bytes) traffic.busiest = {ranks_[r], sent};
    }
    return traffic;
  }

 private:
  void Add(size_t r, int level, int64_t bytes, int64_t count) {
    int64_t& sum = bytes_[r * topology_.NumLevels() + level];
    sum = SaturatingAdd(sum, SaturatingMul(bytes, count));
  }

  const Topology& topology_;
  std::vector<int64_t> ranks_;
  std::vector<int64_t> bytes_;
};

}  // namespace

ModelTraffic TrafficOf(const ModelPlan& model) {
  const Topology topology = Topology::Parse(model.rows[0].plan.inputs().topology).value();
  Ledger ledger(model.rows[0].plan, topology);
  for (const ModelRow& row : model.rows) ledger.Add(row.plan, row.count);
  return ledger.Sum();
}

std::string RenderTraffic(const ModelTraffic& traffic) {
  std::string text = fmt::format("per rank: sent {} on average, {} by the busiest, rank {}\n",
                                 BytesText(traffic.total / traffic.ranks),
                                 BytesText(traffic.busiest.bytes), traffic.busiest.rank);
  for (const LevelTraffic& level : traffic.levels) {
    text += fmt::format("over {}: {} in all", level.name, BytesText(level.total));
    if (level.total > 0) {
      text += fmt::format(", {} by the busiest, rank {}", BytesText(level.busiest.bytes),
                          level.busiest.rank);
    }
    text += "\n";
  }
  return text;
}

}  // namespace meshift::cli

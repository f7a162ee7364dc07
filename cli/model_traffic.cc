#include "cli/model_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/checked_math.h"
#include "cli/text.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/topology.h"
#include "planner/together/link_loads.h"
#include "planner/together/links.h"

namespace meshift::cli {
namespace {

// Bytes by rank, then level.
class TrafficCounter {
 public:
  TrafficCounter(const std::vector<DeviceMesh>& meshes, const Topology& topology)
      : topology_(topology) {
    for (const DeviceMesh& mesh : meshes) {
      const std::vector<int64_t> ranks = mesh.Ranks();
      ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
    }
    std::sort(ranks_.begin(), ranks_.end());
    ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
    bytes_.assign(ranks_.size() * topology.NumLevels(), 0);
    sent_.assign(ranks_.size(), 0);
  }

  void Add(const Plan& plan, int64_t count) {
    const auto add = [&](int64_t bytes, int64_t* sum) {
      *sum = SaturatingAdd(*sum, SaturatingMul(bytes, count));
    };
    ForEachLoad(
        plan, topology_,
        [&](int64_t rank, int level, const LinkBytes& bytes) {
          add(bytes.counted, &bytes_[IndexOf(rank) * topology_.NumLevels() + level]);
        },
        [&](int64_t rank, int64_t bytes) { add(bytes, &sent_[IndexOf(rank)]); });
  }

  ModelTraffic Sum() const {
    ModelTraffic traffic;
    traffic.ranks = static_cast<int64_t>(ranks_.size());
    for (int level = 0; level < topology_.NumLevels(); ++level) {
      traffic.levels.push_back({topology_.level(level).name, 0, {ranks_[0], 0}});
    }
    traffic.busiest.rank = ranks_[0];
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const int64_t sent = sent_[r];
      for (int level = 0; level < topology_.NumLevels(); ++level) {
        const int64_t bytes = bytes_[r * topology_.NumLevels() + level];
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
  size_t IndexOf(int64_t rank) const {
    return std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin();
  }

  const Topology& topology_;
  std::vector<int64_t> ranks_;
  std::vector<int64_t> bytes_;  // across the links of each level
  std::vector<int64_t> sent_;   // by rank
};

DistinctMeshes MeshesOf(const ModelPlan& model) {
  DistinctMeshes meshes;
  for (const ModelRow& row : model.rows) {
    for (const DeviceMesh& mesh : row.plan.meshes()) meshes.Add(mesh);
  }
  return meshes;
}

}  // namespace

int64_t TrafficWork(const ModelPlan& model) {
  int64_t work = Links::Work(MeshesOf(model).list(), model.rows[0].plan.options().topology);
  for (const ModelRow& row : model.rows) work = SaturatingAdd(work, LoadWork(row.plan));
  return work;
}

ModelTraffic TrafficOf(const ModelPlan& model) {
  TrafficCounter counter(MeshesOf(model).list(), model.rows[0].plan.options().topology);
  for (const ModelRow& row : model.rows) counter.Add(row.plan, row.count);
  return counter.Sum();
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

// All notations of one layout have one cost, as source and as target; no collective sends nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

// The placements of one mesh dim of two coordinates.
std::vector<std::string> PlacementsOn(const Shape& shape) {
  std::vector<std::string> texts = {"R", "P", "At(0)", "At(1)"};
  for (size_t k = 0; k < shape.size(); ++k) {
    texts.push_back(fmt::format("S({})", k));
    texts.push_back(fmt::format("S({}){{{},0}}", k, shape[k]));
    texts.push_back(fmt::format("S({}){{0,{}}}", k, shape[k]));
  }
  return texts;
}

// The box of each rank; all empty boxes have one text.
std::string LayoutOf(const Sharding& sharding) {
  std::string text;
  for (int64_t i = 0; i < sharding.mesh().NumRanks(); ++i) {
    const Box box = sharding.LocalBox(sharding.mesh().RankAt(i));
    text += box.IsEmpty() ? "-;" : box.ToString() + ";";
  }
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    text += sharding.placement(d).IsPartial() ? "P" : ".";
  }
  return text;
}

// Whether a ceil cut divides pieces of one row, so that only coordinate 0 holds anything. The
// planner does not see that this is At(0).
bool CutsSingleRows(const Sharding& sharding) {
  for (size_t k = 0; k < sharding.shape().size(); ++k) {
    int64_t rows = sharding.shape()[k];
    for (const int d : sharding.CutsOf(static_cast<int>(k))) {
      const Placement& p = sharding.placement(d);
      if (p.IsRagged()) continue;  // leaves all rows to one coordinate, here
      if (rows <= 1) return true;
      rows = CeilDiv(rows, sharding.mesh().dim(d).size);
    }
  }
  return false;
}

TEST(LayoutCost, NotationsOfOneLayoutHaveOneCost) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const PlannerOptions options{.topology = Topology::Parse("nvlink=2").value()};
  int64_t compared = 0;
  int64_t different = 0;
  for (const Shape& shape : {Shape{1}, Shape{1, 3}, Shape{2, 3}, Shape{4, 5}}) {
    std::map<std::string, std::vector<Sharding>> layouts;
    for (const std::string& a : PlacementsOn(shape)) {
      for (const std::string& b : PlacementsOn(shape)) {
        for (const bool swapped : {false, true}) {
          std::string text = a + "," + b;
          if (swapped) {
            const bool both = a.size() == 4 && a[0] == 'S' && a == b;
            if (!both) continue;
            text = a + "[1]," + b + "[0]";
          }
          const auto sharding = Sharding::Parse(TensorType{DType::kF32, shape}, mesh, text);
          if (sharding.ok() && !CutsSingleRows(*sharding))
            layouts[LayoutOf(*sharding)].push_back(*sharding);
        }
      }
    }
    for (const auto& [from_layout, froms] : layouts) {
      for (const auto& [to_layout, tos] : layouts) {
        const auto first = MakePlan(froms[0], tos[0], options);
        for (size_t i = 0; i < froms.size(); ++i) {
          for (size_t j = 0; j < tos.size(); ++j) {
            if (i > 0 && j > 0 && i != j) continue;
            const auto other = MakePlan(froms[i], tos[j], options);
            ASSERT_EQ(first.ok(), other.ok())
                << froms[0].ToString() << " -> " << tos[0].ToString() << ": " << first.status()
                << "; " << froms[i].ToString() << " -> " << tos[j].ToString() << ": "
                << other.status();
            if (!first.ok()) continue;
            for (const Step& step : other->steps()) {
              EXPECT_TRUE(!IsCollective(step.op) || step.bytes_sent > 0) << step.ToString();
            }
            ++compared;
            if (first->total().est_ns == other->total().est_ns &&
                first->total().bytes_sent == other->total().bytes_sent) {
              continue;
            }
            if (++different > 20) continue;
            ADD_FAILURE() << froms[0].ToString() << " -> " << tos[0].PlacementsText() << " takes "
                          << first->total().est_ns << " ns; " << froms[i].PlacementsText() << " -> "
                          << tos[j].PlacementsText() << " takes " << other->total().est_ns;
          }
        }
      }
    }
  }
  fmt::print("notations of one layout: {} pairs of plans compared, {} different\n", compared,
             different);
}

}  // namespace
}  // namespace meshift

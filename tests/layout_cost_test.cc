// All notations of one layout have one cost, as source and as target; no collective sends nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

// All ways to divide `rows` into pieces for `n` coordinates: "2,0,1".
std::vector<std::string> AllSizes(int64_t rows, int64_t n) {
  if (n == 1) return {fmt::format("{}", rows)};
  std::vector<std::string> texts;
  for (int64_t first = 0; first <= rows; ++first) {
    for (const std::string& rest : AllSizes(rows - first, n - 1)) {
      texts.push_back(fmt::format("{},{}", first, rest));
    }
  }
  return texts;
}

// The placements of one mesh dim of `n` coordinates.
std::vector<std::string> PlacementsOn(const Shape& shape, int64_t n) {
  std::vector<std::string> texts = {"R", "P"};
  for (uint32_t held = 1; held < uint32_t{1} << n; ++held) {
    std::string list;
    for (int64_t i = 0; i < n; ++i) {
      if ((held >> i & 1) != 0) list += fmt::format("{}{}", list.empty() ? "" : ",", i);
    }
    texts.push_back("At(" + list + ")");
  }
  for (size_t k = 0; k < shape.size(); ++k) {
    texts.push_back(fmt::format("S({})", k));
    for (const std::string& sizes : AllSizes(shape[k], n)) {
      texts.push_back(fmt::format("S({}){{{}}}", k, sizes));
    }
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

// All shardings of the tensor on the mesh, by layout.
std::map<std::string, std::vector<Sharding>> Layouts(const DeviceMesh& mesh, const Shape& shape) {
  std::vector<std::string> texts = {""};
  for (int d = 0; d < mesh.NumDims(); ++d) {
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      for (const std::string& placement : PlacementsOn(shape, mesh.dim(d).size)) {
        longer.push_back(text + (d == 0 ? "" : ",") + placement);
      }
    }
    texts = std::move(longer);
  }
  for (size_t k = 0; k < shape.size(); ++k) {
    if (mesh.NumDims() == 2) texts.push_back(fmt::format("S({0})[1],S({0})[0]", k));
  }
  std::map<std::string, std::vector<Sharding>> layouts;
  for (const std::string& text : texts) {
    const auto sharding = Sharding::Parse(TensorType{DType::kF32, shape}, mesh, text);
    if (!sharding.ok()) continue;
    layouts[LayoutOf(*sharding)].push_back(*sharding);
  }
  return layouts;
}

struct Compared {
  int64_t pairs = 0;
  int64_t different = 0;
};

void Compare(const std::string& from_mesh, const std::string& to_mesh, const Shape& shape,
             Compared* compared) {
  const PlannerOptions options{.topology = Topology::Parse("nvlink=2").value()};
  const auto sources = Layouts(DeviceMesh::Parse(from_mesh).value(), shape);
  const auto targets = Layouts(DeviceMesh::Parse(to_mesh).value(), shape);
  for (const auto& [from_layout, froms] : sources) {
    for (const auto& [to_layout, tos] : targets) {
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
            EXPECT_TRUE(!IsCollective(step.op) || step.bytes_sent > 0)
                << froms[i].ToString() << " -> " << tos[j].ToString() << ": " << step.ToString();
          }
          ++compared->pairs;
          if (first->total().est_ns == other->total().est_ns &&
              first->total().bytes_sent == other->total().bytes_sent) {
            continue;
          }
          if (++compared->different > 20) continue;
          ADD_FAILURE() << froms[0].ToString() << " -> " << tos[0].PlacementsText() << " takes "
                        << first->total().est_ns << " ns; " << froms[i].PlacementsText() << " -> "
                        << tos[j].PlacementsText() << " takes " << other->total().est_ns;
        }
      }
    }
  }
}

TEST(LayoutCost, NotationsOfOneLayoutHaveOneCost) {
  Compared compared;
  const auto compare = [&](const std::string& mesh, const std::vector<Shape>& shapes) {
    for (const Shape& shape : shapes) Compare(mesh, mesh, shape, &compared);
  };
  compare("a=2,b=2", {{0}, {1}, {4}, {1, 1}, {1, 3}, {2, 0}, {2, 3}});
  compare("a=3", {{1}, {2}, {5}, {1, 2}, {4, 3}});
  compare("a=3,b=2", {{1}, {2}, {3}});
  compare("a=2,b=3", {{1}, {2}, {3}});
  compare("a=2,b=2,c=2", {{1}, {2}});
  fmt::print("notations of one layout: {} pairs of plans compared, {} different\n", compared.pairs,
             compared.different);
}

TEST(LayoutCost, NotationsOfOneLayoutHaveOneCostOntoAnotherMesh) {
  Compared compared;
  for (const Shape& shape : {Shape{1}, Shape{2}, Shape{1, 2}}) {
    Compare("a=2", "x=2@2-3", shape, &compared);
    Compare("a=2,b=2", "x=2@4-5", shape, &compared);
    Compare("a=3", "x=2,y=2@3-6", shape, &compared);
  }
  fmt::print("onto another mesh: {} pairs of plans compared, {} different\n", compared.pairs,
             compared.different);
}

// The end of a crossing to near ranks keeps the target's owners, however they are written.
TEST(LayoutCost, NotationsOfOwnersBesideNearRanks) {
  const struct {
    const char *from_mesh, *to_mesh, *tensor, *from;
    std::vector<const char*> targets;
  } cases[] = {
      {"a=2@1,2", "u=2,v=2@4,1,2,0", "f32[1,2,2]", "R", {"P,S(0)", "P,At(0)"}},
      {"a=2", "u=2,v=2@3,1,2,0", "f32[1,2,2]", "S(2)", {"P,S(0)", "P,S(0){1,0}", "P,S(1){2,0}"}},
      {"a=3@4,5,6", "u=2,v=2,w=2", "bf16[1]", "R", {"P,R,S(0)", "P,R,At(0)", "P,At(0,1),S(0)"}},
      {"a=3@4,5,6",
       "u=2,v=2,w=2",
       "bf16[1]",
       "R",
       {"S(0)[1],S(0){0,1}[0],S(0)[2]", "S(0),S(0){0,1},At(0)"}},
  };
  for (const char* links : {"nvlink=2", "nvlink=3", "flat"}) {
    for (const auto& c : cases) {
      const TensorType tensor = *TensorType::Parse(c.tensor);
      const Sharding from = *Sharding::Parse(tensor, *DeviceMesh::Parse(c.from_mesh), c.from);
      const DeviceMesh mesh = *DeviceMesh::Parse(c.to_mesh);
      std::vector<int64_t> times;
      for (const char* to : c.targets) {
        const auto plan = MakePlan(from, *Sharding::Parse(tensor, mesh, to),
                                   {.topology = *Topology::Parse(links)});
        ASSERT_TRUE(plan.ok()) << plan.status();
        times.push_back(plan->total().est_ns);
        EXPECT_EQ(times.back(), times.front()) << from.ToString() << " -> " << to << ", " << links;
      }
    }
  }
}

}  // namespace
}  // namespace meshift

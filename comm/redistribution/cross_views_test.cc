// Redistributions from one mesh to another with all kinds of views, as single calls and as a list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/local_world.h"
#include "meshift/placement.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "placement/local_box.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 7;

struct Mode {
  const char* name;
  bool strided_source = false;
  bool strided_target = false;
  bool one_buffer = false;
  bool consume = false;
};
constexpr Mode kModes[] = {
    {.name = "plain"},
    {.name = "strided source", .strided_source = true},
    {.name = "strided target", .strided_target = true},
    {.name = "strided", .strided_source = true, .strided_target = true},
    {.name = "one buffer", .one_buffer = true},
    {.name = "one strided buffer", .strided_target = true, .one_buffer = true},
    {.name = "consumed", .consume = true}};

struct Pair {
  Sharding from;
  Sharding to;
};

// Overlapping, nested, disjoint, refactored and permuted meshes; some sources are partial.
std::vector<Pair> Pairs() {
  std::vector<Pair> pairs;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"f32[5,6] on a=4 as S(0)", "f32[5,6] on b=2,c=2 as S(1),S(0)"},
           {"f32[5,6] on a=4 as S(0)", "f32[5,6] on x=2,y=2 as S(0),S(0)"},
           {"f32[5,6] on a=4 as S(1)", "f32[5,6] on b=4@3,1,0,2 as S(1)"},
           {"f32[5,6] on a=4 as S(0)", "f32[5,6] on b=2@4,6 as R"},
           {"f32[5,6] on a=2,c=2 as S(0),R", "f32[5,6] on b=3@2,4,3 as S(1)"},
           {"f32[5,6] on a=2,c=2 as R,R", "f32[5,6] on b=3@2,1,0 as S(0)"},
           {"f32[5,6] on a=6 as S(0)", "f32[5,6] on b=2@5,2 as S(1)"},
           {"f32[5,6] on a=2,c=2 as P,S(1)", "f32[5,6] on b=3@2,4,6 as S(0)"},
           {"f32[5,6] on a=3 as P", "f32[5,6] on b=2@2,5 as R"},
           {"f32[5,6] on a=3 as S(0){1,4,0}", "f32[5,6] on b=4@2-5 as S(1){0,2,3,1}"},
           {"f32[] on a=3 as P", "f32[] on b=2@2,5 as R"}}) {
    pairs.push_back({Sharding::Parse(from).value(), Sharding::Parse(to).value()});
  }
  return pairs;
}

// The elements of a box, row-major. Each element's value is its index in the whole tensor.
std::vector<float> ContentOf(const Sharding& sharding, const Box& box) {
  std::vector<float> content(box.NumElements());
  for (int64_t i = 0; i < box.NumElements(); ++i) {
    int64_t left = i;
    int64_t index = 0;
    int64_t scale = 1;
    for (size_t t = box.size.size(); t-- > 0; left /= box.size[t]) {
      if (!sharding.shape().empty()) index += scale * (box.offset[t] + left % box.size[t]);
      if (!sharding.shape().empty()) scale *= sharding.shape()[t];
    }
    content[i] = static_cast<float>(index + 1);
  }
  return content;
}

// Every second element, the first dim innermost.
Shape WideStrides(const Shape& size) {
  Shape strides;
  int64_t stride = 2;
  for (const int64_t n : size) {
    strides.push_back(stride);
    stride *= std::max<int64_t>(n, 1);
  }
  return strides;
}

template <typename Fn>
void ForEachElement(const TensorView& view, const Fn& fn) {
  for (int64_t i = 0; i < NumElements(view.shape); ++i) {
    int64_t left = i;
    int64_t offset = 0;
    for (size_t t = view.shape.size(); t-- > 0; left /= view.shape[t]) {
      offset += left % view.shape[t] * view.strides[t];
    }
    fn(i, static_cast<float*>(view.data) + offset);
  }
}

// One rank's tensors of a redistribution.
struct Local {
  alignas(16) float source[128];
  alignas(16) float target[128];
  TensorView in;
  TensorView out;

  void Fill(const Pair& pair, int64_t rank, const Mode& mode) {
    std::fill(std::begin(source), std::end(source), -1.0F);
    std::fill(std::begin(target), std::end(target), -2.0F);
    in = ViewOf(pair.from, rank, source, mode.strided_source);
    out = ViewOf(pair.to, rank, mode.one_buffer ? source : target, mode.strided_target);
    if (in.data == nullptr) return;
    // A partial dim's contribution 0 has the value, the others none.
    bool counts = true;
    const Coordinate at = *pair.from.mesh().CoordinateOf(rank);
    for (size_t d = 0; d < at.size(); ++d) {
      if (pair.from.placement(static_cast<int>(d)).IsPartial() && at[d] > 0) counts = false;
    }
    const std::vector<float> content = ContentOf(pair.from, LocalBoxOf(pair.from, rank));
    ForEachElement(in, [&](int64_t i, float* element) { *element = counts ? content[i] : 0; });
  }
  bool IsRight(const Pair& pair, int64_t rank) const {
    bool right = true;
    if (out.data == nullptr) return right;
    const std::vector<float> content = ContentOf(pair.to, LocalBoxOf(pair.to, rank));
    ForEachElement(out, [&](int64_t i, const float* element) { right &= *element == content[i]; });
    return right;
  }

 private:
  static TensorView ViewOf(const Sharding& sharding, int64_t rank, float* memory, bool strided) {
    if (!sharding.mesh().PositionOf(rank)) return {};
    TensorView view = TensorView::Contiguous(memory, DType::kF32, LocalBoxOf(sharding, rank).size);
    if (strided) view.strides = WideStrides(view.shape);
    return view;
  }
};

class CrossViewsTest : public testing::TestWithParam<Mode> {
 protected:
  CrossViewsTest() : world_(LocalWorld::Create({.num_ranks = kRanks}).value()) {
    const DeviceMesh all = DeviceMesh::Create({{"ranks", kRanks}}).value();
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      redistribute_.push_back(Redistributor::Create(all, world_->engine(rank)).value());
    }
  }
  const std::unique_ptr<LocalWorld> world_;
  std::vector<Redistributor> redistribute_;
};

TEST_P(CrossViewsTest, OneByOne) {
  for (const Pair& pair : Pairs()) {
    SCOPED_TRACE(pair.from.ToString() + " -> " + pair.to.ToString());
    std::vector<Local> locals(kRanks);
    std::vector<RunHandle> handles;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      Local& local = locals[rank];
      local.Fill(pair, rank, GetParam());
      absl::StatusOr<RunHandle> handle =
          redistribute_[rank]({.from = pair.from,
                               .to = pair.to,
                               .source = local.in,
                               .target = local.out,
                               .consume_source = GetParam().consume});
      ASSERT_TRUE(handle.ok()) << handle.status();
      handles.push_back(*std::move(handle));
    }
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(handles[rank].Wait().ok());
    }
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(locals[rank].IsRight(pair, rank)) << "on rank " << rank;
    }
  }
}

// Each redistribution twice in one list: equal ones are merged.
TEST_P(CrossViewsTest, AsAList) {
  std::vector<Pair> pairs = Pairs();
  for (const Pair& pair : Pairs()) pairs.push_back(pair);
  std::vector<std::vector<Local>> locals(kRanks, std::vector<Local>(pairs.size()));
  std::vector<RunHandle> handles;
  int64_t calls = 0;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    std::vector<Redistribution> list;
    for (size_t i = 0; i < pairs.size(); ++i) {
      Local& local = locals[rank][i];
      local.Fill(pairs[i], rank, GetParam());
      list.push_back({.from = pairs[i].from,
                      .to = pairs[i].to,
                      .source = local.in,
                      .target = local.out,
                      .consume_source = GetParam().consume});
    }
    absl::StatusOr<RunHandle> handle = redistribute_[rank](list);
    ASSERT_TRUE(handle.ok()) << handle.status();
    handles.push_back(*std::move(handle));
    const RunRecord& record = redistribute_[rank].last_run();
    calls = std::max(calls, std::accumulate(record.calls.begin(), record.calls.end(), int64_t{0}));
  }
  for (const RunHandle& handle : handles) ASSERT_TRUE(handle.Wait().ok());
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_TRUE(locals[rank][i].IsRight(pairs[i], rank))
          << "tensor " << i << " on rank " << rank << ", " << pairs[i].to.ToString();
    }
  }
  int64_t apart = 0;
  for (const Pair& pair : pairs) apart += MakePlan(pair.from, pair.to)->total().collectives;
  EXPECT_LE(2 * calls, apart);
}

INSTANTIATE_TEST_SUITE_P(Modes, CrossViewsTest, testing::ValuesIn(kModes), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

}  // namespace
}  // namespace meshift

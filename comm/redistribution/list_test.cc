// A call with many tensors gives the same results as one call for each, with fewer collectives and
// the same bytes; onto another mesh, with the plans of MakePlans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "comm/redistribution/plan_cache.h"
#include "comm/tensor/strides.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_cache.h"
#include "meshift/planner_options.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "meshift/topology.h"
#include "planner/together/collective_starts.h"
#include "planner/together/link_loads.h"
#include "planner/together/links.h"
#include "planner/together/plan_loads.h"
#include "testing/random.h"

namespace meshift {
namespace {

// A redistribution of one tensor, on all ranks.
struct Tensor {
  Sharding from;
  Sharding to;
  bool strided_source = false;
  bool strided_target = false;
  bool one_buffer = false;
  bool consume = false;
  std::optional<DType> reduce_dtype = std::nullopt;
};

// A tensor's memory on one rank.
struct Local {
  std::vector<uint64_t> source;
  std::vector<uint64_t> target;
  TensorView in;
  TensorView out;
};

// Element `i` of a rank's contribution: exact in every dtype, however it is summed.
void Put(DType dtype, int64_t i, int64_t rank, char* at) {
  const int value = static_cast<int>((i * 7 + rank * 3) % 3);  // 0, 1, 2
  std::memset(at, 0, Bytes(dtype, 1));
  switch (dtype) {
    case DType::kF32: {
      const auto f = static_cast<float>(value);
      std::memcpy(at, &f, sizeof(f));
      return;
    }
    case DType::kF64: {
      const auto f = static_cast<double>(value);
      std::memcpy(at, &f, sizeof(f));
      return;
    }
    case DType::kBF16: {
      const uint16_t bits[] = {0, 0x3f80, 0x4000};
      std::memcpy(at, &bits[value], sizeof(bits[0]));
      return;
    }
    default:
      *at = static_cast<char>(value);
  }
}

// The tensor's elements. A strided tensor uses every second element, first dim innermost.
TensorView ViewOf(std::vector<uint64_t>* memory, DType dtype, const Shape& shape, bool strided) {
  TensorView view = TensorView::Contiguous(nullptr, dtype, shape);
  if (strided) {
    int64_t stride = 2;
    for (size_t d = 0; d < shape.size(); ++d) {
      view.strides[d] = stride;
      stride *= std::max<int64_t>(shape[d], 1);
    }
  }
  const int64_t elements = ExtentOf(view.shape, view.strides)->high;
  memory->resize(std::max<size_t>(memory->size(), Bytes(dtype, elements) / 8 + 1),
                 0xa5a5a5a5a5a5a5a5);
  view.data = memory->data();
  return view;
}

Local Lay(const Tensor& tensor, int64_t rank) {
  Local local;
  const Shape source = tensor.from.LocalBox(rank).size;
  const Shape target = tensor.to.LocalBox(rank).size;
  local.in = ViewOf(&local.source, tensor.from.dtype(), source, tensor.strided_source);
  std::vector<uint64_t>& out = tensor.one_buffer ? local.source : local.target;
  local.out = ViewOf(&out, tensor.to.dtype(), target, tensor.strided_target);
  local.in.data = local.source.data();
  const int64_t item = Bytes(tensor.from.dtype(), 1);
  // Replicas hold equal contributions.
  const Box box = tensor.from.LocalBox(rank);
  int64_t seed = 0;
  for (size_t d = 0; d < box.offset.size(); ++d) seed = seed * 5 + box.offset[d];
  for (int d = 0; d < tensor.from.mesh().NumDims(); ++d) {
    if (tensor.from.placement(d).IsPartial() && tensor.from.mesh().PositionOf(rank)) {
      seed = seed * 3 + (*tensor.from.mesh().CoordinateOf(rank))[d];
    }
  }
  Shape index(source.size(), 0);
  for (int64_t i = 0; i < NumElements(source); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * local.in.strides[d];
    Put(tensor.from.dtype(), i, seed, static_cast<char*>(local.in.data) + at * item);
    for (size_t d = index.size(); d > 0 && ++index[d - 1] == source[d - 1]; --d) index[d - 1] = 0;
  }
  return local;
}

std::vector<Local> LayAll(const std::vector<Tensor>& tensors, int64_t rank) {
  std::vector<Local> locals;
  locals.reserve(tensors.size());
  for (const Tensor& tensor : tensors) locals.push_back(Lay(tensor, rank));
  return locals;
}

struct Totals {
  int64_t bytes = 0;
  int64_t calls = 0;
};

Totals TotalsOf(const RunRecord& record) {
  return {std::accumulate(record.bytes_sent.begin(), record.bytes_sent.end(), int64_t{0}),
          std::accumulate(record.calls.begin(), record.calls.end(), int64_t{0})};
}

class ListTest : public testing::Test {
 protected:
  void Start(const std::string& mesh, const RedistributorOptions& options = {}) {
    redistributors_.clear();
    mesh_.emplace(DeviceMesh::Parse(mesh).value());
    world_ = LocalWorld::Create({.num_ranks = mesh_->NumRanks(), .num_workers = 1}).value();
    for (int64_t r = 0; r < mesh_->NumRanks(); ++r) {
      redistributors_.push_back(Redistributor::Create(*mesh_, world_->engine(r), options).value());
    }
  }
  Tensor Of(const std::string& tensor, const std::string& from, const std::string& to) const {
    Sharding source = Sharding::Parse(tensor, *mesh_, from).value();
    Sharding target = source.WithPlacements(to).value();
    return {std::move(source), std::move(target)};
  }
  static std::vector<Redistribution> ListOf(const std::vector<Tensor>& tensors,
                                            std::vector<Local>& locals) {
    std::vector<Redistribution> list;
    for (size_t i = 0; i < tensors.size(); ++i) {
      list.push_back({.from = tensors[i].from,
                      .to = tensors[i].to,
                      .source = locals[i].in,
                      .target = locals[i].out,
                      .consume_source = tensors[i].consume,
                      .reduce_dtype = tensors[i].reduce_dtype});
    }
    return list;
  }

  // Runs the tensors both ways. Returns the totals of each rank: with one call for each tensor, and
  // with one for all.
  std::vector<std::pair<Totals, Totals>> RunBoth(const std::vector<Tensor>& tensors,
                                                 bool own_workspace) {
    const auto ranks = redistributors_.size();
    std::vector<std::vector<Local>> apart(ranks);
    std::vector<std::vector<Local>> together(ranks);
    std::vector<std::pair<Totals, Totals>> totals(ranks);
    for (size_t r = 0; r < ranks; ++r) {
      apart[r] = LayAll(tensors, static_cast<int64_t>(r));
      together[r] = LayAll(tensors, static_cast<int64_t>(r));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::vector<RunHandle> runs;
      for (size_t r = 0; r < ranks; ++r) {
        const Local& local = apart[r][i];
        runs.push_back(redistributors_[r]({.from = tensors[i].from,
                                           .to = tensors[i].to,
                                           .source = local.in,
                                           .target = local.out,
                                           .consume_source = tensors[i].consume,
                                           .reduce_dtype = tensors[i].reduce_dtype})
                           .value());
        const Totals one = TotalsOf(redistributors_[r].last_run());
        totals[r].first.bytes += one.bytes;
        totals[r].first.calls += one.calls;
      }
      for (const RunHandle& run : runs) EXPECT_TRUE(run.Wait().ok());
    }
    std::vector<std::vector<uint64_t>> memory(ranks);
    std::vector<RunHandle> runs;
    for (size_t r = 0; r < ranks; ++r) {
      const std::vector<Redistribution> list = ListOf(tensors, together[r]);
      Workspace workspace;
      if (own_workspace) {
        workspace.bytes = redistributors_[r].WorkspaceBytes(list).value();
        memory[r].resize(workspace.bytes / 8 + 4);
        workspace.data = memory[r].data() + reinterpret_cast<uintptr_t>(memory[r].data()) / 8 % 2;
      }
      runs.push_back(redistributors_[r](list, workspace).value());
      totals[r].second = TotalsOf(redistributors_[r].last_run());
    }
    for (const RunHandle& run : runs) {
      const absl::Status status = run.Wait();
      EXPECT_TRUE(status.ok()) << status;
    }
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(apart[r][i].target, together[r][i].target)
            << tensors[i].from.ToString() << " -> " << tensors[i].to.ToString();
        EXPECT_TRUE(tensors[i].consume || apart[r][i].source == together[r][i].source);
      }
    }
    return totals;
  }

  void RunTogether(const std::vector<Tensor>& tensors, std::vector<std::vector<Local>>& locals) {
    std::vector<RunHandle> runs;
    for (size_t r = 0; r < redistributors_.size(); ++r) {
      runs.push_back(redistributors_[r](ListOf(tensors, locals[r])).value());
    }
    for (const RunHandle& run : runs) EXPECT_TRUE(run.Wait().ok());
  }

  std::optional<DeviceMesh> mesh_;
  std::unique_ptr<LocalWorld> world_;
  std::vector<Redistributor> redistributors_;
};

TEST_F(ListTest, RandomLists) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const char* const meshes[] = {"a=2", "a=4", "a=2,b=2", "a=3,b=2", "a=2,b=2@3,0,2,1"};
  const char* const dtypes[] = {"f32", "bf16", "i32", "u8", "f64", "i16"};
  const char* const placements[] = {"R", "S(0)", "S(1)", "P", "P(max)", "P(avg)"};
  int64_t calls_apart = 0;
  int64_t calls_together = 0;
  int64_t num_tensors = 0;
  for (int round = 0; round < 150; ++round) {
    Start(
        meshes[below(5)],
        {.expert = {.coalesce_bytes = round % 5 == 0 ? std::optional<int64_t>(16) : std::nullopt}});
    std::vector<Tensor> tensors;
    const int wanted = 1 + below(12);
    while (static_cast<int>(tensors.size()) < wanted) {
      Shape shape;
      for (int d = 1 + below(3); d > 0; --d) shape.push_back(below(8));
      std::string text = dtypes[below(6)] + std::string("[");
      for (size_t d = 0; d < shape.size(); ++d) {
        text += (d > 0 ? "," : "") + std::to_string(shape[d]);
      }
      std::string from;
      std::string to;
      for (int d = 0; d < mesh_->NumDims(); ++d) {
        from += std::string(d > 0 ? "," : "") + placements[below(6)];
        to += std::string(d > 0 ? "," : "") + placements[below(6)];
      }
      const auto source = Sharding::Parse(text + "]", *mesh_, from);
      if (!source.ok()) continue;
      const auto target = source->WithPlacements(to);
      if (!target.ok() || !MakePlan(*source, *target).ok()) continue;
      Tensor tensor{*source, *target};
      tensor.strided_source = below(4) == 0;
      tensor.strided_target = below(4) == 0;
      tensor.one_buffer = below(6) == 0;
      tensor.consume = !tensor.one_buffer && below(6) == 0;
      tensors.push_back(tensor);
      // Often repeat a tensor, so that there are plans to merge.
      for (int copies = below(3); copies > 0; --copies) tensors.push_back(tensor);
    }
    for (const auto& [apart, together] : RunBoth(tensors, /*own_workspace=*/round % 2 == 0)) {
      calls_apart += apart.calls;
      calls_together += together.calls;
      // An all-reduce's bytes are rounded up once per call.
      EXPECT_LE(together.bytes, apart.bytes);
      EXPECT_LE(apart.bytes - together.bytes, apart.calls - together.calls);
    }
    num_tensors += static_cast<int64_t>(tensors.size());
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(num_tensors, 1000);
  EXPECT_LT(calls_together, calls_apart * 3 / 4);
}

TEST_F(ListTest, LikeCallsAreOne) {
  Start("a=2,b=2");
  // Gathers of any dtype are merged; so are exchanges, which gather unequal parts. Sums must have
  // one dtype.
  const std::vector<Tensor> tensors = {
      Of("f32[8]", "S(0),R", "R,R"),  Of("u8[3]", "S(0),R", "R,R"), Of("f32[6]", "P,P", "R,R"),
      Of("f32[2,2]", "P,P", "R,R"),   Of("bf16[6]", "P,P", "R,R"),  Of("f32[4]", "R,S(0)", "R,R"),
      Of("bf16[5]", "S(0),R", "R,R"), Of("f32[4]", "R,R", "R,S(0)")};
  for (const auto& [apart, together] : RunBoth(tensors, false)) {
    EXPECT_EQ(apart.calls, 7);
    EXPECT_EQ(together.calls, 5);
    EXPECT_EQ(together.bytes, apart.bytes);
  }
}

TEST_F(ListTest, LargeTensorsStayAlone) {
  Start("a=4", {.expert = {.coalesce_bytes = 48}});
  // They send 48, 48 and 96 bytes; a merged program has at most 8 * 48.
  std::vector<Tensor> tensors = {Of("f32[16]", "S(0)", "R"), Of("f32[16]", "S(0)", "R"),
                                 Of("f32[32]", "S(0)", "R")};
  EXPECT_EQ(RunBoth(tensors, false)[0].second.calls, 2);
  for (int i = 0; i < 5; ++i) tensors.push_back(tensors[0]);
  EXPECT_EQ(RunBoth(tensors, false)[0].second.calls, 3);
}

TEST_F(ListTest, MergedProgramsAreKept) {
  Start("a=2");
  const std::vector<Tensor> tensors = {Of("f32[8]", "P", "R"), Of("f32[4]", "P", "R")};
  RunBoth(tensors, false);
  const RedistributorStats before = redistributors_[0].stats();
  RunBoth(tensors, false);
  EXPECT_EQ(redistributors_[0].stats().programs_made, before.programs_made);
  EXPECT_EQ(before.programs_made, 1);
  EXPECT_EQ(redistributors_[0].stats().calls, before.calls + 3);
}

TEST_F(ListTest, ARefusedTensorRefusesTheCall) {
  Start("a=2");
  const std::vector<Tensor> tensors = {Of("f32[8]", "S(0)", "R"), Of("f32[4]", "S(0)", "R")};
  std::vector<Local> locals = LayAll(tensors, 0);
  const auto refusal = [&](const std::vector<Redistribution>& list, Workspace workspace = {}) {
    return redistributors_[0](list, workspace).status().ToString();
  };
  std::vector<Redistribution> list = ListOf(tensors, locals);
  {
    std::vector<Local> wrong = locals;
    wrong[1].in.shape = {1};
    EXPECT_EQ(refusal(ListOf(tensors, wrong)),
              "INVALID_ARGUMENT: tensor 1: the source is f32[1]; rank 0 holds f32[2]");
    wrong = locals;
    wrong[0].out.data = nullptr;
    EXPECT_EQ(refusal(ListOf(tensors, wrong)),
              "INVALID_ARGUMENT: tensor 0: the target f32[8] is null");
    wrong = locals;
    wrong[1].out.data = static_cast<float*>(locals[0].out.data) + 4;
    EXPECT_EQ(
        refusal(ListOf(tensors, wrong)),
        "INVALID_ARGUMENT: the byte ranges of the target of tensor 0 and the target of tensor 1 "
        "overlap; the tensors of a list are moved in any order");
    wrong[1].out.data = static_cast<float*>(locals[0].in.data) + 3;
    EXPECT_EQ(
        refusal(ListOf(tensors, wrong)),
        "INVALID_ARGUMENT: the byte ranges of the source of tensor 0 and the target of tensor 1 "
        "overlap; the tensors of a list are moved in any order");
  }
  alignas(16) char memory[256];
  EXPECT_EQ(refusal(list, {memory, 16}),
            "INVALID_ARGUMENT: the workspace has 16 bytes; the plan needs 48");
  EXPECT_EQ(refusal(list, {memory + 8, 200}),
            "INVALID_ARGUMENT: the workspace is not aligned to 16 bytes");
  EXPECT_EQ(refusal(list, {locals[1].target.data(), 64}),
            "INVALID_ARGUMENT: tensor 1: the target and the workspace overlap");
  list[1].workspace = {memory, 256};
  EXPECT_EQ(refusal(list),
            "INVALID_ARGUMENT: tensor 1: a workspace is an argument of the whole call, not of one "
            "tensor of a list");
  // Nothing was done: no groups, no calls; the peer need not call either.
  EXPECT_EQ(redistributors_[0].stats().calls, 0);
  RunBoth(tensors, true);
}

TEST_F(ListTest, SharedSourcesAndNone) {
  Start("a=2");
  const std::vector<Tensor> tensors = {Of("f32[8]", "S(0)", "R"), Of("f32[8]", "S(0)", "R")};
  std::vector<RunHandle> runs;
  std::vector<std::vector<Local>> locals(2);
  for (int r = 0; r < 2; ++r) {
    locals[r] = LayAll(tensors, r);
    locals[r][1].in = locals[r][0].in;
    runs.push_back(redistributors_[r](ListOf(tensors, locals[r])).value());
    EXPECT_TRUE(redistributors_[r](std::vector<Redistribution>()).value().Wait().ok());
  }
  for (int r = 0; r < 2; ++r) {
    EXPECT_TRUE(runs[r].Wait().ok());
    EXPECT_EQ(locals[r][0].target, locals[r][1].target);
  }
}

// "f32[8] on a=2 as R", "f32[8] on b=2@2,3 as S(0)"
Tensor Across(const std::string& from, const std::string& to) {
  return {Sharding::Parse(from).value(), Sharding::Parse(to).value()};
}

// Each of these tensors alone comes from rank 0.
std::vector<Tensor> FourFromTwoReplicas() {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 4; ++i) {
    tensors.push_back(
        Across("f32[512] on a=2 as R", "f32[512] on b=4@2-5 as At(" + std::to_string(i) + ")"));
  }
  return tensors;
}

TEST_F(ListTest, ReplicasShareTheWayOntoAnotherMesh) {
  Start("ranks=7");
  const std::vector<Tensor> tensors = FourFromTwoReplicas();
  for (int round = 0; round < 2; ++round) {
    const auto totals = RunBoth(tensors, /*own_workspace=*/round == 1);
    EXPECT_EQ(totals[0].first.bytes, 4 * 2048);
    EXPECT_EQ(totals[0].second.bytes, 2 * 2048);
    EXPECT_EQ(totals[1].second.bytes, 2 * 2048);
    EXPECT_EQ(totals[0].second.calls, 1);
  }
}

TEST_F(ListTest, PlansOntoAnotherMeshAreKept) {
  Start("ranks=7");
  const std::vector<Tensor> tensors = FourFromTwoReplicas();
  std::vector<std::vector<Local>> locals(redistributors_.size());
  for (int64_t r = 0; r < mesh_->NumRanks(); ++r) {
    locals[r] = LayAll(tensors, r);
    ASSERT_TRUE(redistributors_[r].Prepare(ListOf(tensors, locals[r])).ok());
  }
  const RedistributorStats before = redistributors_[1].stats();
  EXPECT_EQ(before.plans_made, 4);
  EXPECT_EQ(before.plans_cached, 4);
  RunTogether(tensors, locals);
  RedistributorStats stats = redistributors_[1].stats();
  EXPECT_EQ(stats.plans_made, 4);
  EXPECT_EQ(stats.plans_reused, before.plans_reused + 4);
  EXPECT_EQ(stats.programs_made, before.programs_made);
  // Another list, and one that is planned as alone.
  RunTogether({tensors[0], tensors[1], tensors[2]}, locals);
  RunTogether({tensors[0]}, locals);
  stats = redistributors_[1].stats();
  RunTogether(tensors, locals);
  EXPECT_EQ(redistributors_[1].stats().plans_made, stats.plans_made);
}

// If planning together takes too much work, each tensor has its plan alone.
TEST_F(ListTest, LittleWorkPlansEachTensorAlone) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 16; ++i) tensors.push_back(FourFromTwoReplicas()[i % 4]);
  std::vector<TensorMove> moves;
  for (const Tensor& tensor : tensors) moves.push_back({tensor.from, tensor.to});
  PlannerOptions little;
  little.max_work = 8 << 10;
  ASSERT_TRUE(MakePlan(tensors[0].from, tensors[0].to, little).ok());
  ASSERT_EQ(MakePlans(moves, little).status().code(), absl::StatusCode::kResourceExhausted);
  Start("ranks=7", {.planning = little});
  for (const auto& [apart, together] : RunBoth(tensors, /*own_workspace=*/false)) {
    EXPECT_EQ(together.bytes, apart.bytes);
  }
  const RedistributorStats before = redistributors_[0].stats();
  RunBoth(tensors, /*own_workspace=*/false);
  EXPECT_EQ(redistributors_[0].stats().plans_made, before.plans_made);
}

TEST_F(ListTest, RefusalsOntoAnotherMeshNameTheTensor) {
  Start("ranks=7");
  std::vector<Tensor> tensors = FourFromTwoReplicas();
  tensors[2].to = Sharding::Parse("f32[32] on b=4@2-5 as S(0)").value();
  std::vector<Local> locals = LayAll(tensors, 0);
  const absl::Status alone = MakePlan(tensors[2].from, tensors[2].to).status();
  EXPECT_EQ(redistributors_[0](ListOf(tensors, locals)).status(),
            absl::Status(alone.code(), "tensor 2: " + std::string(alone.message())));
  tensors[2].to = Sharding::Parse("f32[64] on b=4@5-8 as S(0)").value();
  EXPECT_EQ(redistributors_[0](ListOf(tensors, locals)).status().message().substr(0, 10),
            "tensor 2: ");
}

// The objective of MakePlans (planner/together/together.h).
int64_t ObjectiveNs(const std::vector<Plan>& plans, const Topology& topology) {
  WorkBudget budget(INT64_MAX);
  const Links links = LinksOf(plans, topology, budget).value();
  PlanLoads loads(plans, links, budget);
  CollectiveKinds kinds;
  StartSums starts;
  for (size_t i = 0; i < plans.size(); ++i) {
    loads.Add(i, /*count=*/1);
    starts.Add(StartsOf(plans[i], topology, &kinds));
  }
  return loads.BusiestNs() + loads.CopiesNs() + starts.Most();
}

// A random tensor that mostly goes onto another mesh; some are reduced, cast or stay.
Tensor RandomTensor(testkit::Random& random, const DeviceMesh& from_mesh,
                    const DeviceMesh& to_mesh) {
  const auto one_of = [&](const std::vector<std::string>& texts) {
    return texts[random.Below(std::ssize(texts))];
  };
  for (;;) {
    const DeviceMesh& target_mesh = random.OneIn(5) ? from_mesh : to_mesh;
    const auto placements = [&](const DeviceMesh& mesh, bool partial) {
      std::string text;
      for (const DeviceMesh::Dim& dim : mesh.dims()) {
        text += text.empty() ? "" : ",";
        text += partial ? one_of({"P", "P", "S(1)"})
                        : one_of({"R", "R", "S(0)", "S(1)",
                                  "At(" + std::to_string(random.Below(dim.size)) + ")"});
      }
      return text;
    };
    const std::string shape = one_of({"[16,8]", "[7,5]", "[32,6]", "[1,3]", "[0,4]"});
    const std::string dtype = one_of({"f32", "bf16"});
    const auto from = Sharding::Parse(dtype + shape, from_mesh,
                                      placements(from_mesh, /*partial=*/random.OneIn(8)));
    const auto to = Sharding::Parse((random.OneIn(8) ? "f32" : dtype) + shape, target_mesh,
                                    placements(target_mesh, /*partial=*/false));
    if (!from.ok() || !to.ok()) continue;
    Tensor tensor{*from, *to};
    if (!MakePlan(*from, *to).ok()) continue;
    tensor.strided_source = random.OneIn(4);
    tensor.strided_target = random.OneIn(4);
    tensor.consume = random.OneIn(6);
    return tensor;
  }
}

// The law of lists onto another mesh: the bits of separate calls, the plans of MakePlans. These
// have one reduce_dtype; in each third list the tensors' own ones differ.
TEST_F(ListTest, RandomListsOntoAnotherMesh) {
  testkit::Random random(31);
  const char* const pairs[][2] = {{"a=4", "x=4@4-7"},
                                  {"a=2,b=2", "x=2,y=2@4-7"},
                                  {"a=2,b=2", "x=3@2-4"},
                                  {"a=3,b=2", "x=2,y=3@2,7,3,4,6,5"}};
  int better = 0;
  int mixed = 0;
  for (int round = 0; round < 150; ++round) {
    RedistributorOptions options;
    options.planning.topology = Topology::Parse(round % 2 == 0 ? "flat" : "nvlink=2").value();
    Start("ranks=8", options);
    PlannerOptions planning = PlanningOptions(*mesh_, *world_->engine(0), options);
    if (round % 3 == 1) planning.reduce_dtype = DType::kF32;

    const auto& [from_mesh, to_mesh] = pairs[random.Below(4)];
    std::vector<Tensor> tensors;
    while (tensors.size() < 6) {
      Tensor tensor = RandomTensor(random, DeviceMesh::Parse(from_mesh).value(),
                                   DeviceMesh::Parse(to_mesh).value());
      tensor.reduce_dtype = planning.reduce_dtype;
      if (round % 3 == 2 && random.OneIn(2)) tensor.reduce_dtype = DType::kF32;
      tensors.insert(tensors.end(), 1 + random.Below(2), tensor);
    }
    const auto totals = RunBoth(tensors, /*own_workspace=*/random.OneIn(2));

    std::vector<Plan> alone;
    std::vector<TensorMove> moves;
    int64_t onto_other = 0;
    bool is_mixed = false;
    for (const Tensor& tensor : tensors) {
      PlannerOptions own = planning;
      own.reduce_dtype = tensor.reduce_dtype;
      alone.push_back(MakePlan(tensor.from, tensor.to, own).value());
      moves.push_back({tensor.from, tensor.to});
      onto_other += tensor.from.mesh() != tensor.to.mesh() ? 1 : 0;
      is_mixed |= tensor.reduce_dtype != planning.reduce_dtype;
    }
    run_internal::PlanCache cache(0, std::make_shared<PlannerCache>(planning), true, 1 << 20, 0,
                                  [](const DeviceMesh&) { return absl::OkStatus(); });
    std::vector<Local> locals = LayAll(tensors, 0);
    const std::vector<Redistribution> list = ListOf(tensors, locals);
    const run_internal::PlanEntries* const entries = cache.FindTogether(list).value();
    ASSERT_EQ(entries != nullptr, onto_other > 1);
    std::vector<Plan> plans = alone;
    if (entries != nullptr) {
      plans.clear();
      for (const auto& entry : *entries) plans.push_back(entry->plan);
      const int64_t ns = ObjectiveNs(plans, planning.topology);
      const int64_t ns_alone = ObjectiveNs(alone, planning.topology);
      EXPECT_LE(ns, ns_alone);
      if (ns < ns_alone) ++better;
      if (is_mixed) {
        ++mixed;
      } else {
        const PlanSet set = MakePlans(moves, planning).value();
        EXPECT_EQ(ns, set.busiest_ns + set.starts_ns + set.copies_ns);
      }
      EXPECT_EQ(cache.FindTogether(list).value(), entries);
    }
    // The ranks send what these plans say. Merged sums in a ring round their bytes up once.
    std::vector<int64_t> sent(mesh_->NumRanks());
    bool has_sums = false;
    for (const Plan& plan : plans) {
      ForEachLoad(
          plan, planning.topology, [](int64_t, int, const LinkBytes&) {},
          [&](int64_t rank, int64_t bytes) { sent[rank] += bytes; });
      for (const Step& step : plan.steps()) has_sums |= step.reduce_op.has_value();
    }
    for (int64_t r = 0; r < mesh_->NumRanks() && !has_sums; ++r) {
      EXPECT_EQ(totals[r].second.bytes, sent[r]) << "rank " << r;
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(better, 15);
  EXPECT_GT(mixed, 30);
}

}  // namespace
}  // namespace meshift

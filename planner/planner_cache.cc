// Implements meshift/planner_cache.h with two maps in each part: plans by their shardings and
// reduce dtype, and search results (paths) by a key of the problem without names and without mesh
// dims of size 1. Meshes that differ only in these share a path. A plan in the cache is returned
// without a charge, also if it was made with another budget. Sizes of entries are estimates, in
// bytes.
#include "meshift/planner_cache.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/hash/hash.h"
#include "base/lru_cache.h"
#include "base/mutex.h"
#include "base/work_budget.h"
#include "meshift/device_mesh.h"
#include "meshift/status.h"
#include "planner/graph/state.h"
#include "planner/intra_mesh/plan_on_mesh.h"
#include "planner/plan_key.h"
#include "planner/search/search.h"

namespace meshift {
namespace {

// An estimate of the bytes of an entry besides key and value: nodes of the list and of the map.
constexpr int64_t kEntryBytes = 128;

void Add(int64_t value, std::string* key) {
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Everything of a problem that the search depends on, besides the options of the cache. The
// encoding is unambiguous, so problems that differ in any of this have unequal keys. A problem
// without reductions has no reduce dtype, but the search may add reductions that depend on it.
std::string KeyOf(const Problem& problem, std::optional<DType> reduce_dtype) {
  std::string key;
  key.reserve(256);
  Add(reduce_dtype ? static_cast<int64_t>(*reduce_dtype) : -1, &key);
  Add(problem.num_dims(), &key);
  for (int d = 0; d < problem.num_dims(); ++d) Add(problem.size(d), &key);
  Add(problem.tensor_rank(), &key);
  for (int k = 0; k < problem.tensor_rank(); ++k) Add(problem.extent(k), &key);
  Add(static_cast<int64_t>(problem.from().dtype()), &key);
  Add(problem.num_stages(), &key);
  for (int i = 0; i < problem.num_stages(); ++i) {
    Add(static_cast<int64_t>(problem.dtype(i)), &key);
  }
  Add(problem.reduce_stage(), &key);
  for (const State& state : {problem.source(), problem.target()}) {
    Add(static_cast<int64_t>(state.code()), &key);
  }
  if (problem.HasRagged()) {
    for (int d = 0; d < problem.num_dims(); ++d) {
      for (const CutSizes sizes : {CutSizes::kSource, CutSizes::kTarget}) {
        Add(static_cast<int64_t>(problem.begins(d, sizes).size()), &key);
        for (const int64_t begin : problem.begins(d, sizes)) Add(begin, &key);
      }
    }
  }
  // The ranks by position; dims of size 1 do not change them.
  const DeviceMesh& mesh = problem.mesh();
  if (!mesh.IsRowMajor()) {
    const std::string text = mesh.ToString();
    key.append(text, text.find('@'), std::string::npos);
  }
  return key;
}

int64_t BytesOf(const std::string& text) { return static_cast<int64_t>(text.capacity()); }

int64_t BytesOf(const Sharding& sharding) {
  const size_t dims = sharding.placements().size();
  const size_t rank = sharding.shape().size();
  auto bytes =
      static_cast<int64_t>(sizeof(Sharding) + dims * sizeof(Placement) + rank * sizeof(Cuts));
  for (const Placement& placement : sharding.placements()) {
    // A ragged cut also has the begins of its pieces.
    bytes += 2 * std::ssize(placement.sizes()) * static_cast<int64_t>(sizeof(int64_t));
  }
  return bytes;
}

int64_t BytesOf(const Plan& plan) {
  int64_t bytes =
      sizeof(PlanFields) + BytesOf(plan.from()) + BytesOf(plan.to()) + BytesOf(plan.why());
  for (const DeviceMesh& mesh : plan.meshes()) bytes += mesh.MemoryBytes();
  const PlannerOptions& options = plan.options();
  bytes +=
      (options.topology.NumLevels() - 1) * static_cast<int64_t>(sizeof(TopologyLevel)) +
      std::ssize(options.topology.protocols()) * static_cast<int64_t>(sizeof(TopologyProtocol));
  if (options.groups.existing_groups) {
    bytes += std::ssize(*options.groups.existing_groups) * static_cast<int64_t>(sizeof(MeshGroups));
  }
  for (const Step& step : plan.steps()) {
    bytes += static_cast<int64_t>(sizeof(Step)) + BytesOf(step.after);
  }
  return bytes;
}

int64_t BytesOf(const Path& path) {
  return static_cast<int64_t>(sizeof(Path) + path.moves.size() * sizeof(Move));
}

}  // namespace

// The cache in parts by hash, each with a lock of its own.
struct PlannerCache::Parts {
  static constexpr size_t kCount = 16;
  // Aligned so that locks of different parts do not share a cache line.
  struct alignas(64) Part {
    explicit Part(int64_t max_bytes) : plans(max_bytes), paths(max_bytes) {}
    Mutex mutex;
    LruCache<PlanKey, Plan> plans MESHIFT_GUARDED_BY(mutex);
    LruCache<std::string, Path> paths MESHIFT_GUARDED_BY(mutex);
    PlannerCacheStats stats MESHIFT_GUARDED_BY(mutex);
  };
  // Part can be neither moved nor default-constructed.
  template <size_t... kIndex>
  static std::array<Part, kCount> Make(int64_t max_bytes, std::index_sequence<kIndex...>) {
    return {((void)kIndex, Part(max_bytes))...};
  }
  explicit Parts(int64_t max_bytes) : all(Make(max_bytes, std::make_index_sequence<kCount>())) {}

  Part& Of(size_t hash) { return all[hash % kCount]; }

  std::array<Part, kCount> all;
};

PlannerCache::PlannerCache(PlannerOptions options, const PlannerCacheLimits& limits)
    : options_(std::move(options)),
      parts_(std::make_unique<Parts>(limits.max_bytes / static_cast<int64_t>(Parts::kCount))) {}

PlannerCache::~PlannerCache() = default;

absl::StatusOr<Plan> PlannerCache::Find(const Sharding& from, const Sharding& to,
                                        std::optional<DType> reduce_dtype) {
  // Charges known paths, so that they do not decide whether a plan is refused. A plan that was made
  // with another budget is found all the same.
  WorkBudget budget(options_.max_work);
  return Find(from, to, reduce_dtype, budget, /*charges_known=*/true);
}

absl::StatusOr<Plan> PlannerCache::Find(const Sharding& from, const Sharding& to,
                                        std::optional<DType> reduce_dtype, WorkBudget& budget) {
  return Find(from, to, reduce_dtype, budget, /*charges_known=*/false);
}

absl::StatusOr<Plan> PlannerCache::Find(const Sharding& from, const Sharding& to,
                                        std::optional<DType> reduce_dtype, WorkBudget& budget,
                                        bool charges_known) {
  const PlanKey key{&from, &to, reduce_dtype};
  Parts::Part& part = parts_->Of(absl::HashOf(key));
  {
    MutexLock lock(part.mutex);
    if (const Plan* plan = part.plans.Find(key)) {
      ++part.stats.hits;
      return *plan;
    }
  }
  PlannerOptions options = options_;
  if (reduce_dtype) options.reduce_dtype = reduce_dtype;
  bool shared = false;
  const auto path_of = [&](const Problem& problem, FindPathFn find) -> absl::StatusOr<Path> {
    std::string text = KeyOf(problem, options.reduce_dtype);
    Parts::Part& paths = parts_->Of(absl::HashOf(text));
    {
      MutexLock lock(paths.mutex);
      if (const Path* path = paths.paths.Find(text)) {
        shared = true;
        if (charges_known) budget.Charge(path->work);
        return *path;
      }
    }
    MESHIFT_ASSIGN_OR_RETURN(Path path, find());
    const int64_t bytes = kEntryBytes + BytesOf(text) + BytesOf(path);
    MutexLock lock(paths.mutex);
    paths.paths.Insert(std::move(text), path, bytes);
    return path;
  };
  absl::StatusOr<Plan> plan = from.mesh() == to.mesh()
                                  ? MakePlanOnMesh(from, to, options, budget, path_of)
                                  : MakePlan(from, to, options, budget);
  if (budget.exhausted()) plan = budget.Refusal("planning");
  MutexLock lock(part.mutex);
  ++(shared ? part.stats.shared_paths : part.stats.searches);
  if (!plan.ok()) return plan;
  // The key points into the plan, whose shardings do not move.
  part.plans.Insert({&plan->from(), &plan->to(), reduce_dtype}, *plan,
                    kEntryBytes + BytesOf(*plan));
  return plan;
}

PlannerCacheStats PlannerCache::stats() const {
  PlannerCacheStats sum;
  for (Parts::Part& part : parts_->all) {
    MutexLock lock(part.mutex);
    sum.hits += part.stats.hits;
    sum.shared_paths += part.stats.shared_paths;
    sum.searches += part.stats.searches;
    sum.evicted += part.plans.evicted() + part.paths.evicted();
    sum.plans += static_cast<int64_t>(part.plans.size());
    sum.paths += static_cast<int64_t>(part.paths.size());
    sum.bytes += part.plans.weight() + part.paths.weight();
  }
  return sum;
}

}  // namespace meshift

// meshift/c.h in a program of C++17 without RTTI and without exceptions: plans, and redistributes
// on the local engine, whose ranks one thread drives.
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "meshift/c.h"

#if __cplusplus >= 202002L || defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "compile this as C++17, without exceptions and without RTTI"
#endif

namespace {

template <typename T, void (*Destroy)(T*)>
struct Destroyer {
  void operator()(T* handle) const { Destroy(handle); }
};
template <typename T, void (*Destroy)(T*)>
using Handle = std::unique_ptr<T, Destroyer<T, Destroy>>;

// Whether a call succeeded; prints its error.
bool Ok(meshift_code code, char* error) {
  if (code != MESHIFT_OK) {
    std::fprintf(stderr, "%s: %s\n", meshift_code_name(code), error == nullptr ? "" : error);
  }
  meshift_free(error);
  return code == MESHIFT_OK;
}

struct Rank {
  Handle<meshift_engine, meshift_engine_destroy> engine;
  Handle<meshift_redistributor, meshift_redistributor_destroy> redistributor;
  Handle<meshift_run, meshift_run_destroy> run;
  std::array<float, 6> in = {};
  std::array<float, 6> out = {};
};

bool Main() {
  constexpr int64_t kRanks = 4;
  char* error = nullptr;
  meshift_mesh* mesh_made = nullptr;
  meshift_code code = meshift_mesh_parse("dp=2,tp=2", &mesh_made, &error);
  const Handle<meshift_mesh, meshift_mesh_destroy> mesh(mesh_made);
  if (!Ok(code, error)) return false;
  meshift_sharding* made = nullptr;
  code = meshift_sharding_create("f32[6]", mesh.get(), "P,P", &made, &error);
  const Handle<meshift_sharding, meshift_sharding_destroy> from(made);
  if (!Ok(code, error)) return false;
  code = meshift_sharding_with_placements(from.get(), "R,R", &made, &error);
  const Handle<meshift_sharding, meshift_sharding_destroy> to(made);
  if (!Ok(code, error)) return false;

  meshift_local_options options = {};
  options.size = sizeof(options);
  options.num_ranks = kRanks;
  meshift_local_world* world_made = nullptr;
  code = meshift_local_world_create(&options, &world_made, &error);
  const Handle<meshift_local_world, meshift_local_world_destroy> world(world_made);
  if (!Ok(code, error)) return false;
  std::vector<Rank> ranks(kRanks);
  for (int64_t r = 0; r < kRanks; ++r) {
    Rank& rank = ranks[r];
    rank.in.fill(static_cast<float>(r));
    meshift_engine* engine = nullptr;
    code = meshift_local_world_engine(world.get(), r, &engine, &error);
    rank.engine.reset(engine);
    if (!Ok(code, error)) return false;
    meshift_redistributor* redistributor = nullptr;
    code = meshift_redistributor_create(mesh.get(), engine, nullptr, &redistributor, &error);
    rank.redistributor.reset(redistributor);
    if (!Ok(code, error)) return false;
    meshift_redistribution what = {};
    what.size = sizeof(what);
    what.from = from.get();
    what.to = to.get();
    what.source = rank.in.data();
    what.target = rank.out.data();
    meshift_run* run = nullptr;
    code = meshift_redistribute(redistributor, &what, &run, &error);
    rank.run.reset(run);
    if (!Ok(code, error)) return false;
  }
  for (Rank& rank : ranks) {
    code = meshift_run_wait(rank.run.get(), &error);
    if (!Ok(code, error)) return false;
    for (const float value : rank.out) {
      if (value != 0 + 1 + 2 + 3) return false;
    }
  }
  return true;
}

}  // namespace

int main() { return Main() ? 0 : 1; }

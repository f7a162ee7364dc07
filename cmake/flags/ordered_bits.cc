// Runs 512 random redistributions with the promise `ordered` on the local engine, with values that
// round, and prints a hash of all ranks' results. cmake/check_flags.sh compares the hash between
// ways to compile comm/kernels. Ends with exit code 1 at the first error; checks no values.
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "meshift/meshift.h"
#include "meshift/testing.h"

namespace {

using meshift::DeviceMesh;
using meshift::Redistributor;
using meshift::RunHandle;
using meshift::Sharding;
using meshift::testkit::Oracle;

struct Case {
  std::string mesh;
  int num_ranks;
  std::string from;
  std::string to;
};

const Case kCases[] = {{"a=2", 2, "P", "R"},
                       {"a=3", 3, "P", "S(0)"},
                       {"a=2,b=3", 6, "P,P", "R,S(1)"},
                       {"a=2,b=2", 4, "P,S(0)", "S(1),R"},
                       {"a=5", 5, "P", "R"},
                       {"a=2,b=4", 8, "P,P", "S(0),S(0)"}};
const char* const kDTypes[] = {"f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "c64", "c128"};
const char* const kOps[] = {"sum", "avg", "product"};

absl::Status Run(uint64_t seed, uint64_t* hash) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  const Case& c = kCases[below(std::size(kCases))];
  const std::string dtype = kDTypes[below(std::size(kDTypes))];
  const std::string op = kOps[below(std::size(kOps))];
  std::string from_text = c.from;
  for (size_t at = from_text.find('P'); at != std::string::npos; at = from_text.find('P', at + 1)) {
    from_text.insert(at + 1, "(" + op + ")");
  }
  const std::string tensor =
      dtype + "[" + std::to_string(1 + below(70)) + "," + std::to_string(1 + below(9)) + "]";
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse(c.mesh));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse(tensor, mesh, from_text));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements(c.to));
  MESHIFT_ASSIGN_OR_RETURN(const Oracle oracle, Oracle::Create(from, to));
  MESHIFT_ASSIGN_OR_RETURN(const auto world,
                           meshift::LocalWorld::Create({.num_ranks = c.num_ranks}));
  std::vector<Redistributor> ranks;
  std::vector<std::vector<std::byte>> in(c.num_ranks);
  std::vector<std::vector<std::byte>> out(c.num_ranks);
  std::vector<RunHandle> runs;
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    in[rank].resize(oracle.SourceBytes(rank));
    out[rank].resize(oracle.TargetBytes(rank));
    MESHIFT_RETURN_IF_ERROR(
        oracle.FillSource({.values = meshift::testkit::Values::kRounding, .seed = seed}, rank,
                          absl::MakeSpan(in[rank])));
    MESHIFT_ASSIGN_OR_RETURN(
        Redistributor redistribute,
        Redistributor::Create(
            mesh, world->engine(rank),
            {.planning = {.reproducibility = meshift::Reproducibility::kOrdered}}));
    ranks.push_back(std::move(redistribute));
    const void* const source = in[rank].data();
    MESHIFT_ASSIGN_OR_RETURN(RunHandle run,
                             ranks[rank]({.from = from,
                                          .to = to,
                                          .source = ranks[rank].View(from, source),
                                          .target = ranks[rank].View(to, out[rank].data())}));
    runs.push_back(std::move(run));
  }
  for (const RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());
  for (const std::vector<std::byte>& bytes : out) {
    for (const std::byte b : bytes) *hash = (*hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  }
  return absl::OkStatus();
}

}  // namespace

int main() {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (uint64_t seed = 0; seed < 512; ++seed) {
    const absl::Status status = Run(seed, &hash);
    if (status.ok()) continue;
    std::fprintf(stderr, "case %d: %s\n", static_cast<int>(seed), status.ToString().c_str());
    return 1;
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(hash));
  return 0;
}

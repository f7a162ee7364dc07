#include "tests/golden_cases.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "meshift/device_mesh.h"
#include "meshift/topology.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr uint64_t kRandomCases = 160;

struct Named {
  const char* mesh;
  const char* tensor;
  const char* from;
  const char* to;
  const char* topology;
  const char* to_dtype;  // empty: the source's dtype
};
constexpr Named kNamed[] = {
    {"ddp=8,fsdp=5,tp=1", "bf16[8192,8192]", "P,P,R", "R,R,R", "nvlink=8", ""},
    {"ddp=8,fsdp=5,tp=1", "bf16[64]", "P,P,R", "R,R,R", "nvlink=8", ""},
    {"ddp=8,fsdp=5,tp=1", "f32[40,5]", "S(0),S(0),R", "R,S(1),R", "nvlink=8", ""},
    {"dp=4,tp=8", "bf16[4096,4096]", "P,S(1)", "S(0),S(1)", "h100", ""},
    {"dp=4,tp=8", "f32[4096,4096]", "S(0),R", "R,R", "h100", "bf16"},
    {"dp=4,tp=8", "bf16[4096,4096]", "P,P", "S(0)[1],S(0)[0]", "h100", "f32"},
    {"a=2,b=4,c=4", "f32[256,512,128]", "R,R,S(0)", "S(1),S(1),S(1)", "flat", ""},
    {"a=2,b=4,c=4", "f32[256,512,128]", "S(1),S(1),P", "S(0),R,R", "nvlink=4", ""},
    {"a=2,b=2,c=2,d=2,e=2", "bf16[64,64,64,64]", "S(0),P,S(1),R,S(2)", "S(3),S(3),R,S(0),S(1)",
     "nvlink=8", ""},
    {"a=1048576", "u8[1073741824]", "S(0)", "R", "gb200", ""},
};

}  // namespace

std::vector<GoldenCase> GoldenCases() {
  std::vector<GoldenCase> cases;
  for (const Named& named : kNamed) {
    const DeviceMesh mesh = DeviceMesh::Parse(named.mesh).value();
    Sharding from = Sharding::Parse(named.tensor, mesh, named.from).value();
    std::string tensor = named.tensor;
    if (*named.to_dtype != '\0') tensor = named.to_dtype + tensor.substr(tensor.find('['));
    Sharding to = Sharding::Parse(tensor, mesh, named.to).value();
    cases.push_back(
        {std::move(from), std::move(to), {.topology = Topology::Parse(named.topology).value()}});
  }
  constexpr const char* kTopologies[] = {"flat", "nvlink=4", "h100"};
  constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kI32};
  for (uint64_t seed = 0; seed < kRandomCases; ++seed) {
    testkit::RandomPair pair = testkit::RandomCase(seed, kDTypes[seed / 3 % 3]);
    cases.push_back(
        {std::move(pair.from),
         std::move(pair.to),
         {.reproducibility = seed % 5 == 0 ? Reproducibility::kNone : Reproducibility::kReplicas,
          .topology = Topology::Parse(kTopologies[seed % 3]).value()}});
  }
  return cases;
}

std::string GoldenLine(const GoldenCase& golden, const Plan& plan) {
  return fmt::format("{}  {} -> {} {} on {}", plan.fingerprint().ToString(), golden.from.ToString(),
                     Name(golden.to.dtype()), golden.to.PlacementsText(),
                     golden.options.topology.ToString());
}

}  // namespace meshift

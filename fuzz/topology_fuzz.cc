// Topologies as text and as JSON: an accepted topology prints in both forms, which parse to the
// same.
#include <cstdint>

#include "fuzz/fuzz.h"
#include "meshift/topology.h"

namespace {

using meshift::Topology;
namespace fuzz = meshift::fuzz;

template <typename T>
void RequireLaws(const T& topology) {
  if (!topology.ok()) {
    fuzz::Require(!topology.status().message().empty(), "an error has a message");
    return;
  }
  fuzz::RequireRoundTrip(*topology, topology->ToString(),
                         [](auto text) { return Topology::Parse(text); });
  fuzz::RequireRoundTrip(*topology, topology->ToJson(),
                         [](auto text) { return Topology::FromJson(text); });
  const int last = topology->NumLevels() - 1;
  fuzz::Require(last >= 0 && topology->level(last).domain_size == 0,
                "the last level has all ranks");
  for (const int64_t rank : {0, 1, 7, 1000, 2147483647}) {
    const int level = topology->LevelBetween(0, rank);
    fuzz::Require(topology->DomainOf(level, 0) == topology->DomainOf(level, rank),
                  "ranks share a domain of the level between them");
    fuzz::Require(
        level == 0 || topology->DomainOf(level - 1, 0) != topology->DomainOf(level - 1, rank),
        "and of none below");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  RequireLaws(Topology::Parse(fuzz::Text(data, size)));
  RequireLaws(Topology::FromJson(fuzz::Text(data, size)));
  return 0;
}

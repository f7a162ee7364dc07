// Meshes such as "ddp=8,fsdp=5,tp=1" and "a=2,b=2@4,5,0-1": an accepted mesh prints a text that
// parses to the same, and every rank is found at its position.
#include <algorithm>
#include <cstdint>

#include "fuzz/fuzz.h"
#include "meshift/device_mesh.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using meshift::DeviceMesh;
  namespace fuzz = meshift::fuzz;
  const auto mesh = DeviceMesh::Parse(fuzz::Text(data, size));
  if (!mesh.ok()) {
    fuzz::Require(!mesh.status().message().empty(), "an error has a message");
    return 0;
  }
  fuzz::RequireRoundTrip(*mesh, mesh->ToString(),
                         [](auto text) { return DeviceMesh::Parse(text); });
  int64_t ranks = 1;
  for (const DeviceMesh::Dim& dim : mesh->dims()) ranks *= dim.size;
  fuzz::Require(ranks == mesh->NumRanks(), "the dims multiply to the ranks");
  // The first positions, and the last ones.
  for (int64_t i = 0; i < std::min<int64_t>(ranks, 64); ++i) {
    for (const int64_t p : {i, ranks - 1 - i}) {
      const int64_t rank = mesh->RankAt(p);
      fuzz::Require(mesh->PositionOf(rank) == p, "a rank is where its position says");
      fuzz::Require(mesh->PositionAt(mesh->CoordinateAt(p)) == p, "a position has its coordinate");
      fuzz::Require(!mesh->IsRowMajor() || rank == p, "a row-major mesh has its ranks in order");
    }
  }
  return 0;
}

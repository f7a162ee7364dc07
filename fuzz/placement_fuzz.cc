// Tensors, placements and whole shardings: an accepted value prints a text that parses to the same,
// and the parts of a tensor lie inside it.
#include <cstdint>
#include <string_view>

#include "fuzz/fuzz.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"

namespace {

using meshift::DeviceMesh;
using meshift::Sharding;
using meshift::TensorType;
namespace fuzz = meshift::fuzz;

void RequireLaws(const Sharding& sharding) {
  fuzz::RequireRoundTrip(sharding, sharding.ToString(),
                         [](auto text) { return Sharding::Parse(text); });
  fuzz::RequireRoundTrip(sharding, sharding.PlacementsText(),
                         [&](auto text) { return sharding.WithPlacements(text); });
  fuzz::RequireRoundTrip(sharding.tensor(), sharding.tensor().ToString(),
                         [](auto text) { return TensorType::Parse(text); });
  const int64_t ranks = sharding.mesh().NumRanks();
  for (const int64_t position : {int64_t{0}, ranks / 2, ranks - 1}) {
    const meshift::Box box = sharding.BoxAt(sharding.mesh().CoordinateAt(position));
    for (size_t d = 0; d < sharding.shape().size(); ++d) {
      fuzz::Require(box.offset[d] >= 0 && box.size[d] >= 0 &&
                        box.size[d] <= sharding.shape()[d] - box.offset[d],
                    "a part lies inside the tensor", sharding.ToString());
    }
    fuzz::Require(box.NumElements() <= sharding.MaxLocalElements(), "no part exceeds the largest");
  }
}

void Try(const absl::StatusOr<Sharding>& sharding) {
  if (sharding.ok()) {
    RequireLaws(*sharding);
  } else {
    fuzz::Require(!sharding.status().message().empty(), "an error has a message");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::Text(data, size);
  static const DeviceMesh* const mesh = new DeviceMesh(DeviceMesh::Parse("a=2,b=3,c=4").value());
  static const TensorType* const tensor = new TensorType(TensorType::Parse("f32[7,12,1]").value());
  static const TensorType* const flags = new TensorType(TensorType::Parse("bool[7]").value());
  Try(Sharding::Parse(text));
  Try(Sharding::Parse(*tensor, *mesh, text));
  Try(Sharding::Parse(*flags, *mesh, text));
  const auto type = TensorType::Parse(text);
  if (type.ok()) {
    fuzz::RequireRoundTrip(*type, type->ToString(),
                           [](auto printed) { return TensorType::Parse(printed); });
  }
  return 0;
}

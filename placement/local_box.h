// What a rank holds of a tensor on a mesh that it may not be in.
//
//   LocalBoxOf(sharding, 9).IsEmpty();       // rank 9 is not in the mesh
#ifndef MESHIFT_PLACEMENT_LOCAL_BOX_H_
#define MESHIFT_PLACEMENT_LOCAL_BOX_H_

#include <cstdint>
#include <optional>

#include "meshift/device_mesh.h"
#include "meshift/sharding.h"

namespace meshift {

// Without elements, also of a tensor of no dims, which has one elsewhere.
inline Box NoBox() { return {Shape{0}, Shape{0}}; }

// The rank's box; NoBox() where it is not in the sharding's mesh.
inline Box LocalBoxOf(const Sharding& sharding, int64_t rank) {
  const std::optional<Coordinate> at = sharding.mesh().CoordinateOf(rank);
  return at ? sharding.BoxAt(*at) : NoBox();
}

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_LOCAL_BOX_H_

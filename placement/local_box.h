// The local box of a rank that may be outside the mesh; a rank outside holds no elements.
//
//   LocalBoxOf(sharding, 9).IsEmpty();       // true: rank 9 is not in the mesh
//
// Internal to Meshift. Pure functions; safe for concurrent use.
#ifndef MESHIFT_PLACEMENT_LOCAL_BOX_H_
#define MESHIFT_PLACEMENT_LOCAL_BOX_H_

#include <cstdint>
#include <optional>

#include "meshift/device_mesh.h"
#include "meshift/sharding.h"

namespace meshift {

// A box without elements, also for a tensor without dims. It has one dim, whatever the tensor has:
// test IsEmpty() before Intersect() and CommonElements(), which require equal numbers of dims.
inline Box NoBox() { return {Shape{0}, Shape{0}}; }

// The rank's box; NoBox() if it is not in the sharding's mesh.
inline Box LocalBoxOf(const Sharding& sharding, int64_t rank) {
  const std::optional<Coordinate> at = sharding.mesh().CoordinateOf(rank);
  return at ? sharding.BoxAt(*at) : NoBox();
}

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_LOCAL_BOX_H_

// Computes a text key for the partition of a mesh's ranks into groups: all groups over one set of
// mesh dims. The key begins with the mesh's ranks: their number, then which ones, unless they begin
// at 0 without gaps. A long text of these is hashed. The blocks of one group follow, as
// size:stride. If the groups are not one pattern of such blocks, shifted, "listed" and a hash of
// all groups follow instead. Equal partitions have equal keys, whatever the names and the factoring
// of the mesh dims, and the order of the ranks in a group. Other partitions have other keys, unless
// hashes (128 bits) collide. Pure functions without errors.
//
//   PartitionKey(*DeviceMesh::Parse("a=2,b=4"), {1});        // "8 4:1"
//   PartitionKey(*DeviceMesh::Parse("a=2,b=2,c=2"), {1, 2}); // "8 4:1"
//   PartitionKey(*DeviceMesh::Parse("a=2,b=2@0,2,1,3"), {0});  // "4 2:1": {0,1}, {2,3}
//   PartitionKey(*DeviceMesh::Parse("a=2,b=2@4-7"), {1});      // "4@4-7 2:1": {4,5}, {6,7}
#ifndef MESHIFT_PLANNER_PLAN_PARTITION_H_
#define MESHIFT_PLANNER_PLAN_PARTITION_H_

#include <string>

#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/planner_options.h"

namespace meshift {

// The key of the groups over `mesh_dims`. O(dims) time if the mesh's ranks are consecutive and
// ascending, else O(ranks log ranks). REQUIRES: `mesh_dims` ascend, and the mesh has them.
std::string PartitionKey(const DeviceMesh& mesh, absl::Span<const int> mesh_dims);
// All dims of the mesh: these make one group of all ranks.
DimSet AllDims(const DeviceMesh& mesh);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_PARTITION_H_

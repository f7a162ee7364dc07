// Computes a text key for the partition of a mesh's ranks into groups: all groups over one set of
// mesh dims. The key is the mesh's ranks, then blocks of the group as size:stride. Two keys are
// equal if the groups are the same sets of ranks, whatever the names and the factoring of the mesh
// dims. Other groups have other keys, except for collisions of hashes: lists may be hashed (128
// bits). The order of the ranks in a group does not count. Pure functions without errors.
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

// Compares calls with lists of tensors with one call each, on any engine. For tests.
//
//   // On every rank, at the same time:
//   EXPECT_TRUE(CheckLists(engine, mesh, {.lists = 50, .seed = 1}).ok());
#ifndef MESHIFT_TESTING_INTERNAL_CONFORMANCE_LIST_CHECK_H_
#define MESHIFT_TESTING_INTERNAL_CONFORMANCE_LIST_CHECK_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/planner.h"

namespace meshift {

struct ListCheckOptions {
  int lists = 50;
  uint64_t seed = 1;
  std::optional<int64_t> coalesce_bytes = std::nullopt;  // RedistributorOptions
  RaggedSizes ragged_sizes = RaggedSizes::kSum;          // PlannerOptions
};

// Makes random lists of tensors, equal on all ranks, with exact sums, and redistributes each list
// in one call and in a call per tensor. A third of them go from one part of the mesh to another. An
// error if a target differs in any bit, if the lists do not save collectives in total, or if a list
// on one mesh sends more bytes than its tensors, or fewer than rounding explains.
absl::Status CheckLists(Engine* engine, const DeviceMesh& mesh, const ListCheckOptions& options);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_LIST_CHECK_H_

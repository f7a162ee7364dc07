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
  RaggedSizes ragged_sizes = RaggedSizes::kSum;          // likewise
};

// Makes random lists of tensors, equal on all ranks, whose sums are exact, and redistributes each
// both ways. An error where a target differs in any bit, a list makes no fewer collectives over all
// lists, sends more bytes than its tensors would, or less than rounding explains.
absl::Status CheckLists(Engine* engine, const DeviceMesh& mesh, const ListCheckOptions& options);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_LIST_CHECK_H_

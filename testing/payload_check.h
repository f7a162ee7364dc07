// Quantized tokens on any engine: ranks exchange how many rows each has, and redistribute an fp8 or
// fp4 payload together with its scales.
//
//   // On every rank, at the same time:
//   EXPECT_EQ(Message(CheckPayloads(engine, {.cases = 100})), "");
#ifndef MESHIFT_TESTING_PAYLOAD_CHECK_H_
#define MESHIFT_TESTING_PAYLOAD_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "meshift/engine.h"

namespace meshift::testkit {

struct PayloadCheckOptions {
  int64_t cases = 100;
  uint64_t seed = 1;
};

// Collective over all ranks of the engine. Each case has rows at random (also none for some ranks,
// or all for one), one of four formats (f8e4m3, f8e5m2 and f4e2m1 with scales of f32 or f8e4m3), a
// target that is replicated, cut by other ragged rows, or by columns, and blocks that are padded,
// exact, or as cost has it. Tensors go in one call, and once more in a call each. An error where an
// element of this rank is not the definition's, where the one call makes other than half the
// collectives or sends other bytes, or where a gather makes more than one, or sends other than what
// the rows say.
absl::Status CheckPayloads(Engine* engine, const PayloadCheckOptions& options = {});

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_PAYLOAD_CHECK_H_

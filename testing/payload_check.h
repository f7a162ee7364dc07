// Checks quantized payloads on any engine: ranks exchange their numbers of rows, and redistribute
// an fp8 or fp4 payload together with its scales.
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

// Collective over all ranks of the engine. Each case has random numbers of rows (also none for some
// ranks, or all on one), one of four formats (f8e4m3, f8e5m2 and f4e2m1 with scales of f32 or
// f8e4m3), a target that is replicated, cut by other ragged rows, or by columns, and blocks that
// are padded, exact, or chosen by cost. The payload and its scales are redistributed in one call,
// and again in a call each. An error if an element of this rank is wrong; if the one call does not
// have half the collectives and the same bytes; or if a gather has more than one collective, or
// does not send the bytes of the rows.
absl::Status CheckPayloads(Engine* engine, const PayloadCheckOptions& options = {});

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_PAYLOAD_CHECK_H_

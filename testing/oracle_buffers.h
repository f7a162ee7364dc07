// Buffers of all ranks for tests of the oracle: sources, targets, and a check of targets.
//
//   const Buffers sources = SourcesOf(oracle, fill);
//   EXPECT_TRUE(Check(oracle, fill, TargetsOf(oracle, fill)).ok());
#ifndef MESHIFT_TESTING_ORACLE_BUFFERS_H_
#define MESHIFT_TESTING_ORACLE_BUFFERS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/testing.h"
#include "testing/reference_engine.h"

namespace meshift::testkit {

inline Buffers SourcesOf(const Oracle& oracle, const Fill& fill) {
  Buffers buffers(oracle.source().mesh().NumRanks());
  for (size_t p = 0; p < buffers.size(); ++p) {
    const auto position = static_cast<int64_t>(p);
    buffers[p].resize(oracle.SourceBytes(position));
    EXPECT_TRUE(oracle.FillSource(fill, position, absl::MakeSpan(buffers[p])).ok());
  }
  return buffers;
}

inline Buffers TargetsOf(const Oracle& oracle, const Fill& fill) {
  Buffers buffers(oracle.target().mesh().NumRanks());
  for (size_t p = 0; p < buffers.size(); ++p) {
    const auto position = static_cast<int64_t>(p);
    buffers[p].resize(oracle.TargetBytes(position));
    EXPECT_TRUE(oracle.MakeTarget(fill, position, absl::MakeSpan(buffers[p])).ok());
  }
  return buffers;
}

inline CheckResult Check(const Oracle& oracle, const Fill& fill, const Buffers& targets) {
  const std::vector<absl::Span<const std::byte>> views(targets.begin(), targets.end());
  return oracle.Check(fill, views).value();
}

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_ORACLE_BUFFERS_H_

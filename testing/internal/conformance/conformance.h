// The requirements on every engine, as parameterized tests that an engine's test file instantiates.
//
//   INSTANTIATE_TEST_SUITE_P(Local, EngineConformance, testing::Values(ConformanceCase{
//       "OneThread", [](int n) { return MakeMyJob(n); }}), ConformanceName);
//
// The tests compare with values computed from the ops' definitions. They examine only the ranks of
// this process, so that a rank may also be a process.
#ifndef MESHIFT_TESTING_INTERNAL_CONFORMANCE_CONFORMANCE_H_
#define MESHIFT_TESTING_INTERNAL_CONFORMANCE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "meshift/engine.h"

namespace meshift {

// The ranks of a job that are in this process.
class ConformanceJob {
 public:
  // One rank's work, in phases. Everything that one phase puts on streams is finished before the
  // next phase waits for it. `rank` is the rank in the job.
  using Phase = std::function<void(Engine& engine, int64_t rank)>;

  virtual ~ConformanceJob() = default;
  virtual int64_t size() const = 0;
  // Runs the phases of every rank of this process. Only a phase after the first may wait for work
  // that needs other ranks.
  virtual void Run(const std::vector<Phase>& phases) = 0;
};

struct ConformanceCase {
  std::string name;
  std::function<std::unique_ptr<ConformanceJob>(int num_ranks)> make;
  std::vector<int> sizes = {1, 2, 3, 5, 8};  // sizes of jobs
};

inline std::string ConformanceName(const testing::TestParamInfo<ConformanceCase>& info) {
  return info.param.name;
}

class EngineConformance : public testing::TestWithParam<ConformanceCase> {
 public:
  // Runs `test` on a new job of each size.
  void ForEachSize(const std::function<void(ConformanceJob&)>& test) const;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_CONFORMANCE_H_

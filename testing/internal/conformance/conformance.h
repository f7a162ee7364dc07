// What every engine must do, as tests with parameters: an engine's test file instantiates them.
//
//   INSTANTIATE_TEST_SUITE_P(Local, EngineConformance, testing::Values(ConformanceCase{
//       "OneThread", [](int n) { return MakeMyJob(n); }}), ConformanceName);
//
// The tests compare with values computed from the definition, and look only at what ranks of this
// process hold, so that a rank may also be a process.
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

// The ranks of one job that live in this process.
class ConformanceJob {
 public:
  // What one rank does, in phases; everything one phase puts on streams is finished by the time the
  // next one waits for it. `rank` counts the ranks of the job.
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
  std::vector<int> sizes = {1, 2, 3, 5, 8};  // of jobs
};

inline std::string ConformanceName(const testing::TestParamInfo<ConformanceCase>& info) {
  return info.param.name;
}

class EngineConformance : public testing::TestWithParam<ConformanceCase> {
 public:
  // Runs `test` on a fresh job of each size.
  void ForEachSize(const std::function<void(ConformanceJob&)>& test) const;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_CONFORMANCE_H_

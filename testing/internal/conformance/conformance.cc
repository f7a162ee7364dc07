#include "testing/internal/conformance/conformance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace meshift {

void EngineConformance::ForEachSize(const std::function<void(ConformanceJob&)>& test) const {
  for (const int size : GetParam().sizes) {
    SCOPED_TRACE(fmt::format("{} ranks", size));
    const std::unique_ptr<ConformanceJob> job = GetParam().make(size);
    ASSERT_NE(job, nullptr);
    test(*job);
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineConformance);

}  // namespace meshift

// The fixture of the tests of NCCL's rules: each breaks a rule once, and expects the report.
//
//   class MyRulesTest : public NcclRules {};
//   TEST_F(MyRulesTest, ...) {
//     RunRanks(2, [&](TestRank& r) {
//       ... break it ...
//       ExpectHang(r);
//       Abort(r);
//     });
//     ExpectViolation("differs");
//   }
#ifndef MESHIFT_TESTING_FAKE_GPU_NCCL_RULES_H_
#define MESHIFT_TESTING_FAKE_GPU_NCCL_RULES_H_

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "testing/fake_gpu/test_rank.h"

namespace meshift {

class NcclRules : public ::testing::Test {
 protected:
  NcclRules() { fake_report()->reset(); }
  ~NcclRules() override { fake_report()->reset(); }

  static void ExpectViolation(const std::string& text) {
    EXPECT_THAT(Violations(), ::testing::HasSubstr(text));
  }

  // Waits until all ranks are here.
  void Barrier(int ranks) {
    const int goal = (arrived_++ / ranks + 1) * ranks;
    while (arrived_ < goal) std::this_thread::yield();
  }

  // Whether the stream's work ends within a time.
  static bool Ends(CUstream stream, std::chrono::milliseconds within) {
    const auto until = std::chrono::steady_clock::now() + within;
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  // After the violation was recorded, the work still does not end on any rank.
  void ExpectHang(TestRank& r) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (fake_report()->violation_count() == 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(Ends(r.stream, std::chrono::milliseconds(10)));
    Barrier(r.ranks);
  }

  static void Abort(TestRank& r) {
    OK(ncclCommAbort(r.comm));
    r.comm = nullptr;
    r.Sync();
  }

 private:
  std::atomic<int> arrived_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_FAKE_GPU_NCCL_RULES_H_

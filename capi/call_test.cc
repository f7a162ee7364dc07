#include "capi/call.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "absl/status/status.h"

namespace meshift::capi {
namespace {

// The result of a body, as a C caller gets it.
struct Outcome {
  meshift_code code;
  std::string message;
};
template <typename Body>
Outcome OutcomeOf(Body body) {
  char* error = nullptr;
  Outcome outcome{Call(&error, body), {}};
  if (error != nullptr) outcome.message = error;
  meshift_free(error);
  EXPECT_EQ(Call(nullptr, body), outcome.code);
  return outcome;
}

TEST(CallTest, GivesTheCodeAndTheMessageOfAStatus) {
  const Outcome fine = OutcomeOf([] { return absl::OkStatus(); });
  EXPECT_EQ(fine.code, MESHIFT_OK);
  EXPECT_EQ(fine.message, "");
  const Outcome late = OutcomeOf([] { return absl::DeadlineExceededError("late"); });
  EXPECT_EQ(late.code, MESHIFT_DEADLINE_EXCEEDED);
  EXPECT_EQ(late.message, "late");
}

TEST(CallTest, LetsNoExceptionOut) {
  const Outcome memory = OutcomeOf([]() -> absl::Status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code, MESHIFT_RESOURCE_EXHAUSTED);
  EXPECT_EQ(memory.message, "out of memory");
  const Outcome length = OutcomeOf([]() -> absl::Status { throw std::length_error("too long"); });
  EXPECT_EQ(length.code, MESHIFT_RESOURCE_EXHAUSTED);
  EXPECT_EQ(length.message, "too long");
  const Outcome other = OutcomeOf([]() -> absl::Status { throw std::runtime_error("odd"); });
  EXPECT_EQ(other.code, MESHIFT_INTERNAL);
  EXPECT_EQ(other.message, "odd");
  const Outcome unknown = OutcomeOf([]() -> absl::Status { throw 1; });
  EXPECT_EQ(unknown.code, MESHIFT_INTERNAL);
  EXPECT_EQ(unknown.message, "an exception of unknown type");
}

}  // namespace
}  // namespace meshift::capi

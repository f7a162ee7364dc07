// Makes an absl::Status of one of four codes from a fmt pattern.
//
//   return InvalidArgument("Shard({}) is out of range for a rank-{} tensor", dim, rank);
//
// The compiler checks the pattern, which must be a constant, against the arguments.
#ifndef MESHIFT_BASE_STATUS_H_
#define MESHIFT_BASE_STATUS_H_

#include <fmt/format.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/status.h"

namespace meshift {

// The arguments are bad, whatever the state of the system.
template <typename... Args>
absl::Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

// The call is valid, but not in this state (for instance of a failed redistributor).
template <typename... Args>
absl::Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return absl::FailedPreconditionError(fmt::format(format, std::forward<Args>(args)...));
}

// The request is valid, but this version or engine cannot serve it.
template <typename... Args>
absl::Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return absl::UnimplementedError(fmt::format(format, std::forward<Args>(args)...));
}

// An invariant of Meshift is broken: a bug.
template <typename... Args>
absl::Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InternalError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace meshift

#endif  // MESHIFT_BASE_STATUS_H_

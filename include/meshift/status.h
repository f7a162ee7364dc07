// Helpers for absl::Status, the error type of Meshift: two macros that return errors from the
// enclosing function, and two functions that use the message.
//
//   MESHIFT_RETURN_IF_ERROR(engine->Synchronize(stream));
//   MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Parse("dp=2,tp=4"));
//
// docs/errors.md lists codes and messages. The library prints nothing. Only meshift/torch.h throws
// errors of its own. The standard library may throw without memory (std::bad_alloc,
// std::length_error), or if the system gives no thread (std::system_error). Only MpiSession::Leave,
// and its callers MpiJob::Leave and meshift_mpi_leave, end the process.
#ifndef MESHIFT_STATUS_H_
#define MESHIFT_STATUS_H_

#include <string>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/version.h"

// Both return from the enclosing function on an error. They may be used twice on a line, or in
// another macro. MESHIFT_ASSIGN_OR_RETURN is several statements: after `if`, put it in braces.
#define MESHIFT_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                      \
    if (absl::Status meshift_status_ = (expr); ABSL_PREDICT_FALSE(!meshift_status_.ok())) { \
      return meshift_status_;                                                               \
    }                                                                                       \
  } while (false)

#define MESHIFT_ASSIGN_OR_RETURN(lhs, expr) \
  MESHIFT_ASSIGN_OR_RETURN_IMPL_(MESHIFT_CONCAT_(meshift_statusor_, __COUNTER__), lhs, expr)

#define MESHIFT_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr)                    \
  auto statusor = (expr);                                                      \
  if (ABSL_PREDICT_FALSE(!statusor.ok())) return std::move(statusor).status(); \
  lhs = *std::move(statusor)

#define MESHIFT_CONCAT_(a, b) MESHIFT_CONCAT_IMPL_(a, b)
#define MESHIFT_CONCAT_IMPL_(a, b) a##b

namespace MESHIFT_API meshift {

// The message of `status` as a std::string (empty for OK), where absl::string_view is not
// std::string_view.
inline std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// `status` with `context` and ": " put before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), context + ": " + Message(status));
}

}  // namespace meshift

#endif  // MESHIFT_STATUS_H_

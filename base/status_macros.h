// Early return on errors:
//
//   MESHIFT_RETURN_IF_ERROR(engine->Synchronize(stream));
//   MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Parse("dp=2,tp=4"));
#ifndef MESHIFT_BASE_STATUS_MACROS_H_
#define MESHIFT_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define MESHIFT_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                      \
    if (absl::Status meshift_status_ = (expr); ABSL_PREDICT_FALSE(!meshift_status_.ok())) { \
      return meshift_status_;                                                               \
    }                                                                                       \
  } while (false)

#define MESHIFT_ASSIGN_OR_RETURN(lhs, expr) \
  MESHIFT_ASSIGN_OR_RETURN_IMPL_(MESHIFT_CONCAT_(meshift_statusor_, __LINE__), lhs, expr)

#define MESHIFT_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr)                    \
  auto statusor = (expr);                                                      \
  if (ABSL_PREDICT_FALSE(!statusor.ok())) return std::move(statusor).status(); \
  lhs = *std::move(statusor)

#define MESHIFT_CONCAT_(a, b) MESHIFT_CONCAT_IMPL_(a, b)
#define MESHIFT_CONCAT_IMPL_(a, b) a##b

#endif  // MESHIFT_BASE_STATUS_MACROS_H_

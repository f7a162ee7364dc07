// Work on a stream that ends only with the process, like a kernel that hangs.
//
//   MESHIFT_RETURN_IF_ERROR(PutEndlessWork(engine, *stream));
#ifndef MESHIFT_TESTS_HANG_ENDLESS_WORK_H_
#define MESHIFT_TESTS_HANG_ENDLESS_WORK_H_

#include "absl/status/status.h"
#include "meshift/engine.h"

namespace meshift {

absl::Status PutEndlessWork(Engine& engine, Stream& stream);

}  // namespace meshift

#endif  // MESHIFT_TESTS_HANG_ENDLESS_WORK_H_

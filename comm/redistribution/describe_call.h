// What the record says of a call. Internal to the redistributor.
//
//   program->call_text = DescribeCall("plan 6f..: P -> R", {&program->program});
#ifndef MESHIFT_COMM_REDISTRIBUTION_DESCRIBE_CALL_H_
#define MESHIFT_COMM_REDISTRIBUTION_DESCRIBE_CALL_H_

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "comm/program/program.h"
#include "comm/record/call_text.h"

namespace meshift::run_internal {

// Of the calls that these programs make, one behind the other; `text` says of which plan.
std::shared_ptr<const CallText> DescribeCall(const std::string& text,
                                             absl::Span<const Program* const> programs);

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_REDISTRIBUTION_DESCRIBE_CALL_H_

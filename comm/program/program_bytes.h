// Counts the bytes that a rank's program sends in one run, from the arguments of its calls, not
// from the planner's estimates. Pure functions, which never fail and do not check the program.
//
//   RecordOf(*Lower(plan, 3)).bytes_sent;   // {1560, 80}: at most the plan's steps()[i].bytes_sent
#ifndef MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_
#define MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_

#include <cstdint>

#include "comm/program/program.h"
#include "meshift/engine.h"

namespace meshift {

// The bytes that a run sends, by the conventions of docs/plan_format.md, and its number of calls,
// both by step.
RunRecord RecordOf(const Program& program);
// The bytes that one instruction sends; 0 for a local instruction.
int64_t InstructionBytes(const Program& program, const Instruction& instruction);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_

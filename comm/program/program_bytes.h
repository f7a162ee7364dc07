// What a rank's program sends: the plan's bytes for this rank.
//
//   ProgramBytes(*Lower(plan, 3));      // {1560, 80}: at most the plan's steps()[i].bytes_sent
#ifndef MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_
#define MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_

#include <cstdint>
#include <vector>

#include "comm/program/program.h"

namespace meshift {

// By step, by the conventions of docs/plan_format.md.
std::vector<int64_t> ProgramBytes(const Program& program);
// By one of its instructions, likewise; 0 where that is no call of a group.
int64_t InstructionBytes(const Program& program, const Instruction& instruction);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_

// Which stream each instruction of a program belongs on: packing and unpacking on that of the
// group whose call they surround, so that programs of different groups overlap.
//
//   for (const ProgramSegment& s : SegmentsOf(program)) { ... streams[s.group] ... }
#ifndef MESHIFT_COMM_PROGRAM_PROGRAM_PARTS_H_
#define MESHIFT_COMM_PROGRAM_PROGRAM_PARTS_H_

#include <cstdint>
#include <vector>

#include "comm/program/program.h"

namespace meshift {

// Instructions [first, first + size), which belong on the stream of one group.
struct ProgramSegment {
  int group = -1;  // index into Program::groups; -1: a program without calls
  int32_t first = 0;
  int32_t size = 0;
  friend bool operator==(const ProgramSegment&, const ProgramSegment&) = default;
};

// All instructions in order, in as few segments as possible, at least one. A local instruction
// belongs to the call of its own step; in a step without one to the call before it, or, where there
// is none, to the next.
std::vector<ProgramSegment> SegmentsOf(const Program& program);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_PROGRAM_PARTS_H_

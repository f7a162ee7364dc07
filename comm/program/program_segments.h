// Assigns the instructions of a program to streams, one per group. Packing and unpacking run on the
// stream of the group whose call they surround, so that programs over different groups can run at
// the same time. A pure function, which never fails; it neither makes streams nor orders them.
//
//   for (const ProgramSegment& s : SegmentsOf(program)) { ... streams[s.group] ... }
//   for (const ProgramSegment& s : SegmentsOf(program, /*by_step=*/true)) { ... }   // to time them
#ifndef MESHIFT_COMM_PROGRAM_PROGRAM_SEGMENTS_H_
#define MESHIFT_COMM_PROGRAM_PROGRAM_SEGMENTS_H_

#include <cstdint>
#include <vector>

#include "comm/program/program.h"

namespace meshift {

// Instructions that belong on the stream of one group.
struct ProgramSegment {
  int group = -1;  // index into Program::groups; -1 in a program without calls
  int step = 0;    // of the first instruction
  ListRange instructions;
  friend bool operator==(const ProgramSegment&, const ProgramSegment&) = default;
};

// All instructions in order, in as few segments as possible, at least one. With `by_step`, no
// segment has instructions of several steps. REQUIRES: all calls of a step are over one group. A
// local instruction belongs to the call of its own step. In a step without a call it belongs to the
// call before it, or if there is none, to the next one.
std::vector<ProgramSegment> SegmentsOf(const Program& program, bool by_step = false);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_PROGRAM_SEGMENTS_H_

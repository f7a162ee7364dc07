// Follows a program byte by byte, for tests: every access lies inside its buffer, of strided
// tensors on their elements; only bytes that were written are read or sent, dtypes are those of the
// tensors that are read and written; the source is not written, unless it is consumed, and not read
// once the target was written, where the two are one buffer; nothing is copied onto itself, and at
// the end every element of the target is written.
//
//   CheckProgram(program);               // "", or the first fault
#ifndef MESHIFT_TESTING_INTERNAL_PROGRAM_CHECK_H_
#define MESHIFT_TESTING_INTERNAL_PROGRAM_CHECK_H_

#include <string>

#include "comm/program/program.h"

namespace meshift {

std::string CheckProgram(const Program& program);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_PROGRAM_CHECK_H_

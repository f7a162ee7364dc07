// Simulates a program byte by byte, for tests. Every access must lie inside its buffer, and on
// elements of strided tensors. Only written bytes are read or sent, with the dtypes of their
// tensors. The source is not written unless it is consumed; if source and target share one buffer,
// the source is not read after the target was written. Nothing is copied onto itself. At the end
// every element of the target is written.
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

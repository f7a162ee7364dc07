// Follows a program byte by byte, for tests: every access lies inside its buffer, only bytes that
// were written are read or sent, the source is not written, nothing is copied onto itself, and at
// the end every byte of the target is written.
//
//   CheckProgram(program);               // "", or the first fault
#ifndef MESHIFT_COMM_PROGRAM_CHECK_H_
#define MESHIFT_COMM_PROGRAM_CHECK_H_

#include <string>

#include "comm/program.h"

namespace meshift {

std::string CheckProgram(const Program& program);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_CHECK_H_

// `meshift dump`: what the records of a job's ranks say of its calls (comm/record/dump_report.h).
//
//   meshift dump /var/tmp/job7                              # who is behind, in which call
//   meshift dump /var/tmp/job7 --flight-recorder /tmp/fr    # for PyTorch's analyser
#ifndef MESHIFT_CLI_DUMP_COMMAND_H_
#define MESHIFT_CLI_DUMP_COMMAND_H_

#include <string>

#include "cli/io.h"
#include "comm/record/dump_report.h"

namespace meshift::cli {

struct DumpFlags {
  std::string folder;
  std::string flight_recorder;  // a folder; empty: none
};

int DumpCommand(const DumpFlags& flags, Io& io);

// The report as text, of lines that each end in a newline; what comes from files is printable, and
// cut at 200 bytes.
std::string RenderDump(const DumpReport& report);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_DUMP_COMMAND_H_

// `meshift dump`: reports the state of a hung or failed job from the records that its ranks have
// written (comm/record/dump_report.h).
//
//   meshift dump /var/tmp/job7                              # which rank is late, in which call
//   meshift dump /var/tmp/job7 --flight-recorder /tmp/fr    # also for PyTorch's analyser
//
// It does not ask the job to write records, and needs no engine. The records are snapshots, so a
// slow call looks the same as a hung one.
#ifndef MESHIFT_CLI_DUMP_COMMAND_H_
#define MESHIFT_CLI_DUMP_COMMAND_H_

#include <string>

#include "cli/io.h"
#include "comm/record/dump_report.h"

namespace meshift::cli {

struct DumpFlags {
  std::string folder;           // with the records: MESHIFT_DUMP of the job
  std::string flight_recorder;  // the folder to write to; empty: none
};

// Exit code 1: the flight records cannot be written. 2: a record has a group that is not a list of
// ascending ranks, so they cannot be made. If neither, 3: the folder or one of its files cannot be
// read, or the folder has no record. The report is then of the files that can be read. Without any
// there is no report and no flight record. Otherwise 0, also if the job has failed or some ranks
// have no record.
int DumpCommand(const DumpFlags& flags, Io& io);

// The report as text, in lines that each end in a newline. Texts from files are made printable and
// cut at 200 bytes. Only the first 16 late ranks of a call get a line each, and only the first 16
// sides of a disagreement are shown.
std::string RenderDump(const DumpReport& report);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_DUMP_COMMAND_H_

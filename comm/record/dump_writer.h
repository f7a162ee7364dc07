// Writes a rank's record of calls to a JSON file (docs/when_it_hangs.md, "The file").
//
//   MESHIFT_ASSIGN_OR_RETURN(std::string path, WriteDump(dump, "/var/tmp/job7"));
//     // "/var/tmp/job7/meshift-node3-rank00012.json"
//
// Does not check the Dump. Bytes of texts that are not ASCII are escaped one by one. Cuts each text
// to 4,096 bytes, except the ranks of redistributors and groups. Safe for concurrent use, except
// for two writes of one rank to one folder.
#ifndef MESHIFT_COMM_RECORD_DUMP_WRITER_H_
#define MESHIFT_COMM_RECORD_DUMP_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/record/call_ring.h"
#include "meshift/engine.h"

namespace meshift {

struct DumpedSource {
  std::string name;  // "ranks 0-3 #0"
  std::vector<int64_t> ranks;
  absl::Status failure;
};

struct Dump {
  std::string engine;   // Engine::name()
  std::string library;  // Engine::Library()
  std::string host;     // DumpHostName(); part of the file's name, so without '/'
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t written_unix_ns = 0;
  int64_t now_ns = 0;  // on the steady clock, as the calls' times
  Timeouts timeouts;
  absl::Status failure;  // the engine's first; OK: none
  std::vector<DumpedSource> sources;
  std::vector<RecordedCall> calls;  // by number
};

// The file's text. A call takes about 100 bytes. After the first 4 MiB of plans, plans are written
// without their steps and groups. ReadDump reads the text, within its limits, if each redistributor
// has ranks.
std::string DumpText(const Dump& dump);
// Replaces the file atomically and syncs it to disk. Makes the folder if only its last part is
// missing. May block as long as the file system does. Returns the path. UNAVAILABLE: the system
// refuses; the message names the path.
absl::StatusOr<std::string> WriteDump(const Dump& dump, const std::string& folder);
// This machine's name; characters other than letters, digits and '.' become '-'. "host" if it is
// unknown or empty.
std::string DumpHostName();

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_DUMP_WRITER_H_

// What the records of many ranks say together: who is behind, in which call, since when, and which
// ranks disagree.
//
//   MESHIFT_ASSIGN_OR_RETURN(const DumpFolder folder, ReadDumpFolder(path));
//   const DumpReport report = ReportOf(folder.files);
#ifndef MESHIFT_COMM_RECORD_DUMP_REPORT_H_
#define MESHIFT_COMM_RECORD_DUMP_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "comm/record/dump_reader.h"

namespace meshift {

// Nanoseconds since 1970, of `ns` on the file's clock, as its host keeps time; -1 where `ns` is.
int64_t UnixNs(const DumpFile& file, int64_t ns);

// The lowest call of a redistributor that some rank has not ended.
struct StuckCall {
  struct Behind {
    int64_t rank = 0;
    int64_t num_calls = 0;            // that it has made
    int64_t last_ended_unix_ns = -1;  // when the last of them ended; -1: not known
  };
  std::string redistributor;
  int64_t num_ranks = 0;
  int64_t call = 0;
  std::string plan;
  std::vector<std::string> groups;  // that the plan's steps are of, on one of its ranks
  std::vector<int64_t> in_it;       // ranks that are in it, and have nothing else to wait for
  int64_t since_unix_ns = -1;       // the first of these
  std::vector<Behind> behind;       // have not made it
  std::vector<int64_t> held;        // have, and wait for earlier work on their own streams
  std::vector<int64_t> issuing;     // are still being made to issue it
  std::vector<int64_t> past;        // have ended it
  std::vector<int64_t> missing;     // left no record
};

// The first call that two ranks of a redistributor have made with different plans.
struct Disagreement {
  struct Side {
    std::string plan;
    std::vector<int64_t> ranks;
  };
  std::string redistributor;
  int64_t call = 0;
  std::vector<Side> sides;
};

struct DumpReport {
  struct Failure {
    int64_t rank = 0;
    DumpedFailure failure;
    int64_t written_unix_ns = 0;
  };
  int64_t world_size = 0;
  int64_t num_files = 0;
  std::vector<int64_t> missing;  // ranks of the world without a record
  std::optional<Failure> first;  // that was written down
  std::vector<StuckCall> stuck;  // by the names of the redistributors
  std::vector<Disagreement> disagreements;
};

// `files`: by ascending rank. Linear in them, but for sorting.
DumpReport ReportOf(absl::Span<const DumpFile> files);

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_DUMP_REPORT_H_

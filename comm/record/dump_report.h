// Makes a report from the records of many ranks: the call in which they are stuck and since when,
// the ranks that have not made it, those whose plans differ, those without a record, and the first
// failure. A record is a snapshot: it does not show whether a call is stuck or slow. Times of
// different hosts are comparable only if their clocks agree. Pure functions, which never fail.
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

// Converts nanoseconds on the file's steady clock to nanoseconds since 1970 by its host's clock. A
// negative `ns`, which is unknown, gives -1.
int64_t UnixNs(const DumpFile& file, int64_t ns);

// The first call of a redistributor that some rank has begun and not ended, as far as records
// remember it. A rank whose record has forgotten all its calls of the redistributor counts as one
// that has made none.
struct StuckCall {
  struct LateRank {
    int64_t rank = 0;
    int64_t num_calls = 0;  // number of calls that it has made
    // The latest end of a call in its record, in ns since 1970; -1: unknown.
    int64_t last_ended_unix_ns = -1;
  };
  std::string redistributor;
  int64_t num_ranks = 0;
  int64_t call = 0;  // 0, 1, 2, ... of the redistributor
  std::string plan;
  std::vector<std::string> groups;  // of the plan's steps, on one of its ranks: "0-3,7"
  std::vector<int64_t> in_it;       // ranks that run it, or in which it has failed
  int64_t since_unix_ns = -1;       // ns since 1970 when the first could run it; -1: unknown
  std::vector<LateRank> late;       // ranks that have not made it
  std::vector<int64_t> held;        // ranks that have made it, but wait for earlier work
  std::vector<int64_t> issuing;     // ranks that are still issuing it
  // Ranks that have ended it, have captured it in a graph, or have made later calls and do not
  // remember it.
  std::vector<int64_t> past;
  std::vector<int64_t> missing;  // ranks without a record of the redistributor
};

// The first call that two ranks of a redistributor remember with different plans.
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
    int64_t written_unix_ns = 0;  // when the record was written, in ns since 1970
  };
  int64_t world_size = 0;
  int64_t num_files = 0;
  std::vector<int64_t> missing;  // ranks of the world without a record
  std::optional<Failure> first;  // the failure in the earliest record that has one
  std::vector<StuckCall> stuck;  // by the names of the redistributors
  std::vector<Disagreement> disagreements;
};

// REQUIRES: `files` are from ReadDump, by strictly ascending rank. Takes linear time apart from
// sorting.
DumpReport ReportOf(absl::Span<const DumpFile> files);

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_DUMP_REPORT_H_

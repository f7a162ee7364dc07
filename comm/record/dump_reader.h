// Reads ranks' records of calls for `meshift dump`: the JSON files of WriteDump
// (comm/record/dump_writer.h). It does not trust them. Errors: text that is not such JSON, an
// unknown format, version or state of a call, a wrong type, an array that is too short, an index or
// rank out of range, a list of ranks or of call numbers that does not ascend, a negative count or
// call number, a failure without a code, and a file above the limits. Members may be repeated or
// unknown. Missing ones have defaults (a file without `rank` is rank 0's), except those that
// ReadDump() requires. It does not check other values, such as bytes and times.
//
//   MESHIFT_ASSIGN_OR_RETURN(DumpFile file, ReadDump(text));
//   MESHIFT_ASSIGN_OR_RETURN(DumpFolder folder, ReadDumpFolder("/var/tmp/job7"));
#ifndef MESHIFT_COMM_RECORD_DUMP_READER_H_
#define MESHIFT_COMM_RECORD_DUMP_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift {

struct DumpedFailure {
  std::string code;  // empty: no failure
  std::string message;
  bool ok() const { return code.empty(); }
};

// One rank's record. docs/when_it_hangs.md, "The file", says what the fields mean.
struct DumpFile {
  // The largest file. A record of 1,000,000 calls, the most that are kept, has some 110 MiB.
  static constexpr size_t kMaxBytes = 160 << 20;
  static constexpr int64_t kMaxRanks = 1 << 20;  // of a job
  // The most of each in a file: above the limits of the writer, which has none for redistributors.
  static constexpr size_t kMaxText = 8192;  // bytes
  static constexpr size_t kMaxCalls = 1'000'100;
  static constexpr size_t kMaxPlans = 1'000'100;
  static constexpr size_t kMaxSources = 100'000;  // redistributors
  static constexpr size_t kMaxSteps = 1024;       // of a plan

  struct Redistributor {
    std::string name;
    std::vector<int64_t> ranks;  // ascending, at least one
    DumpedFailure failure;
  };
  struct Step {
    int32_t step = 0;
    int32_t group = -1;  // index into Plan::groups; -1: unknown
    std::string op;
    std::string dtype;
    int64_t count_in = 0;
    int64_t count_out = 0;
    int64_t bytes = 0;
  };
  struct Plan {
    std::string text;
    int64_t bytes = 0;
    std::vector<std::string> groups;
    int64_t num_steps = 0;
    std::vector<Step> steps;
  };
  enum class State : uint8_t { kIssuing, kInFlight, kEnded, kCaptured, kFailed };
  struct Call {
    int64_t number = 0;
    int64_t call = 0;
    int32_t redistributor = 0;
    int32_t plan = -1;
    State state = State::kEnded;
    bool is_first = false;
    int32_t thread = 0;
    // On the clock of now_ns; -1: unknown.
    int64_t issued_ns = -1;
    int64_t started_ns = -1;
    int64_t ended_ns = -1;
    bool is_open() const { return state != State::kEnded && state != State::kCaptured; }
  };

  std::string engine;
  std::string host;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t written_unix_ns = 0;
  int64_t now_ns = 0;
  int64_t setup_timeout_ns = 0;
  int64_t running_timeout_ns = 0;
  DumpedFailure failure;
  std::vector<Redistributor> redistributors;
  std::vector<Plan> plans;
  std::vector<Call> calls;  // by ascending number
};

// INVALID_ARGUMENT has the problem, and the byte of a syntax error. Skips unknown members. Missing
// ones have their defaults, except `format`, `version`, the ranks of a redistributor and the code
// of a failure, which are required. The text has at most kMaxBytes; the lists of ranks have at most
// 2 * kMaxRanks ranks together. Time and memory are linear in both.
absl::StatusOr<DumpFile> ReadDump(std::string_view text);

// Parses ascending ranks below DumpFile::kMaxRanks: "0-3,7". INVALID_ARGUMENT: any other text.
absl::StatusOr<std::vector<int64_t>> ParseRanksText(std::string_view text);

struct DumpFolder {
  std::vector<DumpFile> files;        // by ascending rank, the latest file of each
  std::vector<std::string> problems;  // of unreadable files: "name: problem"
};
// Reads all files "meshift-*.json" of the folder, with two threads. Keeps all of them in memory.
// Files that are not regular count as problems. The result is OK even if no file can be read.
// NOT_FOUND: the folder cannot be opened, or has no such file. INVALID_ARGUMENT: it has more than a
// million of them.
absl::StatusOr<DumpFolder> ReadDumpFolder(const std::string& folder);

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_DUMP_READER_H_

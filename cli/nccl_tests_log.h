// Reads the output of nccl-tests (all_reduce_perf and its siblings): the table, or the JSON of -J.
//
//   MESHIFT_ASSIGN_OR_RETURN(NcclTestsLog log, ParseNcclTestsLog(text, NcclTestsOpOfFile(path)));
//   for (const NcclTestsRow& row : log.rows) Fit(row.bytes, row.time_ns);
//
// Reads tables of all versions: with and without the columns redop and root, with the column
// `error` or `#wrong`. Skips lines of NCCL (NCCL INFO) and of launchers between the rows, CRLF, and
// the labels that mpirun --tag-output and srun --label put before a line. Leaves out and counts a
// row that a line of NCCL's output interrupts. Leaves out rows of 0 bytes.
//
// A log may hold several runs of one collective. All their rows are returned, in order: a size that
// was measured twice has two rows. Runs with other numbers of ranks per host, or on other GPUs, are
// refused; names of hosts are not compared. Also refused are times of the host (-C 1), and lists of
// devices in several groups (NCCL_TESTS_SPLIT).
//
// Opens no file. Errors are INVALID_ARGUMENT and name the value and the rule, and the line (in JSON
// the result) if one is wrong. Time and memory are linear in the text.
#ifndef MESHIFT_CLI_NCCL_TESTS_LOG_H_
#define MESHIFT_CLI_NCCL_TESTS_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/nccl_tests_op.h"

namespace meshift::cli {

inline constexpr int64_t kMaxNcclTestsBytes = int64_t{32} << 20;  // a longer text is refused
inline constexpr int64_t kMaxNcclTestsRows = int64_t{1} << 18;    // more rows are refused

struct NcclTestsRow {
  // As nccl-tests counts, the larger of the bytes that a rank sends and receives: for all_gather
  // and reduce_scatter all ranks' blocks together, for all_to_all all blocks that one rank sends.
  int64_t bytes = 0;
  std::string dtype;    // as printed: float, half, bfloat16
  int64_t time_ns = 0;  // of one call, out of place; at least 1
  // None if the table has no such column. NCCL has no all_to_all and sendrecv in place; nccl-tests
  // prints a time for them all the same.
  std::optional<int64_t> in_place_ns;
  // Wrong elements, out of place and in place; 0 if not counted (N/A, or the column `error`).
  int64_t wrong = 0;
  friend bool operator==(const NcclTestsRow&, const NcclTestsRow&) = default;
};

struct NcclTestsLog {
  NcclTestsOp op = NcclTestsOp::kAllReduce;
  // From the list of devices; if the log has none, from the rows, if they tell.
  std::optional<int64_t> ranks;
  // From the list of devices (empty without it): the number of ranks of each host, in the order of
  // the hosts' first ranks. They add up to `ranks`.
  std::vector<int64_t> ranks_per_host;
  bool scattered_hosts = false;    // some host's ranks are not consecutive
  std::string device;              // rank 0's GPU as printed, at most 200 bytes; empty if unknown
  bool mixed_devices = false;      // not all ranks have the same GPU
  std::vector<NcclTestsRow> rows;  // at least one
  int64_t out_of_bounds = 0;       // wrong values that all footers report together
  int64_t interrupted_rows = 0;    // rows left out because a line of NCCL interrupts them
  friend bool operator==(const NcclTestsLog&, const NcclTestsLog&) = default;
};

// Parses a table or JSON: `text` is JSON if it begins with '{', after any white space.
//
// The collective is the one that the log names (newer versions: "# Collective test starting:"; a
// program's name before the table; JSON: args), else `hint`. Without both, it is the only one that
// the rows fit: the ratios bytes to count and busbw to algbw, redop and root. An error if none or
// several fit, if log and hint name different ones, or if the rows do not fit the named one. Newer
// tables of all_gather and all_to_all look the same: they need a name. If lines before a table name
// several programs, none of these names counts.
absl::StatusOr<NcclTestsLog> ParseNcclTestsLog(std::string_view text,
                                               std::optional<NcclTestsOp> hint);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_NCCL_TESTS_LOG_H_

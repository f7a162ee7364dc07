// `meshift plan --batch` and `meshift check --batch`: many problems or plans in one process. Reads
// one JSON object per line and answers each on one line, in order. `plan` answers a bad line with
// an error, `check` with "ok": false; the lines after it are still answered.
//
//   {"id": 7, "mesh": {"dims": [["a", 2], ["b", 2]], "ranks": null}, "tensor": "f32[48,24]",
//    "from": "S(0),R", "to": "R,S(0)"}
//   {"id": 7, "format": "meshift.plan", ...}
//   {"id": 7, "error": {"code": "INVALID_ARGUMENT", "message": "..."}}
//
// With --together, `plan` answers all lines by one document, or by an error.
//
// Lines are untrusted. Empty ones, longer ones than 16 MiB, and problems too large for memory or
// for max_work, are answered as bad lines. docs/command_line.md lists the keys.
#ifndef MESHIFT_CLI_BATCH_H_
#define MESHIFT_CLI_BATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "cli/io.h"
#include "cli/model_plan.h"
#include "meshift/planner.h"

namespace meshift::cli {

// Values for lines that do not have them.
struct BatchDefaults {
  PlannerOptions options = {};                                // a line's max_work may not be higher
  std::optional<std::string> existing_groups = std::nullopt;  // names dims of the line's meshes
  bool allow_files = false;                                   // a line's topology may name a file
};

// The answer to one line of `plan --batch`, without a newline. If the line's known keys could be
// read, *ignored (unless null) has its unknown keys.
std::string PlanLine(std::string_view line, const BatchDefaults& defaults,
                     std::vector<std::string>* ignored = nullptr);

// The answer to one line of `check --batch`: {id, ok, step, rule, message}. *ok gets the same
// verdict. `max_work`: VerifyOptions::max_work.
std::string CheckLine(std::string_view line, bool* ok, int64_t max_work = kDefaultMaxWork);

// Answer the lines of a file, or of io.in for "-", each as soon as it is read. Return an error only
// if the file cannot be read: one of BadFile (cli/io.h). A bad line is not an error: `plan --batch`
// then exits with 0. PlanBatch prints each unknown key once to io.err, a hundred at most.
// CheckBatch sets *ok to whether all plans are right: true for a file without lines.
absl::Status PlanBatch(const std::string& path, const BatchDefaults& defaults, Io& io);
absl::Status CheckBatch(const std::string& path, int64_t max_work, Io& io, bool* ok);

// Plans all lines of a file together (MakePlans in meshift/planner.h), in their order; a line may
// have a "count". Nothing is planned if a line is bad, has another option than the first, or asks
// for relabel_ranks: a BadFile error, which names the line and the rule. A file has at most 32 MiB.
// Other errors are those of MakePlans; RESOURCE_EXHAUSTED also: more lines than max_work allows.
absl::StatusOr<ModelPlan> PlanBatchTogether(const std::string& path, const BatchDefaults& defaults,
                                            std::optional<int64_t> bucket_bytes, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_BATCH_H_

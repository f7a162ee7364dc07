// `meshift plan --batch` and `meshift check --batch`: many problems or plans in one process. Reads
// one JSON object per line and answers each on one line, in order. `plan` answers a bad line with
// an error, `check` with "ok": false; the lines after it are still answered.
//
//   {"id": 7, "mesh": {"dims": [["a", 2], ["b", 2]], "ranks": null}, "tensor": "f32[48,24]",
//    "from": "S(0),R", "to": "R,S(0)"}
//   {"id": 7, "format": "meshift.plan", ...}
//   {"id": 7, "error": {"code": "INVALID_ARGUMENT", "message": "..."}}
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
#include "base/work_budget.h"
#include "cli/io.h"
#include "meshift/planner.h"

namespace meshift::cli {

// The answer to one line of `plan --batch`, without a newline. Keys of the line that set options
// (reproducibility, topology, planner) override `defaults`; its max_work may not be higher.
// `existing_groups` holds for lines that have no such key; it names dims of the line's meshes. If
// the answer is a plan, *ignored (unless null) has the line's unknown keys. A topology that names a
// file is refused unless `allow_files`.
std::string PlanLine(std::string_view line, const PlannerOptions& defaults,
                     const std::optional<std::string>& existing_groups = std::nullopt,
                     std::vector<std::string>* ignored = nullptr, bool allow_files = false);

// The answer to one line of `check --batch`: {id, ok, step, rule, message}. *ok gets the same
// verdict. `max_work`: VerifyOptions::max_work.
std::string CheckLine(std::string_view line, bool* ok, int64_t max_work = kDefaultMaxWork);

// Answer the lines of a file, or of io.in for "-", each as soon as it is read. Return an error only
// if the file cannot be read: one of BadFile (cli/io.h). A bad line is not an error: `plan --batch`
// then exits with 0. PlanBatch prints each unknown key once to io.err, a hundred at most.
// CheckBatch sets *ok to whether all plans are right: true for a file without lines.
absl::Status PlanBatch(const std::string& path, const PlannerOptions& defaults,
                       const std::optional<std::string>& existing_groups, bool allow_files, Io& io);
absl::Status CheckBatch(const std::string& path, int64_t max_work, Io& io, bool* ok);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_BATCH_H_

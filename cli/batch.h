// Many problems or plans in one process: one JSON object per line in, one per line out, in order. A
// line that is bad is answered with an error, and the rest goes on.
//
//   {"id": 7, "mesh": {"dims": [["a", 2], ["b", 2]], "ranks": null}, "tensor": "f32[48,24]",
//    "from": "S(0),R", "to": "R,S(0)"}
//   {"id": 7, "format": "meshift.plan", ...}
//   {"id": 7, "error": {"code": "INVALID_ARGUMENT", "message": "..."}}
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

// The answer to one line of `plan --batch`, without a newline. Optional keys of the line
// (reproducibility, topology, planner) go before `defaults`. `existing_groups`: those of lines that
// name none, in words of the line's meshes. *ignored: keys that are not known; none where the line
// cannot be read (PlanBatch names them on io.err, each once, a hundred at most). A topology that is
// the name of a file is refused unless `allow_files`: lines may be a stranger's. What is too large
// for memory is an error of its line.
std::string PlanLine(std::string_view line, const PlannerOptions& defaults,
                     const std::optional<std::string>& existing_groups = std::nullopt,
                     std::vector<std::string>* ignored = nullptr, bool allow_files = false);

// The answer to one line of `check --batch`: {id, ok, step, rule, message}. *ok says which.
// `max_work`: VerifyOptions::max_work.
std::string CheckLine(std::string_view line, bool* ok, int64_t max_work = kDefaultMaxWork);

// Answer a whole file, or io.in for "-", line by line, each as soon as it has come. An error only
// where the file cannot be read. CheckBatch says in *ok whether all plans are right.
absl::Status PlanBatch(const std::string& path, const PlannerOptions& defaults,
                       const std::optional<std::string>& existing_groups, bool allow_files, Io& io);
absl::Status CheckBatch(const std::string& path, int64_t max_work, Io& io, bool* ok);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_BATCH_H_

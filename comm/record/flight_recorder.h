// Records as PyTorch's flight recorder writes them, so that its analyser (torchfrtrace, or python
// -m torch.distributed.flight_recorder.fr_trace, PyTorch 2.10 or later) reads them: a pickle per
// rank.
//
//   MESHIFT_RETURN_IF_ERROR(ForEachFlightRecord(
//       folder.files, [&](int64_t rank, const std::string& record) { return Write(...); }));
//     // to meshift_rank_0, meshift_rank_1, ... of a folder FR; then: torchfrtrace FR
//
// An entry is one collective of a call. Groups of a redistributor are process groups; sequence
// numbers come from the numbers of calls, so that they mean the same on all ranks, whatever each
// remembers. Ranks without a record have an empty file: the analyser wants one of each, and then
// names them as missing. Blocks of different sizes are written as if all were as large as the mean,
// rounded up, since the analyser takes different sizes for a mistake.
#ifndef MESHIFT_COMM_RECORD_FLIGHT_RECORDER_H_
#define MESHIFT_COMM_RECORD_FLIGHT_RECORDER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/record/dump_reader.h"

namespace meshift {

// The first call of each redistributor that all ranks which have made any remember, by its name.
std::map<std::string, int64_t> FirstCommonCalls(absl::Span<const DumpFile> files);

// The pickle of one rank's; at most the last 200,000 entries. RESOURCE_EXHAUSTED: groups of more
// ranks in all than fit.
absl::StatusOr<std::string> FlightRecord(const DumpFile& file,
                                         const std::map<std::string, int64_t>& first_calls);
// That of a rank that has left no record.
std::string EmptyFlightRecord();

// Calls `use` with the record of each rank of the job, in their order; ends at its first error.
// `files`: by ascending rank.
absl::Status ForEachFlightRecord(
    absl::Span<const DumpFile> files,
    absl::FunctionRef<absl::Status(int64_t rank, const std::string& record)> use);

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_FLIGHT_RECORDER_H_

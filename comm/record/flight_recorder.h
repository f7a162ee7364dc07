// Converts records to the format of PyTorch's flight recorder, one pickle per rank, for its
// analyser (torchfrtrace, or `python -m torch.distributed.flight_recorder.fr_trace`, PyTorch 2.10
// or later). The caller writes the files.
//
//   MESHIFT_RETURN_IF_ERROR(ForEachPyTorchFlightRecord(
//       folder.files, [&](int64_t rank, const std::string& record) { return Write(...); }));
//     // to meshift_rank_0, meshift_rank_1, ... of a folder FR; then: torchfrtrace FR
//
// An entry is one collective of a call. Groups of a redistributor become process groups. A sequence
// number is 1,024 times the number of the call, plus the place of the step among the call's steps
// of that group. So sequence numbers agree between ranks that remember different calls.
//
// A rank without a record gets a pickle without entries, since the analyser needs a file per rank;
// it then names the rank as missing. Blocks of different sizes get their mean size, rounded up,
// since the analyser reports different sizes as a mismatch. A call captured in a CUDA graph appears
// as scheduled, and a failed one as started.
//
// Left out are local steps, steps and groups that the record omits (CallText, DumpText), calls
// whose plan is unknown, calls before the first that all ranks remember, and all but the last
// 200,000 entries of a rank.
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

// By name of redistributor: the first call that all ranks remember, apart from those without calls.
// REQUIRES: `files` are from ReadDump.
std::map<std::string, int64_t> FirstCommonCalls(absl::Span<const DumpFile> files);

// The pickle of one rank's record, with at most the last 200,000 entries. REQUIRES: `file` is from
// ReadDump. INVALID_ARGUMENT: a plan's group is not a list of ascending ranks. RESOURCE_EXHAUSTED:
// all groups together have more than 4 Mi ranks.
absl::StatusOr<std::string> ToPyTorchFlightRecord(
    const DumpFile& file, const std::map<std::string, int64_t>& first_calls);
// The pickle of a rank without a record.
std::string EmptyPyTorchFlightRecord();

// Calls `use` with the record of each rank of the job, in ascending order. Returns the first error
// of `use` or of ToPyTorchFlightRecord. REQUIRES: `files` are from ReadDump, by strictly ascending
// rank.
absl::Status ForEachPyTorchFlightRecord(
    absl::Span<const DumpFile> files,
    absl::FunctionRef<absl::Status(int64_t rank, const std::string& record)> use);

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_FLIGHT_RECORDER_H_

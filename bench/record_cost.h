// The cost of the record of calls and its watchdog for calls of 8 bytes over MPI.
//
//   MESHIFT_RETURN_IF_ERROR(PrintRecordCost());      // a line, on rank 0
#ifndef MESHIFT_BENCH_RECORD_COST_H_
#define MESHIFT_BENCH_RECORD_COST_H_

#include "absl/status/status.h"

namespace meshift {

// Collective over MPI_COMM_WORLD. Alternates rounds with and without the record. Skipped if there
// are more ranks than cores, since ranks would wait for each other's time slices.
absl::Status PrintRecordCost();

}  // namespace meshift

#endif  // MESHIFT_BENCH_RECORD_COST_H_

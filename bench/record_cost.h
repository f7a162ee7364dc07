// What the record of calls and its watchdog add to calls of 8 bytes over MPI.
//
//   MESHIFT_RETURN_IF_ERROR(PrintRecordCost());      // a line, on rank 0
#ifndef MESHIFT_BENCH_RECORD_COST_H_
#define MESHIFT_BENCH_RECORD_COST_H_

#include "absl/status/status.h"

namespace meshift {

// Collective over MPI_COMM_WORLD. Rounds with the record and without take turns. Left out where
// there are more ranks than cores: they would wait for each other's time slices.
absl::Status PrintRecordCost();

}  // namespace meshift

#endif  // MESHIFT_BENCH_RECORD_COST_H_

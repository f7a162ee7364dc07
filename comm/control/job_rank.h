// The place of a process in a job.
#ifndef MESHIFT_COMM_CONTROL_JOB_RANK_H_
#define MESHIFT_COMM_CONTROL_JOB_RANK_H_

#include <cstdint>

namespace meshift {

struct JobRank {
  int64_t rank = 0;  // 0 .. world_size - 1
  int64_t world_size = 1;
  int64_t local_rank = 0;        // among the ranks of its host: which device it takes
  int64_t local_world_size = 0;  // how many ranks its host has; 0: not known
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_JOB_RANK_H_

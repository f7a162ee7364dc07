// The rank of a test in its MPI job.
//
//   if (WorldRank() > 0) EXPECT_TRUE(...);
#ifndef MESHIFT_TESTING_INTERNAL_MPI_WORLD_H_
#define MESHIFT_TESTING_INTERNAL_MPI_WORLD_H_

#include <mpi.h>

namespace meshift {

inline int WorldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

inline int WorldSize() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_MPI_WORLD_H_

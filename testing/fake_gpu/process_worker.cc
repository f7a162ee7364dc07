// One rank of process_test, as a process. Reads the unique id from a file (rank 0 writes it), runs
// the given mode, and exits with 0 if all is right.
//
//   process_worker <rank> <ranks> <folder> <mode>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "testing/fake_gpu/test_rank.h"

namespace meshift {
namespace {

int failures = 0;

#define CHECK_THAT(condition)                                            \
  if (!(condition)) {                                                    \
    std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
    ++failures;                                                          \
  }                                                                      \
  static_assert(true, "")

ncclUniqueId ExchangeId(int rank, const std::string& folder) {
  const std::string path = folder + "/id";
  ncclUniqueId id;
  if (rank == 0) {
    id = NewId();
    const std::string partial = path + ".partial";
    std::FILE* file = std::fopen(partial.c_str(), "wb");
    CHECK_THAT(file != nullptr && std::fwrite(&id, sizeof(id), 1, file) == 1);
    std::fclose(file);
    CHECK_THAT(std::rename(partial.c_str(), path.c_str()) == 0);
    return id;
  }
  std::FILE* file = nullptr;
  while ((file = std::fopen(path.c_str(), "rb")) == nullptr) usleep(1000);
  CHECK_THAT(std::fread(&id, sizeof(id), 1, file) == 1);
  std::fclose(file);
  return id;
}

void Communicate(TestRank& r) {
  const int n = r.ranks;
  for (int round = 0; round < 20; ++round) {
    const CUdeviceptr a = r.Upload<int>({r.rank, round});
    OK(ncclAllReduce(r.At(a), r.At(a), 2, ncclInt, ncclSum, r.comm, r.stream));
    const std::vector<int> sums = r.Download<int>(a, 2);
    CHECK_THAT(sums[0] == n * (n - 1) / 2 && sums[1] == n * round);
  }
  // Sends around the ring.
  const CUdeviceptr a = r.Upload<int>({r.rank, -1});
  OK(ncclGroupStart());
  OK(ncclSend(r.At(a), 1, ncclInt, (r.rank + 1) % n, r.comm, r.stream));
  OK(ncclRecv(r.At(a, 4), 1, ncclInt, (r.rank + n - 1) % n, r.comm, r.stream));
  OK(ncclGroupEnd());
  CHECK_THAT(r.Download<int>(a, 2)[1] == (r.rank + n - 1) % n);
  // Splits into pairs of neighbours.
  ncclComm_t pair = nullptr;
  OK(ncclCommSplit(r.comm, r.rank / 2, r.rank, &pair, nullptr));
  int size = 0;
  OK(ncclCommCount(pair, &size));
  CHECK_THAT(size == (r.rank / 2 * 2 + 1 < n ? 2 : 1));
  OK(ncclAllGather(r.At(a), r.At(r.Buffer(8)), 1, ncclInt, pair, r.stream));
  r.Sync();
  OK(ncclCommDestroy(pair));
}

// The last rank dies, and the others detect it.
void Die(TestRank& r) {
  const CUdeviceptr a = r.Upload<int>({1});
  OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
  r.Sync();
  if (r.rank == r.ranks - 1) std::_Exit(9);
  const ncclResult_t launched =
      ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream);
  CHECK_THAT(launched == ncclSuccess || launched == ncclRemoteError);
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) OK(ncclCommGetAsyncError(r.comm, &state));
  CHECK_THAT(state == ncclRemoteError);
  OK(ncclCommAbort(r.comm));
  r.comm = nullptr;
  r.Sync();
}

// Rank 0 leaves out a wait.
void Race(TestRank& r) {
  if (r.rank != 0) return;
  const CUdeviceptr a = r.Upload<int>({1});
  OK(cuMemsetD8Async(a, 0, 4, r.Stream()));
}

// The last rank makes a different call from the others.
void Differ(TestRank& r) {
  const CUdeviceptr a = r.Upload<int>({1, 2});
  const size_t count = r.rank == r.ranks - 1 ? 2 : 1;
  OK(ncclAllReduce(r.At(a), r.At(a), count, ncclInt, ncclSum, r.comm, r.stream));
  while (fake_report()->violation_count() == 0) usleep(1000);
  OK(ncclCommAbort(r.comm));
  r.comm = nullptr;
  r.Sync();
}

}  // namespace

int RunWorker(int argc, char** argv) {
  if (argc != 5) return 2;
  const int rank = std::atoi(argv[1]);
  const int ranks = std::atoi(argv[2]);
  const std::string mode = argv[4];
  const bool share = mode == "share";
  if (share) setenv("NCCL_HOSTID", argv[1], 1);
  const ncclUniqueId id = ExchangeId(rank, argv[3]);
  {
    TestRank r(share ? 0 : rank, ranks);
    OK(ncclCommInitRankConfig(&r.comm, ranks, id, rank, nullptr));
    int own = -1;
    OK(ncclCommUserRank(r.comm, &own));
    CHECK_THAT(own == rank);
    if (mode == "die") {
      Die(r);
    } else if (mode == "race") {
      Race(r);
    } else if (mode == "differ") {
      Differ(r);
    } else if (!share) {
      Communicate(r);
    } else {
      const CUdeviceptr a = r.Upload<int>({rank});
      OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclMax, r.comm, r.stream));
      CHECK_THAT(r.Download<int>(a, 1)[0] == ranks - 1);
    }
  }
  // The stand-in reports violations through the exit code.
  return failures == 0 && !::testing::Test::HasFailure() ? 0 : 1;
}

}  // namespace meshift

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return meshift::RunWorker(argc, argv);
}

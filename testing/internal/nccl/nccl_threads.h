// Ranks of the NCCL engine as threads of one process, for tests on the stand-in libraries. Each
// rank has its own device.
//
//   auto ranks = NcclThreads::Create(4);
//   ranks->Run([&](NcclEngine& engine, int64_t rank) { ... });   // on a thread per rank
//   EXPECT_EQ(ranks->Violations(), "");
#ifndef MESHIFT_TESTING_INTERNAL_NCCL_NCCL_THREADS_H_
#define MESHIFT_TESTING_INTERNAL_NCCL_NCCL_THREADS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "testing/fake_gpu/fake_report.h"

namespace meshift {

// Runs `work` for ranks 0 .. n - 1, each on its own thread, and waits for all.
void RunThreads(int64_t n, const std::function<void(int64_t rank)>& work);

class NcclThreads {
 public:
  // The environment names the libraries. Resets the stand-in's record, and seeds it.
  static absl::StatusOr<std::unique_ptr<NcclThreads>> Create(int64_t n,
                                                             const NcclOptions& options = {},
                                                             uint64_t seed = 1);
  // With different options for each rank.
  static absl::StatusOr<std::unique_ptr<NcclThreads>> CreateEach(
      int64_t n, const std::function<NcclOptions(int64_t rank)>& options, uint64_t seed = 1);
  // Ends all engines in parallel, as their ranks would.
  ~NcclThreads();

  int64_t size() const { return static_cast<int64_t>(engines_.size()); }
  NcclEngine& engine(int64_t rank) { return *engines_[rank]; }
  Bootstrap& bootstrap(int64_t rank) { return *bootstraps_[rank]; }
  void Run(const std::function<void(NcclEngine& engine, int64_t rank)>& work);
  // Ends the engine of one rank.
  void End(int64_t rank) { engines_[rank] = nullptr; }

 private:
  std::vector<std::unique_ptr<Bootstrap>> bootstraps_;
  std::vector<std::unique_ptr<NcclEngine>> engines_;
};

// The stand-in's report; null, with a failure of the test, if other libraries are loaded.
const FakeReport* TheFake();
// All violations, one per line.
std::string Violations();

// Allocate memory with the given bytes, and read bytes back; both wait for a stream.
absl::StatusOr<std::unique_ptr<Buffer>> PutBytes(Engine& engine, absl::Span<const uint8_t> bytes);
absl::StatusOr<std::vector<uint8_t>> GetBytes(Engine& engine, const void* data, int64_t bytes);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_NCCL_NCCL_THREADS_H_

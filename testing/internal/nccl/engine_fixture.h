// The fixture of tests of the NCCL engine with a redistributor, on the stand-in libraries. Ranks
// are threads.
//
//   TEST_F(NcclEngineTest, Sums) {
//     Start(4);
//     const Pair pair = PairOf("i32[4]", DeviceMesh::Parse("a=4").value(), "P", "R");
//     ranks_->Run([&](NcclEngine& engine, int64_t rank) {
//       Redistributor redistribute = Redistributor::Create(pair.from.mesh(), &engine).value();
//       const Call call(engine, pair);
//       const auto sums = call.Result(redistribute, SomeValues(pair.from, rank, /*seed=*/1));
//     });
//   }
#ifndef MESHIFT_TESTING_INTERNAL_NCCL_ENGINE_FIXTURE_H_
#define MESHIFT_TESTING_INTERNAL_NCCL_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {

struct Pair {
  Sharding from;
  Sharding to;
};
Pair PairOf(const std::string& tensor, const DeviceMesh& mesh, const std::string& from,
            const std::string& to);

int64_t LocalBytes(const Sharding& sharding, int64_t rank);
// Arbitrary finite values; bytes that are small numbers in one dtype may not be finite in another.
std::vector<uint8_t> SomeValues(const Sharding& sharding, int64_t rank, int seed);

// One rank's buffers for one pair of shardings.
struct Call {
  Call(NcclEngine& engine, const Pair& pair);

  absl::StatusOr<RunHandle> operator()(Redistributor& redistribute, Stream* after = nullptr) const;
  void Put(const std::vector<uint8_t>& bytes) const;
  std::vector<uint8_t> Take() const;
  // Writes the bytes, calls, waits, and reads the result.
  std::vector<uint8_t> Result(Redistributor& redistribute, const std::vector<uint8_t>& bytes) const;

  NcclEngine& engine;
  const Pair pair;
  const std::unique_ptr<Buffer> source;
  const std::unique_ptr<Buffer> target;
};
using Calls = std::vector<std::unique_ptr<Call>>;
Calls CallsOf(NcclEngine& engine, const std::vector<Pair>& pairs);

class NcclEngineTest : public testing::Test {
 protected:
  void Start(int64_t n, const NcclOptions& options = {}, uint64_t seed = 1);
  // Ends the engines, and checks that nothing leaked and no rule was broken.
  void TearDown() override;

  std::unique_ptr<NcclThreads> ranks_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_NCCL_ENGINE_FIXTURE_H_

#include "testing/internal/nccl/engine_fixture.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {

Pair PairOf(const std::string& tensor, const DeviceMesh& mesh, const std::string& from,
            const std::string& to) {
  Sharding source = Sharding::Parse(tensor, mesh, from).value();
  Sharding target = source.WithPlacements(to).value();
  return {std::move(source), std::move(target)};
}

int64_t LocalBytes(const Sharding& sharding, int64_t rank) {
  return Bytes(sharding.dtype(), NumElements(sharding.LocalBox(rank).size));
}

std::vector<uint8_t> SomeValues(const Sharding& sharding, int64_t rank, int seed) {
  std::vector<uint8_t> bytes(LocalBytes(sharding, rank));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>((i * 37 + static_cast<size_t>(rank * 11 + seed * 5)) % 53);
  }
  return bytes;
}

Call::Call(NcclEngine& engine, const Pair& pair)
    : engine(engine),
      pair(pair),
      source(engine.Allocate(LocalBytes(pair.from, engine.rank())).value()),
      target(engine.Allocate(LocalBytes(pair.to, engine.rank())).value()) {}

absl::StatusOr<RunHandle> Call::operator()(Redistributor& redistribute, Stream* after) const {
  const auto view = [&](const Buffer& buffer, const Sharding& sharding) {
    return TensorView::Contiguous(buffer.data(), sharding.dtype(),
                                  sharding.LocalBox(engine.rank()).size);
  };
  return redistribute({.from = pair.from,
                       .to = pair.to,
                       .source = view(*source, pair.from),
                       .target = view(*target, pair.to),
                       .after = after});
}

void Call::Put(const std::vector<uint8_t>& bytes) const {
  const std::unique_ptr<Stream> stream = engine.CreateStream().value();
  EXPECT_EQ(Message(engine.CopyIn(bytes.data(), source->data(), std::ssize(bytes), *stream)), "");
  EXPECT_EQ(Message(engine.Synchronize(*stream)), "");
}

std::vector<uint8_t> Call::Take() const {
  return GetBytes(engine, target->data(), target->size_bytes()).value();
}

std::vector<uint8_t> Call::Result(Redistributor& redistribute,
                                  const std::vector<uint8_t>& bytes) const {
  Put(bytes);
  const absl::StatusOr<RunHandle> run = (*this)(redistribute);
  EXPECT_EQ(Message(run.ok() ? run->Wait() : run.status()), "");
  return Take();
}

Calls CallsOf(NcclEngine& engine, const std::vector<Pair>& pairs) {
  Calls calls;
  for (const Pair& pair : pairs) calls.push_back(std::make_unique<Call>(engine, pair));
  return calls;
}

void NcclEngineTest::Start(int64_t n, const NcclOptions& options, uint64_t seed) {
  auto ranks = NcclThreads::Create(n, options, seed);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  ranks_ = *std::move(ranks);
}

void NcclEngineTest::TearDown() {
  ranks_ = nullptr;
  EXPECT_EQ(TheFake()->record_leaks(), 0);
  EXPECT_EQ(Violations(), "");
}

}  // namespace meshift

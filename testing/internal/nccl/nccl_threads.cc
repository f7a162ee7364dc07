#include "testing/internal/nccl/nccl_threads.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/cuda/driver.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/status.h"
#include "testing/fake_gpu/fake_report.h"

namespace meshift {

void RunThreads(int64_t n, const std::function<void(int64_t rank)>& work) {
  std::vector<std::thread> threads;
  threads.reserve(n);
  for (int64_t r = 0; r < n; ++r) threads.emplace_back([&, r] { work(r); });
  for (std::thread& thread : threads) thread.join();
}

absl::StatusOr<std::unique_ptr<NcclThreads>> NcclThreads::Create(int64_t n,
                                                                 const NcclOptions& options,
                                                                 uint64_t seed) {
  return CreateEach(
      n, [&](int64_t) { return options; }, seed);
}

absl::StatusOr<std::unique_ptr<NcclThreads>> NcclThreads::CreateEach(
    int64_t n, const std::function<NcclOptions(int64_t rank)>& options, uint64_t seed) {
  auto threads = std::make_unique<NcclThreads>();
  MESHIFT_ASSIGN_OR_RETURN(threads->bootstraps_, Bootstrap::InProcess(n));
  threads->engines_.resize(n);
  if (const FakeReport* fake = TheFake(); fake != nullptr) {
    fake->reset();
    fake->set_seed(seed);
  }
  std::vector<absl::Status> status(n);
  RunThreads(n, [&](int64_t r) {
    NcclOptions own = options(r);
    if (own.device < 0) own.device = static_cast<int>(r);
    auto engine = NcclEngine::Create(threads->bootstraps_[r].get(), own);
    status[r] = engine.status();
    if (engine.ok()) threads->engines_[r] = *std::move(engine);
  });
  for (const absl::Status& one : status) MESHIFT_RETURN_IF_ERROR(one);
  return threads;
}

NcclThreads::~NcclThreads() {
  RunThreads(size(), [&](int64_t r) { engines_[r] = nullptr; });
}

void NcclThreads::Run(const std::function<void(NcclEngine& engine, int64_t rank)>& work) {
  RunThreads(size(), [&](int64_t r) {
    if (engines_[r] != nullptr) work(*engines_[r], r);
  });
}

const FakeReport* TheFake() {
  // The stand-in is found once it is loaded.
  EXPECT_TRUE(CudaDriver::Load().ok());
  const FakeReport* fake = FindFakeReport();
  EXPECT_NE(fake, nullptr) << "MESHIFT_CUDA_LIBRARY does not name the stand-in";
  return fake;
}

std::string Violations() {
  const FakeReport* fake = TheFake();
  return fake == nullptr ? "no stand-in" : FakeViolations(*fake);
}

absl::StatusOr<std::unique_ptr<Buffer>> PutBytes(Engine& engine, absl::Span<const uint8_t> bytes) {
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, engine.Allocate(bytes.size()));
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, engine.CreateStream());
  MESHIFT_RETURN_IF_ERROR(engine.CopyIn(bytes.data(), buffer->data(), bytes.size(), *stream));
  MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream));
  return buffer;
}

absl::StatusOr<std::vector<uint8_t>> GetBytes(Engine& engine, const void* data, int64_t bytes) {
  std::vector<uint8_t> host(bytes);
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, engine.CreateStream());
  MESHIFT_RETURN_IF_ERROR(engine.CopyOut(data, host.data(), bytes, *stream));
  MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream));
  return host;
}

}  // namespace meshift

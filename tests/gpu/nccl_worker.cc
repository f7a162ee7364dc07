#include "tests/gpu/nccl_worker.h"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/cuda/driver.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/bootstrap.h"
#include "meshift/nccl_engine.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"
#include "testing/conformance_cases.h"
#include "testing/conformance_run.h"
#include "tests/gpu/host_time.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// Cases between two checks of the clock; fewer for more ranks, which take turns.
constexpr int64_t kChunkOfRanks = 20;

// Rank 0's decision whether there is time for more; equal on all ranks.
absl::StatusOr<bool> Continue(Bootstrap& bootstrap, bool has_time) {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> says,
                           bootstrap.Exchange(has_time ? "more" : "enough"));
  return says[0] == "more";
}

void Add(const testkit::ConformanceReport& report, WorkerResult* result) {
  result->cases += report.cases;
  result->runs += report.runs;
  result->wrong += report.wrong;
  result->replicas_differ += report.replicas_differ;
  result->miscounted += report.miscounted;
  if (result->first.empty()) result->first = report.first;
}

}  // namespace

std::string WorkerResult::ToString() const {
  std::string text = first;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}\t{}", planned, cases, runs, wrong,
                     replicas_differ, miscounted, seconds, raw_us, polled_us, call_us, nccl_version,
                     promise, text);
}

absl::StatusOr<WorkerResult> WorkerResult::Parse(const std::string& line) {
  WorkerResult result;
  std::istringstream in(line);
  in >> result.planned >> result.cases >> result.runs >> result.wrong >> result.replicas_differ >>
      result.miscounted >> result.seconds >> result.raw_us >> result.polled_us >> result.call_us >>
      result.nccl_version;
  if (!in) return InvalidArgument("'{}' is not a rank's result", line);
  in.ignore();
  std::getline(in, result.promise, '\t');
  std::getline(in, result.first);
  return result;
}

absl::Status ProbeGpu() {
  MESHIFT_ASSIGN_OR_RETURN(const auto driver, CudaDriver::Load());
  MESHIFT_RETURN_IF_ERROR(driver->InitAndCountDevices().status());
  CUdevice device = 0;
  MESHIFT_RETURN_IF_ERROR(driver->DeviceGet(&device, 0));
  int mode = CU_COMPUTEMODE_DEFAULT;
  MESHIFT_RETURN_IF_ERROR(
      driver->DeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
  if (mode != CU_COMPUTEMODE_DEFAULT) {
    return FailedPrecondition(
        "the GPU is in compute mode {}, in which several processes cannot share it; `nvidia-smi -c "
        "DEFAULT` sets the mode in which they can",
        mode);
  }
  return NcclLibrary::Load().status();
}

absl::Status RunWorker(const WorkerOptions& options) {
  const auto begin = Clock::now();
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::FromTorchrun());
  NcclOptions nccl;
  nccl.device = 0;
  nccl.max_ctas = options.max_ctas;
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, NcclEngine::Create(bootstrap.get(), nccl));
  const std::vector<testkit::ConformanceCase> cases =
      testkit::ConformanceCases(engine->world_size(), options.cases);
  absl::Span<const testkit::ConformanceCase> left = cases;
  const size_t chunk_size = std::max<int64_t>(1, kChunkOfRanks / engine->world_size());
  WorkerResult result;
  PlannerOptions planning;
  if (options.batch_invariant) {
    planning.reproducibility = Reproducibility::kBatchInvariant;
    planning.engine = engine->Capabilities();
    const EngineCapabilities& capabilities = planning.engine;
    result.promise = capabilities.native_invariance == NativeInvariance::kAllReduce
                         ? "by NCCL's all-reduce"
                         : fmt::format("in order: {}", capabilities.native_why);
  }
  result.planned = std::ssize(cases);
  result.nccl_version = engine->nccl_version();
  while (!left.empty()) {
    // Always run the first ones: a slow machine may need all the time to start.
    const bool has_time = result.cases == 0 || Clock::now() - begin < options.budget;
    MESHIFT_ASSIGN_OR_RETURN(const bool more, Continue(*bootstrap, has_time));
    if (!more) break;
    const auto chunk = left.subspan(0, chunk_size);
    MESHIFT_ASSIGN_OR_RETURN(const testkit::ConformanceReport report,
                             testkit::RunConformance(chunk, *engine, *bootstrap, planning));
    Add(report, &result);
    left.remove_prefix(chunk.size());
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto write = [&]() -> absl::Status {
    if (engine->rank() != 0) return absl::OkStatus();
    std::ofstream file(options.result);
    file << result.ToString() << "\n";
    file.close();
    if (!file) return FailedPrecondition("cannot write {}", options.result);
    return absl::OkStatus();
  };
  // Write first, so that the results are kept if the measurements fail.
  MESHIFT_RETURN_IF_ERROR(write());
  if (!options.times) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const HostTime time, MeasureHostTime(*engine, *bootstrap));
  result.raw_us = time.raw_us;
  result.polled_us = time.polled_us;
  result.call_us = time.call_us;
  return write();
}

}  // namespace meshift

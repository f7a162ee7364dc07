// Trains a small network, one process per rank; rank 0 prints the loss next to that of a training
// without ranks.
//
//   mpirun -n 6 bazel-bin/examples/train_mlp/train_mlp_mpi data=3,tensor=2
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "examples/train_mlp/report.h"
#include "examples/train_mlp/train.h"
#include "meshift/bootstrap.h"
#include "meshift/mpi_engine.h"
#include "meshift/status.h"

namespace meshift {
namespace {

absl::Status Main(const MpiJob& job, const TrainOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<float> losses, Train(job.engine(), options));
  // Every rank has the same losses, bit for bit.
  std::string text;
  for (const float loss : losses) text += fmt::format("{:a} ", loss);
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, job.bootstrap()->Exchange(text));
  for (const std::string& other : all) {
    if (other != text) return absl::InternalError("ranks hold different losses");
  }
  return job.engine()->rank() == 0 ? Report(losses, TrainAlone(options)) : absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  meshift::TrainOptions options;
  if (argc > 1) options.mesh = argv[1];
  const auto job = meshift::MpiJob::Start();
  const absl::Status status = job.ok() ? meshift::Main(**job, options) : job.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  std::fflush(nullptr);
  if (job.ok()) (*job)->Leave(1);
  return 1;
}

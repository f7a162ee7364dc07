// Runs the conformance cases on NCCL with several ranks on ONE device, each rank a process
// (one_device.h).
//
//   nccl_check [--ranks 2,4,8] [--cases 500] [--seconds 300] [--slack 180] [--max-ctas 1]
//              [--promise batch-invariant] [--times 0] [--out FOLDER]
//
// For each number of ranks it runs `cases` cases, and begins no more after `seconds` seconds
// (processes take turns on a device, so this is slow); after `slack` more seconds the ranks are
// killed. It stops at the first number of ranks that fails. This process never uses CUDA.
//
// Prints a table, and on a failure the end of each rank's log. raw us: host time of an
// ncclAllReduce of two floats; polled us: the same on a non-blocking communicator, which NCCL
// launches on its own thread; call us: a cached redistribution with that all-reduce. These are
// measured only with 2 ranks, since more ranks also take turns on the processors; 0: not measured.
// Logs are kept in FOLDER; without one, only if something is wrong.
//
// Exit codes: 0 all is right; 1 something is wrong; 2 bad usage; 3 no GPU or no NCCL to check.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/status.h"
#include "tests/gpu/nccl_worker.h"
#include "tests/gpu/one_device.h"
#include "tests/gpu/processes.h"

namespace meshift {
namespace {

struct Options {
  std::vector<int> ranks = {2, 4, 8};
  int64_t cases = 500;
  int seconds = 300;
  int slack = 180;  // for set-up, and for cases that began in time
  int max_ctas = 1;
  bool batch_invariant = false;
  bool times = true;
  std::string out;
};

constexpr std::chrono::seconds kGrace(30);

void PrintTail(const std::string& path) {
  constexpr size_t kLines = 25;
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  const size_t first = lines.size() > kLines ? lines.size() - kLines : 0;
  fmt::print("--- {}, {} of {} lines\n", path, lines.size() - first, lines.size());
  for (size_t i = first; i < lines.size(); ++i) fmt::print("{}\n", lines[i]);
}

// `written`: the result that rank 0 has written, if any, even if ranks failed after that.
absl::Status RunRanks(const std::string& program, int ranks, const Options& options,
                      const std::string& folder, absl::StatusOr<WorkerResult>* written) {
  MESHIFT_ASSIGN_OR_RETURN(const int port, FreePort());
  const std::string result = folder + "/result";
  std::vector<ProcessSpec> specs;
  for (int rank = 0; rank < ranks; ++rank) {
    specs.push_back(
        {{program, "--worker", std::to_string(options.cases), std::to_string(options.seconds),
          std::to_string(options.max_ctas), options.batch_invariant ? "1" : "0",
          options.times && ranks == 2 ? "1" : "0", result},
         OneDeviceEnvironment({.rank = rank,
                               .ranks = ranks,
                               .port = port,
                               .max_ctas = options.max_ctas,
                               .batch_invariant = options.batch_invariant,
                               .folder = folder}),
         fmt::format("{}/rank{}.log", folder, rank),
         OneDeviceLeftOut()});
  }
  MESHIFT_ASSIGN_OR_RETURN(Processes processes, Processes::Start(specs));
  const std::vector<ProcessEnd> ends =
      processes.Wait(std::chrono::seconds(options.seconds + options.slack),
                     std::min<std::chrono::seconds>(kGrace, std::chrono::seconds(options.slack)));
  std::string failed;
  for (int rank = 0; rank < ranks; ++rank) {
    if (ends[rank].ok()) continue;
    failed += fmt::format("{}rank {}: {}", failed.empty() ? "" : "; ", rank, ends[rank].ToString());
  }
  std::ifstream file(result);
  std::string line;
  std::getline(file, line);
  *written = WorkerResult::Parse(line);
  if (!failed.empty()) return absl::UnavailableError(failed);
  return written->status();
}

// Prints one row of the table; returns whether all is right.
bool CheckRanks(const std::string& program, int ranks, const Options& options,
                const std::string& folder) {
  std::filesystem::create_directories(folder);
  absl::StatusOr<WorkerResult> result = absl::UnknownError("nothing was written");
  const absl::Status run = RunRanks(program, ranks, options, folder, &result);
  if (result.ok()) {
    const std::string part =
        result->cases == result->planned ? "" : fmt::format("  of {}: time", result->planned);
    fmt::print("{:>6}{:>8}{:>8}{:>8}{:>17}{:>12}{:>9.0f}{:>10.1f}{:>11.1f}{:>10.1f}  {}{}\n", ranks,
               result->cases, result->runs, result->wrong, result->replicas_differ,
               result->miscounted, result->seconds, result->raw_us, result->polled_us,
               result->call_us, result->nccl_version, part);
    if (!result->promise.empty()) fmt::print("        batch-invariant {}\n", result->promise);
    if (!result->first.empty()) fmt::print("        {}\n", result->first);
  }
  if (!run.ok()) {
    fmt::print("{:>6}  failed: {}\n", ranks, Message(run));
    for (int rank = 0; rank < ranks; ++rank) {
      PrintTail(fmt::format("{}/rank{}.log", folder, rank));
      PrintTail(fmt::format("{}/nccl.rank{}", folder, rank));
    }
  }
  std::fflush(stdout);
  return run.ok() && result->first.empty() && result->cases > 0;
}

// Asks a child process whether there is a GPU and NCCL to check.
int Probe(const std::string& program, const std::string& folder) {
  const std::string log = folder + "/probe.log";
  auto processes = Processes::Start({{{program, "--probe"}, {}, log}});
  if (processes.ok() && processes->Wait(std::chrono::seconds(120), kGrace)[0].ok()) return 0;
  std::ifstream file(log);
  std::stringstream text;
  text << file.rdbuf();
  fmt::print(stderr, "cannot check: {}", text.str());
  return 3;
}

int Check(const Options& options) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  const absl::StatusOr<std::string> made = MakeLogFolder(options.out, "meshift_nccl_check_");
  if (!made.ok()) {
    fmt::print(stderr, "{}\n", Message(made.status()));
    return 1;
  }
  const std::string& folder = *made;
  if (const int code = Probe(program, folder); code != 0) return code;
  fmt::print("ranks of one device, logs in {}\n", folder);
  fmt::print("{:>6}{:>8}{:>8}{:>8}{:>17}{:>12}{:>9}{:>10}{:>11}{:>10}  NCCL\n", "ranks", "cases",
             "runs", "wrong", "replicas differ", "miscounted", "seconds", "raw us", "polled us",
             "call us");
  std::fflush(stdout);
  bool right = true;
  for (const int ranks : options.ranks) {
    right = CheckRanks(program, ranks, options, fmt::format("{}/{}", folder, ranks));
    if (!right) break;
  }
  if (right && options.out.empty()) std::filesystem::remove_all(folder, error);
  return right ? 0 : 1;
}

int Worker(char** argv) {
  EndWithStarter();
  const absl::Status status = RunWorker({.cases = std::atoll(argv[2]),
                                         .budget = std::chrono::seconds(std::atoll(argv[3])),
                                         .max_ctas = std::atoi(argv[4]),
                                         .batch_invariant = std::atoi(argv[5]) != 0,
                                         .times = std::atoi(argv[6]) != 0,
                                         .result = argv[7]});
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}

bool ParseOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return false;
    const std::string value = argv[i + 1];
    if (name == "--ranks") {
      options->ranks.clear();
      std::stringstream list(value);
      for (std::string item; std::getline(list, item, ',');) {
        options->ranks.push_back(std::atoi(item.c_str()));
        if (options->ranks.back() < 2 || options->ranks.back() > 16) return false;
      }
    } else if (name == "--cases") {
      options->cases = std::atoll(value.c_str());
    } else if (name == "--seconds") {
      options->seconds = std::atoi(value.c_str());
    } else if (name == "--slack") {
      options->slack = std::atoi(value.c_str());
    } else if (name == "--max-ctas") {
      options->max_ctas = std::atoi(value.c_str());
    } else if (name == "--promise") {
      if (value != "batch-invariant" && value != "replicas") return false;
      options->batch_invariant = value == "batch-invariant";
    } else if (name == "--times") {
      options->times = value != "0";
    } else if (name == "--out") {
      options->out = value;
    } else {
      return false;
    }
  }
  return options->cases > 0 && options->seconds > 0 && options->slack > 0 && options->max_ctas > 0;
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  if (argc == 8 && std::strcmp(argv[1], "--worker") == 0) return meshift::Worker(argv);
  if (argc == 2 && std::strcmp(argv[1], "--probe") == 0) {
    const absl::Status status = meshift::ProbeGpu();
    if (!status.ok()) fmt::print("{}\n", meshift::Message(status));
    return status.ok() ? 0 : 3;
  }
  meshift::Options options;
  if (!meshift::ParseOptions(argc, argv, &options)) {
    fmt::print(
        stderr,
        "usage: nccl_check [--ranks 2,4,8] [--cases N] [--seconds N] [--slack N] "
        "[--max-ctas N] [--promise batch-invariant|replicas] [--times 0|1] [--out FOLDER]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return meshift::Check(options);
}

// Tests properties of NCCL that only a device shows, in fixed small steps on ranks that share one
// device: the host's cost of a call, captures, aborts, a rank that dies, communicators lent by
// PyTorch, windows, bits.
//
//   nccl_probe [--only STEP] [--seconds N] [--out FOLDER]
//
// Each step has its own processes and limit (10 s, 25 s with PyTorch), and prints one line when it
// has ended: "capture: right, 3.1 s: ...", "...: wrong, ...", "...: skipped: reason". A step that
// does not fit into N seconds is not begun. Logs are kept in FOLDER. This process never uses CUDA.
//
// Exit codes: 0 no step was wrong; 1 one was; 2 bad usage; 3 no GPU or no NCCL.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/status.h"
#include "tests/gpu/nccl_worker.h"
#include "tests/gpu/one_device.h"
#include "tests/gpu/probe_steps.h"
#include "tests/gpu/processes.h"
#include "tests/gpu/torch_probe.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string only;
  int seconds = 0;  // 0: no limit
  std::string out;
};

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The last nonempty line of a log, printable and short.
std::string LastLine(const std::string& path) {
  std::string last;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  constexpr size_t kMost = 300;
  if (last.size() > kMost) last.resize(kMost);
  for (char& c : last) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return last;
}

// UNIMPLEMENTED: there is no Python with PyTorch and a GPU, with the reason.
absl::Status CheckTorch(const std::string& folder) {
  const char* const named = std::getenv("MESHIFT_PYTHON");
  const std::string python = named != nullptr && *named != '\0' ? named : "python3";
  if (const char* const driver = std::getenv("MESHIFT_CUDA_LIBRARY");
      driver != nullptr && named == nullptr) {
    return absl::UnimplementedError(fmt::format("PyTorch does not run on {}", driver));
  }
  const std::string log = folder + "/python.log";
  MESHIFT_ASSIGN_OR_RETURN(
      Processes processes,
      Processes::Start({{{"/usr/bin/env", python, "-c", TorchFactsScript()}, {}, log}}));
  const ProcessEnd end =
      processes.Wait(std::chrono::seconds(30), std::chrono::milliseconds(100))[0];
  if (end.ok()) return absl::OkStatus();
  const std::string last = LastLine(log);
  return absl::UnimplementedError(
      fmt::format("{}: {}", python, last.empty() ? end.ToString() : last));
}

// Returns rank 0's text, or the first error of a rank.
absl::StatusOr<std::string> RunStep(const std::string& program, const ProbeStep& step,
                                    const std::string& folder) {
  constexpr std::chrono::seconds kGrace(8);  // a rank may still have to find the reason
  std::filesystem::create_directories(folder);
  MESHIFT_ASSIGN_OR_RETURN(const int port, FreePort());
  const std::string result = folder + "/result";
  const std::string skipped = folder + "/skipped";
  std::vector<std::string> left_out = OneDeviceLeftOut();
  // PyTorch has its own NCCL.
  if (step.torch && std::getenv("MESHIFT_CUDA_LIBRARY") == nullptr) {
    left_out.push_back("MESHIFT_NCCL_LIBRARY=");
  }
  std::vector<ProcessSpec> specs;
  for (int rank = 0; rank < step.ranks; ++rank) {
    std::vector<std::string> environment =
        OneDeviceEnvironment({.rank = rank,
                              .ranks = step.ranks,
                              .port = port,
                              .max_ctas = step.max_ctas,
                              .batch_invariant = step.batch_invariant,
                              .folder = folder});
    environment.push_back("MESHIFT_PROBE_RESULT=" + result);
    specs.push_back({{program, "--worker", std::string(step.name), result, skipped},
                     environment,
                     fmt::format("{}/rank{}.log", folder, rank),
                     left_out});
  }
  MESHIFT_ASSIGN_OR_RETURN(Processes processes, Processes::Start(specs));
  const std::vector<ProcessEnd> ends = processes.Wait(step.limit, kGrace);
  if (std::filesystem::exists(skipped)) return absl::UnimplementedError(LastLine(skipped));
  std::string failed;
  for (int rank = 0; rank < step.ranks; ++rank) {
    const bool expected =
        rank == step.killed_rank && ends[rank].signal == SIGKILL && !ends[rank].killed;
    if (ends[rank].ok() || expected) continue;
    const std::string last = LastLine(fmt::format("{}/rank{}.log", folder, rank));
    failed += fmt::format("{}rank {}: {}{}{}", failed.empty() ? "" : "; ", rank,
                          ends[rank].ToString(), last.empty() ? "" : ": ", last);
  }
  if (!failed.empty()) return absl::UnavailableError(failed);
  std::string text = Read(result);
  if (text.empty()) return absl::UnavailableError("rank 0 has said nothing");
  return text;
}

// Asks a child process whether there is a GPU and NCCL to check.
int ProbeDevice(const std::string& program, const std::string& folder) {
  const std::string log = folder + "/device.log";
  auto processes = Processes::Start({{{program, "--probe"}, {}, log}});
  if (processes.ok() &&
      processes->Wait(std::chrono::seconds(60), std::chrono::milliseconds(100))[0].ok()) {
    return 0;
  }
  fmt::print(stderr, "cannot check: {}\n", LastLine(log));
  return 3;
}

int Probe(const Options& options) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  const absl::StatusOr<std::string> made = MakeLogFolder(options.out, "meshift_nccl_probe_");
  if (!made.ok()) {
    fmt::print(stderr, "{}\n", Message(made.status()));
    return 1;
  }
  const std::string& folder = *made;
  const auto begin = Clock::now();
  if (const int code = ProbeDevice(program, folder); code != 0) return code;
  std::optional<absl::Status> torch;  // once it was checked
  bool right = true;
  for (const ProbeStep& step : ProbeSteps()) {
    if (!options.only.empty() && options.only != step.name) continue;
    const auto skip = [&](std::string_view reason) {
      fmt::print("{}: skipped: {}\n", step.name, reason);
    };
    if (step.torch && !torch) torch = CheckTorch(folder);
    const auto start = Clock::now();
    const double left = options.seconds - std::chrono::duration<double>(start - begin).count();
    if (step.torch && !torch->ok()) {
      skip(Message(*torch));
    } else if (options.seconds > 0 && left < static_cast<double>(step.limit.count())) {
      skip(fmt::format("{:.0f} s are left, and it may take {}", std::max(left, 0.0),
                       step.limit.count()));
    } else {
      const absl::StatusOr<std::string> said =
          RunStep(program, step, fmt::format("{}/{}", folder, step.name));
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (said.ok()) {
        fmt::print("{}: right, {:.1f} s: {}\n", step.name, seconds, *said);
      } else if (absl::IsUnimplemented(said.status())) {
        skip(Message(said.status()));
      } else {
        fmt::print("{}: wrong, {:.1f} s: {}\n", step.name, seconds, Message(said.status()));
        right = false;
      }
    }
    std::fflush(stdout);
  }
  if (options.out.empty() && right) std::filesystem::remove_all(folder, error);
  if (options.out.empty() && !right) fmt::print("logs in {}\n", folder);
  return right ? 0 : 1;
}

// One rank of a step.
int Worker(std::string_view name, const std::string& result, const std::string& skipped) {
  EndWithStarter();
  for (const ProbeStep& step : ProbeSteps()) {
    if (step.name != name) continue;
    const absl::StatusOr<std::string> said = step.run();
    int code = 0;
    if (said.ok()) {
      const char* const rank = std::getenv("RANK");
      if (rank != nullptr && std::strcmp(rank, "0") == 0) std::ofstream(result) << *said;
    } else {
      if (absl::IsUnimplemented(said.status())) std::ofstream(skipped) << Message(said.status());
      fmt::print(stderr, "{}\n", said.status().ToString());
      code = 1;
    }
    std::fflush(nullptr);
    return code;
  }
  return 2;
}

bool ParseOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return false;
    const std::string value = argv[i + 1];
    if (name == "--only") {
      const auto steps = ProbeSteps();
      if (std::none_of(steps.begin(), steps.end(),
                       [&](const ProbeStep& step) { return step.name == value; })) {
        return false;
      }
      options->only = value;
    } else if (name == "--seconds") {
      options->seconds = std::atoi(value.c_str());
      if (options->seconds <= 0) return false;
    } else if (name == "--out") {
      options->out = value;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--worker") == 0) {
    return meshift::Worker(argv[2], argv[3], argv[4]);
  }
  if (argc == 2 && std::strcmp(argv[1], "--probe") == 0) {
    const absl::Status status = meshift::ProbeGpu();
    if (!status.ok()) fmt::print("{}\n", meshift::Message(status));
    return status.ok() ? 0 : 3;
  }
  meshift::Options options;
  if (!meshift::ParseOptions(argc, argv, &options)) {
    std::string names;
    for (const meshift::ProbeStep& step : meshift::ProbeSteps()) {
      names += names.empty() ? "" : "|";
      names += step.name;
    }
    fmt::print(stderr, "usage: nccl_probe [--only {}] [--seconds N] [--out FOLDER]\n", names);
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return meshift::Probe(options);
}

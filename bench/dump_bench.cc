// The time to read the records of 512 ranks with 2,000 calls each, and to name the late rank.
//
//   ./bazelw run //bench:dump_bench
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "comm/record/dump_reader.h"
#include "comm/record/dump_report.h"
#include "comm/record/dump_writer.h"
#include "testing/internal/test_dumps.h"

int main() {
  using Clock = std::chrono::steady_clock;
  const meshift::TestDumps job{.num_ranks = 512, .calls = 2000, .first = 0, .late = 77};
  std::string folder = std::filesystem::temp_directory_path() / "meshift-dump-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  uint64_t bytes = 0;
  for (int64_t rank = 0; rank < job.num_ranks; ++rank) {
    const std::string text = DumpText(meshift::MakeTestDump(job, rank));
    bytes += text.size();
    std::ofstream(fmt::format("{}/meshift-{}.json", folder, rank)) << text;
  }
  for (int round = 0; round < 3; ++round) {
    const Clock::time_point begin = Clock::now();
    const auto read = meshift::ReadDumpFolder(folder);
    if (!read.ok()) return 1;
    const meshift::DumpReport report = meshift::ReportOf(read->files);
    const auto took = std::chrono::duration<double>(Clock::now() - begin).count();
    if (report.stuck.size() != 1 || report.stuck[0].late[0].rank != job.late) return 1;
    fmt::print("{} ranks, {} calls, {} MiB: {:.2f} s\n", job.num_ranks, job.num_ranks * job.calls,
               bytes >> 20, took);
  }
  std::filesystem::remove_all(folder);
  return 0;
}

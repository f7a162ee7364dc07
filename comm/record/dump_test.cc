#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/record/dump_reader.h"
#include "comm/record/dump_report.h"
#include "comm/record/dump_writer.h"
#include "comm/record/flight_recorder.h"
#include "testing/internal/test_dumps.h"

namespace meshift {
namespace {

// The system calls that the program has made for its files, in order.
std::vector<std::string>& FileCalls() {
  static std::vector<std::string> calls;
  return calls;
}

}  // namespace
}  // namespace meshift

// In the place of the C library's.
extern "C" int fsync(int fd) {
  struct stat file = {};
  fstat(fd, &file);
  meshift::FileCalls().emplace_back(S_ISDIR(file.st_mode) ? "fsync folder" : "fsync file");
  return static_cast<int>(syscall(SYS_fsync, fd));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  meshift::FileCalls().emplace_back("rename");
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace meshift {
namespace {

std::string NewFolder(const std::string& name) {
  std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  return folder;
}

void Write(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<DumpFile> Read(const TestDumps& job) {
  std::vector<DumpFile> files;
  for (int64_t rank = 0; rank < job.num_ranks; ++rank) {
    files.push_back(ReadDump(DumpText(MakeTestDump(job, rank))).value());
  }
  return files;
}

using Ranks = std::vector<int64_t>;

TEST(DumpTest, WhatIsWrittenIsRead) {
  Dump dump = MakeTestDump({.num_ranks = 4, .calls = 5, .first = 7}, 2);
  dump.host = "node-7";
  dump.failure = absl::UnavailableError("a \"quote\", a\nline, \x01 and \xff");
  dump.calls[0].state = CallState::kIssuing;
  const DumpFile file = ReadDump(DumpText(dump)).value();
  EXPECT_EQ(file.engine, "local");
  EXPECT_EQ(file.host, "node-7");
  EXPECT_EQ(file.rank, 2);
  EXPECT_EQ(file.world_size, 4);
  EXPECT_EQ(file.running_timeout_ns, 600'000'000'000);
  EXPECT_EQ(file.failure.code, "UNAVAILABLE");
  EXPECT_EQ(file.failure.message, "a \"quote\", a\nline, \x01 and \xff");
  ASSERT_EQ(file.redistributors.size(), 1);
  EXPECT_EQ(file.redistributors[0].name, "ranks 0-3 #0");
  EXPECT_EQ(file.redistributors[0].ranks, (Ranks{0, 1, 2, 3}));
  ASSERT_EQ(file.plans.size(), 3);
  EXPECT_EQ(file.plans[0].text, "plan of all_gather");
  EXPECT_EQ(file.plans[0].groups, std::vector<std::string>{"0-3"});
  EXPECT_EQ(file.plans[0].steps[0].op, "all_gather");
  EXPECT_EQ(file.plans[0].steps[0].dtype, "f32");
  EXPECT_EQ(file.plans[0].steps[0].count_out, 32);
  ASSERT_EQ(file.calls.size(), 5);
  EXPECT_EQ(file.calls[0].call, 7);
  EXPECT_EQ(file.calls[0].state, DumpFile::State::kIssuing);
  EXPECT_EQ(file.calls[1].state, DumpFile::State::kEnded);
  EXPECT_EQ(file.calls[1].ended_ns, dump.calls[1].ended_ns);
  EXPECT_EQ(file.calls[4].state, DumpFile::State::kInFlight);
  EXPECT_EQ(file.calls[4].ended_ns, -1);
  EXPECT_EQ(file.calls[4].thread, 4242);
}

TEST(DumpTest, FilesAreReplacedAsAWhole) {
  const std::string folder = NewFolder("replaced") + "/inner";
  Dump dump = MakeTestDump({}, 3);
  const std::string path = WriteDump(dump, folder).value();
  EXPECT_EQ(path, folder + "/meshift-node0-rank00003.json");
  dump.host = "node0";
  dump.calls.clear();
  // The temporary file of a process that was killed while writing.
  Write(fmt::format("{}/.meshift-node0-rank00003.json.{}", folder, getpid()), "half");
  ASSERT_EQ(WriteDump(dump, folder).value(), path);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(ReadDump(text).value().calls.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_EQ(WriteDump(dump, path).status().code(), absl::StatusCode::kUnavailable);
  // A link in the place of the file that is written first is not followed.
  const std::string other = folder + "/other";
  Write(other, "text");
  std::filesystem::create_symlink(
      other, fmt::format("{}/.meshift-node0-rank00003.json.{}", folder, getpid()));
  ASSERT_EQ(WriteDump(dump, folder).value(), path);
  EXPECT_EQ(std::filesystem::file_size(other), 4);
}

// A record that a machine's end could take is none.
TEST(DumpTest, TheFileIsOnTheDiskBeforeItHasItsName) {
  const std::string folder = NewFolder("synced");
  FileCalls().clear();
  ASSERT_TRUE(WriteDump(MakeTestDump({}, 3), folder).ok());
  EXPECT_EQ(FileCalls(), (std::vector<std::string>{"fsync file", "rename", "fsync folder"}));
}

TEST(DumpTest, TheTextIsBounded) {
  Dump dump = MakeTestDump({}, 0);
  dump.calls.clear();
  for (int i = 0; i < 20000; ++i) {
    auto text = std::make_shared<CallText>();
    text->plan = std::string(100'000, 'x');
    text->plan.resize(CallText::kMaxPlanBytes);
    text->steps.resize(CallText::kMaxSteps, {.op = "all_reduce", .group = -1});
    dump.calls.push_back({.number = i, .call = i, .text = std::move(text)});
  }
  const std::string text = DumpText(dump);
  EXPECT_LT(text.size(), DumpFile::kMaxBytes);
  EXPECT_EQ(ReadDump(text).value().calls.size(), 20000);
}

TEST(DumpTest, TheLongestRecordIsRead) {
  constexpr int64_t kNs = int64_t{1} << 60;
  Dump dump = MakeTestDump({}, 0);
  dump.calls.assign(1'000'000, {.state = CallState::kInFlight,
                                .issued_ns = kNs,
                                .started_ns = kNs,
                                .ended_ns = kNs,
                                .thread = INT32_MAX,
                                .text = dump.calls[0].text});
  for (int64_t i = 0; i < std::ssize(dump.calls); ++i) {
    dump.calls[i].number = dump.calls[i].call = kNs + i;
  }
  EXPECT_EQ(ReadDump(DumpText(dump)).value().calls.size(), dump.calls.size());
}

TEST(DumpTest, ManyRanksAreListed) {
  Dump dump = MakeTestDump({}, 0);
  auto text = std::make_shared<CallText>();
  text->plan = "plan";
  text->groups = {"{" + std::string(10'000, '7') + "}"};
  dump.calls[0].text = text;
  dump.world_size = 10'000;
  dump.sources[0].ranks.clear();
  for (int64_t rank = 0; rank < 10'000; rank += 2) dump.sources[0].ranks.push_back(rank);
  const DumpFile file = ReadDump(DumpText(dump)).value();
  EXPECT_EQ(file.redistributors[0].ranks, dump.sources[0].ranks);
  EXPECT_EQ(file.plans[file.calls[0].plan].groups, text->groups);
}

TEST(DumpReportTest, LateRanksAreNamed) {
  const DumpReport report = ReportOf(Read({.num_ranks = 6, .calls = 10, .first = 90, .late = 4}));
  EXPECT_EQ(report.num_files, 6);
  EXPECT_TRUE(report.missing.empty());
  EXPECT_EQ(report.first->rank, 0);
  EXPECT_TRUE(report.disagreements.empty());
  ASSERT_EQ(report.stuck.size(), 1);
  const StuckCall& stuck = report.stuck[0];
  EXPECT_EQ(stuck.call, 99);
  EXPECT_EQ(stuck.plan, "plan of all_reduce");
  EXPECT_EQ(stuck.in_it, (Ranks{0, 1, 2, 3, 5}));
  ASSERT_EQ(stuck.late.size(), 1);
  EXPECT_EQ(stuck.late[0].rank, 4);
  EXPECT_EQ(stuck.late[0].num_calls, 99);
  // The call began 20 ms and ended 18 ms before the record was written, by the clock of rank 4's
  // host.
  EXPECT_EQ(stuck.late[0].last_ended_unix_ns, 1'790'000'000'000'000'004 - 18'000'000 + 4);
  EXPECT_EQ(stuck.since_unix_ns, 1'790'000'000'000'000'000 - 9'000'000);
}

TEST(DumpReportTest, RanksThatAreHeldOrLeftNothingAreNamed) {
  TestDumps job{.num_ranks = 4, .calls = 3};
  std::vector<DumpFile> files = Read(job);
  files[1].calls.back().started_ns = -1;
  files[2].calls.back().state = DumpFile::State::kIssuing;
  files.erase(files.begin() + 3);
  const DumpReport report = ReportOf(files);
  EXPECT_EQ(report.missing, Ranks{3});
  ASSERT_EQ(report.stuck.size(), 1);
  EXPECT_EQ(report.stuck[0].in_it, Ranks{0});
  EXPECT_EQ(report.stuck[0].held, Ranks{1});
  EXPECT_EQ(report.stuck[0].issuing, Ranks{2});
  EXPECT_EQ(report.stuck[0].missing, Ranks{3});
}

TEST(DumpReportTest, RanksThatDisagreeAreNamed) {
  std::vector<DumpFile> files = Read({.num_ranks = 4, .calls = 8, .first = 2});
  std::swap(files[2].plans[0].text, files[2].plans[1].text);
  const DumpReport report = ReportOf(files);
  ASSERT_EQ(report.disagreements.size(), 1);
  EXPECT_EQ(report.disagreements[0].call, 2);
  ASSERT_EQ(report.disagreements[0].sides.size(), 2);
  EXPECT_EQ(report.disagreements[0].sides[0].ranks, (Ranks{0, 1, 3}));
  EXPECT_EQ(report.disagreements[0].sides[1].ranks, Ranks{2});
}

TEST(DumpReportTest, NothingInFlightIsNothingStuck) {
  std::vector<DumpFile> files = Read({.num_ranks = 2});
  for (DumpFile& file : files) file.calls.pop_back();
  EXPECT_TRUE(ReportOf(files).stuck.empty());
  EXPECT_TRUE(ReportOf({}).stuck.empty());
}

// The aim is 2 s for 512 ranks; bench/dump_bench prints the time.
TEST(DumpReportTest, ManyRanksTakeLittleTime) {
  const std::string folder = NewFolder("many");
  const TestDumps job{.num_ranks = 512, .calls = 2000, .first = 100'000, .late = 77};
  for (int64_t rank = 0; rank < job.num_ranks; ++rank) {
    Write(fmt::format("{}/meshift-{}.json", folder, rank), DumpText(MakeTestDump(job, rank)));
  }
  const std::clock_t begin = std::clock();  // processor time of all threads
  const DumpFolder read = ReadDumpFolder(folder).value();
  const DumpReport report = ReportOf(read.files);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  fmt::print("{} calls of 512 ranks: {:.2f} s\n", 512 * 2000, seconds);
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(read.problems.empty());
  ASSERT_EQ(report.stuck.size(), 1);
  ASSERT_EQ(report.stuck[0].late.size(), 1);
  EXPECT_EQ(report.stuck[0].late[0].rank, 77);
  EXPECT_EQ(report.stuck[0].in_it.size(), 511);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds, 2.0);
#endif
}

TEST(DumpReaderTest, DamagedTextsAreRefused) {
  const std::string right = DumpText(MakeTestDump({.num_ranks = 2, .calls = 4}, 1));
  ASSERT_TRUE(ReadDump(right).ok());
  for (size_t size = 0; size + 2 < right.size(); ++size) {
    EXPECT_FALSE(ReadDump(std::string_view(right).substr(0, size)).ok()) << size;
  }
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return Message(ReadDump(text).status());
  };
  EXPECT_EQ(with("meshift-dump", "other"), "is not a record of calls");
  EXPECT_EQ(with("\"version\":1", "\"version\":2"), "unknown version 2 of the format; expected 1");
  EXPECT_EQ(with("\"rank\":1", "\"rank\":2"), "rank 2 is out of range for 2 ranks");
  EXPECT_EQ(with("\"world_size\":2", "\"world_size\":1"), "rank 1 is out of range for 1 ranks");
  EXPECT_NE(
      with("\"ranks\":\"0-1\"", "\"ranks\":\"0-1,1\"").find("'0-1,1' is not a list of ascending"),
      std::string::npos);
  EXPECT_NE(with("\"ranks\":\"0-1\"", "\"ranks\":\"0-99999999\"").find("list of ascending ranks"),
            std::string::npos);
  EXPECT_EQ(with("[2,0,2,2,", "[2,1,2,2,"),
            "call 2 names redistributor 1; it must be at least 0 and less than the number of "
            "redistributors, 1");
  EXPECT_EQ(with("[2,0,2,2,", "[2,0,2,3,"),
            "call 2 names plan 3; it must be at least -1 and less than the number of plans, 3");
  EXPECT_EQ(with("[2,0,2,2,", "[1,0,2,2,"),
            "the numbers of calls 1 and 2 are not strictly ascending");
  EXPECT_NE(with("[2,0,2,2,", "[2,0,-2,2,").find("a call has number -2; it must be at least 0"),
            std::string::npos);
  EXPECT_NE(with("[2,0,2,2,", "[2,0,9223372036854775807,2,").find("less than 2^63 - 1"),
            std::string::npos);
  EXPECT_NE(with("[2,0,2,2,", "[2,0,2.5,2,").find("expected a 64-bit integer"), std::string::npos);
  EXPECT_NE(with("\"ended\"", "\"lost\"").find("unknown state 'lost'"), std::string::npos);
  EXPECT_NE(ReadDump(std::string(100, '[')).status().message().find("expected '{'"),
            std::string::npos);
  EXPECT_NE(ReadDump("{\"x\":" + std::string(100, '[')).status().message().find("nested"),
            std::string::npos);
}

TEST(DumpReaderTest, OtherFilesAreLeftAloneOrNamed) {
  const std::string folder = NewFolder("others");
  EXPECT_EQ(ReadDumpFolder(folder).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadDumpFolder(folder + "/none").status().code(), absl::StatusCode::kNotFound);
  Write(folder + "/notes.txt", "x");
  Write(folder + "/meshift-a.json", DumpText(MakeTestDump({}, 0)));
  Write(folder + "/meshift-b.json", "{");
  std::filesystem::create_symlink("/etc/passwd", folder + "/meshift-c.json");
  ASSERT_EQ(mkfifo((folder + "/meshift-d.json").c_str(), 0600), 0);
  std::filesystem::create_directory(folder + "/meshift-e.json");
  // If a rank has two records, the later one counts.
  Dump later = MakeTestDump({}, 0);
  later.written_unix_ns += 1'000;
  later.host = "later";
  Write(folder + "/meshift-f.json", DumpText(later));
  const DumpFolder read = ReadDumpFolder(folder).value();
  ASSERT_EQ(read.files.size(), 1);
  EXPECT_EQ(read.files[0].host, "later");
  ASSERT_EQ(read.problems.size(), 4);
  EXPECT_EQ(read.problems[0], "meshift-b.json: byte 1: expected '\"'");
  EXPECT_EQ(read.problems[2], "meshift-d.json: is not a regular file");
}

TEST(FlightRecorderTest, FirstCallsThatAllRemember) {
  std::vector<DumpFile> files = Read({.num_ranks = 3, .calls = 10, .first = 5});
  files[1].calls.erase(files[1].calls.begin(), files[1].calls.begin() + 3);
  files[2].calls.clear();  // rank 2 has made no calls
  EXPECT_EQ(FirstCommonCalls(files), (std::map<std::string, int64_t>{{"ranks 0-2 #0", 8}}));
}

}  // namespace
}  // namespace meshift

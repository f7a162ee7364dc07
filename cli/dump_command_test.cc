// `meshift dump` through its command line: the report of a job's records, and errors for folders
// and files that have none.
#include "cli/dump_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "comm/record/dump_writer.h"
#include "testing/internal/command.h"
#include "testing/internal/test_dumps.h"

namespace meshift::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class DumpCommandTest : public testing::Test {
 protected:
  DumpCommandTest() : folder_(WriteFile("dumps", "")) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  std::string Write(const Dump& dump) const { return WriteDump(dump, folder_).value(); }

  const std::string folder_;
};

TEST_F(DumpCommandTest, NamesWhoIsBehindAndInWhichCall) {
  for (int64_t rank = 0; rank < 4; ++rank) Write(MakeTestDump({.late = 2}, rank));
  const Outcome outcome = Meshift({"dump", folder_});
  EXPECT_EQ(outcome,
            (Outcome{kExitOk,
                     "records of 4 of 4 ranks\n"
                     "first error: rank 0, 2026-09-21 14:13:20.000 UTC: DEADLINE_EXCEEDED: call 9 "
                     "has not ended for 1000 ms\n"
                     "call 9 of the redistributor of ranks 0-3 #0: plan of all_reduce\n"
                     "  its groups: {0-3}\n"
                     "  LATE: rank 2 has not made this call; it has made only 9 calls, the last of "
                     "which ended at 2026-09-21 14:13:19.982 UTC\n"
                     "  in it: 3 ranks of 4, since 2026-09-21 14:13:19.991 UTC: ranks 0-1,3\n",
                     ""}));
}

TEST_F(DumpCommandTest, NamesWhoLeftNoRecord) {
  for (int64_t rank = 0; rank < 3; ++rank) Write(MakeTestDump({}, rank));
  const Outcome outcome = Meshift({"dump", folder_});
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_THAT(outcome.out, StartsWith("records of 3 of 4 ranks; none of rank 3\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  NO RECORD: rank 3: stopped, ended, or on a host with"));
}

TEST_F(DumpCommandTest, ShowsTextOfOthersOnOneLine) {
  Dump dump = MakeTestDump({.num_ranks = 1}, 0);
  auto text = std::make_shared<CallText>(*dump.calls.back().text);
  text->plan = "plan\n\x1b[31m" + std::string(1000, 'p');
  dump.calls.back().text = text;
  Write(dump);
  const Outcome outcome = Meshift({"dump", folder_});
  EXPECT_THAT(outcome.out, HasSubstr(": plan\\n\\x1b[31mppp"));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(outcome.out.find(std::string(300, 'p')), std::string::npos);
}

// The valid records are still shown.
TEST_F(DumpCommandTest, ADamagedRecordIsNamed) {
  for (int64_t rank = 0; rank < 4; ++rank) Write(MakeTestDump({.late = 2}, rank));
  std::ofstream(folder_ + "/meshift-node0-rank00001.json") << "{\"format\":\"meshift-dump\",";
  const Outcome outcome = Meshift({"dump", folder_});
  EXPECT_EQ(outcome.code, kExitBadFile);
  EXPECT_THAT(outcome.err, StartsWith("meshift: " + folder_ + ": meshift-node0-rank00001.json"));
  EXPECT_THAT(outcome.out, StartsWith("records of 3 of 4 ranks; none of rank 1\n"));
  EXPECT_THAT(outcome.out, HasSubstr("LATE: rank 2 has not made this call"));
}

TEST_F(DumpCommandTest, AFolderWithoutRecordsIsRefused) {
  for (const std::string& folder : {folder_, folder_ + "/none", WriteFile("file", "text")}) {
    const Outcome outcome = Meshift({"dump", folder});
    EXPECT_EQ(outcome.code, kExitBadFile) << outcome;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, StartsWith("meshift: " + folder + ": "));
  }
}

TEST_F(DumpCommandTest, WritesAFlightRecordOfEachRank) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    if (rank != 2) Write(MakeTestDump({.late = 2}, rank));
  }
  const std::string out = folder_ + "/fr";
  EXPECT_EQ(Meshift({"dump", folder_, "--flight-recorder", out}).code, kExitOk);
  int64_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(out)) {
    EXPECT_TRUE(file.is_regular_file());
    ++files;
  }
  EXPECT_EQ(files, 4);  // with an empty one for the rank without a record
  const Outcome outcome =
      Meshift({"dump", folder_, "--flight-recorder", WriteFile("file", "text") + "/fr"});
  EXPECT_NE(outcome.code, kExitOk);
  EXPECT_THAT(outcome.err, HasSubstr("/file/fr"));
}

// Python's own pickle reads the fields that PyTorch's analyser reads first.
TEST_F(DumpCommandTest, FlightRecordsArePickles) {
  for (int64_t rank = 0; rank < 4; ++rank) Write(MakeTestDump({}, rank));
  const std::string out = folder_ + "/fr";
  ASSERT_EQ(Meshift({"dump", folder_, "--flight-recorder", out}).code, kExitOk);
  const std::string command =
      "python3 -c \"import pickle; r = pickle.load(open('" + out +
      "/meshift_rank_1', 'rb')); e = r['entries']; print(sorted(r), r['version'], len(e), "
      "e[0]['state'], e[-1]['state'], e[-1]['profiling_name'], e[-1]['input_sizes'])\"";
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char text[1000] = {};
  const size_t size = fread(text, 1, sizeof(text) - 1, pipe);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(std::string(text, size),
            "['entries', 'pg_config', 'pg_status', 'version'] 2.10 10 completed started "
            "nccl:all_reduce [[8]]\n");
}

// A link, or a FIFO without a reader, in the place of a record: nothing is written at all.
TEST_F(DumpCommandTest, FlightRecordsReplaceOnlyFiles) {
  for (int64_t rank = 0; rank < 4; ++rank) Write(MakeTestDump({}, rank));
  const std::string out = folder_ + "/fr";
  std::filesystem::create_directory(out);
  const std::string other = WriteFile("other", "text");
  std::filesystem::create_symlink(other, out + "/meshift_rank_1");
  Outcome outcome = Meshift({"dump", folder_, "--flight-recorder", out});
  EXPECT_NE(outcome.code, kExitOk);
  EXPECT_THAT(outcome.err, HasSubstr("/fr/meshift_rank_1: cannot be written: a symbolic link"));
  EXPECT_EQ(std::filesystem::file_size(other), 4);
  std::filesystem::remove(out + "/meshift_rank_1");
  ASSERT_EQ(mkfifo((out + "/meshift_rank_1").c_str(), 0600), 0);
  outcome = Meshift({"dump", folder_, "--flight-recorder", out});
  EXPECT_THAT(outcome.err, HasSubstr("/fr/meshift_rank_1: cannot be written: "));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out), {}), 1);
}

TEST_F(DumpCommandTest, NamesRanksThatDisagree) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    Dump dump = MakeTestDump({}, rank);
    if (rank == 3) dump.calls.back().text = dump.calls[dump.calls.size() - 2].text;
    Write(dump);
  }
  const Outcome outcome = Meshift({"dump", folder_});
  EXPECT_THAT(outcome.out, HasSubstr("DISAGREE: call 9 of the redistributor of ranks 0-3 #0:\n"
                                     "  ranks 0-2: plan of all_reduce\n"
                                     "  rank 3: plan of reduce_scatter\n"));
}

TEST_F(DumpCommandTest, TellsWhereEachRankIs) {
  for (int64_t rank = 0; rank < 40; ++rank) {
    Dump dump = MakeTestDump({.num_ranks = 40, .late = rank < 20 ? rank : -1}, rank);
    if (rank == 30) dump.calls.back().state = CallState::kIssuing;
    if (rank == 31) {
      dump.calls.back().state = CallState::kEnded;
      dump.calls.back().ended_ns = dump.now_ns;
    }
    if (rank == 32) dump.calls.back().started_ns = -1;
    Write(dump);
  }
  const Outcome outcome = Meshift({"dump", folder_});
  EXPECT_THAT(outcome.out, HasSubstr("  LATE: rank 15 has not made this call"));
  EXPECT_THAT(outcome.out, HasSubstr("  also LATE: ranks 16-19\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("  HELD: rank 32: made the call, and waits for earlier work on "
                        "its own streams\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  still inside the call that issues it: rank 30\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  past it: rank 31\n"));
}

}  // namespace
}  // namespace meshift::cli

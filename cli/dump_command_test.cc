// `meshift dump` through its command line: the report of a job's records, and errors for folders
// and files that have none.
#include "cli/dump_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
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
  EXPECT_EQ(
      outcome,
      (Outcome{kExitOk,
               "records of 4 of 4 ranks\n"
               "first error: rank 0, 2026-09-21 14:13:20.000 UTC: DEADLINE_EXCEEDED: call 9 "
               "has not ended for 1000 ms\n"
               "call 9 of the redistributor of ranks 0-3 #0: plan of all_reduce\n"
               "  its groups: {0-3}\n"
               "  LATE: rank 2 has not made this call, only 9 calls before it, the last of which "
               "ended at 2026-09-21 14:13:19.982 UTC\n"
               "  in it: 3 ranks of 4, since 2026-09-21 14:13:19.991 UTC: ranks 0-1,3\n",
               ""}));
}

TEST_F(DumpCommandTest, NamesWhoLeftNoRecord) {
  for (int64_t rank = 0; rank < 3; ++rank) Write(MakeTestDump({}, rank));
  const Outcome outcome = Meshift({"dump", folder_});
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_THAT(outcome.out, StartsWith("records of 3 of 4 ranks; none of rank 3\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  NO RECORD: rank 3: stopped, gone, or on a host whose"));
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

}  // namespace
}  // namespace meshift::cli

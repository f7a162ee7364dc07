#include "cli/explain_collective.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/test_util.h"

namespace meshift::cli {
namespace {

Outcome Explain(const std::string& collective, const std::string& bytes,
                const std::string& topology, const std::string& mesh,
                const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {"explain",    "--collective", collective, "--bytes", bytes,
                                   "--topology", topology,       "--mesh",   mesh};
  args.insert(args.end(), more.begin(), more.end());
  return Meshift(args);
}

TEST(ExplainCollective, AnswersForAnAllReduce) {
  EXPECT_EQ(Explain("all_reduce", "64MiB", "h100", "a=64"),
            (Outcome{0, R"(# meshift explain: all_reduce of 64 MiB
)",
                     ""}));
}

TEST(ExplainCollective, ComparesAGatherWithMessages) {
  EXPECT_EQ(Explain("all_gather", "256KiB", "b200-ndr", "a=16"),
            (Outcome{0, R"(# meshift explain: all_gather of 256 KiB
)",
                     ""}));
}

// Of two groups that run at once, each has four ranks of each domain.
TEST(ExplainCollective, AnswersForGroupsOverSomeDims) {
  EXPECT_EQ(Explain("alltoall", "64MiB", "b200-ndr", "a=16,b=2", {"--dims", "a"}),
            (Outcome{0, R"(# meshift explain: all_to_all of 64 MiB
)",
                     ""}));
}

TEST(ExplainCollective, HasJson) {
  EXPECT_EQ(
      Explain("reduce_scatter", "1GiB", "flat", "a=16,b=2", {"--dims", "b,a", "--format", "json"}),
      (Outcome{0, R"({"format"
)",
               ""}));
  const Outcome all_reduce = Explain("all_reduce", "64MiB", "h100", "a=64", {"--format", "json"});
  EXPECT_NE(
      all_reduce.out.find(R"("instead":{"calls":"reduce_scatter + all_gather","est_ns":964400})"),
      std::string::npos)
      << all_reduce;
}

// The choice that is named for a size is the choice there, and another one byte before it.
TEST(ExplainCollective, ChangesWhereItSays) {
  EXPECT_NE(Explain("all_reduce", "64MiB", "h100", "a=64", {"--format", "json"})
                .out.find(R"("above":{"bytes":257359873,"algorithm":"in-switch")"),
            std::string::npos);
  EXPECT_NE(Explain("all_reduce", "257359873", "h100", "a=64").out.find(" by in-switch, Simple: "),
            std::string::npos);
  EXPECT_NE(Explain("all_reduce", "257359872", "h100", "a=64").out.find(" by tree, LL128: "),
            std::string::npos);
}

// Ranks that are listed lie as those of a mesh in order do.
TEST(ExplainCollective, ListedRanksLieWhereTheyAre) {
  const std::string in_order = Explain("all_reduce", "1GiB", "h100", "a=16").out;
  const std::string listed = Explain("all_reduce", "1GiB", "h100", "a=16@8-15,0-7").out;
  EXPECT_EQ(in_order.substr(in_order.find("\nest")), listed.substr(listed.find("\nest")));
}

TEST(ExplainCollective, RefusesWhatItDoesNotTake) {
  const auto error = [](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"explain"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = Meshift(args);
    EXPECT_EQ(outcome.code, 2) << outcome;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_EQ(error({"--collective", "broadcast", "--bytes", "4", "--mesh", "a=2"}),
            "meshift: --collective: unknown collective \"broadcast\"; known are all_reduce, "
            "all_gather, reduce_scatter, all_to_all\n");
  EXPECT_EQ(error({"--collective", "all_reduce", "--mesh", "a=2"}),
            "meshift: --bytes is missing\n");
  EXPECT_EQ(error({"--collective", "all_reduce", "--bytes", "4"}), "meshift: --mesh is missing\n");
  EXPECT_EQ(error({"--collective", "all_reduce", "--bytes", "0", "--mesh", "a=2"}),
            "meshift: --bytes is 0; it must be 1 or more\n");
  EXPECT_EQ(error({"--collective", "all_reduce", "--bytes", "4 parsecs", "--mesh", "a=2"})
                .find("meshift: --bytes: "),
            0);
  EXPECT_EQ(error({"--collective", "all_reduce", "--bytes", "4", "--mesh", "a=1"}),
            "meshift: the group has 1 rank; a collective needs 2 or more\n");
  EXPECT_EQ(error({"--collective", "all_reduce", "--bytes", "4", "--mesh", "a=2", "--dims", "b"}),
            "meshift: --dims: mesh a=2 has no dim \"b\"\n");
  EXPECT_EQ(error({"--collective", "all_reduce", "--bytes", "4", "--mesh", "a=2", "--dims", "a,a"}),
            "meshift: --dims: \"a\" is named twice\n");
  for (const char* option : {"--tensor", "--from", "--to", "--to-mesh", "--promise"}) {
    EXPECT_EQ(error({"--collective", "all_reduce", "--bytes", "4", "--mesh", "a=2", option, "R"}),
              std::string("meshift: ") + option + " and --collective exclude each other\n");
  }
  EXPECT_EQ(error({"--collective", "all_reduce", "--bytes", "4", "--alternatives", "2"}),
            "meshift: --alternatives and --collective exclude each other\n");
}

// Lists of ranks are not made without limit.
TEST(ExplainCollective, LimitsItsWork) {
  const Outcome outcome = Explain("all_reduce", "4", "h100", "a=2147483646@1-2147483646");
  EXPECT_EQ(outcome.code, 1) << outcome;
  EXPECT_NE(outcome.err.find("listing the groups takes more work than max_work"), std::string::npos)
      << outcome;
}

}  // namespace
}  // namespace meshift::cli

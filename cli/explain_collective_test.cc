#include "cli/explain_collective.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/internal/command.h"

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
# mesh a=64 (64 ranks), groups 1 x 64
# topology h100
est 533.518 us by tree, LL128: algbw 125.79 GB/s, busbw 247.64 GB/s
limited by nvlink: 397.518 us of 533.518 us
# by                       est  starts    hops  messages        links  the slowest links
tree, LL128         533.518 us   34 us  102 us      0 ns   397.518 us  nvlink
in-switch, Simple   669.526 us   60 us  260 us      0 ns   349.526 us  net, 8 links per group and domain
tree, Simple        680.716 us   60 us  255 us      0 ns   365.716 us  nvlink
ring, LL128         819.307 us   34 us  394 us      0 ns   391.307 us  nvlink
ring, Simple       1.405002 ms   60 us  985 us      0 ns   360.002 us  nvlink
tree, LL           2.973712 ms   10 us   51 us      0 ns  2.912712 ms  net, 8 links per group and domain
ring, LL             3.0742 ms   10 us  197 us      0 ns    2.8672 ms  net, 8 links per group and domain
reduce_scatter + all_gather instead: est 883.308 us, 349.79 us more
up to 1.9 MiB: tree, LL
from 245.4 MiB on: in-switch, Simple
)",
                     ""}));
}

TEST(ExplainCollective, ComparesAGatherWithMessages) {
  EXPECT_EQ(Explain("all_gather", "256KiB", "b200-ndr", "a=16"),
            (Outcome{0, R"(# meshift explain: all_gather of 256 KiB
# mesh a=16 (16 ranks), groups 1 x 16
# topology b200
est 49.334 us by ring, LL: algbw 5.31 GB/s, busbw 4.98 GB/s
limited by start and hops: 44 us of 49.334 us
# by                 est  starts    hops  messages     links  the slowest links
ring, LL       49.334 us   10 us   34 us      0 ns  5.334 us  net, 8 links per group and domain
ring, LL128   102.696 us   34 us   68 us      0 ns    696 ns  net, 8 links per group and domain
ring, Simple   230.64 us   60 us  170 us      0 ns    640 ns  net, 8 links per group and domain
messages to all others instead: est 43.603 us, 5.731 us less
from 3.1 MiB on: ring, LL128
)",
                     ""}));
}

// Two groups run at once, each with four ranks of each domain.
TEST(ExplainCollective, AnswersForGroupsOverSomeDims) {
  EXPECT_EQ(Explain("alltoall", "64MiB", "b200-ndr", "a=16,b=2", {"--dims", "a"}),
            (Outcome{0, R"(# meshift explain: all_to_all of 64 MiB
# mesh a=16,b=2 (32 ranks), groups 2 x 16
# topology b200
est 2.258968 ms by direct, LL128: algbw 29.71 GB/s, busbw 27.85 GB/s
limited by net, 4 links per group and domain: 2.169468 ms of 2.258968 ms
# by                    est  starts    hops  messages        links  the slowest links
direct, LL128   2.258968 ms   34 us   54 us    1.5 us  2.169468 ms  net, 4 links per group and domain
direct, Simple  2.365968 ms   60 us  135 us    1.5 us  2.169468 ms  net, 4 links per group and domain
direct, LL      3.533754 ms   10 us   27 us    1.5 us  3.495254 ms  net, 4 links per group and domain
up to 2.5 MiB: direct, LL
)",
                     ""}));
}

TEST(ExplainCollective, HasJson) {
  EXPECT_EQ(
      Explain("reduce_scatter", "1GiB", "flat", "a=16,b=2", {"--dims", "b,a", "--format", "json"}),
      (Outcome{
          0,
          R"({"format":"meshift.collective","version":1,"collective":"reduce_scatter","bytes":1073741824,"mesh":"a=16,b=2","group_size":32,"groups":1,"topology":"flat","algorithm":"ring","protocol":null,"est_ns":2904410,"starts_ns":10000,"hops_ns":5000,"messages_ns":0,"links_ns":2889410,"slowest_links":"flat","links_per_domain":null,"limited_by":"links","algbw_gb_per_s":369.6936121277643,"busbw_gb_per_s":358.14068674877166,"variants":[{"algorithm":"ring","protocol":null,"est_ns":2904410,"starts_ns":10000,"hops_ns":5000,"messages_ns":0,"links_ns":2889410,"slowest_links":"flat","links_per_domain":null}],"instead":null,"below":null,"above":null}
)",
          ""}));
  const Outcome all_reduce = Explain("all_reduce", "64MiB", "h100", "a=64", {"--format", "json"});
  EXPECT_NE(
      all_reduce.out.find(R"("instead":{"calls":"reduce_scatter + all_gather","est_ns":883308})"),
      std::string::npos)
      << all_reduce;
}

// The variant named for a size is the fastest there, and another is one byte before.
TEST(ExplainCollective, ChangesWhereItSays) {
  EXPECT_NE(Explain("all_reduce", "64MiB", "h100", "a=64", {"--format", "json"})
                .out.find(R"("above":{"bytes":257293916,"algorithm":"in-switch")"),
            std::string::npos);
  EXPECT_NE(Explain("all_reduce", "257293916", "h100", "a=64").out.find(" by in-switch, Simple: "),
            std::string::npos);
  EXPECT_NE(Explain("all_reduce", "257293915", "h100", "a=64").out.find(" by tree, LL128: "),
            std::string::npos);
}

// A mesh with listed ranks has the same groups as a mesh in order.
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
            "meshift: --collective: unknown collective \"broadcast\"; expected one of "
            "all_reduce, all_gather, reduce_scatter, all_to_all\n");
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

// Listing ranks is limited.
TEST(ExplainCollective, LimitsItsWork) {
  const Outcome outcome = Explain("all_reduce", "4", "h100", "a=2147483646@1-2147483646");
  EXPECT_EQ(outcome.code, 1) << outcome;
  EXPECT_NE(outcome.err.find("listing the groups takes more work than max_work"), std::string::npos)
      << outcome;
}

}  // namespace
}  // namespace meshift::cli

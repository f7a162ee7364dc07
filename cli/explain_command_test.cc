#include "cli/explain_command.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

std::vector<std::string> Args(const std::string& tensor,
                              const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {
      "explain", "--mesh", "ddp=8,fsdp=5,tp=1", "--tensor", tensor, "--from", "P,P,R",
      "--to",    "R,R,R",  "--topology",        "nvlink=8"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// 1 KiB, 1 MiB and 1 GiB on jagged groups: the all-reduce over a flattened group, and the three
// collectives without one, each with its numbers.
TEST(Explain, SetsPlansBesideEachOther) {
  for (const char* tensor : {"f32[256]", "f32[512,512]", "f32[16384,16384]"}) {
    const Outcome outcome = Meshift(Args(tensor));
    EXPECT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out.find("# meshift explain: "), 0u) << outcome;
    EXPECT_NE(outcome.out.find("\n[1] best: est "), std::string::npos) << outcome;
    EXPECT_GT(Count(outcome.out, "all_reduce  ddp,fsdp   1 x 40  R,R,R "), 0) << outcome;
    EXPECT_NE(outcome.out.find(" more ("), std::string::npos) << outcome;
    EXPECT_NE(outcome.out.find("] per-dim: est "), std::string::npos) << outcome;
    EXPECT_NE(outcome.out.find("keeps no promise"), std::string::npos) << outcome;
  }
}

// The parts show why one of two plans with equal bytes is slower: blocks of 40 parts are padded and
// packed. NVSwitch adds contributions up, so one all_reduce sends fewer bytes on NVLink.
TEST(Explain, SaysWhatTheDifferenceIsMadeOf) {
  const Outcome outcome = Meshift(Args("f32[16384,16384]"));
  const std::string two = R"(
2.088648 ms more (+35 %): 1 more collective, sends 127795 B more; time difference by part: copies 1.475538 ms, hops 440 us, links 113.11 us, starts 60 us
# step  op              mesh dims  groups  after               in        out         sent          est  how
0       reduce_scatter  ddp,fsdp   1 x 40  S(0),S(1),R      1 GiB  26216 KiB  1022424 KiB  4.000527 ms  sum f32 padded dims=0,1
1       all_gather      ddp,fsdp   1 x 40  R,R,R        26216 KiB      1 GiB  1022424 KiB  4.000527 ms  f32 padded dims=0,1
# of it  by            starts    hops  messages        links      copies  the slowest links
0        ring, Simple   60 us  350 us      0 ns  2.852758 ms  737.769 us  nvlink
1        ring, Simple   60 us  350 us      0 ns  2.852758 ms  737.769 us  nvlink
)";
  EXPECT_NE(outcome.out.find(two), std::string::npos) << outcome;
  EXPECT_NE(outcome.out.find("0        in-switch, Simple   60 us  260 us      0 ns  5.592406 ms    "
                             "0 ns  net, 8 links per group and domain\n"),
            std::string::npos)
      << outcome;
  const Outcome json = Meshift(Args("f32[16384,16384]", {"--format", "json"}));
  EXPECT_GT(
      Count(
          json.out,
          R"("links_ns":2852758,"copies_ns":737769,)"
          R"("algorithm":"ring","protocol":"Simple","slowest_links":"nvlink","links_per_domain":null})"),
      0)
      << json;
}

// A crossing to another mesh has parts too.
TEST(Explain, SaysWhatACrossingIsMadeOf) {
  std::vector<std::string> args = {
      "explain",  "--mesh",       "a=4,b=2", "--to-mesh",      "c=8@8-15",
      "--tensor", "f32[512,512]", "--from",  "P,S(0)",         "--to",
      "S(1)",     "--topology",   "h100",    "--alternatives", "1"};
  const Outcome outcome = Meshift(args);
  EXPECT_NE(outcome.out.find(R"(
# of it  by          starts   hops  messages     links    copies  the slowest links
0        ring, LL     10 us   3 us      0 ns  3.572 us      0 ns  nvlink
1        direct, LL   10 us  23 us    800 ns  9.103 us  2.088 us  net
)"),
            std::string::npos)
      << outcome;
  EXPECT_NE(
      outcome.out.find("sends 384 KiB more; time difference by part: links 3.571 us, hops 3 us, "
                       "messages -600 ns\n"),
      std::string::npos)
      << outcome;
  args.insert(args.end(), {"--format", "json"});
  EXPECT_NE(Meshift(args).out.find(R"("algorithm":"direct","protocol":"LL",)"
                                   R"("slowest_links":"net","links_per_domain":null})"),
            std::string::npos)
      << Meshift(args);
}

// Without protocols only the algorithm is named; a crossing without messages has neither.
TEST(Explain, NamesWhatThereIs) {
  const Outcome plain = Meshift({"explain", "--mesh", "a=4", "--tensor", "f32[4096]", "--from", "P",
                                 "--to", "R", "--format", "json", "--alternatives", "0"});
  EXPECT_GT(Count(plain.out, R"("algorithm":"ring","protocol":null)"), 0) << plain;
  const std::vector<std::string> still = {
      "explain", "--mesh", "a=4",  "--to-mesh",      "b=4", "--tensor", "f32[4096]", "--from",
      "S(0)",    "--to",   "S(0)", "--alternatives", "0"};
  EXPECT_EQ(Count(Meshift(still).out, "direct"), 0) << Meshift(still);
}

TEST(Explain, ListsAsManyAsAskedFor) {
  EXPECT_EQ(Count(Meshift(Args("f32[256]", {"--alternatives", "3"})).out, "] costs more: "), 3);
  EXPECT_EQ(Count(Meshift(Args("f32[256]", {"--alternatives", "0"})).out, "] costs more: "), 0);
}

TEST(Explain, JsonHasOnePlanPerLineThatCheckReads) {
  const Outcome outcome = Meshift(Args("f32[256]", {"--format", "json", "--alternatives", "4"}));
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Count(outcome.out, "\n"), 6);  // the best, four others, per-dim
  const Outcome check = Meshift({"check", "--batch", "-"}, outcome.out);
  EXPECT_EQ(Count(check.out, "\"ok\":true"), 6) << check;
}

// The per-dim plan is cheaper here; both forms say why the planner does not choose it.
TEST(Explain, NamesTheValueThatIsTooLargeOnTheWay) {
  std::vector<std::string> args = {
      "explain",         "--mesh",     "a=2,b=2,c=4", "--tensor",    "f32[9,24]",
      "--from",          "R,R,S(0)",   "--to",        "R,S(0),S(0)", "--topology",
      "nvlink=2,rail=6", "--to-dtype", "bf16",        "--max-value", "288"};
  const std::string rule =
      "; but the intermediate value R,R,R in bf16 takes 432 B, more than max_value (288 B)";
  // For the excluded plan and the per-dim one.
  EXPECT_EQ(Count(Meshift(args).out, rule + "\n"), 2) << Meshift(args);
  EXPECT_EQ(Count(Meshift(args).out, "] holds too much: "), 1) << Meshift(args);
  args.insert(args.end(), {"--format", "json"});
  EXPECT_EQ(Count(Meshift(args).out, rule + "\""), 2) << Meshift(args);
}

TEST(Explain, RefusesWhatItDoesNotTake) {
  EXPECT_EQ(Meshift(Args("f32[4]", {"--format", "xml"})).code, 2);
  EXPECT_EQ(Meshift(Args("f32[4]", {"--alternatives", "-1"})).code, 2);
  EXPECT_EQ(Meshift(Args("f32[4]", {"--bytes", "4"})).err, "meshift: --bytes needs --collective\n");
  EXPECT_EQ(Meshift(Args("f32[4]", {"--dims", "ddp"})).err, "meshift: --dims needs --collective\n");
  EXPECT_EQ(Meshift(Args("f32[4]", {"--planner", "best"})).code, 2);
  EXPECT_EQ(Meshift({"explain", "--model", "m.json"}).code, 2);
}

}  // namespace
}  // namespace meshift::cli

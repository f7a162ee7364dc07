#include "testing/fake_gpu/tuning.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <map>
#include <string>

#include "testing/fake_gpu/message.h"

namespace meshift::fake {
namespace {

using Variables = std::map<std::string, std::string>;

// The tuning with these variables set, for a communicator that asks for this many CTAs (0: unset).
Tuning Tune(const Variables& variables, int min_ctas = 1, int max_ctas = 1) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (min_ctas > 0) config.minCTAs = min_ctas;
  if (max_ctas > 0) config.maxCTAs = max_ctas;
  Tuning tuning = TuneByEnvironment(config);
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return tuning;
}

int Channels(Variables variables, int min_ctas = 1, int max_ctas = 1) {
  variables["NCCL_NVLS_ENABLE"] = "0";
  return Tune(variables, min_ctas, max_ctas).channels;
}

// The expected values were measured on NCCL 2.28.9.
TEST(TuningTest, ChannelsFollowTheEnvironmentAndThenTheConfiguration) {
  EXPECT_EQ(Channels({}, 0, 0), kSearchedChannels);
  EXPECT_EQ(Channels({}), 1);
  EXPECT_EQ(Channels({}, 24, 32), 24);
  EXPECT_EQ(Channels({{"NCCL_MAX_CTAS", "16"}}), 16);
  EXPECT_EQ(Channels({{"NCCL_MIN_NRINGS", "4"}}), 4);
  EXPECT_EQ(Channels({{"NCCL_MIN_NCHANNELS", "4"}}), 4);
}

TEST(TuningTest, ChannelsByTheFormula) {
  EXPECT_EQ(Channels({{"NCCL_MIN_NRINGS", "4"}, {"NCCL_MIN_NCHANNELS", "2"}}), 2);
  EXPECT_EQ(Channels({{"NCCL_MIN_CTAS", "4"}}), 1);  // no more than the most
  EXPECT_EQ(Channels({{"NCCL_MIN_CTAS", "24"}, {"NCCL_MAX_CTAS", "32"}}), 24);
  EXPECT_EQ(Channels({{"NCCL_MAX_CTAS", "16"}, {"NCCL_MAX_NRINGS", "2"}}), 2);
  EXPECT_EQ(Channels({{"NCCL_MAX_NCHANNELS", "1"}, {"NCCL_MIN_NCHANNELS", "8"}}), 8);
  EXPECT_EQ(Channels({{"NCCL_MAX_NCHANNELS", "0"}}, 0, 0), 1);
  EXPECT_EQ(Channels({{"NCCL_MIN_NCHANNELS", "1000"}}), kMaxChannels);
  // Numbers are parsed as by strtoll.
  EXPECT_EQ(Channels({{"NCCL_MAX_CTAS", "0x10"}}), 16);
  EXPECT_EQ(Channels({{"NCCL_MIN_NRINGS", "4 of them"}}), 4);
  EXPECT_EQ(Channels({{"NCCL_MAX_CTAS", "0"}}), 1);
  EXPECT_EQ(Channels({{"NCCL_MAX_CTAS", ""}}), 1);
  // NVLS duplicates channels until it has enough.
  EXPECT_EQ(Tune({}).channels, kNvlsChannels);
}

TEST(TuningTest, ListsApplyToTheFunctionsThatTheyName) {
  const Variables no_nvls = {{"NCCL_NVLS_ENABLE", "0"}};
  const auto without = [&](const std::string& algorithms, const std::string& protocols = "") {
    Variables variables = no_nvls;
    if (!algorithms.empty()) variables["NCCL_ALGO"] = algorithms;
    if (!protocols.empty()) variables["NCCL_PROTO"] = protocols;
    const Tuning tuning = Tune(variables);
    EXPECT_EQ(tuning.refused, "") << algorithms << protocols;
    std::string letters;
    const std::map<OpKind, char> all = {{OpKind::kAllReduce, 'a'},
                                        {OpKind::kAllGather, 'g'},
                                        {OpKind::kReduceScatter, 's'},
                                        {OpKind::kBroadcast, 'b'},
                                        {OpKind::kReduce, 'r'}};
    for (const auto& [kind, letter] : all) {
      if (!tuning.HasAlgorithm(kind)) letters += letter;
    }
    return letters;
  };
  EXPECT_EQ(without(""), "");
  EXPECT_EQ(without("Tree"), "sgbr");
  EXPECT_EQ(without("allreduce:tree"), "");
  EXPECT_EQ(without("ring,tree;allreduce:tree"), "");
  EXPECT_EQ(without("^ring"), "sgbr");
  EXPECT_EQ(without("^tree;broadcast:tree"), "b");
  EXPECT_EQ(without("NVLS"), "asgbr");
  EXPECT_EQ(without("", "Simple"), "");
  EXPECT_EQ(without("", "allgather:^LL,LL128,Simple"), "g");
  EXPECT_EQ(without("allgather:PAT"), "g");
  EXPECT_EQ(Tune({{"NCCL_ALGO", "NVLS"}}).HasAlgorithm(OpKind::kAllGather), true);
  EXPECT_EQ(Tune({{"NCCL_ALGO", "allgather:PAT"}, {"NCCL_PAT_ENABLE", "1"}})
                .HasAlgorithm(OpKind::kAllGather),
            true);
}

TEST(TuningTest, TreesWhereNothingElseMayReduce) {
  Variables variables = {{"NCCL_NVLS_ENABLE", "0"}};
  EXPECT_EQ(Tune(variables).trees, 0);
  variables["NCCL_ALGO"] = "allreduce:tree";
  EXPECT_EQ(Tune(variables).trees, 1);
  variables["NCCL_MAX_CTAS"] = "16";
  EXPECT_EQ(Tune(variables).trees, 16);
  variables["NCCL_ALGO"] = "allreduce:tree,ring";
  EXPECT_EQ(Tune(variables).trees, 0);
}

TEST(TuningTest, ListsThatNcclRefuses) {
  EXPECT_EQ(Tune({{"NCCL_ALGO", "tre"}}).refused,
            "Unrecognized element token \"tre\" when parsing \"tre\"");
  EXPECT_EQ(Tune({{"NCCL_ALGO", "reduce_scatter:ring"}}).refused,
            "Unrecognized prefix token \"reduce_scatter\" when parsing \"reduce_scatter:ring\"");
  EXPECT_EQ(Tune({{"NCCL_PROTO", "allreduce:LL;Simple"}}).refused,
            "All entries except the first must have a prefix: \"allreduce:LL;Simple\"");
  EXPECT_EQ(Tune({{"NCCL_ALGO", "allreduce:tree;"}}).refused, "");
}

}  // namespace
}  // namespace meshift::fake

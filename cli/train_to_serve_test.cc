// The rules for DeepSeek-V3 of examples/, from a trainer of 2,048 ranks to a server of 256, at full
// sizes: the parameters of one dense layer, one sparse layer, and the embedding.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

// The line of `text` that starts with `start`.
std::string Line(const std::string& text, const std::string& start) {
  const size_t at = ("\n" + text).find("\n" + start);
  if (at == std::string::npos) return "no line '" + start + "' in:\n" + text;
  return text.substr(at, text.find('\n', at) - at);
}

std::vector<std::string> Args(const std::string& filter, const std::string& server) {
  return {"plan",
          "--model",
          RealPath("examples/models/deepseek-v3.json"),
          "--rules",
          RealPath("examples/models/deepseek-v3.train-to-serve.json"),
          "--filter",
          filter,
          "--mesh",
          "ep=64,fsdp=32",
          "--to-mesh",
          server,
          "--topology",
          "nvlink=8"};
}

TEST(TrainToServe, ExpertsGoToTheirRanks) {
  // Expert 7 of every layer has three matrices of bf16, 14 MiB each; it moves from 32 ranks to one.
  const Outcome outcome = Meshift(Args("model.layers.*.mlp.experts.7.*", "dp=32,tp=8@2048-2303"));
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(Line(outcome.out, "total").substr(0, 40), "total: 174 parameters, 2 distinct plans,");
  EXPECT_EQ(Line(outcome.out, "116 ").substr(0, 73),
            "116      bf16[2048,7168]  EP,S(0)  EP,EP  exchange{onto mesh 1}  896 KiB ");
  // Expert 7 is on the trainer's ranks 32..63 (ep=1), each of which sends a 32nd: 58 * 3 * 896 KiB.
  EXPECT_EQ(Line(outcome.out, "over net"),
            "over net: 4.8 GiB in all, 152.2 MiB by the busiest, rank 32");
}

TEST(TrainToServe, TheRestGoesToTensorParallelism) {
  for (const char* server : {"dp=32,tp=8@2048-2303", "dp=32,tp=8"}) {
    const Outcome outcome = Meshift(Args("model.layers.3.self_attn.*", server));
    ASSERT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(Line(outcome.out, "promise"),
              "promise replicas: kept (by the plans of all 7 parameters)");
    // Each row crosses once; then the 8 replicas gather it on the server's side, over NVLink.
    EXPECT_NE(outcome.out.find("exchange{onto mesh 1}; exchange{tp}"), std::string::npos)
        << outcome;
  }
}

}  // namespace
}  // namespace meshift::cli

// The rules of examples/models, from a trainer to a server, at full sizes: parts of a model tensor
// by tensor, and whole models together.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "meshift/plan.h"
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
  EXPECT_EQ(Line(outcome.out, "116 ").substr(0, 77),
            "116      bf16[2048,7168]  EP,S(0)  EP,EP  exchange{onto mesh 1}; gather{tp}  ");
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

Outcome Together(const std::vector<std::string>& args) {
  std::vector<std::string> all = {"plan", "--together", "--topology"};
  all.insert(all.end(), args.begin(), args.end());
  return Meshift(all);
}

// All parameters of a model in one update: the busiest link has no more to do than its bound, and
// every build chooses the same plans. The digest is that of the JSON; other costs may change it.
TEST(TrainToServe, WholeModelsKeepTheBusiestLinkAtItsBound) {
  struct Case {
    const char* model;
    const char* rules;
    const char* mesh;
    const char* to_mesh;
    const char* busiest;
    const char* digest;
  };
  for (const Case& c : {
           Case{"deepseek-v3", "deepseek-v3.train-to-serve", "ep=64,fsdp=32",
                "dp=32,tp=8@2048-2303",
                "2048 (received) 195.6 ms, bound 195.6 ms; starts 34.0 us, copies 198.2 us",
                "990d2ddd60598e1c879f4d157b5762c6"},
           Case{"deepseek-v3", "deepseek-v3.train-to-serve", "ep=64,fsdp=4", "dp=8,tp=8@256-319",
                "256 (received) 514.9 ms, bound 514.9 ms; starts 34.0 us, copies 216.1 us",
                "a3912f2cad33f6b07dc846414a98eed4"},
           Case{"deepseek-v3", "deepseek-v3.two-owners", "ep=64,fsdp=32", "dp=32,tp=8@2048-2303",
                "2048 (received) 302.0 ms, bound 302.0 ms; starts 34.0 us, copies 1.3 ms",
                "b028a8d4d973ab9648f5ca186e14cfc1"},
           Case{"llama3.1-405b", "llama3.1-405b.train-to-serve", "fsdp=16,tp=8",
                "rep=4,tp=8@128-159", "128 (received) 2.1 s, bound 2.1 s; starts 0 ns, copies 0 ns",
                "b30363ebc67a499d5cefbafa86706a40"},
       }) {
    const std::string folder = "examples/models/";
    std::vector<std::string> args = {"nvlink=8",
                                     "--model",
                                     RealPath(folder + c.model + ".json"),
                                     "--rules",
                                     RealPath(folder + c.rules + ".json"),
                                     "--mesh",
                                     c.mesh,
                                     "--to-mesh",
                                     c.to_mesh};
    const Outcome outcome = Together(args);
    ASSERT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(Line(outcome.out, "together"),
              std::string("together: busiest link net of rank ") + c.busiest)
        << c.rules << " to " << c.to_mesh;
    args.insert(args.end(), {"--format", "json"});
    EXPECT_EQ(Fingerprint::Of(Together(args).out).ToString(), c.digest)
        << c.rules << " to " << c.to_mesh;
  }
}

// The experts of one layer: no rank passes on what it does not hold in the end.
TEST(TrainToServe, ExpertsOfALayerGoStraight) {
  const std::string model = RealPath("examples/models/deepseek-v3.json");
  const std::string experts = "model.layers.3.mlp.experts.*";
  const Outcome cut =
      Together({"nvlink=8", "--model", model, "--rules",
                RealPath("examples/models/deepseek-v3.train-to-serve.json"), "--filter", experts,
                "--mesh", "ep=64,fsdp=4", "--to-mesh", "dp=8,tp=8@256-319"});
  EXPECT_EQ(Line(cut.out, "over net"), "over net: 21 GiB in all, 84 MiB by the busiest, rank 0")
      << cut;
  const Outcome whole =
      Together({"nvlink=4", "--model", model, "--filter", experts, "--from", "EP,EP", "--to",
                "R,EP", "--mesh", "pp=8,ep=4", "--to-mesh", "dp=4,ep=8@32-63"});
  EXPECT_EQ(Line(whole.out, "over net"), "over net: 84 GiB in all, 2.6 GiB by the busiest, rank 0")
      << whole;
}

}  // namespace
}  // namespace meshift::cli

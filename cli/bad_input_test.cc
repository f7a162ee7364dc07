// Bad input ends with one message that names the value and the rule, and with the right exit code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ios>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/io.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

using Args = std::vector<std::string>;

// Expects that `meshift ARGS` prints only the line "meshift: MESSAGE", on stderr.
void ExpectError(const Args& args, int code, const std::string& message,
                 const std::string& in = "") {
  EXPECT_EQ(Meshift(args, in), (Outcome{code, "", "meshift: " + message + "\n"}))
      << "meshift " << ::testing::PrintToString(args);
}

Args PlanArgs(const std::string& mesh, const std::string& tensor, const std::string& from,
              const std::string& to) {
  return {"plan", "--mesh", mesh, "--tensor", tensor, "--from", from, "--to", to};
}

TEST(BadInput, Timeouts) {
  for (const std::string value : {"0", "-1", "1.5", "31536001", "x", ""}) {
    ExpectError(
        {"run", "--timeout", value}, 2,
        "--timeout: '" + value + "' is not a number in 1..31536000; --help lists the options");
  }
  const Args run = {"run", "--mesh", "a=2", "--tensor", "f32[4]", "--from", "P", "--to", "R"};
  ASSERT_EQ(setenv("MESHIFT_TIMEOUT_S", "5 s", 1), 0);
  ExpectError(run, 2, "MESHIFT_TIMEOUT_S is '5 s', not a number of seconds in 1..31536000");
  ASSERT_EQ(setenv("MESHIFT_TIMEOUT_S", "5", 1), 0);
  EXPECT_EQ(Meshift(run).code, 0);
  ASSERT_EQ(unsetenv("MESHIFT_TIMEOUT_S"), 0);
}

TEST(BadInput, Tensors) {
  const struct {
    const char* tensor;
    const char* message;
  } cases[] = {
      {"f33[4]",
       "unknown dtype 'f33'; expected one of bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 "
       "f8e4m3 f8e5m2 "
       "f4e2m1 c64 c128"},
      {"f32[-4]", "f32[-4]: size -4 is negative"},
      {"f32[9223372036854775808]", "9223372036854775808 does not fit 64 bits"},
      {"f32[4294967296,4294967296]", "f32[4294967296,4294967296] has more than 2^63 - 1 elements"},
      {"f32[4611686018427387904]", "f32[4611686018427387904] has more than 2^63 - 1 bytes"},
      {"f32[4", "expected \"]\" at the end"},
      {"f32", "expected \"[\" at the end"},
      {"f32[4]x", "expected the end at \"x\""},
      {"f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
       "f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] has 17 dims; at most 16 are allowed"},
  };
  for (const auto& [tensor, message] : cases) {
    const std::string text = std::string("--tensor '") + tensor + "': " + message;
    ExpectError(PlanArgs("a=2", tensor, "R", "R"), 2, text);
    ExpectError({"run", "--mesh", "a=2", "--tensor", tensor, "--from", "R", "--to", "R"}, 2, text);
    ExpectError({"shards", "--mesh", "a=2", "--tensor", tensor, "--placements", "R"}, 2, text);
  }
}

TEST(BadInput, Meshes) {
  const struct {
    const char* mesh;
    const char* message;
  } cases[] = {
      {"", "mesh '': mesh dim '' is not name=size"},
      {"a", "mesh 'a': mesh dim 'a' is not name=size"},
      {"a=2,", "mesh 'a=2,': mesh dim '' is not name=size"},
      {"a=0", "mesh 'a=0': mesh dim 'a' has size 0; sizes are 1 or more"},
      {"a=-1", "mesh 'a=-1': size '-1' of mesh dim 'a' is not a number in 1..2147483647"},
      {"a=2,a=3", "mesh 'a=2,a=3': mesh dim 'a' is named twice"},
      {"2a=2", "mesh '2a=2': mesh dim name '2a' is not of the form [A-Za-z_][A-Za-z0-9_]*"},
      {"a=100000,b=100000",
       "mesh 'a=100000,b=100000': mesh dim 'b' of size 100000 makes the mesh larger than "
       "2147483647 ranks"},
      {"a=2@1,1", "mesh 'a=2@1,1': rank 1 appears twice in the mesh"},
      {"a=2@1,2,3", "mesh 'a=2@1,2,3': a mesh of 2 positions lists 3 ranks"},
      {"a=2@3-1", "mesh 'a=2@3-1': rank range '3-1' is descending"},
      {"a=2@", "mesh 'a=2@': '' is not a rank or a range of ranks such as 4-7"},
  };
  for (const auto& [mesh, message] : cases) {
    const std::string text = std::string("--mesh: ") + message;
    ExpectError(PlanArgs(mesh, "f32[4]", "R", "R"), 2, text);
    ExpectError({"shards", "--mesh", mesh, "--tensor", "f32[4]", "--placements", "R"}, 2, text);
  }
}

TEST(BadInput, Placements) {
  const struct {
    const char* tensor;
    const char* placements;
    const char* message;
  } cases[] = {
      {"f32[4]", "R",
       "the number of placements is 1; expected 2, one for each dim of mesh a=2,b=2"},
      {"f32[4]", "R,R,R",
       "the number of placements is 3; expected 2, one for each dim of mesh a=2,b=2"},
      {"f32[4]", "S(1),R", "Shard(1) is out of range for a rank-1 tensor"},
      {"f32[4]", "S(-2),R", "Shard(-2) is out of range for a rank-1 tensor"},
      {"f32[4]", "S(0", "placements \"S(0\": expected \")\" at the end"},
      {"f32[4]", "R,",
       "placements \"R,\": expected R, S(dim), P, P(op) or At(coordinates) at the end"},
      {"f32[4]", "", "placements \"\": expected R, S(dim), P, P(op) or At(coordinates) at the end"},
      {"f32[4]", "X,R",
       "placements \"X,R\": expected R, S(dim), P, P(op) or At(coordinates) at \"X,R\""},
      {"f32[4]", "TP,R",
       "placements \"TP,R\": expected R, S(dim), P, P(op) or At(coordinates) at \"TP,R\""},
      {"f32[4]", "P(median),R",
       "placements \"P(median),R\": unknown reduce op 'median'; expected one of: sum, avg, "
       "min, max, product, and, or, xor"},
      {"f32[4]", "P,P(max)",
       "Partial(sum) and Partial(max) in one tensor: only sum and avg may mix"},
      {"bool[4]", "P,R",
       "sum of bool is refused: bool allows only 'and', 'or', 'xor', 'min' and 'max'"},
      {"f32[8]", "S(0)[0],S(0)[0]",
       "S(0)[0]: the positions in the shard order of tensor dim 0 must be 0 to 1, each once"},
      {"f32[8]", "S(0){3,4},R", "S(0){3,4}: the sizes add up to 7, but tensor dim 0 has size 8"},
      {"f4e2m1[6]", "S(0),R", "f4e2m1[6]: mesh dim a cuts tensor dim 0 inside a byte"},
  };
  for (const auto& [tensor, placements, message] : cases) {
    ExpectError(PlanArgs("a=2,b=2", tensor, placements, "R,R"), 2,
                std::string("--from: ") + message);
    ExpectError(PlanArgs("a=2,b=2", tensor, "R,R", placements), 2, std::string("--to: ") + message);
    ExpectError({"shards", "--mesh", "a=2,b=2", "--tensor", tensor, "--placements", placements}, 2,
                std::string("--placements: ") + message);
  }
}

TEST(BadInput, TargetsThatCannotBeReached) {
  const struct {
    const char* from;
    const char* to;
    const char* message;
  } cases[] = {
      {"P(max)", "P",
       "P(max) -> P on mesh dim 'a': a partial value cannot change its op without being reduced"},
      {"S(0)", "P(avg)", "S(0) -> P(avg) on mesh dim 'a': a shard cannot become a partial average"},
      {"S(0){3,4}", "R", "--from: S(0){3,4}: the sizes add up to 7, but tensor dim 0 has size 8"},
      {"R", "S(0){3,4,1}", "--to: S(0){3,4,1} has 3 sizes for the 2 coordinates of mesh dim a"},
  };
  for (const auto& [from, to, message] : cases) {
    ExpectError(PlanArgs("a=2", "f32[8]", from, to), 2, message);
    ExpectError({"run", "--mesh", "a=2", "--tensor", "f32[8]", "--from", from, "--to", to}, 2,
                message);
  }
}

TEST(BadInput, OtherOptions) {
  const struct {
    Args more;
    const char* message;
  } cases[] = {
      {{"--topology", "nope"},
       "--topology: topology 'nope': 'nope' is neither name=size nor a preset (flat, a100-hdr, "
       "a100-ndr, a100-efa, a100-roce, h100-ndr, h100-efa, h100-roce, h200-ndr, h200-efa, "
       "h200-roce, b200-ndr, b200-efa, b200-roce, gb200-ndr, gb200-efa, gb200-roce, gb300-ndr, "
       "gb300-efa, gb300-roce; a GPU alone means its first preset)"},
      {{"--topology", "nvlink=0"},
       "--topology: topology 'nvlink=0': level 'nvlink' has domain size 0; it must be 1 or more "
       "below the last level"},
      {{"--reproducibility", "maybe"},
       "--reproducibility: unknown reproducibility 'maybe'; expected none, replicas, "
       "batch-invariant, ordered"},
      {{"--promise", "maybe"},
       "--promise: unknown reproducibility 'maybe'; expected none, replicas, batch-invariant, "
       "ordered"},
      {{"--promise", "none", "--reproducibility", "none"},
       "--promise excludes --reproducibility; --help lists the options"},
      {{"--reduce-block", "4"},
       "a --reduce-block of 4 needs reproducibility 'ordered'; it is 'replicas'"},
      {{"--reduce-block", "0"},
       "--reduce-block: '0' is not a number in 1..9223372036854775807; --help lists the options"},
      {{"--max-memory", "1 KB"},
       "--max-memory: '1 KB' is not a number of bytes below 2^63, such as 4096 or 1.5 GiB"},
      {{"--buffers", "heap"}, "--buffers: unknown buffer mode 'heap'; expected two, consumed, one"},
      {{"--existing-groups", "a;x"}, "--existing-groups: group 'x': mesh a=2 has no dim 'x'"},
      {{"--existing-groups", "a;"},
       "--existing-groups: 'a;' has an empty group; expected groups such as fsdp;ddp,fsdp"},
      {{"--existing-groups", ""},
       "--existing-groups: '' has an empty group; expected groups such as fsdp;ddp,fsdp"},
      {{"--existing-groups", "a,a"}, "--existing-groups: group 'a,a' has mesh dim a twice"},
      {{"--existing-groups", "1:a"},
       "--existing-groups: group '1:a' is of mesh 1; the plan has 1 mesh(es)"},
      {{"--max-communicators", "-1"},
       "--max-communicators: '-1' is not a number in 0..9223372036854775807; --help lists the "
       "options"},
      {{"--expected-uses", "0"},
       "--expected-uses: '0' is not a number in 1..9223372036854775807; --help lists the options"},
      {{"--max-communicators", ""},
       "--max-communicators: '' is not a number in 0..9223372036854775807; "
       "--help lists the options"},
      {{"--reduce-block", "0x10"},
       "--reduce-block: '0x10' is not a number in 1..9223372036854775807; "
       "--help lists the options"},
      {{"--expected-uses", "9223372036854775808"},
       "--expected-uses: '9223372036854775808' is not a number in "
       "1..9223372036854775807; --help lists the options"},
      {{"--planner", "magic"}, "--planner: unknown planner 'magic'; expected best, per-dim"},
      {{"--format", "yaml"}, "--format: unknown format 'yaml'; expected text or json"},
      {{"--filter", "*"}, "--filter needs --model"},
      {{"--together"}, "--together needs --model or --batch"},
      {{"--bucket", "1"}, "--bucket needs --model, or --batch and --together"},
      {{"--model", "m.json"}, "--tensor and --model exclude each other"},
      {{"--batch", "-"}, "--mesh and --batch exclude each other"},
      {{"--bogus"}, "The following argument was not expected: --bogus; --help lists the options"},
      {{"extra"}, "The following argument was not expected: extra; --help lists the options"},
      {{"extra", "--bogus", "x"},
       "The following arguments were not expected: extra --bogus x; --help lists the options"},
      {{"--mesh", "a=2"}, "--mesh has 2 values; expected at most 1; --help lists the options"},
  };
  for (const auto& [more, message] : cases) {
    Args args = PlanArgs("a=2", "f32[8]", "S(0)", "R");
    args.insert(args.end(), more.begin(), more.end());
    ExpectError(args, 2, message);
  }
  ExpectError({}, 2, "A subcommand is required; --help lists the options");
  ExpectError(
      {"fly"}, 2,
      "unknown command 'fly'; expected plan, explain, run, check, shards, env, calibrate, dump");
  ExpectError({"plan", "--mesh"}, 2, "--mesh needs a value; --help lists the options");
}

TEST(BadInput, MissingOptions) {
  const Args full = PlanArgs("a=2", "f32[8]", "S(0)", "R");
  for (size_t i = 1; i < full.size(); i += 2) {
    for (const char* verb : {"plan", "run"}) {
      Args args = full;
      args[0] = verb;
      args.erase(args.begin() + i, args.begin() + i + 2);
      ExpectError(args, 2, full[i] + " is missing");
    }
  }
  ExpectError({"shards", "--mesh", "a=2", "--tensor", "f32[8]"}, 2, "--placements is missing");
  ExpectError({"check"}, 2, "the plan file is missing");
  ExpectError({"check", "a.json", "--batch", "b.json"}, 2, "a.json and --batch exclude each other");
}

TEST(BadInput, OptionsOfRun) {
  const struct {
    Args more;
    const char* message;
  } cases[] = {
      {{"--cases", "5"}, "--cases and --ranks need --conformance"},
      {{"--cross"}, "--cross needs --conformance"},
      {{"--reduction-order", "random"},
       "--reduction-order: unknown order 'random'; expected ranks, topology or adversarial"},
      {{"--repeat", "0"},
       "--repeat: '0' is not a number in 1..1000000000; --help lists the options"},
      {{"--repeat", "9223372036854775807"},
       "--repeat: '9223372036854775807' is not a number in 1..1000000000; --help lists the "
       "options"},
      {{"--seed", "-1"},
       "--seed: '-1' is not a number in 0..18446744073709551615; --help lists the options"},
      {{"--load", ""}, "--load: the path is empty; --help lists the options"},
      {{"--save", ""}, "--save: the path is empty; --help lists the options"},
      {{"--plan", ""}, "--plan: the path is empty; --help lists the options"},
      {{"--plan", "plan.json"}, "--mesh and --plan exclude each other"},
  };
  for (const auto& [more, message] : cases) {
    Args args = PlanArgs("a=2", "f32[8]", "S(0)", "R");
    args[0] = "run";
    args.insert(args.end(), more.begin(), more.end());
    ExpectError(args, 2, message);
  }
  ExpectError({"run", "--plan", "plan.json", "--topology", "flat"}, 2,
              "--topology and --plan exclude each other");
}

// --conformance refuses options that it does not use.
TEST(BadInput, OptionsThatConformanceDoesNotTake) {
  for (const Args& more : std::vector<Args>{{"--mesh", "a=2"},
                                            {"--model", "m.json"},
                                            {"--topology", "flat"},
                                            {"--promise", "ordered"},
                                            {"--reproducibility", "ordered"},
                                            {"--reduce-block", "2"},
                                            {"--max-memory", "1KiB"},
                                            {"--buffers", "one"},
                                            {"--no-new-groups"},
                                            {"--existing-groups", "a"},
                                            {"--max-communicators", "2"},
                                            {"--expected-uses", "2"},
                                            {"--planner", "per-dim"},
                                            {"--ragged-sizes", "max"},
                                            {"--load", "x"},
                                            {"--repeat", "2"},
                                            {"--reduction-order", "topology"}}) {
    Args args = {"run", "--conformance"};
    args.insert(args.end(), more.begin(), more.end());
    ExpectError(args, 2, more[0] + " and --conformance exclude each other");
  }
}

TEST(BadInput, NumbersOfConformance) {
  const auto expect = [](const char* option, const char* value, const char* range) {
    ExpectError({"run", "--conformance", option, value}, 2,
                std::string(option) + ": '" + value + "' is not a number in " + range +
                    "; --help lists the options");
  };
  expect("--cases", "0", "1..1000000");
  expect("--cases", "9223372036854775807", "1..1000000");
  expect("--ranks", "1", "2..64");
  expect("--ranks", "65", "2..64");
}

TEST(BadInput, BytesThatAreNotUtf8AreEscaped) {
  ExpectError(PlanArgs("a=2", "f32[8\xfe]", "R", "R"), 2,
              R"(--tensor 'f32[8\xfe]': expected "]" at "\xfe]")");
  ExpectError({"check", "/no\xff/file"}, 3,
              R"(/no\xff/file: cannot be read: No such file or directory)");
  const std::string path = WriteFile("bytes.jsonl", "{\"id\": \"\xff\"}\n");
  const Outcome plan = Meshift({"plan", "--batch", path});
  EXPECT_EQ(plan.out,
            R"({"id":null,"error":{"code":"INVALID_ARGUMENT","message":"not one JSON value, )"
            R"(or truncated: {\"id\": \"\\xff\"}"}})"
            "\n");
  const Outcome check = Meshift({"check", "--batch", path});
  EXPECT_NE(check.out.find(R"(truncated: {\"id\": \"\\xff\"}")"), std::string::npos) << check;
}

TEST(BadInput, AnEmptyPathIsNoFile) {
  const auto expect = [](const Args& args, const char* option) {
    ExpectError(args, 2, std::string(option) + ": the path is empty; --help lists the options");
  };
  for (const char* option : {"--batch", "--model", "--rules"}) expect({"plan", option, ""}, option);
  expect({"check", "--batch", ""}, "--batch");
  expect({"check", "a.json", ""}, "files");
}

TEST(BadInput, FilesThatCannotBeRead) {
  const std::string missing = WriteFile("x", "") + ".gone";
  for (const Args& args : std::vector<Args>{{"check", missing},
                                            {"check", "--batch", missing},
                                            {"plan", "--batch", missing},
                                            {"plan", "--batch", missing, "--together"},
                                            {"run", "--plan", missing}}) {
    ExpectError(args, 3, missing + ": cannot be read: No such file or directory");
  }
  ExpectError({"check", "/tmp"}, 3, "/tmp: cannot be read: it is a folder");
  Args args = PlanArgs("a=2", "f32[8]", "S(0)", "R");
  args.insert(args.end(), {"--topology", missing + ".json"});
  ExpectError(args, 3, missing + ".json: cannot be read: No such file or directory");
}

TEST(BadInput, TopologyFiles) {
  Args args = PlanArgs("a=2", "f32[8]", "S(0)", "R");
  const std::string path = WriteFile("topology.json", "{\"levels\": 3}");
  args.insert(args.end(), {"--topology", path});
  ExpectError(args, 3, path + ": topology: 'levels' is 3; it must be an array");
}

TEST(BadInput, ModelFiles) {
  const auto args = [](const std::string& model) {
    return Args{"plan",   "--model", model,  "--mesh", "fsdp=2,tp=2",
                "--from", "S(0),TP", "--to", "R,TP"};
  };
  const std::string broken = WriteFile("broken.json", R"({"model": "m", "dty)");
  ExpectError(args(broken), 3,
              broken + ": not one JSON value, or truncated: {\"model\": \"m\", \"dty");
  const std::string far = WriteFile("far.json", R"({"model": "m", "dtype": "bf16", "parameters":
      [{"name": "w", "shape": [4], "tp_dim": 3}]})");
  ExpectError(args(far), 3,
              far + ": parameter 0: tp_dim 3 of 'w' is out of range for a rank-1 tensor");
  const std::string good = WriteFile("good.json", R"({"model": "m", "dtype": "bf16", "parameters":
      [{"name": "w", "shape": [4], "tp_dim": 0}]})");
  Args filtered = args(good);
  filtered.insert(filtered.end(), {"--filter", "layers.*"});
  ExpectError(filtered, 2, "--filter: 'layers.*' matches none of the 1 parameters of m");
  Args listed = args(good);
  listed.emplace_back("--messages");
  ExpectError(listed, 2, "--messages and --model exclude each other");
  for (const auto& [bucket, message] : std::vector<std::pair<std::string, std::string>>{
           {"0", "a bucket has 0 bytes; it must have 1 or more"},
           {"-1", "'-1' is not a number of bytes below 2^63, such as 4096 or 1.5 GiB"},
           {"", "'' is not a number of bytes below 2^63, such as 4096 or 1.5 GiB"},
           {"1 KB", "'1 KB' is not a number of bytes below 2^63, such as 4096 or 1.5 GiB"}}) {
    Args cut = args(good);
    cut.insert(cut.end(), {"--bucket", bucket});
    ExpectError(cut, 2, "--bucket: " + message);
    ExpectError({"plan", "--batch", good, "--together", "--bucket", bucket}, 2,
                "--bucket: " + message);
  }
  ExpectError({"plan", "--batch", good, "--bucket", "1"}, 2,
              "--bucket needs --model, or --batch and --together");
  Args deep = args(good);
  deep[6] = "S(1),TP";
  ExpectError(deep, 2, "parameter 'w': --from: Shard(1) is out of range for a rank-1 tensor");
}

// A plan file for these tests, as `plan` prints it.
std::string PlanJson() {
  Args args = PlanArgs("a=2", "f32[8]", "S(0)", "R");
  args.insert(args.end(), {"--format", "json"});
  return Meshift(args).out;
}

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(BadInput, PlanFiles) {
  const std::string plan = PlanJson();
  const std::string newer = Replace(plan, "\"version\": 1", "\"version\": 3");
  const std::string cut = plan.substr(0, plan.size() / 2);
  for (const Args& args : std::vector<Args>{{"check", "-"}, {"run", "--plan", "-"}}) {
    for (const std::string& text :
         {std::string(), std::string("junk"), std::string("[1]"), cut, newer,
          Replace(plan, "meshift.plan", "other.plan"), Replace(plan, "\"to\":", "\"two\":")}) {
      const Outcome outcome = Meshift(args, text);
      EXPECT_EQ(outcome.code, 3) << outcome << "\n" << text;
      EXPECT_EQ(outcome.out, "");
      EXPECT_EQ(outcome.err.find("meshift: stdin: "), 0) << outcome;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome;
    }
    EXPECT_NE(Meshift(args, newer).err.find("version 3"), std::string::npos)
        << Meshift(args, newer);
  }
}

// A plan that can be read but is wrong gets a verdict, not an error: exit code 1.
TEST(BadInput, WrongPlans) {
  const std::string wrong = Replace(PlanJson(), "\"all_gather\"", "\"all_to_all\"");
  const Outcome checked = Meshift({"check", "-"}, wrong);
  EXPECT_EQ(checked.code, 1) << checked;
  EXPECT_EQ(checked.out.find("wrong: step 0: "), 0) << checked;
  const Outcome ran = Meshift({"run", "--plan", "-"}, wrong);
  EXPECT_EQ(ran.code, 1) << ran;
  EXPECT_EQ(ran.out.find("wrong: step 0: "), 0) << ran;
}

// Counts the writes: a message must reach a shared stderr in one write.
class CountWrites : public std::stringbuf {
 public:
  int writes() const { return writes_; }

 private:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    ++writes_;
    return std::stringbuf::xsputn(text, size);
  }
  int writes_ = 0;
};

TEST(BadInput, AMessageIsOneWrite) {
  std::istringstream in;
  std::ostringstream out;
  CountWrites writes;
  std::ostream err(&writes);
  Io io{in, out, err};
  EXPECT_EQ(RunMeshift(PlanArgs("a=2", "f33[4]", "R", "R"), io), 2);
  EXPECT_EQ(writes.str().find("meshift: "), 0U) << writes.str();
  EXPECT_EQ(writes.writes(), 1);
}

TEST(Help, GoesToStdoutAndIsFine) {
  for (const Args& args : std::vector<Args>{{"--help"},
                                            {"plan", "--help"},
                                            {"run", "--help"},
                                            {"check", "-h"},
                                            {"shards", "--help"}}) {
    const Outcome outcome = Meshift(args);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("Usage: meshift"), std::string::npos) << outcome;
    EXPECT_EQ(outcome.err, "");
  }
}

}  // namespace
}  // namespace meshift::cli

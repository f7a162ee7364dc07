#include "cli/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

constexpr const char* kMesh = R"("mesh": {"dims": [["a", 2], ["b", 2]], "ranks": null})";

using Args = std::vector<std::string>;
using Json = nlohmann::ordered_json;

std::string Line(const std::string& rest) { return std::string("{") + kMesh + ", " + rest + "}"; }

const char* const kGather = R"("tensor": "f32[8]", "from": "S(0),R", "to": "R,R")";

TEST(PlanLine, AnswersWithThePlanAndTheId) {
  const std::string answer = PlanLine(Line(std::string(R"("id": 7, )") + kGather), {});
  EXPECT_EQ(answer.substr(0, 55), R"({"id":7,"format":"meshift.plan","version":1,"fingerprin)");
  EXPECT_EQ(answer.find('\n'), std::string::npos);
  EXPECT_NE(answer.find(R"("reproducibility":{"asked":"replicas","kept":"replicas")"),
            std::string::npos)
      << answer;
}

TEST(PlanLine, EchoesAnyId) {
  for (const char* id : {"null", "\"x\\\"y\"", "[1,{\"a\":null}]", "1.5", "18446744073709551615"}) {
    const std::string prefix = std::string("{\"id\":") + id + ",";
    EXPECT_EQ(PlanLine(std::string("{\"id\": ") + id + "}", {}).substr(0, prefix.size()), prefix);
  }
  EXPECT_EQ(PlanLine("{}", {}).substr(0, 11), "{\"id\":null,");
}

TEST(PlanLine, TheLineGoesBeforeTheDefaults) {
  const PlannerOptions defaults{.reproducibility = Reproducibility::kNone};
  EXPECT_NE(PlanLine(Line(kGather), {.options = defaults}).find(R"("asked":"none")"),
            std::string::npos);
  const std::string line = Line(std::string(kGather) + R"(, "reproducibility": "replicas",
      "topology": "nvlink=4", "planner": "per-dim", "comment": "unknown keys are ignored")");
  const std::string answer = PlanLine(line, {.options = defaults});
  EXPECT_NE(answer.find(R"("asked":"replicas")"), std::string::npos) << answer;
  EXPECT_NE(answer.find(R"("topology":"nvlink=4")"), std::string::npos) << answer;
  EXPECT_NE(answer.find("per-dim"), std::string::npos) << answer;
}

TEST(PlanLine, TheTargetsDTypeMayBeAnother) {
  const std::string line = R"("tensor": "bf16[8]", "from": "P,R", "to": "S(0),R", )";
  const std::string answer =
      PlanLine(Line(line + R"("to_dtype": "f32", "reduce_dtype": "f32")"), {});
  EXPECT_NE(answer.find(R"("to":{"mesh":0,"placements":"S(0),R","dtype":"f32"})"),
            std::string::npos)
      << answer;
  EXPECT_NE(answer.find(R"("wire_dtype":"f32")"), std::string::npos) << answer;
  EXPECT_EQ(answer.find(R"("wire_dtype":"bf16")"), std::string::npos) << answer;
}

TEST(PlanLine, ReductionsInBlocks) {
  const std::string line = R"("tensor": "f32[8]", "from": "P,P", "to": "R,R", "reduce_block": )";
  const std::string answer = PlanLine(Line(line + R"(2, "reproducibility": "ordered")"), {});
  EXPECT_NE(answer.find(R"("reduce_block":2)"), std::string::npos) << answer;
  EXPECT_NE(PlanLine(Line(line + "-2"), {}).find("reduce_block: '-2' is not a number in 1.."),
            std::string::npos);
}

TEST(PlanLine, ALimitOnMemoryInBytesOrAsText) {
  const std::string line = R"_("tensor": "f32[48,24]", "from": "S(0),S(0)", "to": "S(1),S(1)", )_";
  for (const char* limit : {"1048576", "\"1 MiB\""}) {
    const std::string answer = PlanLine(Line(line + R"("max_memory": )" + limit), {});
    EXPECT_NE(answer.find(R"("max_memory":"1048576")"), std::string::npos) << answer;
  }
  EXPECT_NE(PlanLine(Line(line + R"("max_memory": 100)"), {})
                .find(R"("RESOURCE_EXHAUSTED","message":"max_memory is 100 bytes per rank; the )"),
            std::string::npos);
  EXPECT_NE(PlanLine(Line(line + R"("max_memory": -1)"), {})
                .find("max_memory: '-1' is not a number of bytes below 2^63"),
            std::string::npos);
  EXPECT_NE(PlanLine(Line(line + R"("max_memory": "much")"), {})
                .find("'much' is not a number of bytes below 2^63"),
            std::string::npos);
}

TEST(PlanLine, ABudgetOfGroups) {
  const std::string line = R"_("tensor": "f32[48,24]", "from": "P,S(0)", "to": "R,R", )_";
  const std::string answer = PlanLine(
      Line(line + R"_("new_groups": false, "existing_groups": "b;a", "max_communicators": 2)_"),
      {});
  EXPECT_NE(
      answer.find(R"("new_groups":"off","existing_groups":"a;b;a,b","max_communicators":"2")"),
      std::string::npos)
      << answer;
  // The command line's groups count if the line names none.
  EXPECT_NE(PlanLine(Line(line + R"("new_groups": false)"), {.existing_groups = "a"})
                .find(R"("existing_groups":"a;a,b")"),
            std::string::npos);
  EXPECT_NE(PlanLine(Line(line + R"("expected_uses": 50)"), {}).find(R"("expected_uses":"50")"),
            std::string::npos);
  // The error names the place of the groups.
  EXPECT_NE(PlanLine(Line(line + R"("id": 1)"), {.existing_groups = "a;z"})
                .find("\"--existing-groups: group 'z': mesh "),
            std::string::npos);
  for (const auto& [more, message] :
       {std::pair(R"("existing_groups": "a;z")", "existing_groups: group 'z': mesh "),
        std::pair(R"("existing_groups": ["a"])", "existing_groups is"),
        std::pair(R"("new_groups": "no")", "new_groups: \"no\" is neither true nor false"),
        std::pair(R"("max_communicators": -1)", "max_communicators: '-1' is not a number in 0.."),
        std::pair(R"("expected_uses": 0)", "expected_uses: '0' is not a number in 1..")}) {
    const std::string refusal = PlanLine(Line(line + more), {});
    std::string unescaped = refusal;
    unescaped.erase(std::remove(unescaped.begin(), unescaped.end(), '\\'), unescaped.end());
    EXPECT_NE(unescaped.find(message), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("INVALID_ARGUMENT"), std::string::npos) << refusal;
  }
}

TEST(PlanLine, TakesListedRanksAndATargetOnTheSameMesh) {
  const std::string mesh = R"({"dims": [["a", 2]], "ranks": [5, 3]})";
  const std::string answer = PlanLine(R"({"mesh": )" + mesh + R"(, "to_mesh": )" + mesh +
                                          R"_(, "tensor": "f32[4]", "from": "S(0)", "to": "R"})_",
                                      {});
  EXPECT_NE(answer.find(R"("meshes":[{"dims":[["a",2]],"ranks":[5,3]}])"), std::string::npos)
      << answer;
}

// Expects that `line` is answered with an error of `code`; `message` is JSON text without quotes.
void ExpectError(const std::string& line, const std::string& code, const std::string& message) {
  EXPECT_EQ(PlanLine(line, {}),
            R"({"id":null,"error":{"code":")" + code + R"(","message":")" + message + "\"}}");
}

TEST(PlanLine, TextThatIsNoObjectIsAnsweredWithAnError) {
  const std::string code = "INVALID_ARGUMENT";
  ExpectError("", code, "the text is empty; one JSON object is expected");
  ExpectError("junk", code, "not one JSON value, or truncated: junk");
  ExpectError("{\"id\": 1", code, R"(not one JSON value, or truncated: {\"id\": 1)");
  ExpectError("[1]", code, "[1] is not an object");
  ExpectError(std::string(200, '['), code, "JSON is nested deeper than 100");
}

TEST(PlanLine, BadKeysAreAnsweredWithAnError) {
  const std::string code = "INVALID_ARGUMENT";
  ExpectError("{}", code, "key 'mesh' is missing");
  ExpectError(R"({"mesh": "a=2"})", code, R"(mesh is \"a=2\"; it must be an object)");
  ExpectError(R"({"mesh": {"dims": [["a"]]}})", code, R"(mesh dim [\"a\"] is not [name, size])");
  ExpectError(R"({"mesh": {"dims": [["a", 2.5]]}})", code,
              "the size of a mesh dim is 2.5; it must be an integer below 2^63");
  ExpectError(R"({"mesh": {"dims": [["a", 0]]}})", code,
              "mesh: mesh dim 'a' has size 0; sizes are 1 or more");
  ExpectError(R"({"mesh": {"dims": [["a", 2]], "ranks": []}})", code,
              "ranks is []; it must be null or a list of at least one rank");
  ExpectError(Line(R"("tensor": 3)"), code, "tensor is 3; it must be a string");
  ExpectError(Line(R"("tensor": "f32[8]", "from": "R,R")"), code, "key 'to' is missing");
  ExpectError(Line(R"("tensor": "f32[8", "from": "R,R", "to": "R,R")"), code,
              R"(tensor 'f32[8': expected \"]\" at the end)");
  ExpectError(Line(R"("tensor": "f32[8]", "from": "S(1),R", "to": "R,R")"), code,
              "from: Shard(1) is out of range for a rank-1 tensor");
  ExpectError(Line(R"("tensor": "f32[8]", "from": "R,R", "to": "S(1),R")"), code,
              "to: Shard(1) is out of range for a rank-1 tensor");
  ExpectError(Line(std::string(kGather) + R"(, "max_memory": "much")"), code,
              "max_memory: 'much' is not a number of bytes below 2^63, such as 4096 or 1.5 GiB");
  ExpectError(Line(std::string(kGather) + R"(, "max_memory": 1, "max_memory": 2)"), code,
              "key 'max_memory' appears twice in one object");
  ExpectError(Line(std::string(kGather) + R"(, "planner": "fast")"), code,
              "planner: unknown planner 'fast'; expected best, per-dim");
  ExpectError(Line(std::string(kGather) + R"(, "reproducibility": "maybe")"), code,
              "reproducibility: unknown reproducibility 'maybe'; expected none, replicas, "
              "batch-invariant, ordered");
  ExpectError(Line(std::string(kGather) + R"(, "ragged_sizes": "all")"), code,
              "ragged_sizes: unknown ragged_sizes 'all'; expected cost, max, sum");
  ExpectError(Line(std::string(kGather) + R"(, "buffers": "heap")"), code,
              "buffers: unknown buffer mode 'heap'; expected two, consumed, one");
  ExpectError(Line(std::string(kGather) + R"(, "topology": {"levels": []})"), code,
              "topology: a topology needs at least one level");
  ExpectError(Line(std::string(kGather) + R"(, "topology": "nope")"), code,
              Message(Topology::Parse("nope").status()));
}

// As with --topology, but only if the caller trusts the lines.
TEST(PlanLine, ATopologyMayBeAFileWhereThatIsAllowed) {
  const std::string path = WriteFile("t.json", R"({"levels": [{"name": "flat", "domain_size": 0,
      "bandwidth_bytes_per_us": 1000, "latency_ns": 70}]})");
  const auto plan = [](const std::string& file, bool allow_files) {
    return PlanLine(Line(std::string(kGather) + R"(, "topology": ")" + file + "\""),
                    {.allow_files = allow_files});
  };
  const std::string answer = plan(path, true);
  EXPECT_NE(answer.find(R"(\"latency_ns\":70)"), std::string::npos) << answer;
  EXPECT_NE(plan("/no/t.json", true).find("/no/t.json: cannot be read: No such file or directory"),
            std::string::npos);
  // The message does not tell whether the file exists.
  ExpectError(Line(std::string(kGather) + R"(, "topology": ")" + path + "\""), "INVALID_ARGUMENT",
              "topology '" + path + "' names a file; lines may do so with --allow-files");
  ExpectError(Line(std::string(kGather) + R"(, "topology": "/no/t.json")"), "INVALID_ARGUMENT",
              "topology '/no/t.json' names a file; lines may do so with --allow-files");
  const Args batch = {
      "plan", "--batch",
      WriteFile("b.jsonl", Line(std::string(kGather) + R"(, "topology": ")" + path + "\""))};
  EXPECT_NE(Meshift(batch).out.find("--allow-files"), std::string::npos);
  Args allowed = batch;
  allowed.push_back("--allow-files");
  EXPECT_EQ(Meshift(allowed).out, answer + "\n");
}

TEST(PlanLine, AnIdIsSaidAgainOnlyWhereItIsShort) {
  const auto answer = [](const std::string& id) {
    return PlanLine(Line("\"id\": \"" + id + "\", " + kGather), {});
  };
  EXPECT_EQ(answer(std::string(198, 'i')).substr(0, 9), R"({"id":"ii)");
  EXPECT_EQ(answer(std::string(199, 'i')),
            R"({"id":null,"error":{"code":"INVALID_ARGUMENT","message":)"
            R"("the id has 201 bytes; the answer can repeat at most 200"}})");
  // Invisible characters are escaped; the id stays the same.
  EXPECT_EQ(answer("\xe2\x80\xae").substr(0, 16), R"({"id":"\u202e",")");
  bool ok = true;
  EXPECT_EQ(CheckLine(R"({"id":")" + std::string(1000, 'i') + "\"}", &ok).substr(0, 11),
            R"({"id":null,)");
  EXPECT_FALSE(ok);
}

TEST(PlanLine, PlansOntoAnotherMesh) {
  const std::string line = R"_({"mesh": {"dims": [["a", 2]]},
      "to_mesh": {"dims": [["b", 4]], "ranks": [2, 3, 4, 5]},
      "tensor": "f32[8]", "from": "S(0)", "to": "R")_";
  const std::string plan = PlanLine(line + "}", {});
  EXPECT_NE(plan.find(R"("meshes":[{"dims":[["a",2]],"ranks":null},)"
                      R"({"dims":[["b",4]],"ranks":[2,3,4,5]}])"),
            std::string::npos)
      << plan;
  EXPECT_NE(plan.find(R"("op":"exchange","mesh":1,"mesh_dims":[])"), std::string::npos) << plan;
  ExpectError(line + R"(, "planner": "per-dim"})", "UNIMPLEMENTED",
              "the per-dim planner plans on one mesh; a=2 and b=4@2-5 differ");
}

TEST(PlanLine, RelabelsRanks) {
  const std::string line = R"_({"mesh": {"dims": [["a", 2]]},
      "to_mesh": {"dims": [["a", 2]], "ranks": [1, 0]},
      "tensor": "f32[8]", "from": "S(0)", "to": "S(0)")_";
  EXPECT_NE(PlanLine(line + R"(, "relabel_ranks": false})", {}).find("\"op\""), std::string::npos);
  const std::string plan = PlanLine(line + R"(, "relabel_ranks": true})", {});
  EXPECT_NE(plan.find(R"("steps":[])"), std::string::npos) << plan;
  ExpectError(line + R"(, "relabel_ranks": 1})", "INVALID_ARGUMENT",
              "relabel_ranks: 1 is neither true nor false");
}

TEST(PlanBatch, GoesOnAfterABadLine) {
  const std::string good = Line(std::string(R"("id": 1, )") + kGather);
  const Outcome outcome = Meshift({"plan", "--batch", "-"}, good + "\nbad\n" + good + "\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  const std::string plan = PlanLine(good, {});
  EXPECT_EQ(outcome.out, plan + "\n" + PlanLine("bad", {}) + "\n" + plan + "\n");
}

TEST(PlanBatch, SaysWhichKeysItDoesNotKnow) {
  const std::string misspelt =
      Line(std::string(R"("max_memmory": 1, "to_mesh": null, )") + kGather);
  const Outcome outcome = Meshift({"plan", "--batch", "-"}, misspelt + "\n" + misspelt + "\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "meshift: ignoring the unknown key 'max_memmory' of a line\n");
  EXPECT_EQ(outcome.out, PlanLine(misspelt, {}) + "\n" + PlanLine(misspelt, {}) + "\n");
}

TEST(PlanLine, IgnoresKeysThatItDoesNotKnow) {
  const auto ignored = [](const std::string& line) {
    std::vector<std::string> keys = {"of a line before"};
    PlanLine(line, {}, &keys);
    return keys;
  };
  using Keys = std::vector<std::string>;
  // Every key of docs/command_line.md is known.
  const std::string all = Line(std::string(kGather) + R"(, "id": 1, "to_mesh": null,
      "relabel_ranks": null, "reproducibility": null, "topology": null, "planner": null,
      "to_dtype": null, "reduce_dtype": null, "reduce_block": null, "ragged_sizes": null,
      "max_memory": null, "buffers": null, "new_groups": null, "existing_groups": null,
      "max_communicators": null, "expected_uses": null)");
  EXPECT_EQ(ignored(all), Keys());
  EXPECT_EQ(PlanLine(all, {}), PlanLine(Line(std::string(R"("id": 1, )") + kGather), {}));
  // Also if the known keys have no plan; not if they cannot be read.
  EXPECT_EQ(ignored(Line(std::string(kGather) + R"(, "max_memory": 1, "buffer": 1, "Id": 1)")),
            (Keys{"buffer", "Id"}));
  EXPECT_EQ(ignored(Line(std::string(kGather) + R"(, "max_memory": [], "buffer": 1)")), Keys());
  EXPECT_EQ(ignored("[1]"), Keys());
}

TEST(PlanBatch, ReadsAFile) {
  const std::string good = Line(kGather);
  EXPECT_EQ(Meshift({"plan", "--batch", WriteFile("batch.jsonl", good)}).out,
            PlanLine(good, {}) + "\n");
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A line may lower the limit of work, but not raise it.
TEST(PlanLine, WorkHasALimit) {
  const std::string problem = R"("tensor": "f32[8,8]", "from": "P,R", "to": "R,R")";
  const auto plan = [&](int64_t limit, const std::string& more) {
    return PlanLine(Line(problem + more), {.options = {.max_work = limit}});
  };
  EXPECT_TRUE(Has(plan(1 << 20, ""), R"("steps":)"));
  EXPECT_TRUE(Has(plan(10, ""), "planning takes more work than max_work = 10 allows"));
  EXPECT_TRUE(Has(plan(1 << 20, R"(, "max_work": 10)"), "max_work = 10 allows"));
  EXPECT_TRUE(Has(plan(10, R"(, "max_work": 11)"),
                  "max_work is 11; a line may have at most 10 (--max-work)"));
}

TEST(CheckLine, WorkHasALimit) {
  const std::string line = PlanLine(Line(kGather), {});
  bool ok = false;
  EXPECT_TRUE(Has(CheckLine(line, &ok, 1 << 20), R"("ok":true)"));
  EXPECT_TRUE(ok);
  EXPECT_TRUE(Has(CheckLine(line, &ok, 1), "the proof takes more work than max_work = 1"));
  EXPECT_FALSE(ok);
}

// As an option of the command line, in each command that plans or proves.
TEST(MaxWorkOption, IsHeededByEveryCommand) {
  const std::string line = PlanLine(Line(kGather), {});
  const std::string lines = WriteFile("lines.json", line + "\n");
  const std::string plan = WriteFile("plan.json", line);
  const std::vector<std::vector<std::string>> commands = {
      {"plan", "--mesh", "a=2,b=2", "--tensor", "f32[8,8]", "--from", "P,R", "--to", "R,R"},
      {"explain", "--mesh", "a=2,b=2", "--tensor", "f32[8,8]", "--from", "P,R", "--to", "R,R"},
      {"run", "--mesh", "a=2,b=2", "--tensor", "f32[8,8]", "--from", "P,R", "--to", "R,R"},
      {"run", "--plan", plan},
      {"check", plan},
      {"check", "--batch", lines}};
  for (std::vector<std::string> command : commands) {
    EXPECT_EQ(Meshift(command).code, kExitOk) << command[0];
    command.insert(command.end(), {"--max-work", "1"});
    const Outcome outcome = Meshift(command);
    EXPECT_NE(outcome.code, kExitOk) << command[0] << command[1];
    EXPECT_TRUE(Has(outcome.out + outcome.err, "takes more work than")) << outcome;
  }
}

TEST(CheckBatch, AcceptsWhatPlanPrints) {
  const std::string plans =
      Meshift({"plan", "--batch", "-"},
              Line(std::string(R"("id": "x", )") + kGather) + "\n" + Line(kGather) + "\n")
          .out;
  EXPECT_EQ(Meshift({"check", "--batch", "-"}, plans),
            (Outcome{0,
                     R"({"id":"x","ok":true,"step":null,"rule":null,"message":null})"
                     "\n"
                     R"({"id":null,"ok":true,"step":null,"rule":null,"message":null})"
                     "\n",
                     ""}));
}

TEST(CheckBatch, NamesTheRuleOfABadLine) {
  std::string plan = PlanLine(Line(std::string(R"("id": 3, )") + kGather), {});
  const size_t digit = plan.find("fingerprint\":\"") + 14;
  plan[digit] = plan[digit] == '0' ? '1' : '0';
  const Outcome outcome =
      Meshift({"check", "--batch", "-"}, "{\"id\": 1\n{\"id\": 2}\n" + plan + "\n");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out.find(R"({"id":null,"ok":false,"step":null,"rule":"format","message":")"), 0)
      << outcome.out;
  EXPECT_NE(outcome.out.find(R"({"id":2,"ok":false,"step":null,"rule":"format","message":")"),
            std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find(R"({"id":3,"ok":false,"step":null,"rule":"fingerprint","message":")"),
            std::string::npos)
      << outcome.out;
}

Outcome Together(const std::string& lines, const Args& more = {}) {
  Args args = {"plan", "--together", "--batch", "-"};
  args.insert(args.end(), more.begin(), more.end());
  return Meshift(args, lines);
}

// A replicated tensor to one of 32 servers: together all four replicas send, alone the first.
std::string ToServer(int server, const std::string& more = "") {
  return R"({"mesh": {"dims": [["dp", 4]]}, "to_mesh": {"dims": [["s", 32]], "ranks": [8,9,10,11,)"
         "12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39]}, "
         R"("tensor": "bf16[512,512]", "from": "R", "to": "At()" +
         std::to_string(server) + ")\"" + more + "}\n";
}

TEST(PlanBatchTogether, AnswersAllLinesByOneDocument) {
  std::string lines;
  for (int i = 0; i < 32; ++i) {
    const std::string id = i % 2 == 0 ? ", \"id\": [\"e\", " + std::to_string(i) + "]" : "";
    lines += ToServer(i, id + (i == 3 ? ", \"count\": 2" : ""));
  }
  const Outcome outcome = Together(lines, {"--topology", "nvlink=8"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.find("{\n  \"format\": \"meshift.plans\",\n  \"version\": 1,\n  \"rows\":"),
            0);
  EXPECT_EQ(Meshift({"check", "-"}, outcome.out).out, "ok 32 plans of 33 tensors\n");
  const Json document = Json::parse(outcome.out);
  std::vector<TensorMove> moves;
  const Sharding from =
      Sharding::Parse("bf16[512,512]", DeviceMesh::Parse("dp=4").value(), "R").value();
  for (int i = 0; i < 32; ++i) {
    const DeviceMesh server = DeviceMesh::Parse("s=32@8-39").value();
    moves.push_back(
        {from, Sharding::Parse("bf16[512,512]", server, "At(" + std::to_string(i) + ")").value(),
         i == 3 ? 2 : 1});
  }
  const PlanSet set = MakePlans(moves, {.topology = Topology::Parse("nvlink=8").value()}).value();
  ASSERT_EQ(document["rows"].size(), moves.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    const Json& row = document["rows"][i];
    EXPECT_EQ(PlanFromJson(row["plan"].dump()).value(), set.plans[i]);
    EXPECT_EQ(row["count"], moves[i].count);
    EXPECT_EQ(row.contains("id"), i % 2 == 0);
    EXPECT_EQ(row.value("id", Json()), i % 2 == 0 ? Json({"e", i}) : Json());
    EXPECT_FALSE(row.contains("first"));
  }
  EXPECT_EQ(document["together"]["busiest"]["ns"], set.busiest_ns);
  EXPECT_EQ(document["together"]["bound_ns"], set.bound_ns);
  EXPECT_EQ(document["total"]["parameters"], 33);
  EXPECT_EQ(document["traffic"]["ranks"], 36);
}

// Lines may have different meshes; a group of several meshes is set up once.
TEST(PlanBatchTogether, LinesMayHaveOtherMeshes) {
  const auto line = [](const char* dims, const char* to) {
    return std::string(R"({"mesh": {"dims": [)") + dims +
           R"(]}, "tensor": "f32[6400,4800]", "from": ")" + (to[1] == ',' ? "S(0),R" : "S(0)") +
           R"(", "to": ")" + to + R"(", "expected_uses": 1000000, "existing_groups": "-"})" + "\n";
  };
  const auto setup = [](const std::string& lines) {
    const Outcome outcome = Together(lines, {"--topology", "h100"});
    EXPECT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(Meshift({"check", "-"}, outcome.out).code, 0) << Meshift({"check", "-"}, outcome.out);
    return Json::parse(outcome.out)["total"].value("setup_ns", int64_t{0});
  };
  const std::string quads = line(R"(["a", 4], ["b", 2])", "R,R");
  const int64_t each = setup(quads);
  EXPECT_GT(each, 0);
  EXPECT_EQ(setup(quads + quads), each);
  EXPECT_EQ(setup(quads + line(R"(["x", 4], ["y", 2])", "R,R")), each);
  EXPECT_EQ(setup(quads + line(R"(["x", 2], ["y", 4])", "R,R")), 2 * each);
  EXPECT_EQ(setup(line(R"(["x", 16])", "R")), 0);  // the root exists
}

TEST(PlanBatchTogether, ABucketCutsThemIntoRounds) {
  const auto line = [](int count) {
    return R"_({"mesh": {"dims": [["a", 8], ["b", 2]]}, "tensor": "f32[64,48,40]", )_"
           R"_("from": "S(2),S(0)", "to": "R,S(0)", "count": )_" +
           std::to_string(count) + "}\n";
  };
  const Outcome outcome = Together(line(5) + line(4), {"--bucket", "500 KiB"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  const Json document = Json::parse(outcome.out);
  EXPECT_EQ(document["bucket_bytes"], 512000);
  ASSERT_EQ(document["rounds"].size(), 4) << document["rounds"];
  EXPECT_EQ(document["rounds"][0]["repeat"], 2);
  EXPECT_EQ(document["rounds"][0]["workspace_bytes"], 2 * 245760);
  EXPECT_EQ(document["rounds"][1]["rows"], Json::parse("[[0,1],[1,1]]"));
  EXPECT_EQ(Meshift({"check", "-"}, outcome.out).out, "ok 2 plans of 9 tensors\n");
  const Outcome refused = Together(line(1) + line(1), {"--bucket", "57599"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err,
            "meshift: line 1: the least workspace of a plan has 57600 bytes; a bucket has 57599\n");
  EXPECT_EQ(refused.out, "");
}

// One bad line, and nothing is planned.
TEST(PlanBatchTogether, ABadLineRefusesAll) {
  const std::string good = Line(kGather) + "\n";
  const auto with = [&](const std::string& more) {
    return good + Line(kGather + (", " + more)) + "\n" + good;
  };
  const std::string same_options = "; lines planned together have the same options";
  for (const auto& [lines, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "there are no lines"},
           {good + "\n" + good, "line 2: the text is empty; one JSON object is expected"},
           {good + good + "{\"id\": ", "line 3: not one JSON value, or truncated: {\"id\": "},
           {"7\n" + good, "line 1: 7 is not an object"},
           {good + "{}\n", "line 2: key 'mesh' is missing"},
           {with("\"tensor\": \"f32[4]\""), "line 2: key 'tensor' appears twice in one object"},
           {with("\"count\": 0"), "line 2: count is 0; it must be 1 or more"},
           {with("\"count\": \"2\""), "line 2: count is \"2\"; it must be an integer below 2^63"},
           {with("\"id\": \"" + std::string(300, 'x') + "\""),
            "line 2: the id has 302 bytes; the answer can repeat at most 200"},
           {with("\"topology\": \"nvlink=2\""),
            "line 2: topology is not that of line 1" + same_options},
           {with("\"reproducibility\": \"none\""),
            "line 2: reproducibility is not that of line 1" + same_options},
           {with("\"new_groups\": false"),
            "line 2: new_groups is not that of line 1" + same_options},
           {with("\"existing_groups\": \"a\""),
            "line 2: existing_groups is not that of line 1" + same_options},
           {with("\"max_work\": 1000000"), "line 2: max_work is not that of line 1" + same_options},
           {with("\"max_work\": 1000000000000"),
            "line 2: max_work is 1000000000000; a line may have at most 536870912 (--max-work)"},
           {with("\"relabel_ranks\": true"),
            "line 2: relabel_ranks is true; --together takes the ranks as they are"},
           {with("\"topology\": \"t.json\""),
            "line 2: topology 't.json' names a file; lines may do so with --allow-files"},
       }) {
    const Outcome outcome = Together(lines);
    EXPECT_EQ(outcome.code, 3) << outcome;
    EXPECT_EQ(outcome.out, "");
    const std::string start = "meshift: stdin: " + message;
    EXPECT_EQ(outcome.err.substr(0, start.size()), start) << outcome;
  }
  // Errors of planning have their own codes.
  const Outcome refused =
      Together(good + Line(R"("tensor": "f32[8]", "from": "S(0),R", "to": "P(avg),R")") + "\n");
  EXPECT_EQ(refused.code, 2) << refused;
  EXPECT_EQ(refused.err.find("meshift: line 2: "), 0) << refused;
  const Outcome work = Together(good + good, {"--max-work", "10000"});
  EXPECT_EQ(work.code, 1) << work;
  EXPECT_NE(work.err.find("planning takes more work than max_work = 10000"), std::string::npos);
  // Equal options may be written in other ways, and other keys are ignored.
  const Outcome equal =
      Together(with("\"topology\": \"flat\", \"new_groups\": true, \"cuont\": 2"));
  EXPECT_EQ(equal.code, 0) << equal;
  EXPECT_EQ(equal.err, "meshift: ignoring the unknown key 'cuont' of a line\n");
}

}  // namespace
}  // namespace meshift::cli

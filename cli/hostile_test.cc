// Files and lines that a stranger might give. Each is refused or answered within 10 s of processor
// time (on a slower machine, as many times that as fixed work takes longer) and 2 GiB, in a
// separate process, with printable output and short messages; the other lines of a batch are still
// answered. The figures are printed (--test_output=all).
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "cli/text.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

using std::string_literals::operator""s;

constexpr double kMaxSeconds = 10;
constexpr int64_t kMaxBytes = int64_t{2} << 30;
// A limit on wall time, for a process that hangs; large, since on a busy machine it may wait.
constexpr int kGuardSeconds = 200;

struct Answer {
  int code = -1;       // the exit code; -1: it did not exit by itself
  double seconds = 0;  // processor time
  double max_seconds = kMaxSeconds;
  int64_t max_rss_kib = 0;
  std::string out;
  std::string err;
};

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double ProcessorSeconds(const rusage& usage) {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Runs `meshift ARGS` as a process with at most kMaxBytes of address space and an empty stdin.
Answer RunProcess(const std::vector<std::string>& args) {
  const std::string out = WriteFile("out.txt", "");
  const std::string err = WriteFile("err.txt", "");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit memory = {static_cast<rlim_t>(kMaxBytes), static_cast<rlim_t>(kMaxBytes)};
    setrlimit(RLIMIT_AS, &memory);
    // The kernel ends a process that exceeds its limit by this.
    const rlimit time = {static_cast<rlim_t>(4 * kMaxSeconds),
                         static_cast<rlim_t>(6 * kMaxSeconds)};
    setrlimit(RLIMIT_CPU, &time);
    alarm(kGuardSeconds);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(open(out.c_str(), O_WRONLY | O_TRUNC), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_TRUNC), STDERR_FILENO);
    std::vector<char*> argv = {const_cast<char*>("meshift")};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    execv("cli/meshift", argv.data());
    _exit(127);
  }
  int status = 0;
  rusage usage = {};
  wait4(child, &status, 0, &usage);
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .seconds = ProcessorSeconds(usage),
          .max_rss_kib = usage.ru_maxrss,
          .out = ReadWhole(out),
          .err = ReadWhole(err)};
}

// How many times longer than on the machine that kMaxSeconds is stated for a fixed work of this
// process takes now, from 1 to 4: insertions into maps in random order, which like the planner's
// search wait for memory.
double Slowness() {
  constexpr double kStatedSeconds = 0.3;
  rusage before = {};
  getrusage(RUSAGE_SELF, &before);
  uint64_t key = 1;
  for (int round = 0; round < 10; ++round) {
    std::map<uint64_t, int> map;
    for (int i = 0; i < 100'000; ++i) {
      key = key * 6364136223846793005 + 1442695040888963407;
      map.emplace(key, i);
    }
    EXPECT_EQ(map.size(), 100'000);
  }
  rusage after = {};
  getrusage(RUSAGE_SELF, &after);
  return std::clamp((ProcessorSeconds(after) - ProcessorSeconds(before)) / kStatedSeconds, 1.0,
                    4.0);
}

// As RunProcess. Beside other programs a process takes up to three times its time, so one that is
// late gets further runs, and the limit is raised by how slow the machine is at that time.
Answer QuickestOf(int runs, const std::vector<std::string>& args) {
  Answer quickest = RunProcess(args);
  for (int i = 1; i < runs && quickest.seconds > quickest.max_seconds; ++i) {
    const double max_seconds = std::max(quickest.max_seconds, kMaxSeconds * Slowness());
    Answer answer = RunProcess(args);
    if (answer.seconds < quickest.seconds) quickest = std::move(answer);
    quickest.max_seconds = max_seconds;
  }
  return quickest;
}

std::string Repeated(std::string_view text, int64_t times, std::string_view separator = "") {
  std::string all;
  for (int64_t i = 0; i < times; ++i) {
    if (i > 0) all += separator;
    all += text;
  }
  return all;
}

std::string Numbers(int64_t first, int64_t last, int64_t step = 1) {
  std::string all;
  for (int64_t i = first; step > 0 ? i <= last : i >= last; i += step) {
    all += fmt::format("{}{}", all.empty() ? "" : ",", i);
  }
  return all;
}

// {"dims": [["m0", 2], ...], "ranks": ...}
std::string MeshJson(const std::vector<int64_t>& sizes, const std::string& ranks = "null") {
  std::string dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    dims += fmt::format("{}[\"m{}\",{}]", i > 0 ? "," : "", i, sizes[i]);
  }
  return fmt::format(R"({{"dims":[{}],"ranks":{}}})", dims, ranks);
}

std::string Problem(const std::string& mesh, const std::string& tensor, const std::string& from,
                    const std::string& to, const std::string& more = "") {
  return fmt::format(R"({{"id":1,"mesh":{},"tensor":"{}","from":"{}","to":"{}"{}{}}})", mesh,
                     tensor, from, to, more.empty() ? "" : ",", more);
}

const std::vector<int64_t>& Uneven8() {
  static const std::vector<int64_t> sizes = {2, 3, 5, 7, 2, 3, 5, 7};
  return sizes;
}
constexpr const char* kTensor8 = "i8[101,203,97,89,53,67,71,11]";
constexpr const char* kUp = "S(0),S(1),S(2),S(3),S(4),S(5),S(6),S(7)";
constexpr const char* kDown = "S(7),S(6),S(5),S(4),S(3),S(2),S(1),S(0)";
constexpr const char* kTensor4 = "f32[101,203,307,401]";

std::string RaggedText(int64_t n) {
  std::string sizes;
  for (int64_t i = 0; i < n; ++i) sizes += fmt::format("{}{}", i > 0 ? "," : "", i % 7);
  return "S(0){" + sizes + "}";
}
int64_t RaggedSum(int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += i % 7;
  return sum;
}

// A plan's line as `plan` prints it, with one piece of text replaced.
std::string PlanWith(const std::string& what, const std::string& with) {
  std::string plan = Meshift({"plan", "--mesh", "a=2,b=3", "--tensor", "f32[12,5]", "--from",
                              "P,S(0)", "--to", "R,R", "--format", "json"})
                         .out;
  const size_t at = plan.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return plan.replace(at, what.size(), with);
}
// Puts `json` on one line.
std::string OneLine(std::string json) {
  for (char& c : json) c = c == '\n' ? ' ' : c;
  return json;
}

// A plan with `times` pairs of a gather and a slice.
std::string PlanOfSteps(const std::string& mesh, int64_t times) {
  std::string plan = OneLine(Meshift({"plan", "--mesh", mesh, "--tensor", "f32[4194304]", "--from",
                                      "S(0)", "--to", "R", "--format", "json"})
                                 .out);
  const std::string begin = "\"steps\": [";
  const size_t first = plan.find(begin) + begin.size();
  const size_t end = plan.find("\"total\"");
  const size_t last = plan.rfind(']', end);
  const std::string step = plan.substr(first, last - first);
  return plan.replace(first, last - first, Repeated(step, times, ","));
}

// A document of many plans: `rows`, and the keys after them.
std::string Document(const std::string& rows, const std::string& rest) {
  return R"({"format":"meshift.plans","version":1,"rows":[)" + rows + "]," + rest + "}";
}
std::string DocumentRow(const std::string& plan) { return R"({"count":1,"plan":)" + plan + "}"; }
// A right document with one row, with one piece of text replaced.
std::string DocumentWith(const std::string& what, const std::string& with) {
  std::string document = OneLine(Meshift({"plan", "--together", "--batch", "-", "--bucket", "1"},
                                         Problem(MeshJson({4}), "f32[4194304]", "S(0)", "R"))
                                     .out);
  const size_t at = document.rfind(what);
  EXPECT_NE(at, std::string::npos) << what << document;
  return document.replace(at, what.size(), with);
}

enum class Kind {
  kPlanBatch,
  kTogether,
  kCheckBatch,
  kCheck,
  kModel,
  kRules,
  kTopology,
  kRunPlan,
  kLoad
};

struct Row {
  const char* name;
  Kind kind;
  std::function<std::string()> content;
  std::set<int> codes;
  // A text that the output must contain; empty: any output.
  const char* says = "";
};

// Makes a special file at a path, and returns "".
std::function<std::string()> Special(int (*make)(const char* path)) {
  return [make] {
    static int count = 0;
    const std::string path = WriteFile("x", "") + fmt::format(".special{}.json", count++);
    EXPECT_EQ(make(path.c_str()), 0);
    return path;
  };
}

std::string Npy(const std::string& header) {
  std::string bytes = "\x93NUMPY\x01"s + '\0';
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8 & 0xff);
  return bytes + header;
}

std::vector<Row> Rows() {
  std::vector<Row> rows;
  const auto line = [&](const char* name, std::function<std::string()> content,
                        const char* says = "") {
    rows.push_back({name, Kind::kPlanBatch, std::move(content), {0}, says});
  };
  const auto row = [&](const char* name, Kind kind, std::function<std::string()> content,
                       std::set<int> codes, const char* says = "") {
    rows.push_back({name, kind, std::move(content), std::move(codes), says});
  };
  // Ranks.
  line(
      "2^31-1 ranks onto another mesh",
      [] {
        return Problem(MeshJson({2147483647}), "f32[1024]", "S(0)", "S(0)",
                       "\"to_mesh\":" + MeshJson({2147483646}));
      },
      "max_work = 536870912");
  line(
      "2^31-1 ranks onto another mesh, replicated",
      [] {
        return Problem(MeshJson({2147483647}), "f32[1024]", "R", "R",
                       "\"to_mesh\":" + MeshJson({2147483646}));
      },
      "RESOURCE_EXHAUSTED");
  line(
      "2^31 ranks on one mesh",
      [] {
        return Problem(MeshJson({65536, 32767}), "f32[100003,70001]", "P,S(0)", "S(1),R",
                       R"("topology":"h100")");
      },
      "fingerprint");
  line("4 million ranks onto another mesh", [] {
    return Problem(MeshJson({2048, 2048}), "f32[4001,4003]", "S(0),S(1)", "S(1),S(0)",
                   "\"to_mesh\":" + MeshJson({2047, 2048}));
  });
  line("a million ranks' contributions onto another mesh", [] {
    return Problem(MeshJson({1000, 1000}), "f32[1001,2003]", "P,P", "S(1),R",
                   "\"to_mesh\":" + MeshJson({999, 1000}));
  });
  line(
      "a list of 100,000 ranks",
      [] {
        return Problem(MeshJson({100, 1000}, "[" + Numbers(99999, 0, -1) + "]"), "f32[1001,2003]",
                       "P,S(0)", "S(1),R", R"("topology":"h100")");
      },
      "fingerprint");
  line("a list of ranks in five dims onto another mesh, with a price of groups", [] {
    return Problem(MeshJson({10, 10, 10, 10, 10}, "[" + Numbers(99999, 0, -1) + "]"),
                   "f32[1001,2003]", "P,S(0),R,R,S(1)", "S(1),R",
                   R"("expected_uses":10,"topology":"h100","to_mesh":)" + MeshJson({1000, 100}));
  });
  line(
      "a list of a million ranks, one twice",
      [] {
        return Problem(MeshJson({1000000}, "[0," + Numbers(0, 999998) + "]"), "f32[8]", "S(0)",
                       "R");
      },
      "INVALID_ARGUMENT");
  line("relabelling 4,096 ranks", [] {
    return Problem(MeshJson({64, 64}), "f32[65537,3001]", "S(0),S(1)", "S(0),S(1)",
                   R"("relabel_ranks":true,"to_mesh":)" + MeshJson({61, 67}));
  });
  // Mesh dims and tensor dims.
  line("eight uneven mesh dims and tensor dims",
       [] { return Problem(MeshJson(Uneven8()), kTensor8, kUp, kDown); });
  line("eight, gathered",
       [] { return Problem(MeshJson(Uneven8()), kTensor8, kDown, "R,R,R,R,R,R,R,R"); });
  line("eight, reduced",
       [] { return Problem(MeshJson(Uneven8()), kTensor8, "P,P,P,P,P,P,P,P", kDown); });
  line("eight, reduced on levels of links", [] {
    return Problem(MeshJson(Uneven8()), kTensor8, "P,P,P,P,S(0),S(1),R,R",
                   "S(3),S(4),R,S(5),R,S(2),S(2),S(0)", R"("topology":"h100")");
  });
  line("eight, masked", [] {
    return Problem(MeshJson({3, 5, 7, 2, 3, 5, 2, 3}), "bf16[1009,2003,777,55]",
                   "R,R,S(0),S(1),R,R,S(2),R", "P,P,P,P,P,P,P,P");
  });
  line("eight within a limit on memory", [] {
    return Problem(MeshJson(Uneven8()), kTensor8, kUp, kDown, R"("max_memory":1000000000)");
  });
  line("eight with a price of groups",
       [] { return Problem(MeshJson(Uneven8()), kTensor8, kUp, kDown, R"("expected_uses":10)"); });
  line("eight within two communicators", [] {
    return Problem(MeshJson(Uneven8()), kTensor8, kUp, kDown,
                   R"("max_communicators":2,"new_groups":false)");
  });
  line("eight onto eight others", [] {
    return Problem(MeshJson(Uneven8()), kTensor8, kUp, kDown,
                   "\"to_mesh\":" + MeshJson({7, 5, 3, 2, 7, 5, 3, 2}));
  });
  line("eight mesh dims on sixteen tensor dims", [] {
    return Problem(MeshJson(Uneven8()), "f32[" + Repeated("13", 16, ",") + "]", kUp,
                   "S(15),S(14),S(13),S(12),S(11),S(10),S(9),S(8)");
  });
  line("seven with casts, in order", [] {
    return Problem(MeshJson({3, 5, 7, 2, 3, 5, 2}), "bf16[1009,2003,777,55]", "P,P,S(0),S(1),R,R,P",
                   "S(2),S(3),S(1),S(0),S(0),S(1),R",
                   R"("to_dtype":"f32","reproducibility":"ordered")");
  });
  line("48 ranks in five dims onto another mesh, with a price of groups", [] {
    return Problem(MeshJson({2, 3, 2, 2, 2}), kTensor4, "P,P,R,S(1),S(2)", "S(0)",
                   R"("expected_uses":3,"to_mesh":)" + MeshJson({48}));
  });
  line("the same within a limit on memory", [] {
    return Problem(MeshJson({2, 3, 2, 2, 2}), kTensor4, "P,P,R,S(1),S(2)", "S(0),S(1),S(2)",
                   R"("expected_uses":3,"max_memory":"400MiB","to_mesh":)" +
                       MeshJson({4, 4, 3}, "[" + Numbers(10, 57) + "]"));
  });
  line("a ragged cut of 5,000 sizes", [] {
    return Problem(MeshJson({5000, 4, 4}), fmt::format("f32[{},37,41]", RaggedSum(5000)),
                   RaggedText(5000) + ",S(1),S(2)", "S(1),S(2),S(1)");
  });
  line("a ragged cut of 5,000 sizes onto another mesh", [] {
    return Problem(MeshJson({5000, 4}), fmt::format("f32[{},37]", RaggedSum(5000)),
                   RaggedText(5000) + ",S(1)", "S(1),S(0)", "\"to_mesh\":" + MeshJson({4, 4999}));
  });
  line("a ragged cut beside 100,000 ranks", [] {
    return Problem(MeshJson({1000, 100, 1000}), fmt::format("f32[{},3700,4100]", RaggedSum(1000)),
                   RaggedText(1000) + ",S(1),S(2)", "S(1),S(2),S(0)");
  });
  line(
      "sizes of ragged cuts beyond what a tensor has",
      [] { return Problem(MeshJson({2}), "f32[4]", "S(0){9223372036854775807,9}", "R"); },
      "INVALID_ARGUMENT");
  line(
      "a million mesh dims",
      [] {
        return fmt::format(
            R"({{"id":1,"mesh":{{"dims":[{}]}},"tensor":"f32[1]","from":"R","to":"R"}})",
            Repeated(R"(["a",1])", 1000000, ","));
      },
      "INVALID_ARGUMENT");
  line(
      "a million tensor dims",
      [] { return Problem(MeshJson({2}), "f32[" + Repeated("1", 1000000, ",") + "]", "R", "R"); },
      "INVALID_ARGUMENT");
  line(
      "a million placements",
      [] { return Problem(MeshJson({2}), "f32[4]", Repeated("S(0)", 1000000, ","), "R"); },
      "INVALID_ARGUMENT");
  line("a million groups", [] {
    return Problem(
        MeshJson({2, 2}), "f32[4]", "S(0),R", "R,R",
        "\"new_groups\":false,\"existing_groups\":\"" + Repeated("m0,m1", 1000000, ";") + "\"");
  });
  // Text.
  line(
      "a name of a megabyte",
      [] {
        return fmt::format(
            R"({{"id":1,"mesh":{{"dims":[["{}",2]]}},"tensor":"f32[4]","from":"R","to":"R"}})",
            std::string(1 << 20, 'n'));
      },
      "INVALID_ARGUMENT");
  line(
      "a tensor of a megabyte of control characters",
      [] { return Problem(MeshJson({2}), Repeated("\\u001b[2J\\u009b", 1 << 17), "R", "R"); },
      "INVALID_ARGUMENT");
  line(
      "an id of a megabyte", [] { return "{\"id\":\"" + std::string(1 << 20, 'i') + "\"}"; },
      "at most 200");
  line(
      "an id that turns the direction of writing", [] { return "{\"id\":\"\xe2\x80\xae\"}"; },
      "u202e");
  line(
      "a key of a megabyte",
      [] {
        return Problem(MeshJson({2}), "f32[4]", "R", "R",
                       "\"" + std::string(1 << 20, 'k') + "\":1");
      },
      "fingerprint");
  line(
      "a file that a line names",
      [] {
        return Problem(MeshJson({2}), "f32[4]", "R", "R",
                       "\"topology\":\"" + WriteFile("secret.json", "secret") + "\"");
      },
      "--allow-files");
  line(
      "numbers that do not fit",
      [] { return Problem(MeshJson({2}), "f32[4]", "R", "R", R"("reduce_block":1e999)"); },
      "error");
  line(
      "a topology of 100,000 levels",
      [] {
        return Problem(
            MeshJson({2}), "f32[4]", "R", "R",
            "\"topology\":{\"levels\":[" +
                Repeated(R"({"name":"a","domain_size":2,"bandwidth_gbps":1,"latency_ns":1})",
                         100000, ",") +
                "]}");
      },
      "INVALID_ARGUMENT");
  // JSON.
  line(
      "nested a million times", [] { return std::string(1000000, '['); }, "nested deeper");
  line(
      "9,999 keys in each of many objects",
      [] {
        std::string object;
        for (int i = 0; i < 9999; ++i) object += fmt::format("{}\"{}\":0", i > 0 ? "," : "", i);
        return "[" + Repeated("{" + object + "}", 150, ",") + "]";
      },
      "is not an object");
  line(
      "10,001 keys",
      [] {
        std::string object;
        for (int i = 0; i < 10001; ++i) object += fmt::format("{}\"{}\":0", i > 0 ? "," : "", i);
        return "{" + object + "}";
      },
      "at most 10000");
  line(
      "a key twice", [] { return R"({"id":1,"id":2})"s; }, "appears twice");
  line(
      "a line of 17 MiB", [] { return std::string(size_t{17} << 20, ' '); }, "the most that are");
  line(
      "a NUL in a line", [] { return "{\"id\":1}\0{\"id\":2}"s; }, "INVALID_ARGUMENT");
  line(
      "bytes that are not UTF-8", [] { return "{\"id\":\"\xff\xfe\"}"s; }, "INVALID_ARGUMENT");
  line(
      "an empty line", [] { return ""s; }, "INVALID_ARGUMENT");
  // Plans.
  row("a right plan whose reason forges a line", Kind::kRunPlan,
      [] { return PlanWith("every value is reduced", "x)\\nwrong 0\\nfirst wrong: none ("); },
      {0, 1});
  row("a wrong plan whose text forges the verdict", Kind::kCheck,
      [] { return PlanWith("\"engine\": \"local\"", R"("engine": "local\nok 0123456789")"); },
      {0, 1});
  row(
      "a plan whose placements forge the verdict", Kind::kCheck,
      [] { return PlanWith("\"R,R\"", R"("R,R\nok 0123456789abcdef")"); }, {1}, "wrong: ");
  row(
      "a plan whose placements forge the verdict of a run", Kind::kRunPlan,
      [] { return PlanWith("\"R,R\"", R"("R,R\nwrong 0")"); }, {1}, "wrong: ");
  row("a plan with a rule's name of a megabyte", Kind::kCheckBatch,
      [] { return OneLine(PlanWith("\"P,S(0)\"", "\"" + std::string(1 << 20, 'P') + "\"")); }, {1});
  row("a plan of 20,000 steps", Kind::kCheckBatch, [] { return PlanOfSteps("a=4", 20000); }, {1});
  row("a plan of 100 steps between 4 million ranks", Kind::kCheckBatch,
      [] { return PlanOfSteps("a=4194304", 100); }, {1});
  row(
      "a plan cut short", Kind::kCheck, [] { return PlanWith("\"steps\"", "").substr(0, 300); },
      {3}, "plan.json: ");
  row(
      "a plan of 33 MiB", Kind::kCheck, [] { return std::string(size_t{33} << 20, '{'); }, {3},
      "the most that are read");
  // Documents of many plans.
  row("a document of many rows", Kind::kCheck,
      [] {
        std::string plan;
        for (const char c : PlanWith("all_reduce", "all_reduce")) {
          if (c != ' ' && c != '\n') plan += c;
        }
        const std::string one = DocumentRow(plan);
        return Document(Repeated(one, (int64_t{31} << 20) / (std::ssize(one) + 1), ","),
                        R"("total":{})");
      },
      {1, 3});
  row(
      "a document of 400,000 rows without plans", Kind::kCheck,
      [] { return Document(Repeated(DocumentRow("{}"), 400000, ","), R"("total":{})"); }, {3},
      "row 0: plan: key 'format' is missing");
  row(
      "a document with one plan of 30 MiB", Kind::kCheck,
      [] {
        return Document(
            DocumentRow(R"({"format":[)" + Repeated("0", int64_t{15} << 20, ",") + "]}"),
            R"("total":{})");
      },
      {3}, "row 0: plan: 'format' is [0,0");
  row(
      "a round of 4 million parts", Kind::kCheck,
      [] { return DocumentWith(R"("rows": [)", R"("rows": [)" + Repeated("[0,1],", 4000000)); },
      {1}, "wrong: round 0: row 0 has 1 tensors");
  row(
      "500,000 rounds", Kind::kCheck,
      [] {
        return DocumentWith(R"("rounds": [)",
                            R"("rounds": [)" + Repeated(R"({"repeat":1,"rows":[[0,1]]},)", 500000));
      },
      {1}, "wrong: round 1: row 0 has 1 tensors");
  row(
      "a document of control characters", Kind::kCheck,
      [] { return DocumentWith(R"("sent")", R"("\u001b[2J\u009b")"); }, {1},
      "wrong: together: busiest: direction is ");
  row(
      "links of 2^31 - 1 ranks", Kind::kCheck,
      [] {
        const std::string plan =
            OneLine(Meshift({"plan", "--mesh", "a=2147483647", "--tensor", "f32[1024]", "--from",
                             "S(0)", "--to", "S(0)", "--format", "json"})
                        .out);
        return Document(
            DocumentRow(plan),
            R"("total":{"parameters":1,"collectives":0,"bytes_sent":0,"est_ns":0},)"
            R"("lower_bound":{"bytes_sent":0,"est_ns":0},"together":{"busiest":{},"bound_ns":0})");
      },
      {1}, "wrong: scale: ");
  // Lines that are planned together.
  row(
      "2^31-1 ranks together", Kind::kTogether,
      [] { return Problem(MeshJson({2147483647}), "f32[1024]", "S(0)", "S(0)"); }, {1},
      "max_work = 536870912");
  row("20,000 lines, each on a mesh of its own", Kind::kTogether,
      [] {
        std::string lines;
        for (int i = 0; i < 20000; ++i) {
          lines += fmt::format(
              "{{\"mesh\":{{\"dims\":[[\"a{}\",2]]}},\"tensor\":\"f32[8]\",\"from\":\"S(0)\","
              "\"to\":"
              "\"R\"}}\n",
              i);
        }
        return lines;
      },
      {0, 1});
  row(
      "300,000 lines", Kind::kTogether,
      [] { return Repeated(Problem(MeshJson({2}), "f32[8]", "S(0)", "R"), 300000, "\n"); }, {1},
      "max_work = 536870912");
  row("8,000 lines on one mesh", Kind::kTogether,
      [] { return Repeated(Problem(MeshJson({8}), "f32[64]", "S(0)", "R"), 8000, "\n"); }, {0, 1});
  row(
      "a line of 17 MiB together", Kind::kTogether,
      [] { return std::string(size_t{17} << 20, ' '); }, {3}, "line 1: the line has more than");
  row(
      "33 MiB of lines", Kind::kTogether, [] { return std::string(size_t{33} << 20, '\n'); }, {3},
      "the most that are read");
  row(
      "counts that overflow", Kind::kTogether,
      [] {
        return Repeated(
            Problem(MeshJson({8}), "f32[64]", "S(0)", "R", R"("count":9223372036854775807)"), 3,
            "\n");
      },
      {0}, "9223372036854775807");
  // Paths that are not regular files.
  row("a FIFO", Kind::kCheck, Special([](const char* path) { return mkfifo(path, 0600); }), {3},
      "it is a FIFO");
  row("a FIFO for a topology", Kind::kTopology,
      Special([](const char* path) { return mkfifo(path, 0600); }), {3}, "it is a FIFO");
  row("a link to a device", Kind::kModel,
      Special([](const char* path) { return symlink("/dev/zero", path); }), {3},
      "it is a symbolic link");
  row("a folder", Kind::kRules, Special([](const char* path) { return mkdir(path, 0700); }), {3},
      "it is a folder");
  row(
      "a device", Kind::kCheck, [] { return "/dev/zero"s; }, {3}, "it is a device");
  row("a FIFO for a rank's tensor", Kind::kLoad,
      Special([](const char* path) { return mkfifo(path, 0600); }), {3}, "it is a FIFO");
  // Models, rules, arrays.
  row("a model of 400,000 parameters", Kind::kModel,
      [] {
        std::string parameters;
        for (int i = 0; i < 400000; ++i) {
          parameters += fmt::format("{}{{\"name\":\"p{}\",\"shape\":[{},64],\"tp_dim\":0}}",
                                    i > 0 ? "," : "", i, i + 1);
        }
        return R"({"model":"m","dtype":"bf16","parameters":[)" + parameters + "]}";
      },
      {0, 1});
  row(
      "a parameter's name of a megabyte", Kind::kModel,
      [] {
        return R"({"model":"m","dtype":"bf16","parameters":[{"name":")" +
               std::string(1 << 20, 'x') + R"(","shape":[4],"tp_dim":0}]})";
      },
      {3}, "at most 200");
  row("a parameter's name of control characters", Kind::kModel,
      [] {
        return R"({"model":"\u001b[2J","dtype":"bf16","parameters":[{"name":"\u001b[2J\nok",)"
               R"("shape":[4,4],"tp_dim":0}]})"s;
      },
      {0});
  row("rules of many stars", Kind::kRules,
      [] {
        return R"({"rules":[)" +
               Repeated(R"({"match":")" + Repeated("a*", 99) + R"(b","from":"R","to":"R"})", 20000,
                        ",") +
               "]}";
      },
      {1, 2});
  row(
      "a rule's pattern with a NUL", Kind::kRules,
      [] { return R"({"rules":[{"match":"model\u0000*","from":"R","to":"R"}]})"s; }, {2},
      "none of the 1 rules");
  row("an array's header that says much", Kind::kLoad,
      [] {
        return Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                   Repeated("9223372036854775807", 2000, ",") + "), }");
      },
      {3});
  row("an array's header of 65,535 brackets", Kind::kLoad,
      [] { return Npy(std::string(65535, '(')); }, {3});
  return rows;
}

std::vector<std::string> ArgsOf(const Row& row, const std::string& path) {
  const std::vector<std::string> problem = {"--mesh", "a=2,b=2", "--tensor", "f32[4,4]",
                                            "--from", "S(0),R",  "--to",     "R,R"};
  const auto with = [&](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  switch (row.kind) {
    case Kind::kPlanBatch:
      return {"plan", "--batch", path};
    case Kind::kTogether:
      return {"plan", "--together", "--batch", path};
    case Kind::kCheckBatch:
      return {"check", "--batch", path};
    case Kind::kCheck:
      return {"check", path};
    case Kind::kModel:
      return {"plan", "--model", path, "--mesh", "a=2,b=2", "--from", "S(0),TP", "--to", "R,TP"};
    case Kind::kRules:
      return {"plan",
              "--model",
              WriteFile("model.json", R"({"model":"m","dtype":"bf16",
          "parameters":[{"name":")" + std::string(150, 'a') +
                                          R"(","shape":[4,4],"tp_dim":0}]})"),
              "--mesh",
              "a=2,b=2",
              "--rules",
              path};
    case Kind::kTopology:
      return with(with({"plan"}, problem), {"--topology", path});
    case Kind::kRunPlan:
      return {"run", "--plan", path};
    case Kind::kLoad:
      return with(with({"run"}, problem), {"--load", path.substr(0, path.rfind('/'))});
  }
  return {};
}

// Writes the row's content to a file, or makes its special file. Returns the path.
std::string PathOf(const Row& row) {
  const std::string content = row.content();
  if (row.kind == Kind::kLoad) {
    const std::string folder = WriteFile("folder", "") + ".d";
    mkdir(folder.c_str(), 0700);
    const std::string path = folder + "/source.rank00000.npy";
    unlink(path.c_str());
    if (content[0] == '/') {
      EXPECT_EQ(std::rename(content.c_str(), path.c_str()), 0);
    } else {
      std::ofstream(path, std::ios::binary) << content;
    }
    return path;
  }
  if (!content.empty() && content[0] == '/') return content;
  const bool batch = row.kind == Kind::kPlanBatch || row.kind == Kind::kCheckBatch;
  const std::string rest =
      row.kind == Kind::kPlanBatch
          ? "\n" + Problem(MeshJson({2}), "f32[4]", "S(0)", "R", R"("comment":0)") + "\n"
          : "\n" + OneLine(PlanWith("\"version\"", "\"version\"")) + "\n";
  return WriteFile("plan.json", batch ? content + rest : content);
}

TEST(Hostile, EachIsRefusedOrAnsweredInBounds) {
  int count = 0;
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.name);
    ++count;
    const Answer answer = QuickestOf(3, ArgsOf(row, PathOf(row)));
    fmt::print("{:6.2f} s {:5} MiB  exit {}  {}\n", answer.seconds, answer.max_rss_kib >> 10,
               answer.code, row.name);
    std::fflush(stdout);
    EXPECT_TRUE(row.codes.contains(answer.code))
        << answer.code << "\n"
        << answer.out.substr(0, 2000) << answer.err.substr(0, 2000);
    EXPECT_LE(answer.seconds, answer.max_seconds);
    const std::string all = answer.out + answer.err;
    EXPECT_NE(all.find(row.says), std::string::npos) << all.substr(0, 2000);
    // The output has only visible characters and line ends.
    const std::vector<std::string> lines = absl::StrSplit(all, '\n');
    for (const std::string& line : lines) EXPECT_EQ(Printable(line), line);
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(answer.err, '\n'))) {
      EXPECT_LE(line.size(), kMaxMessage) << line.substr(0, 2000);
    }
    const std::vector<std::string> answers = absl::StrSplit(answer.out, '\n');
    if (row.kind == Kind::kPlanBatch) {
      ASSERT_EQ(answers.size(), 3) << answer.out.substr(0, 2000) << answer.err;
      EXPECT_NE(answers[1].find("fingerprint"), std::string::npos) << answers[1];
    } else if (row.kind == Kind::kCheckBatch) {
      ASSERT_EQ(answers.size(), 3) << answer.out.substr(0, 2000) << answer.err;
      EXPECT_NE(answers[1].find("\"ok\":true"), std::string::npos) << answers[1];
    } else if (row.kind == Kind::kCheck) {
      // One line with a verdict.
      EXPECT_LE(answers.size(), 2) << answer.out.substr(0, 2000);
      EXPECT_LE(answers[0].size(), kMaxMessage) << answers[0].substr(0, 2000);
    } else if (row.kind == Kind::kRunPlan) {
      // Only a run that was right says so.
      EXPECT_EQ(std::count(answers.begin(), answers.end(), "wrong 0"), answer.code == 0 ? 1 : 0)
          << answer.out;
    }
    // The message of a line.
    const size_t message = answer.out.find("\"message\":\"");
    if (message != std::string::npos) {
      EXPECT_LE(answer.out.find('"', message + 11) - message - 11, kMaxMessage);
    }
  }
  EXPECT_GE(count, 60);
}

}  // namespace
}  // namespace meshift::cli

#include "cli/calibrate_logs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/io.h"
#include "meshift/topology.h"
#include "planner/calibration/fit.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

using ObservationKind = Observation::Kind;

// The list of devices of hosts with these numbers of ranks, in order.
std::string Devices(const std::vector<int>& per_host) {
  std::string lines = "# Using devices\n";
  int rank = 0;
  for (size_t host = 0; host < per_host.size(); ++host) {
    for (int i = 0; i < per_host[host]; ++i, ++rank) {
      lines += fmt::format(
          "#  Rank {:2} Group  0 Pid {} on     node{} device {:2} [0000:{:02x}:00] NVIDIA H100\n",
          rank, 1000 + rank, host, i, i);
    }
  }
  return lines;
}

struct Row {
  int64_t bytes;
  int64_t ns;
};

// The log of a collective on these hosts, in the newer form, which names the collective.
std::string Log(const std::string& name, const std::vector<int>& per_host,
                const std::vector<Row>& rows) {
  std::string text = fmt::format("# Collective test starting: {}\n", name) + Devices(per_host) +
                     "#\n"
                     "#       size         count      type   redop    root     time   algbw   "
                     "busbw  #wrong     time   algbw   busbw  #wrong\n"
                     "#        (B)    (elements)                               (us)  (GB/s)  "
                     "(GB/s)             (us)  (GB/s)  (GB/s)\n";
  double ranks = 0;
  for (const int n : per_host) ranks += n;
  const bool sums = name == "all_reduce_perf" || name == "reduce_scatter_perf";
  const bool blocks = name != "all_reduce_perf" && name != "broadcast_perf";
  for (const auto& [bytes, ns] : rows) {
    const double us = static_cast<double>(ns) / 1000;
    const double alg = static_cast<double>(bytes) / static_cast<double>(ns);
    const double bus = name == "all_reduce_perf"  ? alg * 2 * (ranks - 1) / ranks
                       : name == "broadcast_perf" ? alg
                                                  : alg * (ranks - 1) / ranks;
    const std::string half = fmt::format(" {:9.2f} {:9.4f} {:9.4f}       0", us, alg, bus);
    text += fmt::format("{:12d} {:12d} {:>8} {:>7} {:>6}{}{}\n", bytes,
                        bytes / 4 / (blocks ? static_cast<int64_t>(ranks) : 1), "float",
                        sums ? "sum" : "none", name == "broadcast_perf" ? 0 : -1, half, half);
  }
  return text;
}

// Rows of 64 KiB to 1 GiB with the times of `truth`.
std::vector<Row> Rows(ObservationKind kind, int64_t ranks, const Topology& truth) {
  std::vector<Row> rows;
  for (int64_t bytes = 1 << 16; bytes <= 1 << 30; bytes *= 4) {
    Observation one{.kind = kind, .num_ranks = ranks};
    one.groups = {.size = ranks, .modes = {{ranks, 1}}};
    one.bytes = kind == ObservationKind::kAllReduce ? bytes : bytes / ranks * (ranks - 1);
    rows.push_back({bytes, TimeOf(one, truth).Ns()});
  }
  return rows;
}

LogTimes Read(const std::vector<std::string>& logs, const std::optional<std::string>& topology) {
  std::istringstream in;
  std::ostringstream out;
  Io io{in, out, out};
  const auto read = ReadLogTimes(logs, topology, io);
  EXPECT_TRUE(read.ok()) << read.status();
  return *read;
}

TEST(CalibrateLogs, PrintsRowsErrorsAndATopology) {
  const Topology truth = *Topology::Parse("h100");
  const std::string reduce =
      WriteFile("r.log", Log("all_reduce_perf", {8}, Rows(ObservationKind::kAllReduce, 8, truth)));
  const std::string gather =
      WriteFile("g.log", Log("all_gather_perf", {8}, Rows(ObservationKind::kBlocks, 8, truth)));
  const std::string broadcast = WriteFile("b.log", Log("broadcast_perf", {8}, {{1024, 9000}}));
  const Outcome outcome =
      Meshift({"calibrate", "--from-nccl-tests", reduce, gather, "--from-nccl-tests", broadcast});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find('{')),
            fmt::format(R"(# meshift calibrate: 3 logs of nccl-tests, 8 ranks
# collective  ranks    bytes  measured    fitted  fitted/measured  algorithm  protocol
all_reduce        8   64 KiB   17.2 us   17.2 us             1.00  tree       LL
all_reduce        8  256 KiB   20.8 us   20.8 us             1.00  tree       LL
all_reduce        8    1 MiB   35.0 us   35.0 us             1.00  tree       LL
all_reduce        8    4 MiB   70.8 us   70.8 us             1.00  tree       LL128
all_reduce        8   16 MiB  145.4 us  145.4 us             1.00  tree       LL128
all_reduce        8   64 MiB  350.2 us  350.2 us             1.00  in-switch  Simple
all_reduce        8  256 MiB    1.1 ms    1.1 ms             1.00  in-switch  Simple
all_reduce        8    1 GiB    4.2 ms    4.2 ms             1.00  in-switch  Simple
all_gather        8   64 KiB   17.5 us   17.5 us             1.00  ring       LL
all_gather        8  256 KiB   19.1 us   19.1 us             1.00  ring       LL
all_gather        8    1 MiB   25.3 us   25.3 us             1.00  ring       LL
all_gather        8    4 MiB   50.3 us   50.3 us             1.00  ring       LL
all_gather        8   16 MiB   91.5 us   91.5 us             1.00  ring       LL128
all_gather        8   64 MiB  221.9 us  221.9 us             1.00  ring       LL128
all_gather        8  256 MiB  735.0 us  735.0 us             1.00  ring       Simple
all_gather        8    1 GiB    2.7 ms    2.7 ms             1.00  ring       Simple
# error of 16 times in all: median 0.0 %, worst 0.0 %
# error of 10 times from 4 MiB on: median 0.0 %, worst 0.0 %
# left out: {}: 1 time of broadcast, which is not fitted
)",
                        broadcast));
  EXPECT_TRUE(Topology::FromJson(outcome.out.substr(outcome.out.find('{'))).ok()) << outcome;
}

TEST(CalibrateLogs, JsonIsTheTopologyAlone) {
  const Topology truth = *Topology::Parse("a100");
  const std::string path =
      WriteFile("j.log", Log("alltoall_perf", {8}, Rows(ObservationKind::kToAll, 8, truth)));
  const Outcome outcome =
      Meshift({"calibrate", "--from-nccl-tests", path, "--topology", "a100", "--format", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(Topology::FromJson(outcome.out).ok()) << outcome;
  const Outcome plan = Meshift({"plan", "--mesh", "a=8", "--tensor", "f32[64]", "--from", "S(0)",
                                "--to", "R", "--topology", WriteFile("cluster.json", outcome.out)});
  EXPECT_EQ(plan.code, 0) << plan;
}

// Hosts are domains unless the topology's text gives others.
TEST(CalibrateLogs, DomainsAreTheHosts) {
  const auto domain = [](const std::vector<int>& hosts,
                         const std::optional<std::string>& topology) {
    const std::string path = WriteFile("d.log", Log("all_reduce_perf", hosts, {{1 << 20, 90000}}));
    return Read({path}, topology).structure.level(0).domain_size;
  };
  EXPECT_EQ(domain({8}, std::nullopt), 8);
  EXPECT_EQ(domain({4}, std::nullopt), 8);  // the host may have more
  EXPECT_EQ(domain({16}, std::nullopt), 16);
  EXPECT_EQ(domain({4, 4}, std::nullopt), 4);
  EXPECT_EQ(domain({4, 4}, "gb200"), 72);
  EXPECT_EQ(domain({4, 4}, "nvlink=8"), 8);
  EXPECT_EQ(domain({4, 4}, "flat"), 0);
  EXPECT_EQ(domain({4, 4}, "h100-efa"), 4);
  EXPECT_EQ(domain({4, 2}, "nvlink=2"), 2);
}

TEST(CalibrateLogs, RowsCountWhatGoesToOthers) {
  const std::string path = WriteFile("c.log", Log("all_gather_perf", {4, 4}, {{8192, 50000}}));
  const LogTimes read = Read({path}, std::nullopt);
  ASSERT_EQ(read.times.size(), 1U);
  EXPECT_EQ(read.times[0].bytes, 8192);
  EXPECT_EQ(read.times[0].observation.bytes, 7168);
  EXPECT_EQ(read.times[0].observation.kind, ObservationKind::kBlocks);
  EXPECT_EQ(read.times[0].observation.ns, 50000);
  EXPECT_EQ(read.times[0].observation.num_ranks, 8);
}

// The argument's name wins over the log's, and that over the file's.
TEST(CalibrateLogs, NamesOfCollectives) {
  std::string text = Log("all_gather_perf", {8}, {{8192, 50000}});
  text.erase(0, text.find('\n') + 1);
  const std::string nameless = WriteFile("some.log", text);
  const auto op = [](const std::string& word) { return Read({word}, std::nullopt).times[0].op; };
  EXPECT_EQ(op("all_gather=" + nameless), NcclTestsOp::kAllGather);
  EXPECT_EQ(op("alltoall_perf=" + nameless), NcclTestsOp::kAllToAll);
  EXPECT_EQ(op(WriteFile("my_alltoall.log", text)), NcclTestsOp::kAllToAll);
  EXPECT_EQ(op(WriteFile("my_alltoall.log", Log("all_gather_perf", {8}, {{8192, 50000}}))),
            NcclTestsOp::kAllGather);
  // '=' may be a part of the name.
  EXPECT_EQ(op(WriteFile("n=8_allgather.log", text)), NcclTestsOp::kAllGather);
  EXPECT_EQ(Meshift({"calibrate", "--from-nccl-tests", nameless}).code, 3);
}

TEST(CalibrateLogs, BadInputIsNamed) {
  const auto error = [](int code, std::vector<std::string> args) {
    args.insert(args.begin(), "calibrate");
    const Outcome outcome = Meshift(args);
    EXPECT_EQ(outcome.code, code) << outcome;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  const std::string good = WriteFile("good.log", Log("all_reduce_perf", {8}, {{1 << 20, 90000}}));
  const auto log = [](const char* name, const std::string& text) { return WriteFile(name, text); };
  EXPECT_EQ(error(3, {"--from-nccl-tests", good + ".gone"}),
            "meshift: " + good + ".gone: cannot be read: No such file or directory\n");
  EXPECT_EQ(error(3, {"--from-nccl-tests", log("empty.log", "")}).find("meshift: "), 0U);
  const std::string one = log("one.log", Log("all_reduce_perf", {1}, {{1 << 20, 90000}}));
  EXPECT_EQ(error(3, {"--from-nccl-tests", one}),
            "meshift: " + one + ": 1 rank; a measurement of links needs at least 2\n");
  const std::string jagged = log("jag.log", Log("all_reduce_perf", {8, 4}, {{1 << 20, 90000}}));
  EXPECT_EQ(
      error(3, {"--from-nccl-tests", jagged}),
      "meshift: " + jagged +
          ": its hosts have 4 to 8 ranks; set the size of a domain by --topology nvlink=SIZE\n");
  const std::string fours = log("four.log", Log("all_reduce_perf", {4, 4}, {{1 << 20, 90000}}));
  const std::string eights = log("eight.log", Log("all_reduce_perf", {8, 8}, {{1 << 20, 90000}}));
  EXPECT_EQ(
      error(3, {"--from-nccl-tests", fours, eights}),
      "meshift: " + eights +
          ": its hosts have 8 ranks, those of an earlier log have 4; set the size of a domain by "
          "--topology nvlink=SIZE\n");
  const std::string broadcast = log("b.log", Log("broadcast_perf", {8}, {{1024, 9000}}));
  EXPECT_EQ(error(3, {"--from-nccl-tests", broadcast}),
            "meshift: " + broadcast +
                ": it has no times of all_reduce, all_gather, reduce_scatter or all_to_all, the "
                "collectives of plans\n");
  EXPECT_EQ(error(2, {"--from-nccl-tests", good, "--format", "xml"}),
            "meshift: --format: unknown format 'xml'; expected text or json\n");
  EXPECT_EQ(error(2, {"--from-nccl-tests", good, "--topology", "k9"})
                .find("meshift: --topology: topology 'k9'"),
            0U);
  for (const std::vector<std::string>& other : std::vector<std::vector<std::string>>{
           {"--engine", "local"}, {"--ranks", "8"}, {"--repeat", "2"}, {"--timeout", "5"}}) {
    EXPECT_EQ(error(2, {"--from-nccl-tests", good, other[0], other[1]}),
              "meshift: " + other[0] + " excludes --from-nccl-tests; --help lists the options\n");
  }
  EXPECT_NE(error(2, {"--from-nccl-tests"}).find("--from-nccl-tests"), std::string::npos);
  EXPECT_NE(error(2, {"--from-nccl-tests", ""}).find("the path is empty"), std::string::npos);
}

// A log with a flipped bit or a missing end is refused with its name, or fitted.
TEST(CalibrateLogs, DamagedLogs) {
  const std::string good = Log("reduce_scatter_perf", {4, 4},
                               Rows(ObservationKind::kBlocks, 8, *Topology::Parse("h100-efa")));
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    std::string bad = good;
    const size_t at = random() % bad.size();
    if (i % 3 == 0) {
      bad.resize(at);
    } else {
      bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    }
    const std::string path = WriteFile("damaged.log", bad);
    const Outcome outcome = Meshift({"calibrate", "--from-nccl-tests", path, "--format", "json"});
    if (outcome.code == 0) {
      EXPECT_EQ(outcome.err, "");
      EXPECT_TRUE(Topology::FromJson(outcome.out).ok()) << outcome;
      continue;
    }
    ++refused;
    EXPECT_EQ(outcome.code, 3) << outcome;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.find("meshift: " + path + ": "), 0U) << outcome;
  }
  EXPECT_GT(refused, 10);
  EXPECT_LT(refused, 59);
}

std::vector<FittedTime> Large(const std::vector<LogTime>& times, const Topology& fitted) {
  std::vector<FittedTime> large;
  for (const LogTime& time : times) {
    if (time.bytes < 4 << 20) continue;
    large.push_back({time.bytes, time.observation.ns, TimeOf(time.observation, fitted).Ns()});
  }
  return large;
}

FitError Error(const std::vector<FittedTime>& times) {
  std::vector<double> ratios;
  for (const FittedTime& time : times) {
    ratios.push_back(static_cast<double>(time.fitted_ns) / static_cast<double>(time.measured_ns));
  }
  return ErrorOf(ratios);
}

// Real logs, from --test_env=MESHIFT_NCCL_SAMPLES=FOLDER. Every second row predicts the others.
TEST(CalibrateLogs, FitsTheSamples) {
  const char* const folder = std::getenv("MESHIFT_NCCL_SAMPLES");
  if (folder == nullptr) GTEST_SKIP() << "MESHIFT_NCCL_SAMPLES does not name a folder of samples";
  std::vector<std::string> logs;
  for (const char* const name : {"allreduce", "allgather", "reducescatter", "alltoall"}) {
    logs.push_back(fmt::format("{}/nccl_tests_{}.log", folder, name));
  }
  for (const char* const preset : {"h100", "a100"}) {
    const LogTimes read = Read(logs, preset);
    EXPECT_EQ(read.structure.level(0).domain_size, 8);
    for (const int kept : {0, 1, 2}) {  // 2: all rows
      SCOPED_TRACE(testing::Message() << preset << " " << kept);
      std::vector<Observation> fit;
      std::vector<LogTime> others;
      for (size_t i = 0; i < read.times.size(); ++i) {
        const bool is_kept = kept == 2 || static_cast<int>(i % 2) == kept;
        if (is_kept) fit.push_back(read.times[i].observation);
        if (!is_kept || kept == 2) others.push_back(read.times[i]);
      }
      const auto fitted = FitObservations(read.structure, fit);
      ASSERT_TRUE(fitted.ok()) << fitted.status();
      const FitError error = Error(Large(others, *fitted));
      EXPECT_GE(error.count, 20U);
      EXPECT_LE(error.median, 0.10);
      EXPECT_LE(error.worst, 0.25);
    }
  }
}

}  // namespace
}  // namespace meshift::cli

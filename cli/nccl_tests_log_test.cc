#include "cli/nccl_tests_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "cli/nccl_tests_op.h"

namespace meshift::cli {
namespace {

using Op = NcclTestsOp;

constexpr char kNewHead[] =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  "
    "algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us) "
    " "
    "(GB/s)  (GB/s)\n";
// The old head of all_reduce, reduce_scatter and (with blank cells) all_to_all.
constexpr char kOldRedopHead[] =
    "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   "
    "busbw  error\n";
constexpr char kOldGatherHead[] =
    "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  "
    "error\n";

// The list of devices for `per_host` ranks, in order.
std::string Devices(const std::vector<int>& per_host) {
  std::string lines = "# Using devices\n";
  int rank = 0;
  for (size_t host = 0; host < per_host.size(); ++host) {
    for (int i = 0; i < per_host[host]; ++i) {
      lines += fmt::format(
          "#  Rank {:2} Group  0 Pid {} on     node{} device {:2} [0000:{:02x}:00] NVIDIA H100 "
          "80GB "
          "HBM3\n",
          rank, 100 + rank, host, i, 16 + i);
      ++rank;
    }
  }
  return lines;
}

// The columns time, algbw and busbw.
std::string Times(int64_t bytes, double us, double factor) {
  const double alg = static_cast<double>(bytes) / us / 1e3;
  return fmt::format("{:.2f} {:.2f} {:.2f}", us, alg, alg * factor);
}

// `names`: the columns redop and root. Times in place are a microsecond longer.
std::string Row(int64_t bytes, int64_t count, const std::string& names, double us, double factor,
                const std::string& wrong = "0") {
  return fmt::format("{:12}  {:12}  float  {}  {}  {}  {}  {}\n", bytes, count, names,
                     Times(bytes, us, factor), wrong, Times(bytes, us + 1, factor), wrong);
}

// Rows of 1 and 4 MiB.
std::string Rows(int64_t blocks, const std::string& names, double factor) {
  return Row(1 << 20, (1 << 18) / blocks, names, 50, factor) +
         Row(4 << 20, (1 << 20) / blocks, names, 125.5, factor);
}

std::string AllReduce(const std::string& head = "# Collective test starting: all_reduce_perf\n") {
  return head + Devices({8}) + kNewHead + Rows(1, "sum -1", 1.75);
}

// The collective's name, or the error.
std::string Told(const std::string& text, std::optional<Op> hint = std::nullopt) {
  const auto log = ParseNcclTestsLog(text, hint);
  return log.ok() ? std::string(Name(log->op)) : Message(log.status());
}

NcclTestsLog Parsed(const std::string& text, std::optional<Op> hint = std::nullopt) {
  const auto log = ParseNcclTestsLog(text, hint);
  EXPECT_TRUE(log.ok()) << log.status();
  return log.ok() ? *log : NcclTestsLog();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// `text` with `label` before every line.
std::string Labelled(const std::string& text, const std::string& label, const std::string& end) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) out += label + line + end;
  return out;
}

constexpr char kJson[] = R"({"version":2,"args":["\/opt\/all_reduce_perf","-J","a.json"],"env":[],
"config":{"nthreads":1,"ngpus":1,"devices":[
{"rank":0,"group":0,"pid":7,"hostname":"a","device":0,"device_hex":"[0000:10:00","device_info":"H100"},
{"rank":1,"group":0,"pid":8,"hostname":"a","device":1,"device_hex":"[0000:11:00","device_info":"H100"},
{"rank":2,"group":0,"pid":9,"hostname":"b","device":0,"device_hex":"[0000:10:00","device_info":"H100"}]},
"results":[
{"size":0,"count":0,"type":"float","redop":"sum","root":"    -1","out_of_place":
{"time":5.5,"alg_bw":0.0,"bus_bw":0.0,"nwrong":0.0},"in_place":{"time":5.5,"alg_bw":0.0,
"bus_bw":0.0,"nwrong":0.0}},
{"size":4000000,"count":1000000,"type":"float","redop":"sum","root":"    -1","out_of_place":
{"time":40.0,"alg_bw":100.0,"bus_bw":133.333333,"nwrong":2.0},"in_place":{"time":50.0,
"alg_bw":80.0,"bus_bw":106.666667,"nwrong":null},"actual_iterations":20}],
"out_of_bounds":{"count":3,"okay":"false"},"errors":[]})";

TEST(NcclTestsLog, ReadsATable) {
  const NcclTestsLog log = Parsed(AllReduce());
  EXPECT_EQ(log.op, Op::kAllReduce);
  EXPECT_EQ(log.ranks, 8);
  EXPECT_EQ(log.ranks_per_host, std::vector<int64_t>({8}));
  EXPECT_FALSE(log.scattered_hosts);
  EXPECT_EQ(log.device, "NVIDIA H100 80GB HBM3");
  EXPECT_FALSE(log.mixed_devices);
  ASSERT_EQ(log.rows.size(), 2);
  EXPECT_EQ(log.rows[0], (NcclTestsRow{1 << 20, "float", 50000, 51000, 0}));
  EXPECT_EQ(log.rows[1], (NcclTestsRow{4 << 20, "float", 125500, 126500, 0}));
}

TEST(NcclTestsLog, NamesAreFoundInWordsAndFiles) {
  EXPECT_EQ(ParseNcclTestsOp("all_gather"), Op::kAllGather);
  EXPECT_EQ(ParseNcclTestsOp("AllGather"), Op::kAllGather);
  EXPECT_EQ(ParseNcclTestsOp("alltoall_perf"), Op::kAllToAll);
  EXPECT_EQ(ParseNcclTestsOp("all-to-all"), Op::kAllToAll);
  EXPECT_EQ(ParseNcclTestsOp("send_recv"), Op::kSendRecv);
  EXPECT_EQ(ParseNcclTestsOp("alltoallv"), std::nullopt);
  EXPECT_EQ(ParseNcclTestsOp(""), std::nullopt);
  EXPECT_EQ(ParseNcclTestsOp("perf"), std::nullopt);
  EXPECT_EQ(ParseNcclTestsOp(std::string(1000, 'a')), std::nullopt);
  for (int i = 0; i < kNumNcclTestsOps; ++i) {
    EXPECT_EQ(ParseNcclTestsOp(Name(static_cast<Op>(i))), static_cast<Op>(i));
  }
  EXPECT_EQ(NcclTestsOpOfFile("reduce/nccl_tests_allgather.log"), Op::kAllGather);
  EXPECT_EQ(NcclTestsOpOfFile("reduce_scatter_16.txt"), Op::kReduceScatter);
  EXPECT_EQ(NcclTestsOpOfFile("all-reduce.json"), Op::kAllReduce);
  EXPECT_EQ(NcclTestsOpOfFile("reduce.log"), Op::kReduce);
  EXPECT_EQ(NcclTestsOpOfFile("allreduce_and_allgather.log"), std::nullopt);
  EXPECT_EQ(NcclTestsOpOfFile("alltoallv.log"), std::nullopt);
  EXPECT_EQ(NcclTestsOpOfFile("results.log"), std::nullopt);
}

TEST(NcclTestsLog, TheLogNamesItsCollective) {
  EXPECT_EQ(Told(AllReduce()), "all_reduce");
  EXPECT_EQ(Told(AllReduce("$ mpirun -np 8 /opt/bin/all_reduce_perf_mpi -b 1M -e 4M\n")),
            "all_reduce");
  // Two names in other lines count as none; the rows decide.
  EXPECT_EQ(Told(AllReduce("all_reduce_perf or all_gather_perf\n")), "all_reduce");
  const std::string gather = Devices({8}) + kNewHead + Rows(8, "none -1", 0.875);
  EXPECT_EQ(Told("# Collective test starting: all_gather_perf\n" + gather), "all_gather");
  EXPECT_EQ(Told("# Collective test starting: alltoall_perf\n" + gather), "all_to_all");
  EXPECT_EQ(Told(gather + "# Collective test concluded: all_gather_perf\n"), "all_gather");
}

TEST(NcclTestsLog, TheRowsTellTheCollective) {
  const std::string devices = Devices({8});
  EXPECT_EQ(Told(devices + kOldRedopHead + Rows(1, "sum", 1.75)), "all_reduce");
  EXPECT_EQ(Told(devices + kOldRedopHead + Rows(8, "sum", 0.875)), "reduce_scatter");
  EXPECT_EQ(Told(devices + kOldRedopHead + Rows(8, "", 0.875)), "all_to_all");
  EXPECT_EQ(Told(devices + kOldGatherHead + Rows(8, "", 0.875)), "all_gather");
  EXPECT_EQ(Told(devices + kNewHead + Rows(8, "max -1", 0.875)), "reduce_scatter");
  EXPECT_EQ(Told(devices + kNewHead + Rows(1, "none 0", 1)), "broadcast");
  EXPECT_EQ(Told(devices + kNewHead + Rows(1, "sum 3", 1)), "reduce");
  EXPECT_EQ(Told(devices + kNewHead + Rows(1, "sum -1", 1)), "sendrecv");
  EXPECT_EQ(Told(devices + kNewHead + Rows(8, "none -1", 0.875)),
            "the log does not name its collective, and the rows fit all_gather or all_to_all; name "
            "it");
  EXPECT_EQ(Told(devices + kNewHead + Rows(8, "none 0", 0.875)),
            "the log does not name its collective, and the rows fit gather or scatter; name it");
  // For two ranks busbw of all_reduce equals algbw, as for sendrecv.
  EXPECT_EQ(Told(Devices({2}) + kNewHead + Rows(1, "sum -1", 1)),
            "the log does not name its collective, and the rows fit all_reduce or sendrecv; name "
            "it");
  EXPECT_EQ(Told(Devices({2}) + kNewHead + Rows(1, "sum -1", 1), Op::kSendRecv), "sendrecv");
}

TEST(NcclTestsLog, WithoutDevicesTheRowsTellTheRanksWhereTheyCan) {
  const NcclTestsLog scatter = Parsed(kNewHead + Rows(16, "sum -1", 15. / 16));
  EXPECT_EQ(scatter.op, Op::kReduceScatter);
  EXPECT_EQ(scatter.ranks, 16);
  EXPECT_TRUE(scatter.ranks_per_host.empty());
  EXPECT_EQ(scatter.device, "");
  const NcclTestsLog reduce = Parsed(kNewHead + Rows(1, "sum -1", 1.9));
  EXPECT_EQ(reduce.op, Op::kAllReduce);
  EXPECT_EQ(reduce.ranks, std::nullopt);
  EXPECT_EQ(
      Told(kNewHead + Row(1 << 20, 1 << 15, "sum -1", 50, 0.875) +
           Row(1 << 20, 1 << 16, "sum -1", 50, 0.75)),
      "the bytes are 8 times those of the count on line 3 and 4 times on line 4; both factors must "
      "be the number of ranks");
}

TEST(NcclTestsLog, ContradictionsAreRefusedWithBothNamed) {
  EXPECT_EQ(Told(AllReduce(), Op::kAllGather),
            "line 1 names all_reduce, but the log is given as all_gather");
  EXPECT_EQ(
      Told(Devices({8}) + kNewHead + Rows(1, "sum -1", 1.75), Op::kAllGather),
      "line 12: 1048576 bytes are 1 times count 262144 of \"float\"; for all_gather the factor "
      "must be 8, but the log is given as all_gather; the rows fit all_reduce");
  EXPECT_EQ(Told(Devices({8}) + kNewHead + Rows(8, "sum -1", 0.875), Op::kAllGather),
            "line 12: redop is \"sum\"; all_gather has none, but the log is given as all_gather; "
            "the rows fit reduce_scatter");
  EXPECT_EQ(Told(AllReduce("# Collective test starting: sendrecv_perf\n")),
            "line 13: busbw 36.7 is 1.75 times algbw 20.97; for sendrecv of 8 ranks the factor "
            "must be 1, but line 1 names sendrecv; the rows fit all_reduce");
  EXPECT_EQ(Told(Devices({8}) + kNewHead + Rows(1, "none -1", 1), Op::kBroadcast),
            "line 12: root is -1; broadcast has one, but the log is given as broadcast; the "
            "rows fit sendrecv");
  EXPECT_EQ(Told(Devices({8}) + kNewHead + Rows(8, "none -1", 0.875), Op::kReduceScatter),
            "line 12: redop is missing; reduce_scatter has one, but the log is given as "
            "reduce_scatter; the rows fit all_gather or all_to_all");
  EXPECT_EQ(Told(Devices({8}) + kOldGatherHead + Rows(8, "", 0.875), Op::kAllToAll),
            "line 11: the column redop is missing; all_to_all has it, but the log is given as "
            "all_to_all; the rows fit all_gather");
  EXPECT_EQ(Told(Devices({8}) + kOldRedopHead + Rows(8, "", 0.875), Op::kAllGather),
            "line 11: the table has redop and not root; all_gather has neither, but the log is "
            "given as all_gather; the rows fit all_to_all");
  EXPECT_EQ(Told(Devices({8}) + kOldGatherHead + Rows(1, "", 1), Op::kBroadcast),
            "line 11: root is missing; broadcast has one, but the log is given as broadcast; "
            "the rows fit sendrecv");
  EXPECT_EQ(
      Told(Devices({8}) + kNewHead + Rows(4, "sum -1", 0.75), Op::kAllReduce),
      "line 12: 1048576 bytes are 4 times count 65536 of \"float\"; for all_reduce the factor "
      "must be 1, but the log is given as all_reduce; the rows fit no collective");
  EXPECT_EQ(Told(Devices({8}) + kNewHead + Rows(1, "sum -1", 1.5)),
            "the rows fit no collective; line 12: busbw 31.46 is 1.5 times algbw 20.97; for "
            "all_reduce of 8 ranks the factor must be 1.75");
  EXPECT_EQ(Told(kNewHead + Rows(1, "sum -1", 2.5), Op::kAllReduce),
            "line 3: busbw 52.43 is 2.5 times algbw 20.97; for all_reduce the factor must be "
            "1 to 2, but the log is given as all_reduce; the rows fit no collective");
  EXPECT_EQ(Told(AllReduce() + "# Collective test concluded: all_gather_perf\n"),
            "line 1 names all_reduce and line 15 all_gather; a log must be of one collective");
  EXPECT_EQ(Told(AllReduce("# Collective test starting: alltoallv_perf\n")),
            "line 1: unknown test \"alltoallv_perf\"; expected one of all_reduce all_gather "
            "reduce_scatter all_to_all broadcast reduce sendrecv gather scatter");
}

TEST(NcclTestsLog, HostsMayBeJaggedAndScattered) {
  const NcclTestsLog jagged =
      Parsed(Devices({4, 3, 1}) + kNewHead + Rows(1, "sum -1", 1.75), Op::kAllReduce);
  EXPECT_EQ(jagged.ranks, 8);
  EXPECT_EQ(jagged.ranks_per_host, std::vector<int64_t>({4, 3, 1}));
  EXPECT_FALSE(jagged.scattered_hosts);
  const std::string turns =
      "# Rank 0 Pid 1 on b device 0 [0x00] Tesla\n# Rank 1 Pid 1 on a device 0 [0x00] Tesla\n"
      "# Rank 2 Pid 1 on b device 1 [0x01] Tesla V100\n";
  const NcclTestsLog scattered = Parsed(turns + kNewHead + Rows(1, "sum -1", 4. / 3));
  EXPECT_EQ(scattered.ranks_per_host, std::vector<int64_t>({2, 1}));
  EXPECT_TRUE(scattered.scattered_hosts);
  EXPECT_EQ(scattered.device, "Tesla");
  EXPECT_TRUE(scattered.mixed_devices);
}

TEST(NcclTestsLog, BadDevices) {
  const std::string rows = kNewHead + Rows(1, "sum -1", 1.75);
  EXPECT_EQ(Told(Replaced(Devices({8}), "Rank  3", "Rank  4") + rows),
            "line 5: rank 4 follows rank 2; ranks must be listed from 0 on, each once");
  EXPECT_EQ(Told(Replaced(Devices({8}), "Rank  0", "Rank  1") + rows),
            "line 2: rank 1 is listed first; ranks must be listed from 0 on, each once");
  EXPECT_EQ(Told(Replaced(Devices({8}), "Rank  3 Group  0", "Rank  3 Group  1") + rows),
            "line 5: rank 3 is in group 1, rank 0 in group 0; a log must be of one group "
            "(NCCL_TESTS_SPLIT)");
  EXPECT_EQ(Told("# Rank x Pid 1 on a device 0 [0x00] T\n" + rows),
            "line 1: \"# Rank x Pid 1 on a device 0 [0x00] T\" is not \"# Rank 0 Group 0 Pid 1 on "
            "HOST device 0 [0000:0f:00] NAME\"");
  for (const char* const cut :
       {"# Rank", "# Rank 0 Pid", "# Rank 0 Group x Pid 1 on a device 0 [0] T",
        "# Rank 0 Group 0 Pid 1 on a device 0", "# Rank 0 Pid 1 on a device 0 0 T"}) {
    EXPECT_NE(Told(cut + ("\n" + rows)).find("line 1: \"# Rank"), std::string::npos) << cut;
  }
}

TEST(NcclTestsLog, LinesOfOthersAreSkipped) {
  const NcclTestsLog plain = Parsed(AllReduce());
  std::string noisy = "mpirun noticed 8 of 12 things\n" + AllReduce();
  noisy = Replaced(noisy, "# Using", "node1:12:34 [0] NCCL INFO Bootstrap : 12 34 x\n# Using");
  noisy = Replaced(noisy, "     4194304",
                   "node1:12:34 [0] NCCL INFO Launch\n12 34 way\n\n     4194304");
  EXPECT_EQ(Parsed(noisy), plain);
  EXPECT_EQ(Parsed(Labelled(AllReduce(), "", "\r\n")), plain);
  EXPECT_EQ(Parsed(Labelled(AllReduce(), "[1,0]<stdout>:", "\n")), plain);
  EXPECT_EQ(Parsed(Labelled(AllReduce(), "[prterun-a-1@1,0]<stdout>: ", "\n")), plain);
  EXPECT_EQ(Parsed(Labelled(AllReduce(), " 0: ", "\n")), plain);
  EXPECT_EQ(Parsed(Labelled(AllReduce(), "    ", "\n")), plain);
}

TEST(NcclTestsLog, ARowThatNcclCutsIsCounted) {
  const NcclTestsLog log = Parsed(
      AllReduce() + "  8388608  2097152  float  sum  -1node1:12:34 [0] NCCL INFO Channel 00\n");
  EXPECT_EQ(log.interrupted_rows, 1);
  EXPECT_EQ(log.rows.size(), 2);
}

TEST(NcclTestsLog, RowsOfNoBytesAreLeftOut) {
  const std::string zero = "0 0 float sum -1 34.27 0.00 0.00 N/A 33.57 0.00 0.00 N/A\n";
  EXPECT_EQ(Parsed(Replaced(AllReduce(), "     1048576", zero + "     1048576")).rows.size(), 2);
  EXPECT_EQ(Told(kNewHead + zero), "all rows have 0 bytes; one with bytes is needed");
}

TEST(NcclTestsLog, WrongElementsAreCounted) {
  const std::string head = Devices({8}) + kNewHead;
  EXPECT_EQ(Parsed(head + Row(1 << 20, 1 << 18, "sum -1", 50, 1.75, "N/A")).rows[0].wrong, 0);
  EXPECT_EQ(Parsed(head + Row(1 << 20, 1 << 18, "sum -1", 50, 1.75, "3")).rows[0].wrong, 6);
  EXPECT_EQ(Parsed(head + Row(1 << 20, 1 << 18, "sum -1", 50, 1.75, "1e+06")).rows[0].wrong,
            2000000);
  EXPECT_EQ(Parsed(head + Row(1 << 20, 1 << 18, "sum -1", 50, 1.75, "5*")).rows[0].wrong, 10);
  EXPECT_EQ(Told(head + Row(1 << 20, 1 << 18, "sum -1", 50, 1.75, "1e+20")),
            "line 12: there are 1e+20 wrong elements; there must be at most 10^15");
  EXPECT_EQ(Told(head + Row(1 << 20, 1 << 18, "sum -1", 50, 1.75, "-1")),
            "line 12: #wrong is \"-1\"; it must be a number of at least 0");
  // Old versions' `error` is a difference, not a count.
  EXPECT_EQ(Parsed(Devices({8}) + kOldRedopHead + Row(1 << 20, 1 << 18, "sum", 50, 1.75, "2e-07"))
                .rows[0]
                .wrong,
            0);
  EXPECT_EQ(Parsed(AllReduce() + "# Out of bounds values : 3 FAILED\n").out_of_bounds, 3);
  EXPECT_EQ(Told(AllReduce() + "# Out of bounds values : -3 FAILED\n"),
            "line 15: the number of out-of-bounds values is \"-3\"; it must be an integer of at "
            "least 0");
}

TEST(NcclTestsLog, TablesOfSeveralKinds) {
  // Out of place only.
  const std::string half =
      "# size count type redop root time algbw busbw #wrong\n"
      "1048576 262144 float sum -1 50.00 20.97 36.70 0\n";
  EXPECT_EQ(Parsed(Devices({8}) + half).rows[0].in_place_ns, std::nullopt);
  // With the times of iterations and a time stamp.
  const std::string more =
      "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw "
      "busbw "
      "#wrong i_min i_max i_p99 i_cv% timestamp\n"
      "1048576 262144 float sum -1 50.00 20.97 36.70 4 49 51 51 0.1 51.00 20.56 35.98 5 49 51 51 "
      "0.1 "
      "2026-01-02 03:04:05\n";
  EXPECT_EQ(Parsed(Devices({8}) + more).rows[0], (NcclTestsRow{1 << 20, "float", 50000, 51000, 9}));
  // Large numbers are printed with few digits.
  const std::string large =
      "8589934592 2147483648 float sum -1 1.2e+07 0.72 1.25 0 12345678 0.70 "
      "1.22 N/A\n";
  EXPECT_EQ(Parsed(Devices({8}) + kNewHead + large).rows[0],
            (NcclTestsRow{int64_t{1} << 33, "float", 12000000000, 12345678000, 0}));
}

TEST(NcclTestsLog, SeveralRunsGiveAllTheirRows) {
  EXPECT_EQ(Parsed(AllReduce() + AllReduce()).rows.size(), 4);
  EXPECT_EQ(Parsed(AllReduce() + kNewHead + Rows(1, "sum -1", 1.75)).rows.size(), 4);
  EXPECT_EQ(Parsed(AllReduce("") + AllReduce("")).ranks, 8);
  // A run without rows.
  EXPECT_EQ(Parsed(Devices({4}) + kNewHead + AllReduce()).ranks, 8);
  const std::string devices = Devices({4, 4}).substr(std::string("# Using devices\n").size());
  EXPECT_EQ(Told(AllReduce() + devices + kNewHead + Rows(1, "sum -1", 1.75)),
            "line 13 begins a run of 8 ranks (8), line 25 one of 8 ranks (4 and 4); all runs of a "
            "log must be on the same hosts");
  EXPECT_EQ(Told(AllReduce() + "# nThread 1 nGpus 8\n" + kNewHead + Rows(1, "sum -1", 1.75)),
            "line 13 begins a run of 8 ranks (8), line 18 one of unknown ranks; all runs of a log "
            "must be on the same hosts");
  std::string other = AllReduce();
  for (int i = 0; i < 8; ++i) other = Replaced(other, "H100", "H200");
  EXPECT_EQ(Told(AllReduce() + other),
            "line 13 begins a run on \"NVIDIA H100 80GB HBM3\", line 27 one on \"NVIDIA H200 80GB "
            "HBM3\"; all runs of a log must be on the same GPUs");
  EXPECT_EQ(Told(AllReduce() + Replaced(AllReduce(), "all_reduce", "all_gather")),
            "line 1 names all_reduce and line 15 all_gather; a log must be of one collective");
}

TEST(NcclTestsLog, BadHeads) {
  const std::string row = "1048576 262144 float sum -1 50.00 20.97 36.70 0\n";
  EXPECT_EQ(Told(row), "line 1: a row comes before the table's head, \"# size count type ...\"");
  EXPECT_EQ(Told("# size count type redop root cputime algbw busbw\n" + row),
            "line 1: the table has \"cputime\", the host's time (-C 1); expected \"time\"");
  EXPECT_EQ(Told("# size count type redop root time busbw algbw\n" + row),
            "line 1: the table has \"busbw\"; expected \"time algbw busbw\"");
  EXPECT_EQ(Told("# size count type redop root time\n" + row),
            "line 1: the table has no column; expected \"time algbw busbw\"");
  EXPECT_EQ(Told("# size count type redop root\n" + row),
            "line 1: the table has 0 columns \"time\"; expected one or two");
  EXPECT_EQ(Told("# size count type time algbw busbw time algbw busbw time algbw busbw\n" + row),
            "line 1: the table has 3 columns \"time\"; expected one or two");
  EXPECT_EQ(Told(""), "the text has no row of nccl-tests");
  EXPECT_EQ(Told("hello\n"), "the text has no row of nccl-tests");
}

TEST(NcclTestsLog, BadRows) {
  const auto with = [](const std::string& row) {
    return Told(kNewHead + row + "\n", Op::kAllReduce);
  };
  const std::string times = " 50.00 20.97 36.70 0 50.00 20.97 36.70 0";
  EXPECT_EQ(with("1048576 262144 float sum -1" + times), "all_reduce");
  EXPECT_EQ(with("1048576 262144 float sum -1 50.00 20.97 36.70 0"),
            "line 3: the row has 9 values; its table has 13 columns");
  EXPECT_EQ(with("1048576 262144 float sum -1 0" + times),
            "line 3: the row has 14 values; its table has 13 columns");
  EXPECT_EQ(
      with("1048576 262144 float -1 sum" + times),
      "line 3: the row has \"sum\" between type and time; its table has redop and root there");
  EXPECT_EQ(with("1048576 262144 float sum -2" + times),
            "line 3: the row has \"-2\" between type and time; its table has redop and root there");
  EXPECT_EQ(with("1048576 262144 fp3 sum -1" + times),
            "line 3: unknown type \"fp3\"; expected one of int8 uint8 int32 uint32 int64 uint64 "
            "half float "
            "double bfloat16 f8e4m3 f8e5m2");
  EXPECT_EQ(with("99999999999999999999 262144 float sum -1" + times),
            "line 3: \"99999999999999999999\" is not below 2^63");
  EXPECT_EQ(with("1048576 99999999999999999999 float sum -1" + times),
            "line 3: \"99999999999999999999\" is not below 2^63");
  EXPECT_EQ(with("1048577 262144 float sum -1" + times),
            "line 3: 1048577 bytes are not a multiple of count 262144 of \"float\" (4 bytes)");
  EXPECT_EQ(with("1048576 0 float sum -1" + times),
            "line 3: 1048576 bytes are not a multiple of count 0 of \"float\" (4 bytes)");
  EXPECT_EQ(with("1048576 9223372036854775807 float sum -1" + times),
            "line 3: 1048576 bytes are not a multiple of count 9223372036854775807 of \"float\" (4 "
            "bytes)");
  for (const char* const bad :
       {"x", "-50.00", "inf", "nan", "50.", ".5", "5e", "5e+", "5e999", "5e+-3", "0x5", "1,5"}) {
    EXPECT_EQ(
        with(fmt::format("1048576 262144 float sum -1 {} 20.97 36.70 0 50.00 20.97 36.70 0", bad)),
        fmt::format("line 3: time is \"{}\"; it must be a number of at least 0", bad));
  }
  EXPECT_EQ(with("1048576 262144 float sum -1 50.00 x 36.70 0 50.00 20.97 36.70 0"),
            "line 3: algbw is \"x\"; it must be a number of at least 0");
  EXPECT_EQ(with("1048576 262144 float sum -1 50.00 20.97 x 0 50.00 20.97 36.70 0"),
            "line 3: busbw is \"x\"; it must be a number of at least 0");
  EXPECT_EQ(with("1048576 262144 float sum -1 0.00 20.97 36.70 0 50.00 20.97 36.70 0"),
            "line 3: the time is 0 us; it must be between 0.001 and 10^12");
  EXPECT_EQ(with("1048576 262144 float sum -1 1e+13 20.97 36.70 0 50.00 20.97 36.70 0"),
            "line 3: the time is 1e+13 us; it must be between 0.001 and 10^12");
  EXPECT_EQ(with("1048576 262144 float sum -1 50.00 20.98 36.70 0 50.00 20.97 36.70 0"),
            "line 3: algbw is 20.98 GB/s, but 1048576 bytes in 50 us are 20.9715; they must be the "
            "same");
  EXPECT_EQ(Told(std::string(kOldGatherHead) + "1048576 32768 float sum" + times),
            "line 2: the row has 12 values; its table has 11 columns");
}

TEST(NcclTestsLog, ErrorsShowLittleOfTheText) {
  const std::string word = "fp\x1b[31m\xff" + std::string(100000, 'x');
  const std::string message =
      Told(kNewHead + ("1048576 262144 " + word) + " sum -1 50.00 20.97 36.70 0 1 1 1 1\n");
  EXPECT_LT(message.size(), 300);
  EXPECT_NE(message.find("\"fp\\x1b[31m\\xffxxx"), std::string::npos) << message;
  EXPECT_NE(message.find("xxx...\""), std::string::npos) << message;
  EXPECT_LT(Told("{\"" + word + "\":1,\"" + word + "\":2}").size(), 210);
  EXPECT_LT(Told("{\"results\":[\"" + std::string(100000, 'x') + "\"]}").size(), 210);
}

TEST(NcclTestsLog, LimitsAreKept) {
  EXPECT_EQ(Told(std::string(kMaxNcclTestsBytes + 1, ' ')),
            "the log has 33554433 bytes; at most 33554432 are read");
  std::string rows = kNewHead;
  for (int64_t i = 0; i <= kMaxNcclTestsRows; ++i) rows += "8 2 float sum -1 9 0 0 0 9 0 0 0\n";
  EXPECT_EQ(Told(rows, Op::kAllReduce), "line 262147: there are more than 262144 rows");
}

TEST(NcclTestsLog, ReadsJson) {
  const NcclTestsLog log = Parsed(kJson);
  EXPECT_EQ(log.op, Op::kAllReduce);
  EXPECT_EQ(log.ranks, 3);
  EXPECT_EQ(log.ranks_per_host, std::vector<int64_t>({2, 1}));
  EXPECT_EQ(log.device, "H100");
  EXPECT_EQ(log.out_of_bounds, 3);
  ASSERT_EQ(log.rows.size(), 1);
  EXPECT_EQ(log.rows[0], (NcclTestsRow{4000000, "float", 40000, 50000, 2}));
}

TEST(NcclTestsLog, AnEntryOfJsonStandsForAProcess) {
  std::string text = Replaced(kJson, "\"ngpus\":1", "\"ngpus\":4");
  text = Replaced(text, "\"rank\":1", "\"rank\":4");
  text = Replaced(text, "\"rank\":2", "\"rank\":8");
  text = Replaced(text, "133.333333", "183.333333");
  text = Replaced(text, "106.666667", "146.666667");
  const NcclTestsLog log = Parsed(text);
  EXPECT_EQ(log.ranks, 12);
  EXPECT_EQ(log.ranks_per_host, std::vector<int64_t>({8, 4}));
}

TEST(NcclTestsLog, BadJson) {
  const auto with = [](const std::string& from, const std::string& to) {
    return Told(Replaced(kJson, from, to));
  };
  EXPECT_EQ(Told("{\"a\":"), "not one JSON value, or truncated: {\"a\":");
  EXPECT_EQ(Told("{\"a\x1b\":"), "not one JSON value, or truncated: {\"a\\x1b\":");
  EXPECT_EQ(Told("{}"), "key 'results' is missing");
  EXPECT_EQ(Told("{\"results\":1}"), "results is 1; it must be a list");
  EXPECT_EQ(Told("{\"results\":[]}"), "the text has no row of nccl-tests");
  EXPECT_EQ(Told("{\"results\":[1]}"), "result 1: it is 1; it must be an object");
  EXPECT_EQ(with("all_reduce_perf", "my_perf").substr(0, 43),
            "args: unknown test \"/opt/my_perf\"; expected");
  EXPECT_EQ(Told(kJson, Op::kReduce), "args names all_reduce, but the log is given as reduce");
  EXPECT_EQ(with("\"config\":{", "\"config\":[],\"x\":{"),
            "config: config is []; it must be an object");
  EXPECT_EQ(with("\"devices\":[", "\"devices\":1,\"x\":["),
            "config: devices is 1; it must be a list");
  EXPECT_EQ(with("\"ngpus\":1", "\"ngpus\":0"),
            "config: nthreads is 1, ngpus 0; they must be between 1 and 65536");
  EXPECT_EQ(with("\"ngpus\":1,", ""), "config: key 'ngpus' is missing");
  EXPECT_EQ(with("\"rank\":2", "\"rank\":3"),
            "config: device 2: rank 3 follows rank 1; ranks must be listed from 0 on, each once");
  EXPECT_EQ(with("\"hostname\":\"b\"", "\"hostname\":1"),
            "config: device 2: hostname is 1; it must be a string");
  EXPECT_EQ(with("\"devices\":[", "\"devices\":[7,"), "config: device 0: 7 is not an object");
  EXPECT_EQ(with("\"size\":4000000", "\"size\":-4000000"),
            "result 2: -4000000 bytes, count 1000000; neither may be below 0");
  EXPECT_EQ(with("\"count\":1000000,", ""), "result 2: key 'count' is missing");
  EXPECT_EQ(with("\"type\":\"float\"", "\"type\":\"f\""), "result 1: unknown type \"f\"");
  EXPECT_EQ(with("\"root\":\"    -1\"", "\"root\":\"x\""),
            "result 1: root is \"x\"; it must be a rank, or -1");
  EXPECT_EQ(with("\"time\":40.0", "\"time\":\"nan\""),
            "result 2: out_of_place: time is \"nan\"; it must be a number of at least 0");
  EXPECT_EQ(with("\"time\":50.0", "\"cpu_time\":50.0"),
            "result 2: in_place: it has cpu_time, the host's time (-C 1); expected \"time\"");
  EXPECT_EQ(with("\"out_of_place\":", "\"out_of_place\":null,\"x\":"),
            "result 1: out_of_place: it is null; it must be an object");
  EXPECT_EQ(with("\"nwrong\":2.0", "\"nwrong\":-2.0"),
            "result 2: out_of_place: nwrong is -2.0; it must be a number of at least 0");
  EXPECT_EQ(with("\"count\":3", "\"count\":-3"),
            "out_of_bounds: count is -3; it must be at least 0");
}

TEST(NcclTestsLog, ATruncatedLogIsReadOrRefused) {
  for (const std::string& text :
       {AllReduce() + "# Out of bounds values : 0 OK\n", std::string(kJson),
        Devices({2, 1}) + kOldRedopHead + Rows(1, "sum", 4. / 3)}) {
    for (size_t size = 0; size < text.size(); ++size) {
      const auto log = ParseNcclTestsLog(text.substr(0, size), std::nullopt);
      if (log.ok()) {
        EXPECT_FALSE(log->rows.empty());
      } else {
        EXPECT_FALSE(log.status().message().empty());
      }
    }
  }
}

// Real logs, which are not part of the sources: --test_env=MESHIFT_NCCL_SAMPLES=FOLDER.
TEST(NcclTestsLog, ReadsTheSamples) {
  const char* const folder = std::getenv("MESHIFT_NCCL_SAMPLES");
  if (folder == nullptr) GTEST_SKIP() << "MESHIFT_NCCL_SAMPLES does not name a folder of samples";
  struct Sample {
    const char* file;
    Op op;
    size_t rows;
    NcclTestsRow last;
  };
  constexpr int64_t kLast = int64_t{1} << 33;
  for (const auto& [file, op, rows, last] :
       {Sample{
            "nccl_tests_allreduce.log", Op::kAllReduce, 32, {kLast, "float", 63896000, 63959000}},
        Sample{
            "nccl_tests_allgather.log", Op::kAllGather, 29, {kLast, "float", 33646000, 32669000}},
        Sample{"nccl_tests_reducescatter.log",
               Op::kReduceScatter,
               29,
               {kLast, "float", 32464000, 32502000}},
        Sample{
            "nccl_tests_alltoall.log", Op::kAllToAll, 29, {kLast, "float", 33508000, 33234000}}}) {
    std::ifstream in(std::string(folder) + "/" + file);
    std::stringstream text;
    text << in.rdbuf();
    EXPECT_EQ(NcclTestsOpOfFile(file), op);
    // The rows alone tell the collective.
    const NcclTestsLog log = Parsed(text.str());
    ASSERT_FALSE(log.rows.empty()) << file;
    EXPECT_EQ(log.op, op);
    EXPECT_EQ(log.ranks, 8);
    EXPECT_EQ(log.ranks_per_host, std::vector<int64_t>({8}));
    EXPECT_EQ(log.device, "A100-SXM4-40GB");
    EXPECT_EQ(log.rows.size(), rows);
    EXPECT_EQ(log.rows.back(), last);
    for (size_t size = 0; size < text.str().size(); ++size) {
      (void)ParseNcclTestsLog(text.view().substr(0, size), op);
    }
  }
}

}  // namespace
}  // namespace meshift::cli

#include "cli/nccl_tests_op.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/text.h"

namespace meshift::cli {
namespace {

using Op = NcclTestsOp;

constexpr size_t kMaxWordBytes = 100;  // a longer word is not a name
// The relative rounding error of nccl-tests' arithmetic, before it rounds again to print.
constexpr double kArithmetic = 1 + 1e-6;

struct OpFacts {
  Op op;
  std::string_view name;
  std::string_view word;  // the name without '_'
  bool blocks;            // HasBlocks()
  bool reduces;           // has a redop
  bool rooted;            // has a root rank
};

constexpr std::array<OpFacts, kNumNcclTestsOps> kOps = {{
    {Op::kAllReduce, "all_reduce", "allreduce", false, true, false},
    {Op::kAllGather, "all_gather", "allgather", true, false, false},
    {Op::kReduceScatter, "reduce_scatter", "reducescatter", true, true, false},
    {Op::kAllToAll, "all_to_all", "alltoall", true, false, false},
    {Op::kBroadcast, "broadcast", "broadcast", false, false, true},
    {Op::kReduce, "reduce", "reduce", false, true, true},
    {Op::kSendRecv, "sendrecv", "sendrecv", false, false, false},
    {Op::kGather, "gather", "gather", true, false, true},
    {Op::kScatter, "scatter", "scatter", true, false, true},
}};

const OpFacts& FactsOf(Op op) { return kOps[static_cast<size_t>(op)]; }

// The ratio of busbw to algbw among `ranks` ranks (doc/PERFORMANCE.md of nccl-tests).
double BusFactor(const OpFacts& op, int64_t ranks) {
  const double part = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return op.op == Op::kAllReduce ? 2 * part : op.blocks ? part : 1;
}

// Lower case, without '_', '-' and spaces.
std::string Normal(std::string_view text) {
  std::string normal;
  for (const char c : text) {
    if (c == '_' || c == '-' || c == ' ') continue;
    normal += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return normal;
}

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

std::string_view Name(NcclTestsOp op) { return FactsOf(op).name; }
bool HasBlocks(NcclTestsOp op) { return FactsOf(op).blocks; }

std::optional<NcclTestsOp> ParseNcclTestsOp(std::string_view word) {
  if (word.size() > kMaxWordBytes) return std::nullopt;
  std::string normal = Normal(word);
  constexpr std::string_view kPerf = "perf";
  if (normal.size() > kPerf.size() && normal.ends_with(kPerf)) {
    normal.resize(normal.size() - kPerf.size());
  }
  for (const OpFacts& op : kOps) {
    if (op.word == normal) return op.op;
  }
  return std::nullopt;
}

std::optional<NcclTestsOp> NcclTestsOpOfProgram(std::string_view path) {
  const std::string_view base = BaseName(path);
  const size_t end = base.find("_perf");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view rest = base.substr(end + 5);
  if (!rest.empty() && std::string_view("_-.:,\"'").find(rest[0]) == std::string_view::npos) {
    return std::nullopt;
  }
  return ParseNcclTestsOp(base.substr(0, end));
}

std::optional<NcclTestsOp> NcclTestsOpOfFile(std::string_view path) {
  std::string name = Normal(BaseName(path));
  // Words that contain others come first, and are removed once found.
  constexpr std::array<Op, kNumNcclTestsOps> kOrder = {
      Op::kReduceScatter, Op::kAllReduce, Op::kAllGather, Op::kAllToAll, Op::kBroadcast,
      Op::kSendRecv,      Op::kReduce,    Op::kGather,    Op::kScatter};
  if (name.find("alltoallv") != std::string::npos) return std::nullopt;
  std::optional<Op> found;
  for (const Op op : kOrder) {
    const std::string_view word = FactsOf(op).word;
    bool here = false;
    for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at)) {
      name.replace(at, word.size(), word.size(), '/');
      here = true;
    }
    if (here && found) return std::nullopt;
    if (here) found = op;
  }
  return found;
}

void NcclTestsOpEvidence::AddBandwidth(int64_t number, const RoundedNumber& alg,
                                       const RoundedNumber& bus, int64_t ranks, int64_t blocks) {
  for (const OpFacts& op : kOps) {
    if (!Fits(op.op)) continue;
    const int64_t among = ranks != 0 ? ranks : op.blocks ? blocks : 0;
    // Without the number of ranks, all_reduce's factor is only known to lie in 1..2.
    const bool range = among == 0 && op.op == Op::kAllReduce;
    const double most = range ? 2 : BusFactor(op, among == 0 ? 1 : among);
    const double least = range ? 1 : most;
    const double slack = bus.half + most * alg.half;
    if (bus.value >= (least * alg.value - slack) / kArithmetic &&
        bus.value <= (most * alg.value + slack) * kArithmetic) {
      continue;
    }
    Exclude(op.op, number,
            fmt::format("busbw {} is {:.4g} times algbw {}; for {}{} the factor must be {}{:.4g}",
                        bus.value, bus.value / alg.value, alg.value, op.name,
                        among != 0 ? fmt::format(" of {} ranks", among) : "", range ? "1 to " : "",
                        most));
  }
}

void NcclTestsOpEvidence::AddNames(int64_t number, const NcclTestsNames& row, int64_t ranks,
                                   int64_t blocks) {
  for (const OpFacts& op : kOps) {
    if (!Fits(op.op)) continue;
    const int64_t right = !op.blocks ? 1 : ranks != 0 ? ranks : blocks;
    if (blocks != right) {
      Exclude(op.op, number,
              fmt::format("{} bytes are {} times count {} of {}; for {} the factor must be {}",
                          row.bytes, blocks, row.count, Quoted(row.dtype), op.name, right));
    } else if (op.op != Op::kSendRecv &&
               (row.redop == NcclTestsNames::Redop::kSome) != op.reduces) {
      Exclude(op.op, number,
              row.redop == NcclTestsNames::Redop::kSome
                  ? fmt::format("redop is {}; {} has none", Quoted(row.redop_text), op.name)
                  : fmt::format("redop is missing; {} has one", op.name));
    } else if (row.has_root_column && row.root && (*row.root >= 0) != op.rooted) {
      Exclude(op.op, number,
              fmt::format("root is {}; {} has {}", *row.root, op.name, op.rooted ? "one" : "-1"));
    } else if (!row.has_root_column && op.rooted) {
      Exclude(op.op, number, fmt::format("root is missing; {} has one", op.name));
    } else if (!row.has_root_column && op.op == Op::kAllGather &&
               row.redop != NcclTestsNames::Redop::kNoColumn) {
      // For the tables of old versions, in which each collective had columns of its own.
      Exclude(op.op, number, "the table has redop and not root; all_gather has neither");
    } else if (!row.has_root_column && op.op == Op::kAllToAll &&
               row.redop == NcclTestsNames::Redop::kNoColumn) {
      Exclude(op.op, number, "the column redop is missing; all_to_all has it");
    }
  }
}

std::vector<NcclTestsOp> NcclTestsOpEvidence::Fitting() const {
  std::vector<NcclTestsOp> ops;
  for (const OpFacts& op : kOps) {
    if (Fits(op.op)) ops.push_back(op.op);
  }
  return ops;
}

void NcclTestsOpEvidence::Exclude(NcclTestsOp op, int64_t number, std::string why) {
  number_[static_cast<size_t>(op)] = number;
  why_[static_cast<size_t>(op)] = std::move(why);
}

}  // namespace meshift::cli

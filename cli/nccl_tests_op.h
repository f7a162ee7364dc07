// The collectives of nccl-tests: their names, and telling them from the rows of a table.
//
//   ParseNcclTestsOp("alltoall_perf");                    // kAllToAll
//   NcclTestsOpEvidence evidence;
//   evidence.AddNames(12, names, /*ranks=*/8, /*blocks=*/8);   // line 12
//   evidence.Fitting();                                   // all_gather, all_to_all
#ifndef MESHIFT_CLI_NCCL_TESTS_OP_H_
#define MESHIFT_CLI_NCCL_TESTS_OP_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshift::cli {

enum class NcclTestsOp {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kSendRecv,
  kGather,
  kScatter,
};
inline constexpr int kNumNcclTestsOps = 9;

// "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "sendrecv",
// "gather", "scatter".
std::string_view Name(NcclTestsOp op);
// Whether the op's bytes are count elements per rank, times the ranks; else they are count
// elements.
bool HasBlocks(NcclTestsOp op);

// Reads a word of a user: a name as above, or as nccl-tests has it (alltoall_perf). Case, '_' and
// '-' do not matter.
std::optional<NcclTestsOp> ParseNcclTestsOp(std::string_view word);
// Reads the name of a program, with its folder: /opt/bin/all_reduce_perf, alltoall_perf_mpi.
std::optional<NcclTestsOp> NcclTestsOpOfProgram(std::string_view path);
// Reads the name of a file, nccl_tests_allgather.log; none where it names no collective, or two.
std::optional<NcclTestsOp> NcclTestsOpOfFile(std::string_view path);

// A number that was printed rounded: it was within `half` of `value`.
struct RoundedNumber {
  double value = 0;
  double half = 0;
};

// The left part of a row.
struct NcclTestsNames {
  enum class Redop {
    kNoColumn,
    kNone,  // blank, or "none"
    kSome,  // sum, max, ...
  };
  int64_t bytes = 0;
  int64_t count = 0;
  std::string_view dtype;
  Redop redop = Redop::kNoColumn;
  std::string_view redop_text;
  bool has_root_column = false;
  std::optional<int64_t> root;  // -1: none
};

// Which collectives the rows of a log fit, and why not the others. Rows have numbers from 1 on.
// `ranks` is 0 where the log does not list them; `blocks` is a row's bytes over the bytes of its
// count. Memory is O(1).
class NcclTestsOpEvidence {
 public:
  // Compares bytes with count, and looks at redop and root.
  void AddNames(int64_t number, const NcclTestsNames& names, int64_t ranks, int64_t blocks);
  // Compares busbw with algbw.
  void AddBandwidth(int64_t number, const RoundedNumber& alg, const RoundedNumber& bus,
                    int64_t ranks, int64_t blocks);

  bool Fits(NcclTestsOp op) const { return Number(op) == 0; }
  std::vector<NcclTestsOp> Fitting() const;
  // The row that the op does not fit, 0 where it fits all, and what is wrong there.
  int64_t Number(NcclTestsOp op) const { return number_[static_cast<size_t>(op)]; }
  const std::string& Why(NcclTestsOp op) const { return why_[static_cast<size_t>(op)]; }

 private:
  void Exclude(NcclTestsOp op, int64_t number, std::string why);

  std::array<int64_t, kNumNcclTestsOps> number_ = {};
  std::array<std::string, kNumNcclTestsOps> why_;
};

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_NCCL_TESTS_OP_H_

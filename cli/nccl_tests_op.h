// Names the collectives of nccl-tests, and finds those that the rows of a table fit.
//
//   ParseNcclTestsOp("alltoall_perf");                    // kAllToAll
//   NcclTestsOpEvidence evidence;
//   evidence.AddNames(12, names, /*ranks=*/8, /*blocks=*/8);   // line 12: redop none, root -1
//   evidence.Fitting();                                   // all_gather, all_to_all
//
// Other collectives, such as alltoallv, are not known. A name that is not known gives nullopt, not
// an error.
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
// Whether the op's bytes are a count of elements per rank, times the number of ranks. Other ops
// count the elements once.
bool HasBlocks(NcclTestsOp op);

// Reads a name that a user writes: one of those above, or nccl-tests' own (alltoall_perf). Case,
// '_', '-' and spaces do not matter. A word of more than 100 bytes is not a name.
std::optional<NcclTestsOp> ParseNcclTestsOp(std::string_view word);
// Reads the name of a program, which may have a path: /opt/bin/all_reduce_perf, alltoall_perf_mpi.
std::optional<NcclTestsOp> NcclTestsOpOfProgram(std::string_view path);
// Reads the name of a file, such as nccl_tests_allgather.log; none if it names no collective, two,
// or alltoallv.
std::optional<NcclTestsOp> NcclTestsOpOfFile(std::string_view path);

// A number that was rounded when printed: the exact one lies within `half` of `value`.
struct RoundedNumber {
  double value = 0;
  double half = 0;
};

// The columns of a row before its times. Does not own its texts.
struct NcclTestsNames {
  enum class Redop {
    kNoColumn,
    kNone,  // blank, or "none"
    kSome,  // sum, max, ...
  };
  int64_t bytes = 0;       // the column "size"
  int64_t count = 0;       // of elements; at least 1
  std::string_view dtype;  // as printed
  Redop redop = Redop::kNoColumn;
  std::string_view redop_text;
  bool has_root_column = false;
  std::optional<int64_t> root;  // -1: the collective has none; nullopt: blank
};

// The collectives that the rows of a log fit, and the reason why each other one does not. `number`
// is the row's line (in JSON the result), at least 1. `ranks` is 0 if the log does not list them;
// `blocks` is the ratio of a row's bytes to the bytes of its count. Takes O(1) memory. Not
// thread-safe.
class NcclTestsOpEvidence {
 public:
  // Compares bytes with count, and checks redop and root.
  void AddNames(int64_t number, const NcclTestsNames& names, int64_t ranks, int64_t blocks);
  // Compares busbw with algbw; both in GB/s.
  void AddBandwidth(int64_t number, const RoundedNumber& alg, const RoundedNumber& bus,
                    int64_t ranks, int64_t blocks);

  bool Fits(NcclTestsOp op) const { return Number(op) == 0; }
  std::vector<NcclTestsOp> Fitting() const;
  // The first row that the op does not fit, 0 if it fits all; and the reason.
  int64_t Number(NcclTestsOp op) const { return number_[static_cast<size_t>(op)]; }
  const std::string& Why(NcclTestsOp op) const { return why_[static_cast<size_t>(op)]; }

 private:
  void Exclude(NcclTestsOp op, int64_t number, std::string why);

  std::array<int64_t, kNumNcclTestsOps> number_ = {};
  std::array<std::string, kNumNcclTestsOps> why_;
};

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_NCCL_TESTS_OP_H_

// Parses NCCL_ALGO and NCCL_PROTO as NCCL does: which algorithms or protocols each function (a
// kind of collective) may use.
//
//   const auto list = TuningList::Algorithms("ring,tree;allreduce:tree");
//   list->Allows(NcclFunction::kAllGather, "ring");      // true
//   list->AllowsOnly(NcclFunction::kAllReduce, "tree");  // true
//   list->ToString(NcclFunction::kReduce);               // "tree,ring"
//
// Entries are separated by ';'. The first may omit the name of a function, and then applies to all.
// A later entry replaces an earlier one of its function. '^' excludes the names. Names are compared
// without case; spaces are not removed. Knows the names and rules of NCCL 2.28. It is wrong for
// NCCL 2.31 and later: there a function that no entry names can be left without any algorithm; here
// it keeps all of them. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_TUNING_LIST_H_
#define MESHIFT_COMM_NCCL_TUNING_LIST_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace meshift {

enum class NcclFunction : uint8_t { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
inline constexpr int kNumNcclFunctions = 5;
// "broadcast", "reduce", "allgather", "reducescatter", "allreduce"
std::string_view Name(NcclFunction function);

// Immutable.
class TuningList {
 public:
  // INVALID_ARGUMENT names the token for which NCCL would refuse the text, and then make no
  // communicator. An empty text allows everything.
  static absl::StatusOr<TuningList> Algorithms(std::string_view text);
  static absl::StatusOr<TuningList> Protocols(std::string_view text);

  // `name` in lower case: "ring", "simple".
  bool Allows(NcclFunction function, std::string_view name) const;
  bool AllowsOnly(NcclFunction function, std::string_view name) const;
  bool AllowsAny(NcclFunction function) const;
  // The allowed names, in NCCL's order, lower case: "tree,ring"; "any" for all, "none" for none.
  std::string ToString(NcclFunction function) const;

 private:
  using Names = absl::Span<const std::string_view>;

  explicit TuningList(Names names);
  static absl::StatusOr<TuningList> Parse(std::string_view text, Names names,
                                          std::string_view what);

  Names names_;                                               // of a static array
  std::array<std::vector<bool>, kNumNcclFunctions> allowed_;  // by function, then by name
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_TUNING_LIST_H_

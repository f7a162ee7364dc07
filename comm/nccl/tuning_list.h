// NCCL_ALGO and NCCL_PROTO as NCCL reads them: what each collective may take.
//
//   const auto list = TuningList::Algorithms("ring,tree;allreduce:tree");
//   list->Allows(NcclFunction::kAllGather, "ring");      // true
//   list->AllowsOnly(NcclFunction::kAllReduce, "tree");  // true
//   list->ToString(NcclFunction::kReduce);               // "ring,tree"
//
// Entries are separated by ';'. The first may lack the name of a function, and then counts for all;
// a later entry replaces what an earlier one said of its function. '^' excludes. NCCL compares
// without case and takes no spaces away.
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
  // INVALID_ARGUMENT where NCCL refuses the text, and with it every communicator: names the token.
  // An empty text leaves everything.
  static absl::StatusOr<TuningList> Algorithms(std::string_view text);
  static absl::StatusOr<TuningList> Protocols(std::string_view text);

  // `name` in lower case: "ring", "simple".
  bool Allows(NcclFunction function, std::string_view name) const;
  bool AllowsOnly(NcclFunction function, std::string_view name) const;
  bool AllowsAny(NcclFunction function) const;
  // The names that are left, in NCCL's order, lower case: "tree,ring"; "any" of all, "none".
  std::string ToString(NcclFunction function) const;

 private:
  using Names = absl::Span<const std::string_view>;

  explicit TuningList(Names names);
  static absl::StatusOr<TuningList> Parse(std::string_view text, Names names,
                                          std::string_view what);

  Names names_;                                               // of a constant
  std::array<std::vector<bool>, kNumNcclFunctions> allowed_;  // by function, then by name
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_TUNING_LIST_H_

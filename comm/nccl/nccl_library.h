// NCCL, loaded at run time: one binary works with and without it.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto nccl, NcclLibrary::Load());   // libnccl.so.2
//   MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->GetUniqueId(&id), "ncclGetUniqueId"));
//
// For each function of the two lists there is a member of that name and of the type that nccl.h
// gives it. Not a public header.
#ifndef MESHIFT_COMM_NCCL_NCCL_LIBRARY_H_
#define MESHIFT_COMM_NCCL_NCCL_LIBRARY_H_

#include <nccl.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {

// clang-format off
#define MESHIFT_NCCL_FUNCTIONS(X)  \
  X(GetVersion)                    \
  X(GetUniqueId)                   \
  X(GetErrorString)                \
  X(GetLastError)                  \
  X(CommInitRankConfig)            \
  X(CommSplit)                     \
  X(CommFinalize)                  \
  X(CommDestroy)                   \
  X(CommAbort)                     \
  X(CommGetAsyncError)             \
  X(CommCount)                     \
  X(CommCuDevice)                  \
  X(CommUserRank)                  \
  X(AllReduce)                     \
  X(ReduceScatter)                 \
  X(AllGather)                     \
  X(Broadcast)                     \
  X(Reduce)                        \
  X(Send)                          \
  X(Recv)                          \
  X(GroupStart)                    \
  X(GroupEnd)

// Null where the library has none.
#define MESHIFT_NCCL_OPTIONAL_FUNCTIONS(X) \
  X(AlltoAll)                              \
  X(MemAlloc)                              \
  X(MemFree)                               \
  X(CommWindowRegister)                    \
  X(CommWindowDeregister)
// clang-format on

// The functions of the library. Immutable once made.
class NcclLibrary {
 public:
  // The header that this was compiled with is of 2.28; older libraries are refused.
  static constexpr int kMinVersion = NCCL_VERSION(2, 28, 0);

  // Loads `path`; without one, $MESHIFT_NCCL_LIBRARY, else libnccl.so.2. UNAVAILABLE where there is
  // no such library, FAILED_PRECONDITION where it lacks a function or is too old, each naming what
  // was looked for. The library stays loaded until the process ends.
  static absl::StatusOr<std::shared_ptr<const NcclLibrary>> Load(const std::string& path = "");

  const std::string& path() const { return path_; }
  int version() const { return version_; }
  std::string VersionText() const;  // "2.28.9"

  // `result` of a call of `function` as a Status that names the function, the result, and NCCL's
  // last words about `comm` (or, without one, about anything). Success and "in progress" are OK.
  // INVALID_ARGUMENT, FAILED_PRECONDITION: invalid argument, invalid usage; UNAVAILABLE: a system
  // or remote error; DEADLINE_EXCEEDED: a time-out of NCCL's own; else INTERNAL.
  absl::Status Check(ncclResult_t result, const char* function, ncclComm_t comm = nullptr) const {
    if (result == ncclSuccess || result == ncclInProgress) [[likely]] {
      return absl::OkStatus();
    }
    return StatusOf(result, function, comm);
  }

#define MESHIFT_NCCL_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  MESHIFT_NCCL_FUNCTIONS(MESHIFT_NCCL_MEMBER)
  MESHIFT_NCCL_OPTIONAL_FUNCTIONS(MESHIFT_NCCL_MEMBER)
#undef MESHIFT_NCCL_MEMBER

 private:
  NcclLibrary() = default;
  absl::Status StatusOf(ncclResult_t result, const char* function, ncclComm_t comm) const;

  std::string path_;
  int version_ = 0;
};

// "2.28.9" of NCCL's number for it.
std::string NcclVersionText(int version);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NCCL_LIBRARY_H_

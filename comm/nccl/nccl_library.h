// NCCL's functions, loaded with dlopen, so that one binary works with and without NCCL.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto nccl, NcclLibrary::Load());   // libnccl.so.2
//   MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->GetUniqueId(&id), "ncclGetUniqueId"));
//
// Each function of the two lists is a member, with the type of its declaration in nccl.h:
// nccl->AllReduce is ncclAllReduce. Versions before 2.28 are refused. Does not initialise NCCL.
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

// Null if the library does not have the function.
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
  // Older libraries are refused: this is compiled with the nccl.h of 2.28.
  static constexpr int kMinVersion = NCCL_VERSION(2, 28, 0);

  // Loads `path`; if that is empty, $MESHIFT_NCCL_LIBRARY, else libnccl.so.2. UNAVAILABLE if the
  // library is not found, FAILED_PRECONDITION if a function is missing or the version is too old,
  // or the error of ncclGetVersion; the error names the library, function or version. The library
  // stays loaded until the process ends.
  static absl::StatusOr<std::shared_ptr<const NcclLibrary>> Load(const std::string& path = "");

  const std::string& path() const { return path_; }
  int version() const { return version_; }
  std::string VersionText() const;  // "2.28.9"

  // The result of a call of `function` as a Status. Its message has the function, the result, and
  // the last warning of ncclGetLastError(comm). ncclSuccess and ncclInProgress are OK;
  // ncclInvalidArgument is INVALID_ARGUMENT, ncclInvalidUsage FAILED_PRECONDITION, a system or
  // remote error UNAVAILABLE, ncclTimeout DEADLINE_EXCEEDED, any other INTERNAL.
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

// "2.28.9" for 22809, the number that ncclGetVersion gives.
std::string NcclVersionText(int version);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NCCL_LIBRARY_H_

#include "comm/nccl/nccl_library.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/engine/shared_library.h"
#include "comm/nccl/library_source.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// ncclTimeout, of NCCL 2.30 and later.
constexpr int kTimeout = 8;

absl::StatusCode CodeOf(ncclResult_t result) {
  if (static_cast<int>(result) == kTimeout) return absl::StatusCode::kDeadlineExceeded;
  switch (result) {
    case ncclInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case ncclInvalidUsage:
      return absl::StatusCode::kFailedPrecondition;
    case ncclSystemError:
    case ncclRemoteError:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

std::string NcclVersionText(int version) {
  // Since 2.9 minor and patch have two digits each; before, the minor version has one.
  const int base = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / base, version % base / 100, version % 100);
}

std::string NcclLibrary::VersionText() const { return NcclVersionText(version_); }

absl::StatusOr<std::shared_ptr<const NcclLibrary>> NcclLibrary::Load(const std::string& path) {
  MESHIFT_ASSIGN_OR_RETURN(const SharedLibrary library,
                           SharedLibrary::Load(kNcclLibrarySource, path));
  std::shared_ptr<NcclLibrary> nccl(new NcclLibrary());
  nccl->path_ = library.path();
#define MESHIFT_NCCL_FIND(member) \
  MESHIFT_RETURN_IF_ERROR(library.Find("nccl" #member, &nccl->member));
  MESHIFT_NCCL_FUNCTIONS(MESHIFT_NCCL_FIND)
#undef MESHIFT_NCCL_FIND
#define MESHIFT_NCCL_FIND(member) library.FindOptional("nccl" #member, &nccl->member);
  MESHIFT_NCCL_OPTIONAL_FUNCTIONS(MESHIFT_NCCL_FIND)
#undef MESHIFT_NCCL_FIND
  MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->GetVersion(&nccl->version_), "ncclGetVersion"));
  if (nccl->version_ < kMinVersion) {
    return FailedPrecondition("the NCCL library {} is of version {}; {} or newer is needed",
                              nccl->path_, nccl->VersionText(), NcclVersionText(kMinVersion));
  }
  return std::shared_ptr<const NcclLibrary>(std::move(nccl));
}

absl::Status NcclLibrary::StatusOf(ncclResult_t result, const char* function,
                                   ncclComm_t comm) const {
  const char* text = GetErrorString(result);
  const char* last = GetLastError(comm);
  return absl::Status(CodeOf(result),
                      fmt::format("{}: {} ({}){}{}", function, text == nullptr ? "unknown" : text,
                                  static_cast<int>(result),
                                  last == nullptr || *last == '\0' ? "" : "; NCCL's last warning: ",
                                  last == nullptr ? "" : last));
}

}  // namespace meshift

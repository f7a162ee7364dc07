#include "comm/nccl/library_copies.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/nccl/nccl_library.h"

namespace meshift {
namespace {

// Two names of one file are one copy.
bool IsOneFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || std::filesystem::equivalent(a, b, error);
}

// The loaded files whose name, without folders, has this beginning.
std::vector<std::string> LoadedFiles(const char* beginning) {
  struct Search {
    const char* beginning;
    std::vector<std::string> files;
  } search = {beginning, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        const std::string path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const std::string file = path.substr(path.rfind('/') + 1);
        auto* const found = static_cast<Search*>(data);
        if (file.rfind(found->beginning, 0) == 0) found->files.push_back(path);
        return 0;
      },
      &search);
  return search.files;
}

}  // namespace

std::string FileOf(const void* code) {
  Dl_info info;
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

std::vector<std::string> LoadedNcclFiles() { return LoadedFiles("libnccl.so"); }

std::vector<std::string> LoadedNcclPlugins() { return LoadedFiles("libnccl-"); }

std::string DescribeNccl(const NcclLibrary& nccl) {
  const std::vector<std::string> plugins = LoadedNcclPlugins();
  return fmt::format("NCCL {} of {}, plugins: {}", nccl.VersionText(),
                     FileOf(reinterpret_cast<const void*>(nccl.GetVersion)),
                     plugins.empty() ? "none" : fmt::format("{}", fmt::join(plugins, ", ")));
}

absl::Status CheckOneCopy(const NcclLibrary& nccl, const void* function) {
  const std::string own = FileOf(reinterpret_cast<const void*>(nccl.GetVersion));
  if (function != nullptr) {
    const std::string lenders = FileOf(function);
    if (IsOneFile(own, lenders)) return absl::OkStatus();
    return FailedPrecondition(
        "the lent communicator comes from the NCCL in {}, and the engine has loaded another copy, "
        "{}; set NcclOptions::nccl_library to the first",
        lenders.empty() ? "no file" : lenders, own);
  }
  for (const std::string& other : LoadedNcclFiles()) {
    if (IsOneFile(own, other)) continue;
    return FailedPrecondition(
        "the process has two copies of NCCL, {} and {}: the engine has loaded the first, and does "
        "not know which one made the lent communicator; set NcclLent::function",
        own, other);
  }
  return absl::OkStatus();
}

}  // namespace meshift

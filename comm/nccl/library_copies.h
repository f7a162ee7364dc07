// Finds the files of NCCL and its plugins that this process has loaded, by their names, and refuses
// a communicator of another copy of NCCL: one copy cannot use the handles of another.
//
//   MESHIFT_RETURN_IF_ERROR(CheckOneCopy(*nccl, lent.function));
//
// Finds neither a copy that is linked into a file of another name, nor a plugin of another name.
// Thread-safe. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_LIBRARY_COPIES_H_
#define MESHIFT_COMM_NCCL_LIBRARY_COPIES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/nccl/nccl_library.h"

namespace meshift {

// The path of the loaded file that contains the function at `code`; empty if there is none.
std::string FileOf(const void* code);

// The paths of the loaded files of NCCL itself: those whose names begin with "libnccl.so".
std::vector<std::string> LoadedNcclFiles();

// The paths of its loaded plugins: files whose names begin with "libnccl-" (libnccl-net.so).
std::vector<std::string> LoadedNcclPlugins();

// "NCCL 2.28.9 of /usr/lib/libnccl.so.2, plugins: /opt/libnccl-net.so", or "plugins: none".
std::string DescribeNccl(const NcclLibrary& nccl);

// Checks that `nccl` is the copy that made a communicator. `function`: any function of that copy;
// null: unknown, so the process must have no other copy that LoadedNcclFiles() finds.
// FAILED_PRECONDITION names both files.
absl::Status CheckOneCopy(const NcclLibrary& nccl, const void* function);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_LIBRARY_COPIES_H_

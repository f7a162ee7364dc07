// Which file of NCCL a process has, and whether there is more than one: a handle of one copy means
// nothing to another.
//
//   MESHIFT_RETURN_IF_ERROR(CheckOneCopy(*nccl, lent.function));
//
// Not a public header.
#ifndef MESHIFT_COMM_NCCL_LIBRARY_COPIES_H_
#define MESHIFT_COMM_NCCL_LIBRARY_COPIES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/nccl/nccl_library.h"

namespace meshift {

// The file that an address of code lies in, as it was loaded; empty where that is none.
std::string FileOf(const void* code);

// The files of NCCL itself (libnccl.so and what begins so) among those that the process has loaded.
std::vector<std::string> LoadedNcclFiles();

// The files of its plugins among those (libnccl-net.so, libnccl-tuner.so and what begins so).
std::vector<std::string> LoadedNcclPlugins();

// "NCCL 2.28.9 of /usr/lib/libnccl.so.2, plugins: /opt/libnccl-net.so", or "plugins: none".
std::string DescribeNccl(const NcclLibrary& nccl);

// Whether `nccl` is the copy that made a communicator. `function`: any function of that copy, or
// null; then there must be one copy only. FAILED_PRECONDITION names the files of both.
absl::Status CheckOneCopy(const NcclLibrary& nccl, const void* function);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_LIBRARY_COPIES_H_

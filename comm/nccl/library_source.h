// The file name and the environment variable by which NcclLibrary and FindLoadedNccl find NCCL.
// Loads nothing itself. Internal to comm/nccl.
//
//   MESHIFT_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(kNcclLibrarySource));
#ifndef MESHIFT_COMM_NCCL_LIBRARY_SOURCE_H_
#define MESHIFT_COMM_NCCL_LIBRARY_SOURCE_H_

#include "comm/engine/shared_library.h"

namespace meshift {

inline constexpr SharedLibrary::Source kNcclLibrarySource = {
    .what = "NCCL", .file = "libnccl.so.2", .variable = "MESHIFT_NCCL_LIBRARY"};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_LIBRARY_SOURCE_H_

// A library that is loaded at run time, so that one binary works with and without it.
//
//   constexpr SharedLibrary::Source kNccl = {
//       .what = "NCCL", .file = "libnccl.so.2", .variable = "MESHIFT_NCCL_LIBRARY"};
//   MESHIFT_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(kNccl));
//   MESHIFT_RETURN_IF_ERROR(library.Find("ncclGetVersion", &get_version));
//
// It stays loaded until the process ends, whatever becomes of this value: libraries of devices keep
// threads and exit handlers, and functions that were found may be called from anywhere.
#ifndef MESHIFT_COMM_ENGINE_SHARED_LIBRARY_H_
#define MESHIFT_COMM_ENGINE_SHARED_LIBRARY_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {

// Immutable; safe for concurrent use.
class SharedLibrary {
 public:
  // Which file it is, and what errors say of it.
  struct Source {
    const char* what = "";      // "NCCL"
    const char* file = "";      // as dlopen takes it, where nothing else is given
    const char* variable = "";  // of the environment, that names another file
    const char* needs = "";     // "a GPU needs NVIDIA's driver"; empty: nothing to say
  };

  // Loads `path`; where it is empty, what the variable names; where that is empty or not set, the
  // file. UNAVAILABLE where there is no such library: names it, the variable and the reason.
  static absl::StatusOr<SharedLibrary> Load(const Source& source, const std::string& path = "");

  // `*function` becomes the function of that name, of that type: nobody can check the type.
  // FAILED_PRECONDITION, and null, where the library has none: names both.
  template <typename Function>
  absl::Status Find(const char* symbol, Function* function) const {
    FindOptional(symbol, function);
    if (*function != nullptr) return absl::OkStatus();
    return FailedPrecondition("the {} library {} has no function {}", what_, path_, symbol);
  }
  // Likewise; null where the library has none.
  template <typename Function>
  void FindOptional(const char* symbol, Function* function) const {
    *function = reinterpret_cast<Function>(Address(symbol));
  }

  const std::string& path() const { return path_; }  // as it was given to dlopen

 private:
  SharedLibrary(const char* what, std::string path, void* handle)
      : what_(what), path_(std::move(path)), handle_(handle) {}
  void* Address(const char* symbol) const;

  std::string what_;
  std::string path_;
  void* handle_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_SHARED_LIBRARY_H_

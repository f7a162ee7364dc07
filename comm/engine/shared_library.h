// Loads a shared library at run time (dlopen) and finds its functions, so that one binary works
// with and without it.
//
//   constexpr SharedLibrary::Source kNccl = {
//       .what = "NCCL", .file = "libnccl.so.2", .variable = "MESHIFT_NCCL_LIBRARY"};
//   MESHIFT_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(kNccl));
//   MESHIFT_RETURN_IF_ERROR(library.Find("ncclGetVersion", &get_version));
//
// It stays loaded until the process ends, even if this object is destroyed: GPU libraries have
// threads and exit handlers, and found functions may be called at any time.
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
  // The library's file, and its description in errors.
  struct Source {
    const char* what = "";      // "NCCL"
    const char* file = "";      // default argument of dlopen
    const char* variable = "";  // environment variable that names another file
    const char* needs = "";     // a remark, such as "a GPU needs NVIDIA's driver"; may be empty
  };

  // Loads `path`; if that is empty, the file that the variable names; if that is unset or empty,
  // source.file. UNAVAILABLE if it cannot be loaded: names the file, the variable and the reason.
  static absl::StatusOr<SharedLibrary> Load(const Source& source, const std::string& path = "");

  // Sets `*function` to the function `symbol`. The caller must give the right type; it cannot be
  // checked. FAILED_PRECONDITION, and null, if the library has no such function; names both.
  template <typename Function>
  absl::Status Find(const char* symbol, Function* function) const {
    FindOptional(symbol, function);
    if (*function != nullptr) return absl::OkStatus();
    return FailedPrecondition("the {} library {} has no function {}", what_, path_, symbol);
  }
  // As Find(), but only sets `*function` to null if the library has no such function.
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

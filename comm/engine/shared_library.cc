#include "comm/engine/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {

absl::StatusOr<SharedLibrary> SharedLibrary::Load(const Source& source, const std::string& path) {
  std::string name = path;
  if (name.empty()) {
    const char* const given = std::getenv(source.variable);
    name = given != nullptr && *given != '\0' ? given : source.file;
  }
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    return absl::UnavailableError(
        fmt::format("cannot load the {} library {} ({}{}set {} to load another file): {}",
                    source.what, name, source.needs, *source.needs == '\0' ? "" : "; ",
                    source.variable, reason == nullptr ? "no reason given" : reason));
  }
  return SharedLibrary(source.what, std::move(name), handle);
}

void* SharedLibrary::Address(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace meshift

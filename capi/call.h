// Wraps the body of each function of meshift/c.h that returns a code: checks its arguments, and
// turns its status or exception into a code and a message.
//
//   meshift_code meshift_mesh_text(const meshift_mesh* mesh, char** text, char** error) {
//     return Call(error, [&] {
//       MESHIFT_RETURN_IF_ERROR(NotNull({{"mesh", mesh}, {"text", text}}));
//       return GiveText(mesh->value.ToString(), text);
//     });
//   }
//
// Internal to capi. Safe for concurrent use. meshift_free frees messages and texts.
#ifndef MESHIFT_CAPI_CALL_H_
#define MESHIFT_CAPI_CALL_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/c.h"

namespace meshift::capi {

// Returns the code of `status`. For an error, stores its message in *error (NULL if out of memory),
// unless `error` is NULL.
meshift_code Report(const absl::Status& status, char** error) noexcept;
meshift_code Report(meshift_code code, std::string_view message, char** error) noexcept;

// Sets *error to NULL, runs `body`, and reports the Status that it returns. RESOURCE_EXHAUSTED: it
// threw std::bad_alloc or std::length_error; INTERNAL: it threw another exception.
template <typename Body>
meshift_code Call(char** error, Body body) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    return Report(body(), error);
  } catch (const std::bad_alloc&) {
    return Report(MESHIFT_RESOURCE_EXHAUSTED, "out of memory", error);
  } catch (const std::length_error& e) {
    return Report(MESHIFT_RESOURCE_EXHAUSTED, e.what(), error);
  } catch (const std::exception& e) {
    return Report(MESHIFT_INTERNAL, e.what(), error);
  } catch (...) {
    return Report(MESHIFT_INTERNAL, "an exception of unknown type", error);
  }
}

struct NamedPointer {
  std::string_view name;
  const void* pointer;
};
// INVALID_ARGUMENT: a pointer is NULL; the message names the first.
absl::Status NotNull(std::initializer_list<NamedPointer> pointers);

// INVALID_ARGUMENT unless `size`, which the caller has set, is `right`.
absl::Status CheckSize(std::string_view name, size_t size, size_t right);
// INVALID_ARGUMENT if the struct is NULL, or its field `size` is not its sizeof.
template <typename Struct>
absl::Status CheckStruct(std::string_view name, const Struct* given) {
  MESHIFT_RETURN_IF_ERROR(NotNull({{name, given}}));
  return CheckSize(name, given->size, sizeof(Struct));
}

// INVALID_ARGUMENT unless 0 <= index < count. The second is for an argument named "index".
absl::Status CheckIndex(std::string_view name, int64_t index, int64_t count);
absl::Status CheckIndex(size_t index, size_t count);

// *out = NULL unless `out` is NULL: the output of a function that fails.
template <typename T>
void Clear(T** out) {
  if (out != nullptr) *out = nullptr;
}

// *out = a copy that the caller frees. RESOURCE_EXHAUSTED: out of memory.
absl::Status GiveText(std::string_view text, char** out);

// *out = a new handle that holds `parts`.
template <typename Handle, typename... Parts>
absl::Status Give(Handle** out, Parts&&... parts) {
  *out = new Handle{std::forward<Parts>(parts)...};
  return absl::OkStatus();
}
template <typename Handle, typename T>
absl::Status GiveOr(Handle** out, absl::StatusOr<T> value) {
  if (!value.ok()) return value.status();
  return Give(out, *std::move(value));
}

}  // namespace meshift::capi

#endif  // MESHIFT_CAPI_CALL_H_

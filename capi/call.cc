#include "capi/call.h"

#include <cstdlib>
#include <cstring>

namespace meshift::capi {
namespace {

char* Copy(std::string_view text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return nullptr;
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

template <typename Number>
absl::Status OutOfRange(std::string_view name, Number index, Number count) {
  if (count == 0) return InvalidArgument("{} is {}, but there are none", name, index);
  return InvalidArgument("{} is {}; it must be at least 0 and below {}", name, index, count);
}

}  // namespace

meshift_code Report(meshift_code code, std::string_view message, char** error) noexcept {
  if (error != nullptr) *error = Copy(message);
  return code;
}

meshift_code Report(const absl::Status& status, char** error) noexcept {
  if (status.ok()) return MESHIFT_OK;
  const auto message = status.message();
  return Report(static_cast<meshift_code>(status.code()), {message.data(), message.size()}, error);
}

absl::Status NotNull(std::initializer_list<NamedPointer> pointers) {
  for (const NamedPointer& named : pointers) {
    if (named.pointer == nullptr) return InvalidArgument("{} is NULL", named.name);
  }
  return absl::OkStatus();
}

absl::Status CheckSize(std::string_view name, size_t size, size_t right) {
  if (size == right) return absl::OkStatus();
  return InvalidArgument("{}.size is {}, but this library's struct has {} bytes", name, size,
                         right);
}

absl::Status CheckIndex(std::string_view name, int64_t index, int64_t count) {
  if (0 <= index && index < count) return absl::OkStatus();
  return OutOfRange(name, index, count);
}

absl::Status CheckIndex(size_t index, size_t count) {
  if (index < count) return absl::OkStatus();
  return OutOfRange("index", index, count);
}

absl::Status GiveText(std::string_view text, char** out) {
  *out = Copy(text);
  if (*out == nullptr) return absl::ResourceExhaustedError("out of memory");
  return absl::OkStatus();
}

}  // namespace meshift::capi

void meshift_free(void* text) { std::free(text); }

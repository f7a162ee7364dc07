// CheckName: checks the name of a mesh dim, a topology level or a protocol.
//
//   CheckName("level name", "8x");   // level name '8x' is not of the form [A-Za-z_][A-Za-z0-9_]*
//
// It looks at one name: the caller checks that names are unique. Internal to mesh/. A pure
// function; safe for concurrent use.
#ifndef MESHIFT_MESH_NAME_H_
#define MESHIFT_MESH_NAME_H_

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"

namespace meshift {

// Limited because names are part of messages and of every plan.
inline constexpr size_t kMaxNameBytes = 100;

// INVALID_ARGUMENT unless `name` matches [A-Za-z_][A-Za-z0-9_]* and has at most kMaxNameBytes.
// `what`: the named thing, for the message.
inline absl::Status CheckName(std::string_view what, std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return InvalidArgument("a {} has {} bytes; at most {} are allowed", what, name.size(),
                           kMaxNameBytes);
  }
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool ok =
      !name.empty() && is_letter(name[0]) &&
      std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || is_digit(c); });
  if (ok) return absl::OkStatus();
  return InvalidArgument("{} '{}' is not of the form [A-Za-z_][A-Za-z0-9_]*", what, name);
}

}  // namespace meshift

#endif  // MESHIFT_MESH_NAME_H_

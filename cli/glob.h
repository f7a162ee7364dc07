// Names that match a pattern, in time that is bounded by the product of their lengths.
//
//   GlobMatches("model.layers.*.mlp.?p_proj", "model.layers.7.mlp.up_proj");    // true
//
// As fnmatch(3) in the C locale without flags: `*` is any bytes, `?` any one, `[a-c_]`, `[!a-c]`
// and
// `[[:digit:]]` one of a set, and `\` takes its meaning from the byte after it. A NUL is a byte as
// others are, and many `*` take no longer than one.
#ifndef MESHIFT_CLI_GLOB_H_
#define MESHIFT_CLI_GLOB_H_

#include <cstdint>
#include <string_view>

namespace meshift::cli {

// `steps`: where given, what was compared is added to it.
bool GlobMatches(std::string_view glob, std::string_view name, int64_t* steps = nullptr);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_GLOB_H_

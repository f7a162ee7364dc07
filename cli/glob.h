// Matches names against a shell pattern, in time bounded by the product of their lengths.
//
//   GlobMatches("model.layers.*.mlp.?p_proj", "model.layers.7.mlp.up_proj");    // true
//
// As fnmatch(3) in the C locale without flags: `*` is any bytes, `?` any one byte, `\` takes the
// meaning from the byte after it. `[a-c_]`, `[!a-c]` and `[[:digit:]]` are one byte of a set. A NUL
// is an ordinary byte. Many `*` take no longer than one.
#ifndef MESHIFT_CLI_GLOB_H_
#define MESHIFT_CLI_GLOB_H_

#include <cstdint>
#include <string_view>

namespace meshift::cli {

// `steps`: if not null, the number of comparisons is added to it.
bool GlobMatches(std::string_view glob, std::string_view name, int64_t* steps = nullptr);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_GLOB_H_

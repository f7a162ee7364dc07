// Matches names against a shell pattern, with at most (pattern + 1) * (name + 1) comparisons.
//
//   GlobMatches("model.layers.*.mlp.?p_proj", "model.layers.7.mlp.up_proj");    // true
//
// As fnmatch(3) in the C locale without flags: `*` is any bytes, `?` any one byte, `\` takes the
// meaning from the byte after it. `[a-c_]`, `[!a-c]` or `[^a-c]`, and `[[:digit:]]` are one byte of
// a set. The known classes are alpha, digit, alnum, upper, lower, space, graph, punct and xdigit.
// Unlike in fnmatch, other classes, `[=a=]` and `[.a.]` are unknown: their bytes are members, and
// their `]` ends the set. So `[[:blank:]]` matches `b]`, and not `b`. A NUL, and a `[` without `]`,
// are ordinary bytes; a `\` at the end matches nothing. A match covers the whole name. Every
// pattern is accepted.
//
// The bound holds for any number of `*`. A comparison with `[` also scans the pattern up to the
// `]`, or to the end if there is none. Each `[:` on the way scans for the next `:]`.
#ifndef MESHIFT_CLI_GLOB_H_
#define MESHIFT_CLI_GLOB_H_

#include <cstdint>
#include <string_view>

namespace meshift::cli {

// `steps`: if not null, the number of comparisons is added to it. Scans of brackets do not count.
bool GlobMatches(std::string_view glob, std::string_view name, int64_t* steps = nullptr);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_GLOB_H_

// Escapes free text in plans as text, such as the engine's name, so that it stays on its line.
//
//   Escaped("a, b", ",");      // "a\\x2c b"
//
// Internal to the writer (plan_text.cc) and the reader (plan_text_reader.cc), which undoes it.
#ifndef MESHIFT_PLANNER_PLAN_PLAN_TEXT_PARTS_H_
#define MESHIFT_PLANNER_PLAN_PLAN_TEXT_PARTS_H_

#include <string>
#include <string_view>

namespace meshift {

// Replaces `\`, the characters of `special`, control characters and non-ASCII bytes by \xHH.
std::string Escaped(std::string_view text, std::string_view special);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_PLAN_TEXT_PARTS_H_

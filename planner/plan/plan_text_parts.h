// What the writer and the reader of plans as text share.
#ifndef MESHIFT_PLANNER_PLAN_PLAN_TEXT_PARTS_H_
#define MESHIFT_PLANNER_PLAN_PLAN_TEXT_PARTS_H_

#include <string>
#include <string_view>

namespace meshift {

// `\` and what `special` holds, and control characters, become \xHH.
std::string Escaped(std::string_view text, std::string_view special);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_PLAN_TEXT_PARTS_H_

// What the writer and the reader of plans as text share: units, and how odd bytes are shown.
//
//   for (const Unit& unit : kBytes) ...   // the largest first, down to 1
#ifndef MESHIFT_PLANNER_PLAN_TEXT_PARTS_H_
#define MESHIFT_PLANNER_PLAN_TEXT_PARTS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace meshift {

struct Unit {
  std::string_view name;
  int64_t size;
};
inline constexpr std::array<Unit, 7> kBytes = {{{"EiB", int64_t{1} << 60},
                                                {"PiB", int64_t{1} << 50},
                                                {"TiB", int64_t{1} << 40},
                                                {"GiB", int64_t{1} << 30},
                                                {"MiB", int64_t{1} << 20},
                                                {"KiB", int64_t{1} << 10},
                                                {"B", 1}}};
inline constexpr std::array<Unit, 4> kTimes = {
    {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1000}, {"ns", 1}}};

// `\` and what `special` holds, and control characters, become \xHH.
std::string Escaped(std::string_view text, std::string_view special);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_TEXT_PARTS_H_

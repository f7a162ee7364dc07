// Makes the description of a rule that a step breaks, with or without a comparison of values.
//
//   return MakeViolation("data", "mesh dim {} is {} before the step", name, state);
//   if (auto broken = ExpectNumber("group", "group_size", step.group_size, size)) return broken;
//     // group: group_size is 2; it should be 6
//
// It checks no step itself (step.h). Internal to the verifier; pure functions.
#ifndef MESHIFT_PLANNER_VERIFIER_VIOLATION_H_
#define MESHIFT_PLANNER_VERIFIER_VIOLATION_H_

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace meshift::verifier_internal {

struct Violation {
  std::string rule;     // a rule of docs/errors.md
  std::string message;  // without the rule and the step
};

template <typename... Args>
Violation MakeViolation(std::string_view rule, fmt::format_string<Args...> format, Args&&... args) {
  return {std::string(rule), fmt::format(format, std::forward<Args>(args)...)};
}

// Compares two values of an enum that has a Name(); nullopt is stated as "null".
template <typename T>
std::optional<Violation> ExpectName(std::string_view rule, std::string_view field,
                                    const std::optional<T>& stated, const std::optional<T>& right) {
  if (stated == right) return std::nullopt;
  const auto text = [](const std::optional<T>& value) {
    return value ? std::string(Name(*value)) : std::string("null");
  };
  return MakeViolation(rule, "{} is {}; it should be {}", field, text(stated), text(right));
}

inline std::optional<Violation> ExpectNumber(std::string_view rule, std::string_view field,
                                             const std::optional<int64_t>& stated,
                                             const std::optional<int64_t>& right) {
  if (stated == right) return std::nullopt;
  const auto text = [](const std::optional<int64_t>& value) {
    return value ? fmt::format("{}", *value) : std::string("null");
  };
  return MakeViolation(rule, "{} is {}; it should be {}", field, text(stated), text(right));
}

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_VIOLATION_H_

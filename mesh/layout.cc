#include "mesh/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "fmt/format.h"
#include "meshift/status.h"

namespace meshift {
namespace {

std::string Text(absl::Span<const Layout::Mode> modes) {
  std::string sizes, strides;
  for (const auto& [size, stride] : modes) {
    const char* const comma = sizes.empty() ? "" : ",";
    fmt::format_to(std::back_inserter(sizes), "{}{}", comma, size);
    fmt::format_to(std::back_inserter(strides), "{}{}", comma, stride);
  }
  return fmt::format("({}):({})", sizes, strides);
}

// The modes of size > 1 by ascending stride.
Layout::Modes SortByStride(const Layout& layout) {
  Layout::Modes modes;
  for (const Layout::Mode& mode : layout.modes()) {
    if (mode.size > 1) modes.push_back(mode);
  }
  std::sort(modes.begin(), modes.end(),
            [](const Layout::Mode& a, const Layout::Mode& b) { return a.stride < b.stride; });
  return modes;
}

// Where `rest`, the end of a text, begins in it.
std::string Place(std::string_view rest) {
  return rest.empty() ? "at the end" : fmt::format("at '{}'", rest);
}

// Parses "(1,2,3)" at the front of *text, and removes it.
absl::StatusOr<std::vector<int64_t>> TakeTuple(std::string_view* text) {
  std::vector<int64_t> numbers;
  const char* at = text->data();
  const char* const end = at + text->size();
  if (at == end || *at != '(') return InvalidArgument("expected '(' {}", Place(*text));
  if (++at != end && *at == ')') {
    text->remove_prefix(2);
    return numbers;
  }
  while (true) {
    const std::string_view rest = text->substr(at - text->data());
    const auto [stop, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc()) return InvalidArgument("expected a 64-bit number {}", Place(rest));
    if (stop == end || (*stop != ',' && *stop != ')')) {
      return InvalidArgument("expected ',' or ')' after the number at '{}'", rest);
    }
    at = stop + 1;
    if (*stop == ')') break;
  }
  text->remove_prefix(at - text->data());
  return numbers;
}

}  // namespace

absl::StatusOr<Layout> Layout::Create(Modes modes) {
  int64_t size = 1;
  int64_t cosize = 1;
  for (const Mode& mode : modes) {
    if (mode.size < 1) {
      return InvalidArgument("layout {} has size {}; sizes are 1 or more", Text(modes), mode.size);
    }
    if (mode.stride < 0) {
      return InvalidArgument("layout {} has stride {}; strides are 0 or more", Text(modes),
                             mode.stride);
    }
    int64_t span = 0;
    if (!CheckedMul(size, mode.size, &size) || !CheckedMul(mode.size - 1, mode.stride, &span) ||
        !CheckedAdd(cosize, span, &cosize)) {
      return InvalidArgument("layout {} reaches beyond 2^63 - 1", Text(modes));
    }
  }
  return Layout(std::move(modes));
}

absl::StatusOr<Layout> Layout::RowMajor(absl::Span<const int64_t> sizes) {
  Modes modes(sizes.size());
  int64_t stride = 1;
  for (size_t m = sizes.size(); m-- > 0;) {
    modes[m] = {.size = sizes[m], .stride = stride};
    if (!CheckedMul(stride, sizes[m], &stride)) {
      return InvalidArgument("sizes ({}) multiply to more than 2^63 - 1", fmt::join(sizes, ","));
    }
  }
  return Create(std::move(modes));
}

absl::StatusOr<Layout> Layout::Parse(std::string_view text) {
  const auto parse = [](std::string_view rest) -> absl::StatusOr<Layout> {
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, TakeTuple(&rest));
    if (rest.substr(0, 1) != ":") return InvalidArgument("expected ':' {}", Place(rest));
    rest.remove_prefix(1);
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, TakeTuple(&rest));
    if (!rest.empty()) return InvalidArgument("'{}' follows the end of the layout", rest);
    if (sizes.size() != strides.size()) {
      return InvalidArgument("the number of strides is {}; expected {}, one for each size",
                             strides.size(), sizes.size());
    }
    Modes modes;
    for (size_t m = 0; m < sizes.size(); ++m) modes.push_back({sizes[m], strides[m]});
    return Create(std::move(modes));
  };
  absl::StatusOr<Layout> layout = parse(text);
  if (!layout.ok()) return Annotate(layout.status(), fmt::format("layout '{}'", text));
  return layout;
}

int64_t Layout::Size() const {
  int64_t size = 1;
  for (const Mode& mode : modes_) size *= mode.size;
  return size;
}

int64_t Layout::Cosize() const {
  int64_t cosize = 1;
  for (const Mode& mode : modes_) cosize += (mode.size - 1) * mode.stride;
  return cosize;
}

int64_t Layout::operator()(int64_t index) const {
  assert(0 <= index && index < Size());
  int64_t value = 0;
  for (size_t m = modes_.size(); m-- > 0;) {
    value += index % modes_[m].size * modes_[m].stride;
    index /= modes_[m].size;
  }
  return value;
}

std::vector<int64_t> Layout::Indices() const {
  std::vector<int64_t> values = {0};
  for (const Mode& mode : modes_) {
    std::vector<int64_t> wider;
    wider.reserve(values.size() * mode.size);
    for (int64_t value : values) {
      for (int64_t i = 0; i < mode.size; ++i) wider.push_back(value + i * mode.stride);
    }
    values = std::move(wider);
  }
  return values;
}

bool Layout::IsInjective() const {
  if (Size() > Cosize()) return false;  // fewer values than indices
  bool nests = true;
  int64_t reach = 0;  // the largest value of the modes so far
  for (const Mode& mode : SortByStride(*this)) {
    if (mode.stride == 0) return false;
    nests &= mode.stride > reach;
    reach += (mode.size - 1) * mode.stride;
  }
  if (nests) return true;
  std::vector<int64_t> values = Indices();
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

absl::StatusOr<Layout> Layout::Select(absl::Span<const int> modes) const {
  Modes selected;
  for (auto it = modes.begin(); it != modes.end(); ++it) {
    if (*it < 0 || *it >= NumModes()) {
      return InvalidArgument("layout {} has no mode {}", ToString(), *it);
    }
    if (std::find(modes.begin(), it, *it) != it) {
      return InvalidArgument("mode {} of layout {} is selected twice", *it, ToString());
    }
    selected.push_back(mode(*it));
  }
  return Layout(std::move(selected));
}

std::string Layout::ToString() const { return Text(modes_); }

absl::StatusOr<Layout> Concatenate(const Layout& outer, const Layout& inner) {
  Layout::Modes modes = outer.modes();
  modes.insert(modes.end(), inner.modes().begin(), inner.modes().end());
  return Layout::Create(std::move(modes));
}

Layout Coalesce(const Layout& layout) {
  Layout::Modes modes;
  for (const Layout::Mode& mode : layout.modes()) {
    if (mode.size == 1) continue;
    int64_t reach = 0;
    if (!modes.empty() && CheckedMul(mode.size, mode.stride, &reach) &&
        modes.back().stride == reach) {
      modes.back() = {.size = modes.back().size * mode.size, .stride = mode.stride};
    } else {
      modes.push_back(mode);
    }
  }
  return *Layout::Create(std::move(modes));
}

absl::StatusOr<Layout> Complement(const Layout& layout, int64_t world_size) {
  if (world_size < 1) {
    return InvalidArgument("the world size is {}; it must be 1 or more", world_size);
  }
  Layout::Modes gaps;  // by ascending stride
  int64_t reach = 1;   // the modes and gaps so far tile 0 .. reach-1
  const auto fill_to = [&](int64_t value) {
    if (value == 0 || value % reach != 0) return false;
    if (value > reach) gaps.push_back({.size = value / reach, .stride = reach});
    reach = value;
    return true;
  };
  for (const Layout::Mode& mode : SortByStride(layout)) {
    if (!fill_to(mode.stride)) {
      return InvalidArgument(
          "layout {} does not tile any world: stride {} is not a positive multiple of {}",
          layout.ToString(), mode.stride, reach);
    }
    if (!CheckedMul(mode.stride, mode.size, &reach)) {
      return InvalidArgument("layout {} does not tile any world below 2^63", layout.ToString());
    }
  }
  if (!fill_to(world_size)) {
    return InvalidArgument("layout {} does not tile a world of {}, which is not a multiple of {}",
                           layout.ToString(), world_size, reach);
  }
  std::reverse(gaps.begin(), gaps.end());
  return Layout::Create(std::move(gaps));
}

absl::StatusOr<Layout> Composition(const Layout& a, const Layout& b) {
  if (b.Cosize() > a.Size()) {
    return InvalidArgument("{} after {}: value {} is beyond the {} indices of the first layout",
                           a.ToString(), b.ToString(), b.Cosize() - 1, a.Size());
  }
  // Write an index of `a` as a mixed-radix number whose digits are the coordinates of a's modes.
  // Each mode of `b` is divided into parts that change one digit each. Digits never carry, even
  // when parts of several modes add up; therefore a(sum of parts) = sum of a(part).
  const Layout digits = Coalesce(a);
  std::vector<int64_t> used(digits.NumModes());  // the largest value each digit can take so far
  Layout::Modes result;
  for (const Layout::Mode& mode : b.modes()) {
    Layout::Modes parts;  // fastest first
    auto [size, stride] = mode;
    if (size == 1 || stride == 0) {
      parts.push_back({.size = size, .stride = 0});
      size = 1;
    }
    for (int d = digits.NumModes() - 1; size > 1; --d) {
      const Layout::Mode& digit = digits.mode(d);  // d >= 0: b's values are valid indices of a
      if (stride % digit.size == 0) {
        stride /= digit.size;
        continue;
      }
      int64_t count = size;  // number of steps of `stride` in this digit
      if ((size - 1) > (digit.size - 1) / stride) {
        count = digit.size / stride;
        if (digit.size % stride != 0 || size % count != 0) {
          return InvalidArgument("{} after {}: mode ({}):({}) does not cut mode ({}):({}) evenly",
                                 a.ToString(), b.ToString(), mode.size, mode.stride, digit.size,
                                 digit.stride);
        }
      }
      if ((count - 1) * stride > digit.size - 1 - used[d]) {
        return InvalidArgument(
            "{} after {}: modes of the second layout add up beyond mode ({}):({})", a.ToString(),
            b.ToString(), digit.size, digit.stride);
      }
      used[d] += (count - 1) * stride;
      parts.push_back({.size = count, .stride = stride * digit.stride});
      size /= count;
      stride = 1;
    }
    result.insert(result.end(), parts.rbegin(), parts.rend());
  }
  return Layout::Create(std::move(result));
}

}  // namespace meshift

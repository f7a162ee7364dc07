#include "cli/glob.h"

#include <array>
#include <cstddef>
#include <utility>

namespace meshift::cli {
namespace {

bool IsBetween(char c, char first, char last) { return first <= c && c <= last; }

bool IsUpper(char c) { return IsBetween(c, 'A', 'Z'); }
bool IsLower(char c) { return IsBetween(c, 'a', 'z'); }
bool IsAlpha(char c) { return IsUpper(c) || IsLower(c); }
bool IsDigit(char c) { return IsBetween(c, '0', '9'); }
bool IsAlnum(char c) { return IsAlpha(c) || IsDigit(c); }
bool IsSpace(char c) { return c == ' ' || IsBetween(c, '\t', '\r'); }
bool IsGraph(char c) { return IsBetween(c, '!', '~'); }
bool IsPunct(char c) { return IsGraph(c) && !IsAlnum(c); }
bool IsHex(char c) { return IsDigit(c) || IsBetween(c, 'a', 'f') || IsBetween(c, 'A', 'F'); }

constexpr std::array<std::pair<std::string_view, bool (*)(char)>, 9> kClasses = {
    {{"alpha", IsAlpha},
     {"digit", IsDigit},
     {"alnum", IsAlnum},
     {"upper", IsUpper},
     {"lower", IsLower},
     {"space", IsSpace},
     {"graph", IsGraph},
     {"punct", IsPunct},
     {"xdigit", IsHex}}};

// Whether c is in the set whose '[' is at glob[at]. *end is the index after its ']', or `at` if
// there is none: the bracket then stands for itself.
bool IsInSet(std::string_view glob, size_t at, char c, size_t* end) {
  *end = at;
  size_t i = at + 1;
  const bool negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (bool first = true; i < glob.size() && (first || glob[i] != ']'); first = false) {
    if (glob.substr(i, 2) == "[:") {
      const size_t close = glob.find(":]", i + 2);
      bool is_class = false;
      for (const auto& [name, has] : kClasses) {
        if (close == std::string_view::npos || glob.substr(i + 2, close - i - 2) != name) continue;
        found = found || has(c);
        is_class = true;
      }
      if (is_class) {
        i = close + 2;
        continue;
      }
    }
    const auto take = [&] {
      if (glob[i] == '\\' && i + 1 < glob.size()) ++i;
      return static_cast<unsigned char>(glob[i++]);
    };
    const unsigned char low = take();
    unsigned char high = low;
    if (i + 1 < glob.size() && glob[i] == '-' && glob[i + 1] != ']') {
      ++i;
      high = take();
    }
    const auto byte = static_cast<unsigned char>(c);
    found = found || (low <= byte && byte <= high);
  }
  if (i >= glob.size()) return false;
  *end = i + 1;
  return found != negated;
}

// Whether c matches the one-byte part of the pattern at glob[at]. *end is the index after that
// part.
bool MatchesOne(std::string_view glob, size_t at, char c, size_t* end) {
  *end = at + 1;
  switch (glob[at]) {
    case '?':
      return true;
    case '[': {
      size_t after_set = at;
      const bool is_in = IsInSet(glob, at, c, &after_set);
      if (after_set == at) return c == '[';
      *end = after_set;
      return is_in;
    }
    case '\\':
      *end = at + 2;
      return at + 1 < glob.size() && glob[at + 1] == c;
    default:
      return glob[at] == c;
  }
}

}  // namespace

// If the pattern after the last `*` does not match, that `*` takes one byte more. Earlier ones need
// not: the last can take any bytes that they could.
bool GlobMatches(std::string_view glob, std::string_view name, int64_t* steps) {
  size_t g = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t star_end = 0;  // the end of the bytes that the star has taken
  int64_t count = 0;
  bool matches = true;
  while (n < name.size() && matches) {
    ++count;
    size_t end = g;
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_end = n;
    } else if (g < glob.size() && MatchesOne(glob, g, name[n], &end)) {
      g = end;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++star_end;
    } else {
      matches = false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  if (steps != nullptr) *steps += count + 1;
  return matches && n == name.size() && g == glob.size();
}

}  // namespace meshift::cli

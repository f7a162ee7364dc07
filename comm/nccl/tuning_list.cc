#include "comm/nccl/tuning_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {
namespace {

constexpr std::array<std::string_view, kNumNcclFunctions> kFunctions = {
    "broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
constexpr std::array<std::string_view, 7> kAlgorithms = {
    "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
constexpr std::array<std::string_view, 3> kProtocols = {"ll", "ll128", "simple"};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Splits as strtok does: skips empty parts.
std::vector<std::string_view> Tokens(std::string_view text, char by) {
  std::vector<std::string_view> tokens;
  while (!text.empty()) {
    const size_t end = std::min(text.find(by), text.size());
    if (end > 0) tokens.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return tokens;
}

}  // namespace

std::string_view Name(NcclFunction function) { return kFunctions[static_cast<size_t>(function)]; }

TuningList::TuningList(Names names) : names_(names) {
  for (std::vector<bool>& row : allowed_) row.assign(names.size(), true);
}

absl::StatusOr<TuningList> TuningList::Algorithms(std::string_view text) {
  return Parse(text, kAlgorithms, "algorithm");
}

absl::StatusOr<TuningList> TuningList::Protocols(std::string_view text) {
  return Parse(text, kProtocols, "protocol");
}

absl::StatusOr<TuningList> TuningList::Parse(std::string_view text, Names names,
                                             std::string_view what) {
  TuningList list(names);
  const std::string lower = Lower(text);
  // NCCL recognises the first entry by its position: after a leading ';' no entry is the first.
  bool first = !lower.starts_with(';');
  for (const std::string_view entry : Tokens(lower, ';')) {
    const std::vector<std::string_view> parts = Tokens(entry, ':');
    const bool named = parts.size() > 1;  // parts after the second are ignored
    if (parts.empty() || (!named && !first)) {
      return InvalidArgument("'{}' names no collective, and is not the first entry", entry);
    }
    first = false;
    if (named && std::find(kFunctions.begin(), kFunctions.end(), parts[0]) == kFunctions.end()) {
      return InvalidArgument("unknown collective '{}'; NCCL knows {}", parts[0],
                             fmt::join(kFunctions, " "));
    }
    std::string_view elements = parts[named ? 1 : 0];
    const bool excludes = elements.starts_with('^');
    if (excludes) elements.remove_prefix(1);
    std::vector<bool> row(names.size(), excludes);
    for (const std::string_view element : Tokens(elements, ',')) {
      const auto name = std::find(names.begin(), names.end(), element);
      if (name == names.end()) {
        return InvalidArgument("unknown {} '{}'; NCCL knows {}", what, element,
                               fmt::join(names, " "));
      }
      row[name - names.begin()] = !excludes;
    }
    for (size_t f = 0; f < kFunctions.size(); ++f) {
      if (!named || parts[0] == kFunctions[f]) list.allowed_[f] = row;
    }
  }
  return list;
}

bool TuningList::Allows(NcclFunction function, std::string_view name) const {
  const std::vector<bool>& row = allowed_[static_cast<size_t>(function)];
  const auto found = std::find(names_.begin(), names_.end(), name);
  return found != names_.end() && row[found - names_.begin()];
}

bool TuningList::AllowsOnly(NcclFunction function, std::string_view name) const {
  const std::vector<bool>& row = allowed_[static_cast<size_t>(function)];
  return Allows(function, name) && std::count(row.begin(), row.end(), true) == 1;
}

bool TuningList::AllowsAny(NcclFunction function) const {
  const std::vector<bool>& row = allowed_[static_cast<size_t>(function)];
  return std::find(row.begin(), row.end(), true) != row.end();
}

std::string TuningList::ToString(NcclFunction function) const {
  const std::vector<bool>& row = allowed_[static_cast<size_t>(function)];
  std::vector<std::string_view> left;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i]) left.push_back(names_[i]);
  }
  if (left.empty()) return "none";
  return left.size() == row.size() ? "any" : fmt::format("{}", fmt::join(left, ","));
}

}  // namespace meshift

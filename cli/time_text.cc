#include "cli/time_text.h"

#include <fmt/format.h>

#include <string>

#include "cli/text.h"

namespace meshift::cli {

std::string AlgorithmText(Algorithm algorithm, int protocol, const Topology& topology) {
  if (protocol < 0) return std::string(Name(algorithm));
  return fmt::format("{}, {}", Name(algorithm), topology.protocols()[protocol].name);
}

std::string LinksText(int level, int64_t sharing, const Topology& topology) {
  if (level < 0) return "";
  const std::string& name = topology.level(level).name;
  if (sharing == 0) return name;
  return fmt::format("{}, {} per group and domain", name, CountText(sharing, "link"));
}

}  // namespace meshift::cli

#include "mesh/topology_presets.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

#include "base/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// Bandwidths in bytes per us, latencies in ns. docs/cost_model.md has the source of each number.

struct Gpu {
  std::string_view name;
  int64_t domain_size;
  int64_t gpus_per_node;        // GPUs that share the node's NICs
  int64_t bandwidth;            // of one GPU's NVLinks, in ring algorithms
  int64_t in_switch_bandwidth;  // bytes of the tensor per us in an in-switch all-reduce; 0: none
  int64_t in_switch_members;    // the fewest ranks that can use it
  int64_t copy_bandwidth;       // 0.9 * data sheet / 2: a copy reads and writes each byte
};
constexpr Gpu kGpus[] = {
    {"a100", 8, 8, 220'000, 0, 0, 900'000},  // NVLink 3; 2.0 TB/s, 80 GB SXM
    {"h100", 8, 8, 367'000, 263'000, 5, 1'500'000},
    {"h200", 8, 8, 367'000, 263'000, 5, 2'150'000},
    {"b200", 8, 8, 673'000, 460'000, 6, 3'600'000},
    {"gb200", 72, 4, 673'000, 460'000, 4, 3'600'000},
    {"gb300", 72, 4, 673'000, 460'000, 4, 3'600'000},
};
const Gpu& kH100 = kGpus[1];
static_assert(kGpus[1].copy_bandwidth == TopologyConstants{}.copy_bandwidth_bytes_per_us);

struct Fabric {
  std::string_view name;
  int64_t latency_ns;
  int64_t percent;  // reachable share of the NICs' speed
};
constexpr Fabric kHdr = {"hdr", 5'000, 96};
constexpr Fabric kNdr = {"ndr", 5'000, 96};
constexpr Fabric kEfa = {"efa", 16'000, 83};
constexpr Fabric kRoce = {"roce", 7'000, 96};
constexpr Fabric kEfaOfA100 = {"efa", 32'000, 83};  // first generation of EFA

// Constants of all presets.
constexpr int64_t kNvlinkHopNs = 1'000;
constexpr int64_t kEntryHops = 3;              // entry_ns, in hops
constexpr int64_t kDirectBandwidth = 23'200;   // point-to-point messages of one GPU
constexpr int64_t kDomainBandwidth = 384'000;  // ring or tree traffic into a domain
constexpr int64_t kMessageNs = 100;

// A preset. `nics_gbps`: of all NICs of a node. The GPU's name alone means its first preset.
struct Machine {
  std::string_view gpu;
  const Fabric& fabric;
  int64_t nics_gbps;
};
constexpr Machine kMachines[] = {
    {"a100", kHdr, 8 * 200},   {"a100", kNdr, 8 * 200},  {"a100", kEfaOfA100, 4 * 100},
    {"a100", kRoce, 16 * 100}, {"h100", kNdr, 8 * 400},  {"h100", kEfa, 32 * 100},
    {"h100", kRoce, 8 * 400},  {"h200", kNdr, 8 * 400},  {"h200", kEfa, 16 * 200},
    {"h200", kRoce, 8 * 400},  {"b200", kNdr, 8 * 400},  {"b200", kEfa, 8 * 400},
    {"b200", kRoce, 8 * 400},  {"gb200", kNdr, 4 * 400}, {"gb200", kEfa, 4 * 400},
    {"gb200", kRoce, 4 * 400}, {"gb300", kNdr, 4 * 800}, {"gb300", kEfa, 4 * 800},
    {"gb300", kRoce, 4 * 800},
};
constexpr std::string_view kNvlinkName = "nvlink";
constexpr std::string_view kNetName = "net";

const Gpu& GpuOf(const Machine& machine) {
  return *std::find_if(std::begin(kGpus), std::end(kGpus),
                       [&](const Gpu& gpu) { return gpu.name == machine.gpu; });
}

TopologyLevel DomainLevel(const Gpu& gpu, std::string_view name, int64_t domain_size) {
  return {.name = std::string(name),
          .domain_size = domain_size,
          .bandwidth_bytes_per_us = gpu.bandwidth,
          .latency_ns = kNvlinkHopNs,
          .in_switch_bandwidth_bytes_per_us = gpu.in_switch_bandwidth,
          .in_switch_members = gpu.in_switch_members};
}

// The network level: NICs of `gbps` Gb/s in all, shared by `gpus` GPUs.
TopologyLevel NetworkLevelOf(const Fabric& fabric, int64_t gbps, int64_t gpus,
                             std::string_view name, int64_t domain_size) {
  const int64_t share = std::max<int64_t>(gbps * 1000 / 8 / gpus * fabric.percent / 100, 1);
  return {.name = std::string(name),
          .domain_size = domain_size,
          .bandwidth_bytes_per_us = share,
          .latency_ns = fabric.latency_ns,
          .entry_ns = kEntryHops * fabric.latency_ns,
          .direct_bandwidth_bytes_per_us = std::min(share, kDirectBandwidth),
          .domain_bandwidth_bytes_per_us = kDomainBandwidth};
}

TopologyConstants ConstantsOf(const Gpu& gpu) {
  TopologyConstants constants = NcclConstants();
  constants.copy_bandwidth_bytes_per_us = gpu.copy_bandwidth;
  return constants;
}

TopologyLevel NetworkOf(const Machine& machine, int64_t nics_gbps, int64_t gpus) {
  return NetworkLevelOf(machine.fabric, nics_gbps, gpus, kNetName, 0);
}

// Must be fast: every plan prints its topology.
bool Matches(const Machine& machine, const Topology& topology) {
  static const std::vector<TopologyProtocol> kProtocols = NcclProtocols();
  const Gpu& gpu = GpuOf(machine);
  return topology.level(0).bandwidth_bytes_per_us == gpu.bandwidth && topology.NumLevels() == 2 &&
         topology.level(0) == DomainLevel(gpu, kNvlinkName, gpu.domain_size) &&
         topology.level(1) == NetworkOf(machine, machine.nics_gbps, gpu.gpus_per_node) &&
         topology.constants() == ConstantsOf(gpu) &&
         std::equal(kProtocols.begin(), kProtocols.end(), topology.protocols().begin(),
                    topology.protocols().end());
}

// Whether the GPU's name alone means this preset.
bool IsFirst(const Machine& machine) {
  return &machine == std::find_if(std::begin(kMachines), std::end(kMachines),
                                  [&](const Machine& m) { return m.gpu == machine.gpu; });
}

std::string NameOf(const Machine& machine) {
  return fmt::format("{}-{}", machine.gpu, machine.fabric.name);
}

// "4x100": 400.
std::optional<int64_t> ParseNics(std::string_view text) {
  constexpr int64_t kMost = 1'000'000;
  int64_t product = 1;
  for (const char* end_mark : {"x", ""}) {
    const size_t stop = *end_mark == '\0' ? text.size() : text.find(*end_mark);
    if (stop == text.npos) return std::nullopt;
    int64_t number = 0;
    const auto [at, error] = std::from_chars(text.data(), text.data() + stop, number);
    if (error != std::errc() || at != text.data() + stop || number < 1 || number > kMost) {
      return std::nullopt;
    }
    product *= number;
    text.remove_prefix(std::min(stop + 1, text.size()));
  }
  return product;
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Machine& machine : kMachines) names.push_back(NameOf(machine));
  return names;
}

bool IsPresetText(std::string_view text) {
  return text.substr(0, 1) != "{" && text.substr(0, text.find(',')).find('=') == text.npos;
}

absl::StatusOr<Topology> PresetTopology(std::string_view text, const NodeCounts& node) {
  const size_t comma = text.find(',');
  const std::string_view name = text.substr(0, comma);
  const auto machine = std::find_if(
      std::begin(kMachines), std::end(kMachines),
      [&](const Machine& m) { return name == NameOf(m) || (name == m.gpu && IsFirst(m)); });
  if (machine == std::end(kMachines)) {
    return InvalidArgument(
        "'{}' is neither name=size nor a preset (flat, {}; a GPU alone means its first preset)",
        name, fmt::join(PresetNames(), ", "));
  }
  std::optional<int64_t> gbps = node.nics_gbps;
  if (comma != text.npos) {
    const std::string_view change = text.substr(comma + 1);
    constexpr std::string_view kNics = "nics=";
    const std::optional<int64_t> nics = change.substr(0, kNics.size()) == kNics
                                            ? ParseNics(change.substr(kNics.size()))
                                            : std::nullopt;
    if (!nics) {
      return InvalidArgument(
          "'{}' is not nics=COUNTxGBPS, the NICs of a node, each of 1 to "
          "1000000 Gb/s",
          change);
    }
    gbps = *nics;
  }
  const Gpu& gpu = GpuOf(*machine);
  const int64_t gpus = node.gpus.value_or(gpu.gpus_per_node);
  if (gpus < 1) return InvalidArgument("a node has {} GPUs; it must have 1 or more", gpus);
  const bool spans_nodes = gpu.domain_size > gpu.gpus_per_node;
  const int64_t domain = spans_nodes ? std::max(gpu.domain_size, gpus) : gpus;
  return Topology::Create({DomainLevel(gpu, kNvlinkName, domain),
                           gbps ? NetworkOf(*machine, *gbps, gpus)
                                : NetworkOf(*machine, machine->nics_gbps, gpu.gpus_per_node)},
                          ConstantsOf(gpu), NcclProtocols());
}

std::string PresetNameOf(const Topology& topology) {
  for (const Machine& machine : kMachines) {
    if (!Matches(machine, topology)) continue;
    return IsFirst(machine) ? std::string(machine.gpu) : NameOf(machine);
  }
  return "";
}

TopologyLevel NvlinkLevel(std::string_view name, int64_t domain_size) {
  return DomainLevel(kH100, name, domain_size);
}

TopologyLevel NetworkLevel(std::string_view name, int64_t domain_size) {
  return NetworkLevelOf(kNdr, 8 * 400, 8, name, domain_size);
}

std::vector<TopologyProtocol> NcclProtocols() {
  return {{.name = "LL",
           .start_ns = 0,
           .latency_percent = 100,
           .bandwidth_percent = 30,
           .domain_percent = 12},
          {.name = "LL128",
           .start_ns = 24'000,
           .latency_percent = 200,
           .bandwidth_percent = 92,
           .domain_percent = 92},
          {.name = "Simple",
           .start_ns = 50'000,
           .latency_percent = 500,
           .bandwidth_percent = 100,
           .domain_percent = 100}};
}

TopologyConstants NcclConstants() { return {.message_latency_ns = kMessageNs}; }

}  // namespace meshift

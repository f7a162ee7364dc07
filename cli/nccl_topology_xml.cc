#include "cli/nccl_topology_xml.h"

#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "cli/text.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

constexpr size_t kMaxLinkText = 100;  // bytes kept of link_speed and link_width

// A file with a larger value is refused.
constexpr int64_t kMaxMbps = 100'000'000;  // the speed of one <net>: 100 Tb/s
constexpr int64_t kMaxSm = 9999;           // compute capability
constexpr int64_t kMaxLinks = 1000;        // the count of one <nvlink>
constexpr size_t kMaxParts = 16;           // of one GPU (mlopart); NCCL has fewer

// The link of a <pci>, as text. Long text is invalid anyway and is cut, because every NIC below
// copies it.
struct PciLink {
  int64_t line = 0;
  std::string speed;  // "16 GT/s", "32.0 GT/s PCIe", "Unknown speed", ""
  std::string width;
};

// A host's devices, by element and by PCI class.
struct Host {
  uint64_t hash = 0;
  std::vector<NcclTopologyGpu> gpus;      // <gpu>
  std::vector<NcclTopologyGpu> gpu_pcis;  // class 0x03
  struct Nic {
    NcclTopologyNic nic;
    PciLink link;
  };
  std::vector<Nic> nets;      // <net>
  std::vector<Nic> nic_pcis;  // class 0x02
};

enum class Element { kSystem, kCpu, kPci, kGpu, kNic, kSkipped };

// An element that is open.
struct Frame {
  Element element = Element::kSkipped;
  std::string busid;               // of a <pci>
  std::vector<std::string> parts;  // the `mlopart` of a <pci>'s <gpu>s
  std::optional<PciLink> link;     // of the nearest <pci>
};

// Reads one file with expat; make a new one for each.
class TopologyReader {
 public:
  absl::StatusOr<NcclTopologyFile> Read(std::string_view xml) {
    // Set the encoding here, so that the file's own declaration does not matter.
    const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(
        XML_ParserCreate("UTF-8"), &XML_ParserFree);
    if (parser == nullptr) return absl::ResourceExhaustedError("out of memory in expat");
    parser_ = parser.get();
    XML_SetUserData(parser_, this);
    XML_SetElementHandler(parser_, &TopologyReader::OnStart, &TopologyReader::OnEnd);
    XML_SetStartDoctypeDeclHandler(parser_, &TopologyReader::OnDoctype);
    const XML_Status parsed =
        XML_Parse(parser_, xml.data(), static_cast<int>(xml.size()), /*isFinal=*/1);
    if (!error_.ok()) return error_;
    if (XML_GetErrorCode(parser_) == XML_ERROR_NO_MEMORY) {
      return absl::ResourceExhaustedError("out of memory in expat");
    }
    if (parsed != XML_STATUS_OK) {
      return InvalidArgument("line {}: the XML is not well-formed: {}", Line(),
                             XML_ErrorString(XML_GetErrorCode(parser_)));
    }
    return Finish();
  }

 private:
  static void XMLCALL OnStart(void* self, const XML_Char* name, const XML_Char** attributes) {
    auto* const reader = static_cast<TopologyReader*>(self);
    if (reader->error_.ok()) reader->Check(reader->Start(name, attributes));
  }
  static void XMLCALL OnEnd(void* self, const XML_Char* /*name*/) {
    auto* const reader = static_cast<TopologyReader*>(self);
    if (reader->error_.ok()) reader->frames_.pop_back();
  }
  static void XMLCALL OnDoctype(void* self, const XML_Char* /*name*/, const XML_Char* /*system*/,
                                const XML_Char* /*publics*/, int /*has_subset*/) {
    static_cast<TopologyReader*>(self)->Check(
        InvalidArgument("the file has a DOCTYPE; a topology must not have one"));
  }

  // Records the first error and stops the parser.
  void Check(const absl::Status& status) {
    if (status.ok()) return;
    error_ = Annotate(status, fmt::format("line {}", Line()));
    XML_StopParser(parser_, XML_FALSE);
  }

  int64_t Line() const { return static_cast<int64_t>(XML_GetCurrentLineNumber(parser_)); }

  static std::optional<std::string_view> Attribute(const XML_Char** attributes,
                                                   std::string_view name) {
    for (; attributes[0] != nullptr; attributes += 2) {
      if (attributes[0] == name) return attributes[1];
    }
    return std::nullopt;
  }

  // An integer in [least, most]; none if the attribute is missing.
  static absl::StatusOr<std::optional<int64_t>> Integer(const XML_Char** attributes,
                                                        std::string_view name, int64_t least,
                                                        int64_t most) {
    const auto text = Attribute(attributes, name);
    if (!text) return std::nullopt;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < least ||
        value > most) {
      return InvalidArgument("{} is {}; it must be an integer between {} and {}", name,
                             Quoted(*text), least, most);
    }
    return value;
  }

  absl::Status Start(std::string_view name, const XML_Char** attributes) {
    if (frames_.size() == static_cast<size_t>(kMaxNcclTopologyDepth)) {
      return InvalidArgument("elements are nested deeper than {}", kMaxNcclTopologyDepth);
    }
    Frame frame;
    if (frames_.empty()) {
      if (name != "system") {
        return InvalidArgument("the root is {}; expected <system>", Quoted(name));
      }
      frame.element = Element::kSystem;
      MESHIFT_RETURN_IF_ERROR(CheckVersion(attributes));
      frames_.push_back(std::move(frame));
      return absl::OkStatus();
    }
    Frame& parent = frames_.back();
    frame.link = parent.link;
    const auto below = [&](std::string_view element, std::initializer_list<Element> parents) {
      return name == element &&
             std::find(parents.begin(), parents.end(), parent.element) != parents.end();
    };
    if (below("cpu", {Element::kSystem})) {
      frame.element = Element::kCpu;
      StartCpu(attributes);
    } else if (below("pci", {Element::kCpu, Element::kPci})) {
      frame.element = Element::kPci;
      StartPci(attributes, &frame);
    } else if (below("gpu", {Element::kPci})) {
      frame.element = Element::kGpu;
      MESHIFT_RETURN_IF_ERROR(StartGpu(attributes, &parent, &frame.element));
    } else if (below("nvlink", {Element::kGpu})) {
      MESHIFT_RETURN_IF_ERROR(StartNvlink(attributes));
    } else if (below("nic", {Element::kCpu, Element::kPci})) {
      frame.element = Element::kNic;
    } else if (below("net", {Element::kNic})) {
      MESHIFT_RETURN_IF_ERROR(StartNet(attributes, parent));
    }
    frames_.push_back(std::move(frame));
    return absl::OkStatus();
  }

  // Accepts any spelling of 1, as NCCL does.
  static absl::Status CheckVersion(const XML_Char** attributes) {
    const auto version = Attribute(attributes, "version");
    if (!version) return InvalidArgument("<system> has no version; expected 1");
    if (std::strtol(version->data(), nullptr, 0) == 1) return absl::OkStatus();
    return InvalidArgument("the version is {}; expected 1", Quoted(*version));
  }

  void StartCpu(const XML_Char** attributes) {
    const auto text = Attribute(attributes, "host_hash");
    const uint64_t hash = text ? std::strtoull(text->data(), nullptr, 16) : 0;
    const auto [entry, is_new] = host_of_hash_.try_emplace(hash, hosts_.size());
    if (is_new) hosts_.emplace_back().hash = hash;
    host_ = entry->second;
  }

  void StartPci(const XML_Char** attributes, Frame* frame) {
    const auto text = [&](std::string_view name) {
      return std::string(Attribute(attributes, name).value_or(""));
    };
    frame->busid = Shown(text("busid"));
    frame->link = PciLink{Line(), text("link_speed").substr(0, kMaxLinkText),
                          text("link_width").substr(0, kMaxLinkText)};
    const std::string_view pci_class = Attribute(attributes, "class").value_or("");
    Host& host = hosts_[host_];
    if (pci_class.substr(0, 4) == "0x03") {
      host.gpu_pcis.push_back({frame->busid, std::nullopt, std::nullopt});
    } else if (pci_class.substr(0, 4) == "0x02") {
      host.nic_pcis.push_back({{frame->busid, 0, NicSpeed::kUnknown}, *frame->link});
    }
  }

  absl::Status StartGpu(const XML_Char** attributes, Frame* pci, Element* element) {
    NcclTopologyGpu gpu;
    gpu.busid = pci->busid;
    MESHIFT_ASSIGN_OR_RETURN(gpu.sm, Integer(attributes, "sm", 1, kMaxSm));
    // Ranks that share a GPU have an element each, which counts once; partitions count as GPUs.
    const std::string part(Attribute(attributes, "mlopart").value_or(""));
    if (std::find(pci->parts.begin(), pci->parts.end(), part) != pci->parts.end()) {
      *element = Element::kSkipped;
      return absl::OkStatus();
    }
    if (pci->parts.size() == kMaxParts) {
      return InvalidArgument("a GPU has more than {} parts (mlopart)", kMaxParts);
    }
    pci->parts.push_back(part);
    hosts_[host_].gpus.push_back(std::move(gpu));
    return absl::OkStatus();
  }

  absl::Status StartNvlink(const XML_Char** attributes) {
    MESHIFT_ASSIGN_OR_RETURN(const auto count, Integer(attributes, "count", 0, kMaxLinks));
    if (!count) return InvalidArgument("<nvlink> has no count");
    NcclTopologyGpu& gpu = hosts_[host_].gpus.back();
    gpu.nvlinks = gpu.nvlinks.value_or(0) + *count;
    return absl::OkStatus();
  }

  absl::Status StartNet(const XML_Char** attributes, const Frame& nic) {
    if (!Attribute(attributes, "dev") || Attribute(attributes, "net") == "0") {
      return absl::OkStatus();
    }
    Host::Nic net;
    net.nic.name = Shown(Attribute(attributes, "name").value_or(""));
    if (nic.link) net.link = *nic.link;
    // Some NICs have -1; NCCL assumes 10 Gb/s for them.
    MESHIFT_ASSIGN_OR_RETURN(const auto speed, Integer(attributes, "speed", -1, kMaxMbps));
    if (speed.value_or(0) > 0) {
      net.nic.mbps = *speed;
      net.nic.source = NicSpeed::kNet;
    }
    hosts_[host_].nets.push_back(std::move(net));
    return absl::OkStatus();
  }

  // None if the file does not give the speed of the link.
  static absl::StatusOr<std::optional<int64_t>> PcieMbps(const PciLink& link) {
    // The texts that /sys has for unknown values.
    const bool unknown_speed = link.speed.empty() || link.speed.rfind("Unknown", 0) == 0;
    const bool unknown_width =
        link.width.empty() || link.width == "0" || link.width == "63" || link.width == "255";
    if (unknown_speed || unknown_width) return std::nullopt;
    struct Lane {
      std::string_view speed;
      std::string_view other;
      int64_t bits;  // 10^6 bit/s, before decoding
      int64_t part;  // the payload's share is part / of
      int64_t of;
    };
    static constexpr std::array<Lane, 7> kLanes = {{{"2.5", "2.5", 2500, 8, 10},
                                                    {"5", "5.0", 5000, 8, 10},
                                                    {"8", "8.0", 8000, 128, 130},
                                                    {"16", "16.0", 16000, 128, 130},
                                                    {"32", "32.0", 32000, 128, 130},
                                                    {"64", "64.0", 64000, 128, 130},
                                                    {"128", "128.0", 128000, 128, 130}}};
    const std::string_view speed = link.speed;
    const size_t space = std::min(speed.find(' '), speed.size());
    const std::string_view unit = speed.substr(space);
    const auto* const lane = std::find_if(kLanes.begin(), kLanes.end(), [&](const Lane& known) {
      return speed.substr(0, space) == known.speed || speed.substr(0, space) == known.other;
    });
    if (lane == kLanes.end() || (unit != " GT/s" && unit != " GT/s PCIe")) {
      return InvalidArgument(
          "line {}: link_speed is {}; PCIe has 2.5, 5, 8, 16, 32, 64 and 128 GT/s", link.line,
          Quoted(speed));
    }
    static constexpr std::array<std::string_view, 7> kWidths = {"1",  "2",  "4", "8",
                                                                "12", "16", "32"};
    const auto* const width = std::find(kWidths.begin(), kWidths.end(), link.width);
    if (width == kWidths.end()) {
      return InvalidArgument("line {}: link_width is {}; PCIe has 1, 2, 4, 8, 12, 16 and 32 lanes",
                             link.line, Quoted(link.width));
    }
    int64_t lanes = 0;
    std::from_chars(width->data(), width->data() + width->size(), lanes);
    return lanes * lane->bits * lane->part / lane->of;
  }

  absl::StatusOr<NcclTopologyFile> Finish() {
    // <gpu> and <net> are NCCL's own findings; PCI classes only replace them.
    const bool has_gpus = std::any_of(hosts_.begin(), hosts_.end(),
                                      [](const Host& host) { return !host.gpus.empty(); });
    const bool has_nets = std::any_of(hosts_.begin(), hosts_.end(),
                                      [](const Host& host) { return !host.nets.empty(); });
    NcclTopologyFile file;
    file.hosts = 0;
    const Host* first = nullptr;
    for (Host& host : hosts_) {
      if (!has_gpus) host.gpus = std::move(host.gpu_pcis);
      if (!has_nets) host.nets = std::move(host.nic_pcis);
      if (host.gpus.empty() && host.nets.empty()) continue;
      ++file.hosts;
      if (first == nullptr) first = &host;
      if (host.gpus.size() != first->gpus.size() || host.nets.size() != first->nets.size()) {
        return InvalidArgument(
            "host {:#x} has {} GPUs and {} NICs, host {:#x} {} and {}; all hosts must have the "
            "same",
            first->hash, first->gpus.size(), first->nets.size(), host.hash, host.gpus.size(),
            host.nets.size());
      }
    }
    if (first == nullptr || first->gpus.empty()) {
      return InvalidArgument(
          "the file has no GPU: neither <gpu> in <pci>, nor <pci> with a class that begins with "
          "0x03");
    }
    file.gpus = first->gpus;
    for (const Host::Nic& device : first->nets) {
      NcclTopologyNic nic = device.nic;
      if (nic.source == NicSpeed::kUnknown) {
        MESHIFT_ASSIGN_OR_RETURN(const auto mbps, PcieMbps(device.link));
        nic.mbps = mbps.value_or(0);
        if (mbps) nic.source = NicSpeed::kPcie;
      }
      file.nics.push_back(std::move(nic));
    }
    return file;
  }

  XML_Parser parser_ = nullptr;
  absl::Status error_;
  std::vector<Frame> frames_;  // of the elements that are open
  std::vector<Host> hosts_;
  absl::flat_hash_map<uint64_t, size_t> host_of_hash_;
  size_t host_ = 0;  // of the <cpu> that is open
};

}  // namespace

absl::StatusOr<NcclTopologyFile> ParseNcclTopology(std::string_view xml) {
  if (xml.size() > static_cast<size_t>(kMaxNcclTopologyBytes)) {
    return InvalidArgument("the file has {} bytes; at most {} are read", xml.size(),
                           kMaxNcclTopologyBytes);
  }
  // UTF-16 text contains such bytes; expat would detect the encoding by its first two.
  const size_t zero = xml.find('\0');
  if (zero != std::string_view::npos) {
    return InvalidArgument("byte {} is 0; expected XML in UTF-8", zero);
  }
  return TopologyReader().Read(xml);
}

}  // namespace meshift::cli

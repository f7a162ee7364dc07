// NCCL's topology files: accepted values are in bounds, and messages are printable.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/nccl_topology_xml.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace cli = meshift::cli;
  namespace fuzz = meshift::fuzz;
  const std::string_view text = fuzz::Text(data, size);
  const auto file = cli::ParseNcclTopology(text);
  if (!file.ok()) {
    const std::string_view message(file.status().message().data(), file.status().message().size());
    fuzz::Require(!message.empty(), "an error has a message");
    fuzz::Require(message.size() <= 400, "a message is short");
    for (const char c : message) {
      fuzz::Require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a message can be shown");
    }
    return 0;
  }
  fuzz::Require(file->hosts >= 1 && !file->gpus.empty(), "there are hosts and GPUs");
  for (const cli::NcclTopologyGpu& gpu : file->gpus) {
    fuzz::Require(gpu.busid.size() <= 200, "a busid is short");
    fuzz::Require(gpu.sm.value_or(1) >= 1 && gpu.nvlinks.value_or(0) >= 0, "a GPU is in bounds");
  }
  for (const cli::NcclTopologyNic& nic : file->nics) {
    fuzz::Require(nic.name.size() <= 200, "a NIC's name is short");
    fuzz::Require((nic.mbps > 0) == (nic.source != cli::NicSpeed::kUnknown) && nic.mbps >= 0,
                  "a speed has a source");
  }
  const auto again = cli::ParseNcclTopology(std::string(text) + " \n");
  fuzz::Require(again.ok() && *again == *file, "spaces after the text change nothing");
  return 0;
}

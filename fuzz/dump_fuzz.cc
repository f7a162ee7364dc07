// Records of calls (meshift dump): accepted records keep the limits, the report is printable, and
// so are the files for PyTorch's analyser.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "cli/dump_command.h"
#include "comm/record/dump_reader.h"
#include "comm/record/dump_report.h"
#include "comm/record/flight_recorder.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fuzz = meshift::fuzz;
  constexpr int64_t kManyRanks = 4096;  // more would only take long
  const auto file = meshift::ReadDump(fuzz::Text(data, size));
  if (!file.ok()) {
    fuzz::Require(!file.status().message().empty(), "an error has a message");
    return 0;
  }
  if (file->world_size > kManyRanks) return 0;
  const auto files = absl::MakeConstSpan(&*file, 1);
  const meshift::DumpReport report = meshift::ReportOf(files);
  for (const meshift::StuckCall& stuck : report.stuck) {
    const size_t told = stuck.in_it.size() + stuck.late.size() + stuck.held.size() +
                        stuck.issuing.size() + stuck.past.size() + stuck.missing.size();
    fuzz::Require(told == static_cast<size_t>(stuck.num_ranks), "each rank is listed once");
  }
  const std::string text = meshift::cli::RenderDump(report);
  size_t line = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    fuzz::Require(byte >= 0x20 || c == '\n', "the report is printable", text);
    line = c == '\n' ? 0 : line + 1;
    fuzz::Require(line <= 700, "its lines are short", text);
  }
  const auto record = meshift::ToPyTorchFlightRecord(*file, meshift::FirstCommonCalls(files));
  if (record.ok()) fuzz::Require(record->back() == '.', "a pickle has an end");
  return 0;
}

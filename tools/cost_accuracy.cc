// Compares the cost model with published times of nccl-tests:
//
//   ./bazelw run //tools:cost_accuracy -- FILE.json [--rows]
//
// FILE is a list of objects: preset, gpus, domain (consecutive ranks in one NVLink domain),
// in_switch (false: NVSwitch computed no sums), op, bytes as printed by nccl-tests, time_us,
// source, and note. Prints the ratio of estimate to measurement by preset, collective and size,
// then the distribution of |ln(ratio)|, and the pairs of collectives that decide between plans. Two
// kinds of rows do not count: collectives that no plan has, and small ones measured in one process
// that drives all GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "base/text_table.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "nlohmann/json.hpp"
#include "planner/cost/collective_time.h"
#include "planner/cost/group_shape.h"

namespace meshift {
namespace {

struct Row {
  std::string preset, op, source, note;
  int64_t gpus = 0;
  int64_t domain = 0;
  bool in_switch = true;
  int64_t bytes = 0;
  double time_us = 0;
  double est_us = 0;
};

// Reads a row of untrusted JSON; a wrong type throws, and main() reports it.
Row RowOf(const nlohmann::json& json) {
  Row row;
  row.preset = json.at("preset").get<std::string>();
  row.op = json.at("op").get<std::string>();
  row.source = json.value("source", "");
  if (json.contains("note") && json["note"].is_string()) row.note = json["note"];
  row.gpus = json.at("gpus").get<int64_t>();
  row.domain = json.at("domain").get<int64_t>();
  const auto in_switch = json.find("in_switch");
  row.in_switch = in_switch == json.end() || !in_switch->is_boolean() || in_switch->get<bool>();
  row.bytes = json.at("bytes").get<int64_t>();
  row.time_us = json.at("time_us").get<double>();
  return row;
}

bool Counts(const Row& row) {
  constexpr int64_t kMiB = 1 << 20;
  if (row.note.find("launch bound") != std::string::npos && row.bytes < kMiB) return false;
  return row.op == "all_reduce" || row.op == "all_gather" || row.op == "reduce_scatter" ||
         row.op == "all_to_all";
}

// The preset with the domains of the measured machine.
absl::StatusOr<Topology> TopologyOf(const Row& row) {
  MESHIFT_ASSIGN_OR_RETURN(const Topology preset, Topology::Parse(row.preset));
  std::vector<TopologyLevel> levels;
  for (int i = 0; i < preset.NumLevels(); ++i) levels.push_back(preset.level(i));
  levels[0].domain_size = row.domain;
  if (!row.in_switch) levels[0].in_switch_bandwidth_bytes_per_us = 0;
  return Topology::Create(std::move(levels), preset.constants(),
                          {preset.protocols().begin(), preset.protocols().end()});
}

absl::StatusOr<double> EstUs(const Row& row) {
  if (row.gpus < 2 || row.bytes < 0) {
    return InvalidArgument("{} bytes on {} GPUs: a collective has two or more", row.bytes,
                           row.gpus);
  }
  MESHIFT_ASSIGN_OR_RETURN(const Topology topology, TopologyOf(row));
  const GroupTimes times(topology,
                         ShapeOf(topology, row.gpus, {.size = row.gpus, .modes = {{row.gpus, 1}}}));
  const int64_t to_others = MulDivCeil(row.bytes, row.gpus - 1, row.gpus);
  int64_t ns = 0;
  if (row.op == "all_reduce") {
    ns = times.AllReduce(row.bytes).Ns();
  } else if (row.op == "all_to_all") {
    ns = SaturatingAdd(times.Direct(to_others, row.gpus - 1).Ns(),
                       topology.constants().message_latency_ns * (row.gpus - 1));
  } else {
    ns = times.Blocks(to_others).Ns();
  }
  return static_cast<double>(ns) / 1000;
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const auto index = static_cast<size_t>(q * static_cast<double>(values.size()));
  return values[std::min(index, values.size() - 1)];
}

constexpr std::pair<std::string_view, int64_t> kSizes[] = {
    {"to 256 KiB", 1 << 18}, {"to 16 MiB", 1 << 24}, {"to 256 MiB", 1 << 28}, {"more", INT64_MAX}};

// Medians of est over measured, by preset, collective and size.
void PrintTable(const std::vector<Row>& rows) {
  std::map<std::pair<std::string, std::string>, std::map<size_t, std::vector<double>>> ratios;
  for (const Row& row : rows) {
    size_t size = 0;
    while (row.bytes > kSizes[size].second) ++size;
    ratios[{row.preset, row.op}][size].push_back(row.est_us / row.time_us);
  }
  std::vector<TextTable::Column> columns = {{"preset"}, {"collective"}};
  for (const auto& [name, most] : kSizes) {
    columns.push_back({std::string(name), TextTable::Align::kRight});
  }
  TextTable table(std::move(columns));
  for (const auto& [key, by_size] : ratios) {
    std::vector<std::string> cells = {key.first, key.second};
    for (size_t size = 0; size < std::size(kSizes); ++size) {
      const auto at = by_size.find(size);
      cells.push_back(at == by_size.end() ? ""
                                          : fmt::format("{:.2f} ({})", Quantile(at->second, 0.5),
                                                        at->second.size()));
    }
    table.AddRow(std::move(cells));
  }
  fmt::print("Median of est over measured, and rows:\n{}", table.ToString());
}

void PrintErrors(const std::vector<Row>& rows) {
  std::map<std::string, std::vector<double>> errors;
  for (const Row& row : rows) {
    const double error = std::abs(std::log(row.est_us / row.time_us));
    errors[row.op].push_back(error);
    errors["all"].push_back(error);
  }
  for (const auto& [op, values] : errors) {
    fmt::print("{:<15} {:4} rows: |ln(est / measured)| median {:.3f}, 90th percentile {:.3f}\n", op,
               values.size(), Quantile(values, 0.5), Quantile(values, 0.9));
  }
}

// Compares all_reduce with reduce_scatter plus all_gather, and all_gather with all_to_all, for
// equal source, machine and size.
void PrintPairs(const std::vector<Row>& rows) {
  std::map<std::tuple<std::string, std::string, int64_t, bool, int64_t>,
           std::map<std::string, const Row*>>
      runs;
  for (const Row& row : rows) {
    runs[{row.source, row.preset, row.gpus, row.in_switch, row.bytes}][row.op] = &row;
  }
  int64_t pairs = 0;
  int64_t wrong = 0;
  int64_t near = 0;
  const auto judge = [&](const Row& row, const char* what, double measured, double est) {
    if (std::abs(measured - 1) < 0.15) return;
    ++pairs;
    const bool is_wrong = (measured < 1) != (est < 1);
    const bool is_near = std::abs(std::log(est / measured)) <= std::log(1.6);
    wrong += is_wrong ? 1 : 0;
    near += is_near ? 1 : 0;
    fmt::print("{} x {}, {} B: {}: measured {:.2f}, est {:.2f}{}{}\n", row.preset, row.gpus,
               row.bytes, what, measured, est, is_wrong ? ", the wrong order" : "",
               is_near ? "" : ", far off");
  };
  for (const auto& [key, run] : runs) {
    const auto of = [&run = run](const char* op) {
      const auto at = run.find(op);
      return at == run.end() ? nullptr : at->second;
    };
    const Row* reduce = of("all_reduce");
    const Row* scatter = of("reduce_scatter");
    const Row* gather = of("all_gather");
    const Row* to_all = of("all_to_all");
    if (reduce != nullptr && scatter != nullptr && gather != nullptr) {
      judge(*reduce, "all_reduce / (reduce_scatter + all_gather)",
            reduce->time_us / (scatter->time_us + gather->time_us),
            reduce->est_us / (scatter->est_us + gather->est_us));
    }
    if (gather != nullptr && to_all != nullptr) {
      judge(*gather, "all_gather / all_to_all", gather->time_us / to_all->time_us,
            gather->est_us / to_all->est_us);
    }
  }
  fmt::print("pairs: {}, in the wrong order: {}, within a factor of 1.6: {}\n", pairs, wrong, near);
}

absl::Status Run(const std::string& path, bool print_rows) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(fmt::format("{}: not readable", path));
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return InvalidArgument("{}: not a JSON list of rows", path);
  std::vector<Row> rows;
  int64_t left_out = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    Row row;
    try {
      row = RowOf(json[i]);
    } catch (const nlohmann::json::exception& error) {
      return InvalidArgument("{}: row {}: {}", path, i, error.what());
    }
    if (!Counts(row)) {
      ++left_out;
      continue;
    }
    const absl::StatusOr<double> est = EstUs(row);
    if (!est.ok()) return Annotate(est.status(), fmt::format("{}: row {}", path, i));
    row.est_us = *est;
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return InvalidArgument("{}: no row counts", path);
  if (print_rows) {
    for (const Row& row : rows) {
      fmt::print("{:<12} {:>5} {:<15} {:>12} B  measured {:>10.1f} us  est {:>10.1f} us  {:.2f}\n",
                 row.preset, row.gpus, row.op, row.bytes, row.time_us, row.est_us,
                 row.est_us / row.time_us);
    }
  }
  PrintTable(rows);
  PrintErrors(rows);
  fmt::print("rows that do not count: {}\n", left_out);
  PrintPairs(rows);
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  const bool print_rows = argc == 3 && std::string_view(argv[2]) == "--rows";
  if (argc != 2 && !print_rows) {
    fmt::print(stderr, "usage: cost_accuracy FILE.json [--rows]\n");
    return 2;
  }
  const absl::Status status = meshift::Run(argv[1], print_rows);
  if (status.ok()) return 0;
  fmt::print(stderr, "cost_accuracy: {}\n", meshift::Message(status));
  return 1;
}

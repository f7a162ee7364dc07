// Logs of nccl-tests: accepted values are in bounds, a hint only helps a log that does not name its
// collective, and the rows, written as a table again, are read as the same rows.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "cli/nccl_tests_log.h"
#include "cli/nccl_tests_op.h"
#include "fuzz/fuzz.h"

namespace {

namespace cli = meshift::cli;
namespace fuzz = meshift::fuzz;

void CheckMessage(std::string_view message) {
  fuzz::Require(!message.empty(), "an error has a message");
  fuzz::Require(message.size() <= 1000, "a message is short");
  for (const char c : message) {
    fuzz::Require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a message can be shown");
  }
}

void CheckLog(const cli::NcclTestsLog& log) {
  fuzz::Require(!log.rows.empty(), "a log has rows");
  fuzz::Require(!log.ranks || *log.ranks >= 1, "there are ranks");
  fuzz::Require(log.ranks_per_host.empty() ||
                    log.ranks == std::accumulate(log.ranks_per_host.begin(),
                                                 log.ranks_per_host.end(), int64_t{0}),
                "hosts add up to the ranks");
  fuzz::Require(log.device.size() <= 200, "a device's name is short", log.device);
  for (const cli::NcclTestsRow& row : log.rows) {
    fuzz::Require(
        row.bytes > 0 && row.time_ns >= 1 && row.in_place_ns.value_or(1) >= 1 && row.wrong >= 0,
        "a row's numbers are in bounds");
  }
}

// The times of a row as nccl-tests prints them, with the right algbw.
std::string Times(const cli::NcclTestsRow& row, int64_t ns) {
  const double us = static_cast<double>(ns) / 1e3;
  return fmt::format("{:.3f} {:.12f} {:.12f}", us, static_cast<double>(row.bytes) / us / 1e3, 0.0);
}

// Writes the rows as an int8 broadcast, whose count is the bytes and whose busbw is algbw.
void CheckAgain(const cli::NcclTestsLog& log) {
  std::string table = "# size count type redop root time algbw busbw #wrong\n";
  for (const cli::NcclTestsRow& row : log.rows) {
    const std::string times = Times(row, row.time_ns);
    const size_t alg = times.find(' ') + 1;
    const std::string alg_text = times.substr(alg, times.find(' ', alg) - alg);
    table += fmt::format("{} {} int8 none 0 {} {} {} 0\n", row.bytes, row.bytes,
                         times.substr(0, alg - 1), alg_text, alg_text);
  }
  const auto again = cli::ParseNcclTestsLog(table, cli::NcclTestsOp::kBroadcast);
  fuzz::Require(again.ok(), "rows are read again",
                again.ok() ? "" : again.status().ToString() + "\n" + table);
  fuzz::Require(again->rows.size() == log.rows.size(), "there are as many", table);
  for (size_t i = 0; i < log.rows.size(); ++i) {
    fuzz::Require(
        again->rows[i].bytes == log.rows[i].bytes && again->rows[i].time_ns == log.rows[i].time_ns,
        "rows are read to the same", table);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::Text(data, size);
  const auto plain = cli::ParseNcclTestsLog(text, std::nullopt);
  if (plain.ok()) {
    CheckLog(*plain);
    CheckAgain(*plain);
  } else {
    CheckMessage({plain.status().message().data(), plain.status().message().size()});
  }
  for (int i = 0; i < cli::kNumNcclTestsOps; ++i) {
    const auto op = static_cast<cli::NcclTestsOp>(i);
    const auto hinted = cli::ParseNcclTestsLog(text, op);
    if (!hinted.ok()) {
      CheckMessage({hinted.status().message().data(), hinted.status().message().size()});
      fuzz::Require(!plain.ok() || plain->op != op, "a hint that is right does no harm");
      continue;
    }
    CheckLog(*hinted);
    fuzz::Require(hinted->op == op, "a hint is kept, or refused");
    fuzz::Require(!plain.ok() || *plain == *hinted, "a hint changes no log that tells enough");
  }
  (void)cli::NcclTestsOpOfFile(text);
  return 0;
}

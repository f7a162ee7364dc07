#include "cli/nccl_tests_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/clipped.h"
#include "base/status.h"
#include "cli/json.h"
#include "cli/nccl_tests_op.h"
#include "cli/text.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

using Op = NcclTestsOp;

constexpr size_t kMaxTokens = 48;       // nccl-tests prints up to 24 values on a line
constexpr size_t kMaxLabelBytes = 200;  // of the label that a launcher puts before a line
constexpr size_t kMinRowTokens = 6;     // size count type time algbw busbw; a row has all of them
constexpr double kMaxMicroseconds = 1e12;
constexpr double kMaxWrong = 1e15;
constexpr double kRounding = 1 + 1e-6;  // a factor for the rounding here and in nccl-tests

// One half of a row: the call out of place, or the call in place.
struct Timing {
  RoundedNumber time_us;
  RoundedNumber alg;  // algbw and busbw, in GB/s of 10^9 bytes
  RoundedNumber bus;
  int64_t wrong = 0;  // elements
};

struct Row {
  NcclTestsNames names;
  int64_t item_bytes = 0;
  Timing out_of_place;
  std::optional<Timing> in_place;
};

// 0 for a dtype that nccl-tests and rccl-tests do not have.
int64_t ItemBytes(std::string_view dtype) {
  struct Item {
    std::string_view name;
    int64_t bytes;
  };
  static constexpr std::array<Item, 16> kItems = {{{"int8", 1},
                                                   {"uint8", 1},
                                                   {"char", 1},
                                                   {"int32", 4},
                                                   {"int", 4},
                                                   {"uint32", 4},
                                                   {"int64", 8},
                                                   {"uint64", 8},
                                                   {"half", 2},
                                                   {"float", 4},
                                                   {"double", 8},
                                                   {"bfloat16", 2},
                                                   {"f8e4m3", 1},
                                                   {"f8e5m2", 1},
                                                   {"fp8_e4m3", 1},
                                                   {"fp8_e5m2", 1}}};
  for (const Item& item : kItems) {
    if (item.name == dtype) return item.bytes;
  }
  return 0;
}

std::vector<std::string_view> Tokens(std::string_view line) {
  std::vector<std::string_view> tokens;
  size_t begin = 0;
  while (tokens.size() < kMaxTokens) {
    begin = line.find_first_not_of(" \t", begin);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    tokens.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return tokens;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit);
}

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// All of `text` as an integer that fits.
std::optional<int64_t> Integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Parses "35.20", "63896", "1.2e+07"; no sign before the number, no nan, no inf.
std::optional<RoundedNumber> ParseRounded(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && IsDigit(text[at])) ++at;
    return static_cast<int>(std::min<size_t>(at - begin, 1000));
  };
  if (digits() == 0) return std::nullopt;
  int decimals = 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    decimals = digits();
    if (decimals == 0) return std::nullopt;
  }
  int64_t exponent = 0;
  if (at < text.size() && text[at] == 'e') {
    std::string_view rest = text.substr(at + 1);
    if (!rest.empty() && rest[0] == '+') rest.remove_prefix(1);
    const auto value = Integer(rest);
    if (!value || *value < -100 || *value > 100) return std::nullopt;
    exponent = *value;
    at = text.size();
  }
  if (at != text.size()) return std::nullopt;
  RoundedNumber number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  number.half = 0.5 * std::pow(10.0, static_cast<double>(exponent - decimals));
  return number;
}

// The line without the label of mpirun --tag-output ("[1,0]<stdout>:") or srun --label ("0: ").
std::string_view WithoutLabel(std::string_view line) {
  const std::string_view head = line.substr(0, kMaxLabelBytes);
  for (const std::string_view stream : {"<stdout>:", "<stderr>:", "<stddiag>:"}) {
    const size_t label = head.find(stream);
    if (label != std::string_view::npos) return line.substr(label + stream.size());
  }
  const size_t begin = std::min(head.find_first_not_of(' '), head.size());
  const size_t end = std::min(head.find_first_not_of("0123456789", begin), head.size());
  const bool label = end > begin && end + 1 < head.size() && head[end] == ':' &&
                     (head[end + 1] == ' ' || head[end + 1] == '#');
  return label ? line.substr(end + 1) : line;
}

// The columns of a table. Indices count from the first column `time`. A row's values are matched to
// them from its end, since names before the times may be blank.
struct Columns {
  struct Half {
    size_t time = 0;
    size_t alg = 0;
    size_t bus = 0;
    std::optional<size_t> wrong;  // none for the `error` of old versions, which is a difference
  };
  bool redop = false;
  bool root = false;
  size_t numbers = 0;  // number of values from the first `time` to the end
  std::vector<Half> halves;
};

// One run of nccl-tests: its devices and the columns of its table.
struct Run {
  int64_t ranks = 0;                                    // listed so far; 0: no list of devices
  int64_t group = 0;                                    // of rank 0 (NCCL_TESTS_SPLIT)
  absl::flat_hash_map<std::string_view, size_t> hosts;  // the index in ranks_per_host, by name
  std::vector<int64_t> ranks_per_host;
  size_t last_host = 0;     // index of the last listed rank's host
  bool scattered = false;   // some host's ranks are not consecutive
  std::string_view device;  // rank 0's
  bool mixed = false;       // some rank has another device

  std::optional<Columns> columns;
  int64_t rows_line = 0;  // of its first row; 0: none yet
  // The collectives whose programs are named in lines before its first row.
  std::array<bool, kNumNcclTestsOps> mentioned = {};
  int64_t mention_line = 0;
};

class LogReader {
 public:
  LogReader(std::optional<Op> hint, std::string_view unit) : hint_(hint), unit_(unit) {}

  absl::StatusOr<NcclTestsLog> ReadText(std::string_view text) {
    int64_t number = 0;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      MESHIFT_RETURN_IF_ERROR(ReadLine(++number, WithoutLabel(line)));
    }
    return Finish();
  }

  absl::StatusOr<NcclTestsLog> ReadJson(const Json& json);

 private:
  // "line 12", "result 3"; 0 is the command line in JSON.
  std::string At(int64_t number) const {
    return number == 0 ? "args" : fmt::format("{} {}", unit_, number);
  }

  absl::Status ReadLine(int64_t number, std::string_view line) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return absl::OkStatus();
    line.remove_prefix(begin);
    return line[0] == '#' ? ReadComment(number, line) : ReadOther(number, line);
  }

  absl::Status ReadComment(int64_t number, std::string_view line) {
    const std::vector<std::string_view> words = Tokens(line.substr(1));
    const auto begins = [&](std::initializer_list<std::string_view> with) {
      return words.size() >= with.size() && std::equal(with.begin(), with.end(), words.begin());
    };
    if (begins({"Rank"})) return ReadRank(number, line, words);
    if (begins({"size", "count", "type"})) return ReadHead(number, words);
    if (begins({"nThread"}) || begins({"Using", "devices"})) return BeginRun();
    if (begins({"Collective", "test"}) && words.size() >= 4) {
      if (words[2] == "starting:") MESHIFT_RETURN_IF_ERROR(BeginRun());
      return ReadProgram(number, words[3]);
    }
    if (begins({"Out", "of", "bounds", "values", ":"}) && words.size() >= 6) {
      const auto values = Integer(words[5]);
      if (!values || *values < 0 || !CheckedAdd(log_.out_of_bounds, *values, &log_.out_of_bounds)) {
        return InvalidArgument(
            "{}: the number of out-of-bounds values is {}; it must be an integer of at least 0",
            At(number), Quoted(words[5]));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadProgram(int64_t number, std::string_view program) {
    const auto op = NcclTestsOpOfProgram(program);
    if (!op) {
      return InvalidArgument("{}: unknown test {}; expected one of {}", At(number), Quoted(program),
                             AllNames());
    }
    return Named(*op, number);
  }

  // For each place where the log names its collective.
  absl::Status Named(Op op, int64_t number) {
    if (!named_) {
      named_ = op;
      named_line_ = number;
    }
    if (*named_ == op) return absl::OkStatus();
    return InvalidArgument("{} names {} and {} {}; a log must be of one collective",
                           At(named_line_), Name(*named_), At(number), Name(op));
  }

  absl::Status ReadRank(int64_t number, std::string_view line,
                        const std::vector<std::string_view>& words) {
    // Rank 0 [Group 0] Pid 1 on HOST device 0 [0000:0f:00] NAME
    const size_t pid = words.size() > 2 && words[2] == "Group" ? 4 : 2;
    const bool known = words.size() >= pid + 7 && words[pid] == "Pid" && words[pid + 2] == "on" &&
                       words[pid + 4] == "device" && words[pid + 6][0] == '[';
    const auto rank = known ? Integer(words[1]) : std::nullopt;
    const auto group = known && pid == 4 ? Integer(words[3]) : 0;
    if (!rank || !group) {
      return InvalidArgument(
          "{}: {} is not \"# Rank 0 Group 0 Pid 1 on HOST device 0 [0000:0f:00] NAME\"", At(number),
          Quoted(line));
    }
    const std::string_view host = words[pid + 3];
    // The rest of the line, since a name may contain spaces.
    const std::string_view bus = words[pid + 6];
    std::string_view device = line.substr(bus.data() - line.data());
    const size_t bracket = device.find(']');
    device.remove_prefix(bracket == std::string_view::npos ? device.size() : bracket + 1);
    const size_t begin = std::min(device.find_first_not_of(" \t"), device.size());
    device = device.substr(begin, device.find_last_not_of(" \t") + 1 - begin);
    if (*rank == 0) MESHIFT_RETURN_IF_ERROR(BeginRun());
    return Annotate(AddRank(*rank, *group, host, device, 1), At(number));
  }

  // `ranks` ranks from `rank` on.
  absl::Status AddRank(int64_t rank, int64_t group, std::string_view host, std::string_view device,
                       int64_t ranks) {
    if (rank != run_.ranks) {
      return InvalidArgument(
          "rank {} {}; ranks must be listed from 0 on, each once", rank,
          run_.ranks == 0 ? "is listed first" : fmt::format("follows rank {}", run_.ranks - 1));
    }
    if (run_.ranks == 0) {
      run_.group = group;
      run_.device = device;
    }
    if (group != run_.group) {
      return InvalidArgument(
          "rank {} is in group {}, rank 0 in group {}; a log must be of one group "
          "(NCCL_TESTS_SPLIT)",
          rank, group, run_.group);
    }
    const auto [entry, is_new] = run_.hosts.try_emplace(host, run_.ranks_per_host.size());
    if (is_new) run_.ranks_per_host.push_back(0);
    if (!is_new && entry->second != run_.last_host) run_.scattered = true;
    run_.last_host = entry->second;
    run_.ranks_per_host[run_.last_host] += ranks;
    run_.ranks += ranks;
    if (device != run_.device) run_.mixed = true;
    return absl::OkStatus();
  }

  // Begins another run, unless the current one has neither devices nor a table yet.
  absl::Status BeginRun() {
    if (run_.ranks == 0 && !run_.columns) return absl::OkStatus();
    MESHIFT_RETURN_IF_ERROR(EndRun());
    run_ = Run();
    return absl::OkStatus();
  }

  absl::Status EndRun() {
    if (run_.rows_line == 0) return absl::OkStatus();
    const auto mentions = std::count(run_.mentioned.begin(), run_.mentioned.end(), true);
    if (mentions == 1 && !named_) {
      const auto mention = std::find(run_.mentioned.begin(), run_.mentioned.end(), true);
      MESHIFT_RETURN_IF_ERROR(
          Named(static_cast<Op>(mention - run_.mentioned.begin()), run_.mention_line));
    }
    if (!first_) {
      first_ = std::move(run_);
      return absl::OkStatus();
    }
    if (run_.ranks != first_->ranks || run_.ranks_per_host != first_->ranks_per_host ||
        run_.scattered != first_->scattered) {
      return InvalidArgument(
          "{} begins a run of {}, {} one of {}; all runs of a log must be on the same hosts",
          At(first_->rows_line), RanksText(*first_), At(run_.rows_line), RanksText(run_));
    }
    if (run_.device != first_->device || run_.mixed != first_->mixed) {
      return InvalidArgument(
          "{} begins a run on {}, {} one on {}; all runs of a log must be on the same GPUs",
          At(first_->rows_line), Quoted(first_->device), At(run_.rows_line), Quoted(run_.device));
    }
    return absl::OkStatus();
  }

  // "16 ranks (8 and 8)"; of many hosts only the first 8.
  static std::string RanksText(const Run& run) {
    if (run.ranks == 0) return "unknown ranks";
    constexpr size_t kShown = 8;
    const size_t shown = std::min(run.ranks_per_host.size(), kShown);
    return fmt::format(
        "{} ranks ({}{})", run.ranks,
        fmt::join(run.ranks_per_host.begin(), run.ranks_per_host.begin() + shown, " and "),
        run.ranks_per_host.size() > shown ? " ..." : "");
  }

  absl::Status ReadHead(int64_t number, const std::vector<std::string_view>& words) {
    Columns columns;
    size_t at = 3;
    const auto take = [&](std::string_view word) {
      if (at == words.size() || words[at] != word) return false;
      ++at;
      return true;
    };
    columns.redop = take("redop");
    columns.root = take("root");
    const size_t begin = at;
    while (at < words.size()) {
      if (take("timestamp")) {
        ++at;  // its value has two words, a date and a time
        columns.numbers = at - begin;
        break;
      }
      if (words[at] == "cputime") {
        return InvalidArgument(
            "{}: the table has \"cputime\", the host's time (-C 1); expected \"time\"", At(number));
      }
      Columns::Half half;
      half.time = at - begin;
      half.alg = half.time + 1;
      half.bus = half.time + 2;
      if (!take("time") || !take("algbw") || !take("busbw")) {
        return InvalidArgument("{}: the table has {}; expected \"time algbw busbw\"", At(number),
                               at < words.size() ? Quoted(words[at]) : "no column");
      }
      while (at < words.size() && words[at] != "time" && words[at] != "timestamp") {
        if (words[at] == "#wrong") half.wrong = at - begin;
        ++at;
      }
      columns.halves.push_back(half);
      columns.numbers = at - begin;
    }
    if (columns.halves.empty() || columns.halves.size() > 2) {
      return InvalidArgument("{}: the table has {} columns \"time\"; expected one or two",
                             At(number), columns.halves.size());
    }
    run_.columns = std::move(columns);
    return absl::OkStatus();
  }

  // A line that is not a comment: a row, or output of another program.
  absl::Status ReadOther(int64_t number, std::string_view line) {
    const std::vector<std::string_view> words = Tokens(line);
    const bool row_like =
        words.size() >= 3 && IsDigits(words[0]) && IsDigits(words[1]) && IsLetter(words[2][0]);
    const int64_t item_bytes = row_like ? ItemBytes(words[2]) : 0;
    if (!row_like || (item_bytes == 0 && (!run_.columns || words.size() < kMinRowTokens))) {
      Mention(number, line, words);
      return absl::OkStatus();
    }
    if (!run_.columns) {
      if (words.size() < kMinRowTokens) return absl::OkStatus();
      return InvalidArgument("{}: a row comes before the table's head, \"# size count type ...\"",
                             At(number));
    }
    for (const std::string_view other : {"NCCL INFO", "NCCL WARN", "NCCL TRACE", "NCCL ERROR"}) {
      if (line.find(other) == std::string_view::npos) continue;
      ++log_.interrupted_rows;
      return absl::OkStatus();
    }
    if (item_bytes == 0) {
      return InvalidArgument(
          "{}: unknown type {}; expected one of int8 uint8 int32 uint32 int64 uint64 "
          "half float double bfloat16 f8e4m3 f8e5m2",
          At(number), Quoted(words[2]));
    }
    Row row;
    row.item_bytes = item_bytes;
    MESHIFT_RETURN_IF_ERROR(ReadNames(number, words, &row));
    if (run_.rows_line == 0) run_.rows_line = number;
    const size_t first = words.size() - run_.columns->numbers;
    const Columns::Half& out = run_.columns->halves[0];
    MESHIFT_RETURN_IF_ERROR(ReadTiming(number, words, first, out, &row.out_of_place));
    if (run_.columns->halves.size() == 2) {
      row.in_place.emplace();
      MESHIFT_RETURN_IF_ERROR(
          ReadTiming(number, words, first, run_.columns->halves[1], &*row.in_place));
    }
    return AddRow(number, row);
  }

  // Notes a program's name in a line before the run's first row.
  void Mention(int64_t number, std::string_view line, const std::vector<std::string_view>& words) {
    if (run_.rows_line != 0 || line.find("_perf") == std::string_view::npos) return;
    for (const std::string_view word : words) {
      const auto op = NcclTestsOpOfProgram(word);
      if (!op) continue;
      run_.mentioned[static_cast<size_t>(*op)] = true;
      run_.mention_line = number;
    }
  }

  // Reads the values before the times.
  absl::Status ReadNames(int64_t number, const std::vector<std::string_view>& words, Row* row) {
    const Columns& columns = *run_.columns;
    const size_t names = size_t{3} + (columns.redop ? 1 : 0) + (columns.root ? 1 : 0);
    if (words.size() < 3 + columns.numbers || words.size() > names + columns.numbers) {
      return InvalidArgument("{}: the row has {} values; its table has {} columns", At(number),
                             words.size(), names + columns.numbers);
    }
    const auto bytes = Integer(words[0]);
    const auto count = Integer(words[1]);
    if (!bytes || !count) {
      return InvalidArgument("{}: {} is not below 2^63", At(number),
                             Quoted(bytes ? words[1] : words[0]));
    }
    row->names.bytes = *bytes;
    row->names.count = *count;
    row->names.dtype = words[2];
    row->names.has_root_column = columns.root;
    if (columns.redop) row->names.redop = NcclTestsNames::Redop::kNone;
    for (size_t i = 3; i < words.size() - columns.numbers; ++i) {
      const std::string_view word = words[i];
      const bool is_root = IsDigit(word.back());
      const auto root = is_root ? Integer(word) : std::nullopt;
      const bool fits = is_root
                            ? columns.root && !row->names.root && root && *root >= -1
                            : columns.redop && row->names.redop_text.empty() && !row->names.root;
      if (!fits) {
        return InvalidArgument("{}: the row has {} between type and time; its table has {} there",
                               At(number), Quoted(word),
                               columns.redop && columns.root ? "redop and root"
                               : columns.redop               ? "redop"
                               : columns.root                ? "root"
                                                             : "nothing");
      }
      if (is_root) {
        row->names.root = root;
      } else {
        row->names.redop_text = word;
        if (word != "none") row->names.redop = NcclTestsNames::Redop::kSome;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadTiming(int64_t number, const std::vector<std::string_view>& words, size_t first,
                          const Columns::Half& half, Timing* timing) {
    MESHIFT_RETURN_IF_ERROR(ReadNumber(number, "time", words[first + half.time], &timing->time_us));
    MESHIFT_RETURN_IF_ERROR(ReadNumber(number, "algbw", words[first + half.alg], &timing->alg));
    MESHIFT_RETURN_IF_ERROR(ReadNumber(number, "busbw", words[first + half.bus], &timing->bus));
    if (!half.wrong) return absl::OkStatus();
    std::string_view wrong = words[first + *half.wrong];
    if (wrong == "N/A") return absl::OkStatus();
    // rccl-tests puts '*' after an error beyond its bound.
    if (wrong.size() > 1 && wrong.back() == '*') wrong.remove_suffix(1);
    RoundedNumber elements;
    MESHIFT_RETURN_IF_ERROR(ReadNumber(number, "#wrong", wrong, &elements));
    return ReadWrong(number, elements.value, &timing->wrong);
  }

  absl::Status ReadNumber(int64_t number, std::string_view column, std::string_view word,
                          RoundedNumber* value) const {
    const auto parsed = ParseRounded(word);
    if (!parsed) {
      return InvalidArgument("{}: {} is {}; it must be a number of at least 0", At(number), column,
                             Quoted(word));
    }
    *value = *parsed;
    return absl::OkStatus();
  }

  absl::Status ReadWrong(int64_t number, double elements, int64_t* wrong) const {
    if (elements < 0 || elements > kMaxWrong) {
      return InvalidArgument("{}: there are {} wrong elements; there must be at most 10^15",
                             At(number), elements);
    }
    *wrong = std::llround(elements);
    return absl::OkStatus();
  }

  absl::Status AddRow(int64_t number, const Row& row) {
    if (row.names.bytes < 0 || row.names.count < 0) {
      return InvalidArgument("{}: {} bytes, count {}; neither may be below 0", At(number),
                             row.names.bytes, row.names.count);
    }
    if (row.names.bytes == 0) return absl::OkStatus();
    if (log_.rows.size() == static_cast<size_t>(kMaxNcclTestsRows)) {
      return InvalidArgument("{}: there are more than {} rows", At(number), kMaxNcclTestsRows);
    }
    int64_t one = 0;
    if (row.names.count == 0 || !CheckedMul(row.names.count, row.item_bytes, &one) ||
        row.names.bytes % one != 0) {
      return InvalidArgument("{}: {} bytes are not a multiple of count {} of {} ({} bytes)",
                             At(number), row.names.bytes, row.names.count, Quoted(row.names.dtype),
                             row.item_bytes);
    }
    const int64_t blocks = row.names.bytes / one;
    if (run_.ranks == 0 && blocks > 1) {
      if (blocks_ == 0) {
        blocks_ = blocks;
        blocks_line_ = number;
      }
      if (blocks_ != blocks) {
        return InvalidArgument(
            "the bytes are {} times those of the count on {} and {} times on {}; both factors must "
            "be the number of ranks",
            blocks_, At(blocks_line_), blocks, At(number));
      }
    }
    evidence_.AddNames(number, row.names, run_.ranks, blocks);
    NcclTestsRow out;
    out.bytes = row.names.bytes;
    out.dtype = row.names.dtype;
    MESHIFT_RETURN_IF_ERROR(AddTiming(number, row, blocks, row.out_of_place, &out.time_ns));
    out.wrong = row.out_of_place.wrong;
    if (row.in_place) {
      MESHIFT_RETURN_IF_ERROR(
          AddTiming(number, row, blocks, *row.in_place, &out.in_place_ns.emplace()));
      out.wrong += row.in_place->wrong;
    }
    log_.rows.push_back(std::move(out));
    return absl::OkStatus();
  }

  absl::Status AddTiming(int64_t number, const Row& row, int64_t blocks, const Timing& timing,
                         int64_t* ns) {
    const RoundedNumber& time = timing.time_us;
    if (time.value < 1e-3 || time.value > kMaxMicroseconds) {
      return InvalidArgument("{}: the time is {:.7g} us; it must be between 0.001 and 10^12",
                             At(number), time.value);
    }
    *ns = std::llround(time.value * 1e3);
    // Guards against mistaken columns and units.
    const auto bytes = static_cast<double>(row.names.bytes);
    const double least = bytes / ((time.value + time.half) * 1e3) / kRounding - timing.alg.half;
    const double most =
        bytes / (std::max(time.value - time.half, 1e-9) * 1e3) * kRounding + timing.alg.half;
    if (timing.alg.value < least / kRounding || timing.alg.value > most * kRounding) {
      return InvalidArgument(
          "{}: algbw is {} GB/s, but {} bytes in {} us are {:.6g}; they must be the same",
          At(number), timing.alg.value, row.names.bytes, time.value, bytes / (time.value * 1e3));
    }
    evidence_.AddBandwidth(number, timing.alg, timing.bus, run_.ranks, blocks);
    return absl::OkStatus();
  }

  static std::string AllNames() {
    std::vector<Op> ops;
    for (int i = 0; i < kNumNcclTestsOps; ++i) ops.push_back(static_cast<Op>(i));
    return Joined(ops, " ");
  }
  static std::string Joined(const std::vector<Op>& ops, std::string_view between) {
    std::vector<std::string_view> names;
    for (const Op op : ops) names.push_back(Name(op));
    return fmt::format("{}", fmt::join(names, between));
  }
  // "line 12: busbw ..."
  std::string WhyExcluded(Op op) const {
    return fmt::format("{}: {}", At(evidence_.Number(op)), evidence_.Why(op));
  }

  absl::StatusOr<Op> TheOp() const {
    if (named_ && hint_ && *named_ != *hint_) {
      return InvalidArgument("{} names {}, but the log is given as {}", At(named_line_),
                             Name(*named_), Name(*hint_));
    }
    const std::vector<Op> fitting = evidence_.Fitting();
    if (named_ || hint_) {
      const Op op = named_ ? *named_ : *hint_;
      if (evidence_.Fits(op)) return op;
      return InvalidArgument("{}, but {} {}; the rows fit {}", WhyExcluded(op),
                             named_ ? At(named_line_) + " names" : "the log is given as", Name(op),
                             fitting.empty() ? "no collective" : Joined(fitting, " or "));
    }
    if (fitting.size() == 1) return fitting[0];
    if (fitting.empty()) {
      // The one that fitted the most rows explains best.
      Op last = Op::kAllReduce;
      for (int i = 0; i < kNumNcclTestsOps; ++i) {
        if (evidence_.Number(static_cast<Op>(i)) > evidence_.Number(last)) {
          last = static_cast<Op>(i);
        }
      }
      return InvalidArgument("the rows fit no collective; {}", WhyExcluded(last));
    }
    return InvalidArgument("the log does not name its collective, and the rows fit {}; name it",
                           Joined(fitting, " or "));
  }

  absl::StatusOr<NcclTestsLog> Finish() {
    MESHIFT_RETURN_IF_ERROR(EndRun());
    if (log_.rows.empty()) {
      return InvalidArgument("{}", first_ ? "all rows have 0 bytes; one with bytes is needed"
                                          : "the text has no row of nccl-tests");
    }
    MESHIFT_ASSIGN_OR_RETURN(log_.op, TheOp());
    if (first_->ranks != 0) {
      log_.ranks = first_->ranks;
    } else if (HasBlocks(log_.op)) {
      log_.ranks = blocks_ == 0 ? 1 : blocks_;
    }
    log_.ranks_per_host = std::move(first_->ranks_per_host);
    log_.scattered_hosts = first_->scattered;
    log_.device = Shown(first_->device);
    log_.mixed_devices = first_->mixed;
    return std::move(log_);
  }

  absl::Status ReadDevices(const Json& config);
  absl::Status ReadResult(int64_t number, const Json& result);
  absl::Status ReadJsonTiming(int64_t number, const Json& half, Timing* timing) const;

  const std::optional<Op> hint_;
  const std::string_view unit_;  // "line" or "result", for messages
  std::optional<Op> named_;
  int64_t named_line_ = 0;
  int64_t blocks_ = 0;  // bytes over count, if that is not 1 and devices are not listed
  int64_t blocks_line_ = 0;
  NcclTestsOpEvidence evidence_;
  std::optional<Run> first_;  // the first run with rows
  Run run_;
  NcclTestsLog log_;
};

// Makes an error printable, since errors in JSON may contain text of the file.
absl::Status Escaped(const absl::Status& status, size_t limit) {
  return InvalidArgument("{}", Clipped(Printable(Message(status)), limit));
}

absl::StatusOr<std::string_view> StringOf(const Json& object, std::string_view key) {
  MESHIFT_ASSIGN_OR_RETURN(const Json* const member, JsonMember(object, key));
  if (!member->is_string()) {
    return InvalidArgument("{} is {}; it must be a string", key, JsonQuote(*member));
  }
  const std::string_view text = member->get_ref<const std::string&>();
  return text;
}

absl::StatusOr<int64_t> IntOf(const Json& object, std::string_view key) {
  MESHIFT_ASSIGN_OR_RETURN(const Json* const member, JsonMember(object, key));
  return JsonInt(*member, key);
}

// nccl-tests prints 6 decimals.
absl::StatusOr<RoundedNumber> RoundedOf(const Json& object, std::string_view key) {
  MESHIFT_ASSIGN_OR_RETURN(const Json* const member, JsonMember(object, key));
  if (!member->is_number() || !std::isfinite(member->get<double>()) || member->get<double>() < 0) {
    return InvalidArgument("{} is {}; it must be a number of at least 0", key, JsonQuote(*member));
  }
  return RoundedNumber{member->get<double>(), 0.5e-6};
}

absl::Status LogReader::ReadDevices(const Json& config) {
  if (!config.is_object()) {
    return InvalidArgument("config is {}; it must be an object", JsonQuote(config));
  }
  const auto devices = config.find("devices");
  if (devices == config.end()) return absl::OkStatus();
  if (!devices->is_array()) {
    return InvalidArgument("devices is {}; it must be a list", JsonQuote(*devices));
  }
  MESHIFT_ASSIGN_OR_RETURN(const int64_t threads, IntOf(config, "nthreads"));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t gpus, IntOf(config, "ngpus"));
  constexpr int64_t kMaxPerProcess = 1 << 16;
  if (threads < 1 || gpus < 1 || threads > kMaxPerProcess || gpus > kMaxPerProcess) {
    return InvalidArgument("nthreads is {}, ngpus {}; they must be between 1 and {}", threads, gpus,
                           kMaxPerProcess);
  }
  // nccl-tests may list only the first rank of each process.
  int64_t ranks = threads * gpus;
  if (devices->size() > 1 && (*devices)[1].is_object()) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t second, IntOf((*devices)[1], "rank"));
    if (second == 1) ranks = 1;
  }
  for (size_t i = 0; i < devices->size(); ++i) {
    const Json& device = (*devices)[i];
    const auto add = [&]() -> absl::Status {
      if (!device.is_object()) return InvalidArgument("{} is not an object", JsonQuote(device));
      MESHIFT_ASSIGN_OR_RETURN(const int64_t rank, IntOf(device, "rank"));
      int64_t group = 0;
      if (device.contains("group")) {
        MESHIFT_ASSIGN_OR_RETURN(group, IntOf(device, "group"));
      }
      MESHIFT_ASSIGN_OR_RETURN(const std::string_view host, StringOf(device, "hostname"));
      MESHIFT_ASSIGN_OR_RETURN(const std::string_view name, StringOf(device, "device_info"));
      return AddRank(rank, group, host, name, ranks);
    };
    MESHIFT_RETURN_IF_ERROR(Annotate(add(), fmt::format("device {}", i)));
  }
  return absl::OkStatus();
}

absl::Status LogReader::ReadJsonTiming(int64_t number, const Json& half, Timing* timing) const {
  if (!half.is_object()) return InvalidArgument("it is {}; it must be an object", JsonQuote(half));
  if (half.contains("cpu_time")) {
    return InvalidArgument("it has cpu_time, the host's time (-C 1); expected \"time\"");
  }
  MESHIFT_ASSIGN_OR_RETURN(timing->time_us, RoundedOf(half, "time"));
  MESHIFT_ASSIGN_OR_RETURN(timing->alg, RoundedOf(half, "alg_bw"));
  MESHIFT_ASSIGN_OR_RETURN(timing->bus, RoundedOf(half, "bus_bw"));
  const auto wrong = half.find("nwrong");
  if (wrong == half.end() || wrong->is_null()) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const RoundedNumber elements, RoundedOf(half, "nwrong"));
  return ReadWrong(number, elements.value, &timing->wrong);
}

absl::Status LogReader::ReadResult(int64_t number, const Json& result) {
  if (!result.is_object())
    return InvalidArgument("it is {}; it must be an object", JsonQuote(result));
  Row row;
  MESHIFT_ASSIGN_OR_RETURN(row.names.bytes, IntOf(result, "size"));
  MESHIFT_ASSIGN_OR_RETURN(row.names.count, IntOf(result, "count"));
  MESHIFT_ASSIGN_OR_RETURN(row.names.dtype, StringOf(result, "type"));
  row.item_bytes = ItemBytes(row.names.dtype);
  if (row.item_bytes == 0) return InvalidArgument("unknown type {}", Quoted(row.names.dtype));
  MESHIFT_ASSIGN_OR_RETURN(row.names.redop_text, StringOf(result, "redop"));
  row.names.redop = row.names.redop_text.empty() || row.names.redop_text == "none"
                        ? NcclTestsNames::Redop::kNone
                        : NcclTestsNames::Redop::kSome;
  MESHIFT_ASSIGN_OR_RETURN(const std::string_view root_text, StringOf(result, "root"));
  const std::vector<std::string_view> root = Tokens(root_text);
  if (root.size() == 1) row.names.root = Integer(root[0]);
  if (!row.names.root || *row.names.root < -1) {
    return InvalidArgument("root is {}; it must be a rank, or -1", Quoted(root_text));
  }
  row.names.has_root_column = true;
  MESHIFT_ASSIGN_OR_RETURN(const Json* const out, JsonMember(result, "out_of_place"));
  MESHIFT_RETURN_IF_ERROR(
      Annotate(ReadJsonTiming(number, *out, &row.out_of_place), "out_of_place"));
  const auto in = result.find("in_place");
  if (in != result.end() && !in->is_null()) {
    MESHIFT_RETURN_IF_ERROR(
        Annotate(ReadJsonTiming(number, *in, &row.in_place.emplace()), "in_place"));
  }
  if (run_.rows_line == 0) run_.rows_line = number;
  return AddRow(number, row);
}

absl::StatusOr<NcclTestsLog> LogReader::ReadJson(const Json& json) {
  const auto args = json.find("args");
  if (args != json.end() && args->is_array() && !args->empty() && (*args)[0].is_string()) {
    const std::string& program = (*args)[0].get_ref<const std::string&>();
    named_ = NcclTestsOpOfProgram(program);
    if (!named_) {
      return InvalidArgument("args: unknown test {}; expected one of {}", Quoted(program),
                             AllNames());
    }
  }
  MESHIFT_ASSIGN_OR_RETURN(const Json* const results, JsonMember(json, "results"));
  if (!results->is_array()) {
    return InvalidArgument("results is {}; it must be a list", JsonQuote(*results));
  }
  const auto config = json.find("config");
  if (config != json.end()) {
    MESHIFT_RETURN_IF_ERROR(Annotate(ReadDevices(*config), "config"));
  }
  for (size_t i = 0; i < results->size(); ++i) {
    const auto number = static_cast<int64_t>(i) + 1;
    const absl::Status status = ReadResult(number, (*results)[i]);
    if (status.ok()) continue;
    // Some messages begin with the place already.
    const std::string at = At(number);
    return Message(status).rfind(at, 0) == 0 ? status : Annotate(status, at);
  }
  const auto bounds = json.find("out_of_bounds");
  if (bounds != json.end() && bounds->is_object()) {
    MESHIFT_ASSIGN_OR_RETURN(log_.out_of_bounds, IntOf(*bounds, "count"));
    if (log_.out_of_bounds < 0) {
      return InvalidArgument("out_of_bounds: count is {}; it must be at least 0",
                             log_.out_of_bounds);
    }
  }
  return Finish();
}

}  // namespace

absl::StatusOr<NcclTestsLog> ParseNcclTestsLog(std::string_view text,
                                               std::optional<NcclTestsOp> hint) {
  if (text.size() > static_cast<size_t>(kMaxNcclTestsBytes)) {
    return InvalidArgument("the log has {} bytes; at most {} are read", text.size(),
                           kMaxNcclTestsBytes);
  }
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] != '{') {
    return LogReader(hint, "line").ReadText(text);
  }
  const absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Escaped(json.status(), kMaxShown);
  absl::StatusOr<NcclTestsLog> log = LogReader(hint, "result").ReadJson(*json);
  return log.ok() ? std::move(log) : Escaped(log.status(), kMaxMessage);
}

}  // namespace meshift::cli

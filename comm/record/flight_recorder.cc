#include "comm/record/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/record/dump_report.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Call = DumpFile::Call;
using Step = DumpFile::Step;

constexpr size_t kMaxEntries = 200'000;      // bounds the size of a pickle, as the next
constexpr int64_t kMaxGroupRanks = 4 << 20;  // in all groups together
// The version of the format. The analyser reads the minor number: with this one, entries with the
// same sequence number are one group.
constexpr std::string_view kVersion = "2.10";
// Step i of a group in call k has the sequence number k * kStepsPerCall + i.
constexpr int64_t kStepsPerCall = 1024;

// Writes the needed subset of Python's pickle protocol 2.
class Pickle {
 public:
  Pickle() : out_("\x80\x02") {}
  std::string Finish() && { return std::move(out_) + "."; }

  Pickle& Text(std::string_view text) {
    out_ += 'X';
    Bytes(text.size(), 4);
    // Python decodes it as UTF-8.
    for (const char c : text) out_ += static_cast<unsigned char>(c) < 0x80 ? c : '?';
    return *this;
  }
  Pickle& Int(int64_t value) {
    out_ += "\x8a\x08";
    Bytes(static_cast<uint64_t>(value), 8);
    return *this;
  }
  Pickle& Bool(bool value) { return Op(value ? '\x88' : '\x89'); }
  Pickle& None() { return Op('N'); }
  template <typename Fill>
  Pickle& Dict(Fill fill) {
    Op('}').Op('(');
    fill();
    return Op('u');
  }
  template <typename Fill>
  Pickle& List(Fill fill) {
    Op(']').Op('(');
    fill();
    return Op('e');
  }
  template <typename Fill>
  Pickle& Tuple(Fill fill) {
    Op('(');
    fill();
    return Op('t');
  }

 private:
  Pickle& Op(char c) {
    out_ += c;
    return *this;
  }
  void Bytes(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) out_ += static_cast<char>(value >> (8 * i));
  }
  std::string out_;
};

struct Entry {
  const Call* call = nullptr;
  const Step* step = nullptr;
  const std::string* group = nullptr;  // name of the process group
  int64_t sequence = 0;
  int64_t group_size = 1;
};

struct GroupOfFile {
  std::string name;
  std::string ranks;  // "[0, 1]"
  int64_t size = 0;
};

// "[0, 1, 2]" of "0-2".
absl::StatusOr<GroupOfFile> GroupFor(const std::string& source, const std::string& ranks,
                                     int64_t* num_ranks) {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> parsed, ParseRanksText(ranks));
  GroupOfFile group{.name = fmt::format("{}: {}", source, ranks), .ranks = "[", .size = 0};
  group.size = static_cast<int64_t>(parsed.size());
  *num_ranks += group.size;
  if (*num_ranks > kMaxGroupRanks) {
    return absl::ResourceExhaustedError("the groups have too many ranks to be written");
  }
  for (const int64_t rank : parsed) {
    fmt::format_to(std::back_inserter(group.ranks), "{}{}", group.ranks.size() > 1 ? ", " : "",
                   rank);
  }
  group.ranks += "]";
  return group;
}

std::string_view NameOf(std::string_view op) {
  if (op == "all_gather") return "nccl:_all_gather_base";
  if (op == "reduce_scatter") return "nccl:_reduce_scatter_base";
  if (op == "send_recv") return "nccl:all_to_all";
  return "nccl:all_reduce";
}

std::string_view StateOf(const Call& call) {
  if (call.state == DumpFile::State::kEnded) return "completed";
  const bool waits = call.state == DumpFile::State::kIssuing || call.started_ns < 0;
  return waits && call.state != DumpFile::State::kFailed ? "scheduled" : "started";
}

void AddEntry(const DumpFile& file, const Entry& entry, int64_t record, Pickle* out) {
  const Call& call = *entry.call;
  const Step& step = *entry.step;
  int64_t in = step.count_in;
  int64_t result = step.count_out;
  const auto mean = [&](int64_t all) {
    return all / entry.group_size + (all % entry.group_size > 0);
  };
  if (step.op == "reduce_scatter") {
    result = mean(in);
    in = result * entry.group_size;
  } else if (step.op == "all_gather") {
    in = mean(result);
    result = in * entry.group_size;
  }
  const auto shape = [&](const char* key, int64_t count) {
    out->Text(key).List([&] { out->List([&] { out->Int(count); }); });
  };
  const auto dtype = [&](const char* key) { out->Text(key).List([&] { out->Text(step.dtype); }); };
  const auto time = [&](const char* key, int64_t ns) {
    out->Text(key);
    ns < 0 ? out->None() : out->Int(UnixNs(file, ns));
  };
  out->Dict([&] {
    out->Text("record_id").Int(record);
    out->Text("pg_id").Int(0);
    out->Text("process_group").Tuple([&] { out->Text(*entry.group).Text("meshift"); });
    out->Text("collective_seq_id").Int(entry.sequence);
    out->Text("p2p_seq_id").Int(0);
    out->Text("op_id").Int(entry.sequence);
    out->Text("profiling_name").Text(NameOf(step.op));
    time("time_created_ns", call.issued_ns);
    shape("input_sizes", in);
    dtype("input_dtypes");
    shape("output_sizes", result);
    dtype("output_dtypes");
    out->Text("state").Text(StateOf(call));
    time("time_discovered_started_ns", call.started_ns);
    time("time_discovered_completed_ns", call.ended_ns);
    out->Text("retired").Bool(call.state == DumpFile::State::kEnded);
    out->Text("timeout_ms").Int(file.running_timeout_ns / 1'000'000);
    out->Text("is_p2p").Bool(false);
    out->Text("thread_id").Text(fmt::format("{}", call.thread));
    out->Text("frames").List([&] {
      out->Dict([&] {
        const std::string& plan = file.plans[call.plan].text;
        out->Text("name").Text(fmt::format("call {} step {} of {}", call.call, step.step, plan));
        out->Text("filename").Text("meshift");
        out->Text("line").Int(step.step);
      });
    });
  });
}

// A record; `groups` and `entries` write the groups and the entries.
template <typename Groups, typename Entries>
std::string Record(Pickle out, Groups groups, Entries entries) {
  out.Dict([&] {
    out.Text("version").Text(kVersion);
    out.Text("pg_config").Dict([&] { groups(out); });
    out.Text("pg_status").Dict([] {});
    out.Text("entries").List([&] { entries(out); });
  });
  return std::move(out).Finish();
}

}  // namespace

std::map<std::string, int64_t> FirstCommonCalls(absl::Span<const DumpFile> files) {
  std::map<std::string, int64_t> firsts;
  for (const DumpFile& file : files) {
    std::vector<std::optional<int64_t>> own(file.redistributors.size());
    for (const Call& call : file.calls) {
      std::optional<int64_t>& first = own[call.redistributor];
      first = std::min(first.value_or(call.call), call.call);
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i]) continue;
      const auto [it, is_new] = firsts.try_emplace(file.redistributors[i].name, *own[i]);
      it->second = std::max(it->second, *own[i]);
    }
  }
  return firsts;
}

absl::StatusOr<std::string> ToPyTorchFlightRecord(
    const DumpFile& file, const std::map<std::string, int64_t>& first_calls) {
  int64_t num_ranks = 0;
  std::map<std::pair<int32_t, std::string>, GroupOfFile> groups;  // by redistributor and ranks
  std::deque<Entry> entries;
  for (const Call& call : file.calls) {
    if (call.plan < 0) continue;
    const std::string& source = file.redistributors[call.redistributor].name;
    const auto first = first_calls.find(source);
    if (first != first_calls.end() && call.call < first->second) continue;
    const DumpFile::Plan& plan = file.plans[call.plan];
    std::map<int32_t, int64_t> steps_of_group;
    for (const Step& step : plan.steps) {
      if (step.group < 0) continue;
      const std::string& ranks = plan.groups[step.group];
      auto it = groups.find({call.redistributor, ranks});
      if (it == groups.end()) {
        MESHIFT_ASSIGN_OR_RETURN(GroupOfFile group, GroupFor(source, ranks, &num_ranks));
        it = groups.emplace(std::pair(call.redistributor, ranks), std::move(group)).first;
      }
      const int64_t at = steps_of_group[step.group]++;
      entries.push_back({.call = &call,
                         .step = &step,
                         .group = &it->second.name,
                         .sequence = (call.call % (int64_t{1} << 50)) * kStepsPerCall + at,
                         .group_size = it->second.size});
      if (entries.size() > kMaxEntries) entries.pop_front();
    }
  }
  return Record(
      Pickle(),
      [&](Pickle& out) {
        for (const auto& entry : groups) {
          const GroupOfFile& group = entry.second;
          out.Text(group.name).Dict([&] {
            out.Text("name").Text(group.name);
            out.Text("desc").Text("meshift");
            out.Text("ranks").Text(group.ranks);
          });
        }
      },
      [&](Pickle& out) {
        int64_t record = 0;
        for (const Entry& entry : entries) AddEntry(file, entry, record++, &out);
      });
}

std::string EmptyPyTorchFlightRecord() {
  return Record(
      Pickle(), [](Pickle&) {}, [](Pickle&) {});
}

absl::Status ForEachPyTorchFlightRecord(
    absl::Span<const DumpFile> files,
    absl::FunctionRef<absl::Status(int64_t, const std::string&)> use) {
  const std::map<std::string, int64_t> first_calls = FirstCommonCalls(files);
  int64_t world_size = 0;
  for (const DumpFile& file : files) world_size = std::max(world_size, file.world_size);
  size_t next = 0;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    std::string record = EmptyPyTorchFlightRecord();
    if (next < files.size() && files[next].rank == rank) {
      absl::StatusOr<std::string> made = ToPyTorchFlightRecord(files[next++], first_calls);
      if (!made.ok()) return Annotate(made.status(), fmt::format("rank {}", rank));
      record = *std::move(made);
    }
    MESHIFT_RETURN_IF_ERROR(use(rank, record));
  }
  return absl::OkStatus();
}

}  // namespace meshift

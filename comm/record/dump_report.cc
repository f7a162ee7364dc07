#include "comm/record/dump_report.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace meshift {
namespace {

using Call = DumpFile::Call;

// A redistributor in one file: its calls, by ascending number.
struct RankRecord {
  const DumpFile* file = nullptr;
  std::vector<const Call*> calls;

  const Call* Find(int64_t call) const {
    const auto it = std::lower_bound(calls.begin(), calls.end(), call,
                                     [](const Call* c, int64_t n) { return c->call < n; });
    return it != calls.end() && (*it)->call == call ? *it : nullptr;
  }
  int64_t NumCalls() const { return calls.empty() ? 0 : calls.back()->call + 1; }
};

// A redistributor in all files.
struct RedistributorRecords {
  std::vector<int64_t> ranks;
  std::map<int64_t, RankRecord> by_rank;
};

// a - b, saturating: the numbers of a file may be anything.
int64_t Minus(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result)) return a < b ? INT64_MIN : INT64_MAX;
  return result;
}

std::string_view PlanOf(const DumpFile& file, const Call& call) {
  if (call.plan < 0) return "an unknown plan";
  return file.plans[call.plan].text;
}

std::map<std::string, RedistributorRecords> RecordsByName(absl::Span<const DumpFile> files) {
  std::map<std::string, RedistributorRecords> by_name;
  for (const DumpFile& file : files) {
    std::vector<RankRecord*> of_file;
    for (const DumpFile::Redistributor& source : file.redistributors) {
      RedistributorRecords& records = by_name[source.name];
      if (records.ranks.size() < source.ranks.size()) records.ranks = source.ranks;
      RankRecord& record = records.by_rank[file.rank];
      record.file = &file;
      of_file.push_back(&record);
    }
    for (const Call& call : file.calls) of_file[call.redistributor]->calls.push_back(&call);
  }
  for (auto& [name, records] : by_name) {
    for (auto& [rank, record] : records.by_rank) {
      const auto before = [](const Call* a, const Call* b) { return a->call < b->call; };
      if (!std::is_sorted(record.calls.begin(), record.calls.end(), before)) {
        std::stable_sort(record.calls.begin(), record.calls.end(), before);
      }
    }
  }
  return by_name;
}

std::optional<StuckCall> StuckOf(const std::string& name, const RedistributorRecords& records) {
  StuckCall stuck;
  stuck.redistributor = name;
  stuck.call = INT64_MAX;
  stuck.num_ranks = static_cast<int64_t>(records.ranks.size());
  for (const auto& [rank, record] : records.by_rank) {
    for (const Call* call : record.calls) {
      if (!call->is_open() || call->call >= stuck.call) continue;
      stuck.call = call->call;
      stuck.plan = PlanOf(*record.file, *call);
      stuck.groups =
          call->plan < 0 ? std::vector<std::string>() : record.file->plans[call->plan].groups;
    }
  }
  if (stuck.call == INT64_MAX) return std::nullopt;
  for (const int64_t rank : records.ranks) {
    const auto it = records.by_rank.find(rank);
    if (it == records.by_rank.end()) {
      stuck.missing.push_back(rank);
      continue;
    }
    const RankRecord& record = it->second;
    if (record.NumCalls() <= stuck.call) {
      int64_t ended_ns = -1;
      for (const Call* call : record.calls) ended_ns = std::max(ended_ns, call->ended_ns);
      stuck.late.push_back({.rank = rank,
                            .num_calls = record.NumCalls(),
                            .last_ended_unix_ns = UnixNs(*record.file, ended_ns)});
      continue;
    }
    const Call* const call = record.Find(stuck.call);
    if (call == nullptr || !call->is_open()) {
      stuck.past.push_back(rank);
    } else if (call->state == DumpFile::State::kIssuing) {
      stuck.issuing.push_back(rank);
    } else if (call->state == DumpFile::State::kInFlight && call->started_ns < 0) {
      stuck.held.push_back(rank);
    } else {
      stuck.in_it.push_back(rank);
      const int64_t since = UnixNs(*record.file, std::max(call->issued_ns, call->started_ns));
      if (stuck.since_unix_ns < 0 || (0 <= since && since < stuck.since_unix_ns)) {
        stuck.since_unix_ns = since;
      }
    }
  }
  return stuck;
}

std::optional<Disagreement> DisagreementOf(const std::string& name,
                                           const RedistributorRecords& records) {
  // By call: the plan of the first rank that remembers the call.
  absl::flat_hash_map<int64_t, std::string_view> plans;
  int64_t first = INT64_MAX;
  for (const auto& [rank, record] : records.by_rank) {
    for (const Call* call : record.calls) {
      if (call->plan < 0) continue;
      const std::string_view plan = PlanOf(*record.file, *call);
      const auto [it, is_new] = plans.try_emplace(call->call, plan);
      if (!is_new && call->call < first && it->second != plan) first = call->call;
    }
  }
  if (first == INT64_MAX) return std::nullopt;
  Disagreement found{.redistributor = name, .call = first, .sides = {}};
  std::map<std::string_view, size_t> sides;
  for (const auto& [rank, record] : records.by_rank) {
    const Call* const call = record.Find(first);
    if (call == nullptr || call->plan < 0) continue;
    const std::string_view plan = PlanOf(*record.file, *call);
    const auto [it, is_new] = sides.try_emplace(plan, found.sides.size());
    if (is_new) found.sides.push_back({.plan = std::string(plan), .ranks = {}});
    found.sides[it->second].ranks.push_back(rank);
  }
  return found;
}

}  // namespace

int64_t UnixNs(const DumpFile& file, int64_t ns) {
  if (ns < 0) return -1;
  return std::max<int64_t>(0, Minus(file.written_unix_ns, Minus(file.now_ns, ns)));
}

DumpReport ReportOf(absl::Span<const DumpFile> files) {
  DumpReport report;
  report.num_files = static_cast<int64_t>(files.size());
  for (const DumpFile& file : files) {
    report.world_size = std::max(report.world_size, file.world_size);
    if (file.failure.ok()) continue;
    if (report.first && report.first->written_unix_ns <= file.written_unix_ns) continue;
    report.first = {
        .rank = file.rank, .failure = file.failure, .written_unix_ns = file.written_unix_ns};
  }
  size_t next = 0;
  for (int64_t rank = 0; rank < report.world_size; ++rank) {
    if (next < files.size() && files[next].rank == rank) {
      ++next;
    } else {
      report.missing.push_back(rank);
    }
  }
  for (const auto& [name, records] : RecordsByName(files)) {
    if (auto stuck = StuckOf(name, records)) report.stuck.push_back(*std::move(stuck));
    if (auto found = DisagreementOf(name, records)) {
      report.disagreements.push_back(*std::move(found));
    }
  }
  return report;
}

}  // namespace meshift

#include "testing/internal/conformance/ticket_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 8;
constexpr int64_t kThreads = 8;
constexpr int64_t kElements = 6;
constexpr int64_t kGroups = 16;

// Three ways to arrange the ranks as a cube, such that two edges or faces share at most one rank
// unless they are equal, and a mesh that is not a cube. Together they give each rank sixteen
// groups.
struct Partition {
  const char* mesh;
  const char* placements;
};
constexpr char kCube[] = "a=2,b=2,c=2";
constexpr char kSecondCube[] = "a=2,b=2,c=2@0,7,6,1,3,4,5,2";
constexpr char kThirdCube[] = "a=2,b=2,c=2@0,1,7,6,5,4,2,3";
constexpr char kHalves[] = "a=2,b=4@0,1,2,4,3,5,6,7";
constexpr std::array<Partition, kGroups> kPartitions = {{
    {kCube, "P,R,R"},
    {kSecondCube, "R,P,P"},
    {kCube, "R,P,R"},
    {kThirdCube, "P,R,R"},
    {kCube, "P,P,P"},
    {kSecondCube, "P,P,R"},
    {kCube, "R,R,P"},
    {kSecondCube, "P,R,R"},
    {kCube, "P,P,R"},
    {kHalves, "R,P"},
    {kSecondCube, "R,P,R"},
    {kCube, "P,R,P"},
    {kSecondCube, "R,R,P"},
    {kThirdCube, "P,P,R"},
    {kCube, "R,P,P"},
    {kSecondCube, "P,R,P"},
}};

// This rank's call with one of the partitions.
struct Subject {
  Sharding from;
  Sharding to;
  int32_t members = 0;
  int32_t ranks = 0;  // the sum of the group's ranks
};

// One rank's calls.
class Caller {
 public:
  static absl::StatusOr<Caller> Create(Engine* engine, std::chrono::nanoseconds timeout);

  // Makes the call, and checks its result. Thread-safe.
  absl::Status Call(int64_t ticket);
  // Runs one thread per list of `calls`, which makes the calls in order. Returns the first error.
  absl::Status RunThreads(const std::vector<std::vector<int64_t>>& calls);
  RedistributorStats stats() const { return redistribute_.stats(); }

 private:
  Caller(Redistributor redistribute, int64_t rank)
      : redistribute_(std::move(redistribute)), rank_(rank) {}

  Redistributor redistribute_;
  int64_t rank_;
  std::vector<Subject> subjects_;
};

absl::StatusOr<Caller> Caller::Create(Engine* engine, std::chrono::nanoseconds timeout) {
  if (engine->world_size() != kRanks) {
    return InvalidArgument("{} ranks are not {}", engine->world_size(), kRanks);
  }
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh cube, DeviceMesh::Parse(kCube));
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                           Redistributor::Create(cube, engine, {.timeout = timeout}));
  Caller caller(std::move(redistribute), engine->rank());
  for (const Partition& partition : kPartitions) {
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse(partition.mesh));
    MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse(fmt::format("i32[{}]", kElements),
                                                                  mesh, partition.placements));
    MESHIFT_ASSIGN_OR_RETURN(const Sharding to,
                             from.WithPlacements(mesh.NumDims() == 2 ? "R,R" : "R,R,R"));
    std::vector<int> dims;
    for (int d = 0; d < mesh.NumDims(); ++d) {
      if (from.placement(d).IsPartial()) dims.push_back(d);
    }
    const std::vector<int64_t> group = mesh.GroupOf(dims, engine->rank());
    caller.subjects_.push_back(
        {.from = from,
         .to = to,
         .members = static_cast<int32_t>(group.size()),
         .ranks = static_cast<int32_t>(std::accumulate(group.begin(), group.end(), int64_t{0}))});
  }
  return caller;
}

absl::Status Caller::Call(int64_t ticket) {
  const Subject& subject = subjects_[ticket % kGroups];
  const auto value = static_cast<int32_t>(ticket);
  std::array<int32_t, kElements> in;
  std::array<int32_t, kElements> out;
  for (int32_t i = 0; i < kElements; ++i) in[i] = value * (i + 1) + static_cast<int32_t>(rank_);
  out.fill(-1);
  MESHIFT_ASSIGN_OR_RETURN(
      const RunHandle run,
      redistribute_({.from = subject.from,
                     .to = subject.to,
                     .source = TensorView::Contiguous(in.data(), DType::kI32, {kElements}),
                     .target = TensorView::Contiguous(out.data(), DType::kI32, {kElements}),
                     .ticket = ticket}));
  MESHIFT_RETURN_IF_ERROR(run.Wait());
  for (int32_t i = 0; i < kElements; ++i) {
    const int32_t want = value * (i + 1) * subject.members + subject.ranks;
    if (out[i] != want) {
      return Internal("rank {}, ticket {}: element {} is {}, not {}", rank_, ticket, i, out[i],
                      want);
    }
  }
  return absl::OkStatus();
}

absl::Status Caller::RunThreads(const std::vector<std::vector<int64_t>>& calls) {
  std::vector<absl::Status> statuses(calls.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < calls.size(); ++t) {
    threads.emplace_back([this, &list = calls[t], &status = statuses[t]] {
      for (size_t i = 0; i < list.size() && status.ok(); ++i) status = Call(list[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) MESHIFT_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTickets(Engine* engine, const TicketCheckOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(Caller caller, Caller::Create(engine, std::chrono::minutes(2)));
  std::mt19937_64 random(options.seed * kRanks + engine->rank());
  std::vector<std::vector<int64_t>> calls(kThreads);
  std::array<int64_t, kThreads> order;
  std::iota(order.begin(), order.end(), 0);
  for (int64_t round = 0; round < options.rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (int64_t t = 0; t < kThreads; ++t) calls[t].push_back(round * kThreads + order[t]);
  }
  MESHIFT_RETURN_IF_ERROR(caller.RunThreads(calls));
  const RedistributorStats stats = caller.stats();
  // The root is one of the groups.
  if (stats.calls != options.rounds * kThreads || stats.groups.created != kGroups - 1) {
    return Internal("rank {}: {} calls over {} groups and the root", engine->rank(), stats.calls,
                    stats.groups.created);
  }
  return absl::OkStatus();
}

absl::Status CheckTwoRedistributors(Engine* engine, int64_t rounds) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Create({{"d", kRanks}}));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from,
                           Sharding::Parse(fmt::format("i32[{}]", kElements), mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  std::vector<Redistributor> both;
  for (int i = 0; i < 2; ++i) {
    MESHIFT_ASSIGN_OR_RETURN(Redistributor one, Redistributor::Create(mesh, engine));
    both.push_back(std::move(one));
  }
  const auto call = [&](Redistributor& redistribute, int32_t value) -> absl::Status {
    std::array<int32_t, kElements> in;
    std::array<int32_t, kElements> out;
    in.fill(value);
    out.fill(-1);
    MESHIFT_ASSIGN_OR_RETURN(
        const RunHandle run,
        redistribute({.from = from,
                      .to = to,
                      .source = TensorView::Contiguous(in.data(), DType::kI32, {kElements}),
                      .target = TensorView::Contiguous(out.data(), DType::kI32, {kElements})}));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
    if (out[0] == value * kRanks) return absl::OkStatus();
    return Internal("rank {}: the sum of eight times {} is {}", engine->rank(), value, out[0]);
  };
  std::array<absl::Status, 2> statuses;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      for (int64_t k = 0; k < rounds && statuses[i].ok(); ++k) {
        statuses[i] = call(both[i], i == 0 ? 1 : 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses[0].ok() ? statuses[1] : statuses[0];
}

absl::Status CheckMissingTicket(Engine* engine) {
  constexpr int64_t kMissing = 21;
  constexpr int64_t kCalls = 32;
  const bool misses = engine->rank() == kRanks - 1;
  // The others learn it from this rank, well before their own time-out.
  MESHIFT_ASSIGN_OR_RETURN(
      Caller caller,
      Caller::Create(engine, misses ? std::chrono::seconds(1) : std::chrono::seconds(60)));
  std::vector<std::vector<int64_t>> calls(kThreads);
  for (int64_t ticket = 0; ticket < kCalls; ++ticket) {
    if (misses && ticket == kMissing) continue;
    calls[(ticket + engine->rank()) % kThreads].push_back(ticket);
  }
  const absl::Status status = caller.RunThreads(calls);
  const std::string want = fmt::format("ticket {} did not come within 1 s", kMissing);
  if (status.ok() || Message(status).find(want) == std::string::npos ||
      (misses && !absl::IsDeadlineExceeded(status))) {
    return Internal("rank {}: '{}' does not say that {}", engine->rank(), status.ToString(), want);
  }
  return absl::OkStatus();
}

}  // namespace meshift

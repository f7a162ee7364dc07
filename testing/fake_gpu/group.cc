// Groups of NCCL calls, per thread.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "testing/fake_gpu/comm.h"
#include "testing/fake_gpu/reduction.h"

namespace meshift::fake {
namespace {

struct GroupedCall {
  Comm* comm;
  OpCall call;
  void* stream;
  bool capturing;
};

struct GroupedJob {
  Comm* comm;
  std::function<ncclResult_t()> begin;
  std::function<ncclResult_t()> wait;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<GroupedCall> calls;
  std::vector<GroupedJob> jobs;
  std::vector<Comm*> aborts;

  ~Group() {
    if (depth > 0) TheCore().Violation("a thread ended inside ncclGroupStart without ncclGroupEnd");
  }
};

thread_local Group group;

void Worse(ncclResult_t result, ncclResult_t* all) {
  if (result == ncclSuccess) return;
  if (*all == ncclSuccess || *all == ncclInProgress) *all = result;
}

ncclResult_t RunJobs(const std::vector<GroupedJob>& jobs) {
  ncclResult_t all = ncclSuccess;
  for (const GroupedJob& job : jobs) Worse(job.begin(), &all);
  if (all != ncclSuccess && all != ncclInProgress) return all;
  for (const GroupedJob& job : jobs) {
    if (job.comm->blocking) Worse(job.wait(), &all);
  }
  return all;
}

// The calls of a group have no order among each other.
void CheckApart(const std::vector<GroupedCall>& calls) {
  struct Part {
    uint64_t begin;
    uint64_t end;
    bool written;
    const OpCall* call;
  };
  std::vector<Part> parts;
  for (const GroupedCall& grouped : calls) {
    const OpCall& call = grouped.call;
    const Comm& comm = *grouped.comm;
    const Part in{call.send, call.send + InputBytes(call.op, comm.ranks, comm.rank), false, &call};
    const Part out{call.receive, call.receive + OutputBytes(call.op, comm.ranks, comm.rank), true,
                   &call};
    if (in.begin < out.end && out.begin < in.end) {  // in place
      parts.push_back({std::min(in.begin, out.begin), std::max(in.end, out.end), true, &call});
      continue;
    }
    for (const Part& part : {in, out}) {
      if (part.begin < part.end) parts.push_back(part);
    }
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  // The earlier part that ends last, and the earlier written part that ends last.
  const Part* any = nullptr;
  const Part* written = nullptr;
  for (const Part& part : parts) {
    const Part* const other = part.written ? any : written;
    if (other != nullptr && other->end > part.begin) {
      TheCore().Violation(fmt::format("{} and {} in one group use the same bytes, and one writes",
                                      other->call->name, part.call->name));
      return;
    }
    if (any == nullptr || part.end > any->end) any = &part;
    if (part.written && (written == nullptr || part.end > written->end)) written = &part;
  }
}

ncclResult_t RunCalls(const std::vector<GroupedCall>& calls) {
  std::vector<Comm*> comms;
  std::vector<PreparedLaunch> launches;
  for (const GroupedCall& call : calls) {
    if (call.comm->blocking != calls[0].comm->blocking) {
      return Fail(call.comm, ncclInvalidArgument,
                  "blocking and non-blocking communicators in one group");
    }
    if (call.capturing != calls[0].capturing) {
      TheCore().Violation("captured and other operations in one NCCL group");
      return Fail(call.comm, ncclInvalidUsage, "captured and other operations in one group");
    }
    if (std::find(comms.begin(), comms.end(), call.comm) == comms.end()) comms.push_back(call.comm);
  }
  CheckApart(calls);
  for (Comm* comm : comms) {
    std::vector<OpCall> its_calls;
    std::vector<void*> streams;
    for (const GroupedCall& call : calls) {
      if (call.comm != comm) continue;
      its_calls.push_back(call.call);
      if (std::find(streams.begin(), streams.end(), call.stream) == streams.end()) {
        streams.push_back(call.stream);
      }
    }
    launches.push_back(Prepare(comm, std::move(its_calls), std::move(streams)));
  }
  return launches.empty() ? ncclSuccess : Launch(launches);
}

}  // namespace

void GroupBegin() { ++group.depth; }

bool InGroup() { return group.depth > 0; }

ncclResult_t GroupFinish() {
  if (group.depth == 0) {
    TheCore().Violation("ncclGroupEnd without ncclGroupStart");
    return Fail(nullptr, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  if (--group.depth > 0) return ncclSuccess;
  const ncclResult_t error = std::exchange(group.error, ncclSuccess);
  const std::vector<GroupedCall> calls = std::exchange(group.calls, {});
  const std::vector<GroupedJob> jobs = std::exchange(group.jobs, {});
  if (const std::vector<Comm*> aborts = std::exchange(group.aborts, {}); !aborts.empty()) {
    AwaitAborts(aborts);
  }
  // An error of one call fails the whole group: nothing is started.
  if (error != ncclSuccess) return error;
  if (!jobs.empty() && !calls.empty()) {
    TheCore().Violation("a group both makes communicators and communicates");
    return Fail(nullptr, ncclInvalidUsage, "a group both makes communicators and communicates");
  }
  if (!jobs.empty()) return RunJobs(jobs);
  return RunCalls(calls);
}

void GroupAdd(Comm* comm, const OpCall& call, void* stream, bool capturing) {
  group.calls.push_back({comm, call, stream, capturing});
}

void GroupAddJob(Comm* comm, std::function<ncclResult_t()> begin,
                 std::function<ncclResult_t()> wait) {
  group.jobs.push_back({comm, std::move(begin), std::move(wait)});
}

void GroupAddAbort(Comm* comm) { group.aborts.push_back(comm); }

void GroupFail(ncclResult_t result) { Worse(result, &group.error); }

}  // namespace meshift::fake

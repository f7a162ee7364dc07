// Groups of calls, by thread.
#include <fmt/core.h>

#include <algorithm>

#include "testing/fake_gpu/comm.h"

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
  return launches.empty() ? ncclSuccess : Launch(launches, calls[0].capturing);
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
  // An error is one of the whole group: nothing is started.
  if (error != ncclSuccess) return error;
  if (!jobs.empty() && !calls.empty()) {
    TheCore().Violation("a group both makes communicators and communicates");
    return Fail(nullptr, ncclInvalidUsage, "a group both makes communicators and communicates");
  }
  if (!jobs.empty()) return RunJobs(jobs);
  return RunCalls(calls);
}

void GroupAdd(Comm* comm, OpCall call, void* stream, bool capturing) {
  group.calls.push_back({comm, std::move(call), stream, capturing});
}

void GroupAddJob(Comm* comm, std::function<ncclResult_t()> begin,
                 std::function<ncclResult_t()> wait) {
  group.jobs.push_back({comm, std::move(begin), std::move(wait)});
}

void GroupAddAbort(Comm* comm) { group.aborts.push_back(comm); }

void GroupFail(ncclResult_t result) { Worse(result, &group.error); }

}  // namespace meshift::fake

// The functions of nccl.h that move data, and those of groups.
#include <fmt/format.h>
#include <nccl.h>

#include <cstring>

#include "testing/fake_gpu/comm.h"
#include "testing/fake_gpu/recorder.h"
#include "testing/fake_gpu/reduction.h"
#include "testing/fake_gpu/tuning.h"

namespace meshift::fake {
namespace {

// Whether [a, a + a_bytes) and [b, b + b_bytes) have a byte in common.
bool Overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

// Whether send and receive buffer overlap only as NCCL's documentation allows.
bool BuffersFit(const OpCall& call, const Comm& comm) {
  const uint64_t in = InputBytes(call.op, comm.ranks, comm.rank);
  const uint64_t out = OutputBytes(call.op, comm.ranks, comm.rank);
  if (!Overlap(call.send, in, call.receive, out)) return true;
  const uint64_t one = call.op.count * ElementBytes(call.op.dtype);
  const auto rank = static_cast<uint64_t>(comm.rank);
  switch (call.op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
      return call.send == call.receive;
    case OpKind::kReduceScatter:
      return call.receive == call.send + rank * one;
    case OpKind::kAllGather:
      return call.send == call.receive + rank * one;
    default:
      return false;  // AlltoAll has no in-place form
  }
}

// NCCL chooses them by the windows of both buffers, so these must be the same on all ranks.
bool HasSymmetricKernels(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter || kind == OpKind::kAllGather;
}

bool Reduces(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter || kind == OpKind::kReduce;
}

ncclResult_t CheckOp(const OpCall& call, Comm* comm) {
  const OpDescription& op = call.op;
  if (ElementBytes(op.dtype) == 0) {
    return Fail(comm, ncclInvalidArgument, fmt::format("{}: no type {}", call.name, op.dtype));
  }
  if (op.root < 0 || op.root >= comm->ranks || call.peer < 0 || call.peer >= comm->ranks) {
    return Fail(comm, ncclInvalidArgument,
                fmt::format("{}: no rank {}", call.name, op.root != 0 ? op.root : call.peer));
  }
  if (Reduces(op.kind) && (op.op < 0 || op.op >= ncclNumOps)) {
    return Fail(comm, ncclInvalidArgument, fmt::format("{}: no operator {}", call.name, op.op));
  }
  return ncclSuccess;
}

// The common part of all collectives and of sends and receives.
ncclResult_t Add(OpCall call, ncclComm_t handle, cudaStream_t stream) {
  Core& core = TheCore();
  const int fault = core.Enter(
      call.name, kPlainCall,
      fmt::format("{} {:#x} {:#x} peer {} comm {} stream {}", ToString(call.op), call.send,
                  call.receive, call.peer, static_cast<void*>(handle), static_cast<void*>(stream)));
  if (fault != 0) return static_cast<ncclResult_t>(fault);
  Comm* comm = nullptr;
  if (const ncclResult_t found = FindComm(call.name, handle, &comm); found != ncclSuccess) {
    return found;
  }
  CallerScope scope(call.name, comm);
  {
    MutexLock lock(comm->mutex);
    if (comm->state != CommState::kOpen) {
      core.Violation(fmt::format("{}: the communicator is finalized", call.name));
      return ncclInvalidUsage;
    }
  }
  if (const ncclResult_t checked = CheckOp(call, comm); checked != ncclSuccess) return checked;
  const StreamInfo info = core.Look(call.name, stream);
  if (!info.valid) return Fail(comm, ncclInvalidArgument, fmt::format("{}: no stream", call.name));
  if (info.device != comm->device) {
    core.Violation(fmt::format("{}: a communicator of device {} on a stream of device {}",
                               call.name, comm->device, info.device));
    return Fail(comm, ncclInvalidUsage, "the stream is of another device");
  }
  const bool message = call.op.kind == OpKind::kSend || call.op.kind == OpKind::kRecv;
  if (call.op.count == 0 && !message) {  // dropped here, whatever other ranks do
    MutexLock lock(comm->mutex);
    ++comm->empty_calls;
    return ncclSuccess;
  }
  std::vector<Access> accesses;
  const uint64_t in = InputBytes(call.op, comm->ranks, comm->rank);
  const uint64_t out = OutputBytes(call.op, comm->ranks, comm->rank);
  if (in > 0) accesses.push_back({.address = call.send, .bytes = in, .write = false});
  if (out > 0) accesses.push_back({.address = call.receive, .bytes = out, .write = true});
  if (!core.Check(call.name, accesses, comm->device)) {
    return Fail(comm, ncclInvalidArgument, fmt::format("{}: no device memory", call.name));
  }
  if (!BuffersFit(call, *comm)) {
    core.Violation(
        fmt::format("{}: send and receive buffer overlap, and not as in place allows", call.name));
  }
  if (comm->ranks > 1 && !comm->tuning.HasAlgorithm(call.op.kind)) {
    return Fail(comm, ncclInvalidUsage, NoAlgorithm(call.op.kind));
  }
  if (HasSymmetricKernels(call.op.kind)) {
    FindWindows(comm, &call, in, out);
    // Recorded for tests that count such calls.
    if (call.op.send_window >= 0) {
      core.Enter("symmetric", kPlainCall, fmt::format("{} {}", call.name, ToString(call.op)));
    }
  }
  GroupAdd(comm, call, stream, info.capturing);
  return ncclSuccess;
}

ncclResult_t Run(OpCall call, ncclComm_t comm, cudaStream_t stream) {
  const bool grouped = InGroup();
  GroupBegin();
  const ncclResult_t added = Add(std::move(call), comm, stream);
  if (added != ncclSuccess) GroupFail(added);
  const ncclResult_t finished = GroupFinish();
  return grouped ? added : finished;
}

uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

OpCall CallOf(const char* name, OpKind kind, const void* send, void* receive, size_t count,
              ncclDataType_t dtype, int op, int root) {
  OpCall call;
  call.name = name;
  call.op = {.kind = kind, .dtype = dtype, .op = op, .root = root, .count = count};
  call.send = AddressOf(send);
  call.receive = AddressOf(receive);
  return call;
}

}  // namespace
}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Run(CallOf("ncclAllReduce", OpKind::kAllReduce, send, receive, count, dtype, op, 0), comm,
             stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Run(
      CallOf("ncclReduceScatter", OpKind::kReduceScatter, send, receive, count, dtype, op, 0), comm,
      stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t dtype,
                           ncclComm_t comm, cudaStream_t stream) {
  return Run(CallOf("ncclAllGather", OpKind::kAllGather, send, receive, count, dtype, 0, 0), comm,
             stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t dtype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Run(CallOf("ncclReduce", OpKind::kReduce, send, receive, count, dtype, op, root), comm,
             stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t dtype,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return Run(CallOf("ncclBroadcast", OpKind::kBroadcast, send, receive, count, dtype, 0, root),
             comm, stream);
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t dtype,
                          ncclComm_t comm, cudaStream_t stream) {
  return Run(CallOf("ncclAlltoAll", OpKind::kAlltoAll, send, receive, count, dtype, 0, 0), comm,
             stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t dtype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  OpCall call = CallOf("ncclSend", OpKind::kSend, data, nullptr, count, dtype, 0, 0);
  call.peer = peer;
  return Run(std::move(call), comm, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  OpCall call = CallOf("ncclRecv", OpKind::kRecv, nullptr, data, count, dtype, 0, 0);
  call.peer = peer;
  return Run(std::move(call), comm, stream);
}

ncclResult_t ncclGroupStart() {
  if (const int fault = TheCore().Enter("ncclGroupStart", kPlainCall, ""); fault != 0) {
    return static_cast<ncclResult_t>(fault);
  }
  GroupBegin();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (const int fault = TheCore().Enter("ncclGroupEnd", kPlainCall, ""); fault != 0) {
    GroupFail(static_cast<ncclResult_t>(fault));
    GroupFinish();
    return static_cast<ncclResult_t>(fault);
  }
  return GroupFinish();
}

}  // extern "C"

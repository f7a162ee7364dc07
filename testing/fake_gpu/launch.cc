// Launches: makes the calls of one communicator in one group into one operation on streams.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "testing/fake_gpu/comm.h"
#include "testing/fake_gpu/reduction.h"

namespace meshift::fake {
namespace {

using Calls = std::shared_ptr<const std::vector<OpCall>>;

// The results of a launch, as they arrive.
struct Arrivals {
  std::atomic<int> missing = 0;
  std::vector<Payload> results;  // by call
};

// The place of a launch among the calls of its communicator, on this rank.
struct Place {
  std::vector<uint64_t> numbers;  // of each call
  uint64_t splits = 0;            // before it
  int64_t empty_calls = 0;        // before it
};

class LaunchTask : public Task {
 public:
  LaunchTask(Comm* comm, const Item* item, Calls calls, Place place)
      : comm_(comm), item_(item), calls_(std::move(calls)), place_(std::move(place)) {}

  bool Start(const ItemRef& item) override {
    {
      MutexLock lock(comm_->mutex);
      if (comm_->state == CommState::kAborted) return true;  // issued after the abort
      if (comm_->error != ncclSuccess) return false;         // never
    }
    auto arrivals = std::make_shared<Arrivals>();
    arrivals->missing = static_cast<int>(calls_->size()) + 1;
    arrivals->results.resize(calls_->size());
    arrivals_ = arrivals;
    for (size_t i = 0; i < calls_->size(); ++i) Begin(i, item, arrivals);
    if (--arrivals->missing > 0) return false;
    Finish();
    return true;
  }

  void Finish() override {
    for (size_t i = 0; i < calls_->size(); ++i) {
      const OpCall& call = (*calls_)[i];
      const Payload& result = arrivals_->results[i];
      const uint64_t bytes = OutputBytes(call.op, comm_->ranks, comm_->rank);
      if (bytes == 0 || result == nullptr) continue;
      std::memcpy(TheCore().Bytes(call.receive), result->data(), std::min(bytes, result->size()));
    }
    MutexLock lock(comm_->mutex);
    std::erase_if(comm_->unfinished, [&](const ItemRef& item) { return item.get() == item_; });
    if (comm_->error_after > 0) {
      comm_->error_after -= static_cast<int64_t>(calls_->size());
      if (comm_->error_after <= 0) comm_->error = comm_->error_then;
    }
    comm_->changed.notify_all();
  }

 private:
  void Begin(size_t index, const ItemRef& item, const std::shared_ptr<Arrivals>& arrivals) {
    const OpCall& call = (*calls_)[index];
    Message message;
    message.comm = comm_->id;
    message.rank = comm_->rank;
    message.peer = call.peer;
    message.seq = place_.numbers[index];
    message.op = call.op;
    message.b = static_cast<int64_t>(place_.splits);
    message.c = place_.empty_calls;
    message.kind = call.op.kind == OpKind::kSend   ? Message::Kind::kSend
                   : call.op.kind == OpKind::kRecv ? Message::Kind::kRecv
                                                   : Message::Kind::kCollective;
    if (call.op.kind == OpKind::kAllReduce) message.peer = comm_->tuning.trees;
    const uint64_t bytes = InputBytes(call.op, comm_->ranks, comm_->rank);
    const char* input = bytes == 0 ? nullptr : TheCore().Bytes(call.send);
    message.payload = std::make_shared<std::vector<char>>(input, input + bytes);
    if (comm_->ranks == 1 && message.kind == Message::Kind::kCollective) {
      arrivals->results[index] = RunCollective(call.op, {message.payload}, {0})[0];
      --arrivals->missing;
      return;
    }
    Client::Get().Call(comm_->link, std::move(message), [item, arrivals, index](Message answer) {
      arrivals->results[index] = std::move(answer.payload);
      if (--arrivals->missing == 0) TheCore().Complete(item);
    });
  }

  Comm* const comm_;
  const Item* const item_;
  const Calls calls_;
  const Place place_;
  std::shared_ptr<Arrivals> arrivals_;
};

// Gives the calls their places in the order of the communicator. Needs the machine's lock.
std::unique_ptr<Task> MakeTask(Comm* comm, const Calls& calls, Issue& issue) {
  Place place;
  Message launched;
  launched.kind = Message::Kind::kLaunched;
  {
    MutexLock lock(comm->mutex);
    launched.comm = comm->id;
    launched.rank = comm->rank;
    place.splits = comm->splits;
    place.empty_calls = comm->empty_calls;
    for (const OpCall& call : *calls) {
      int src = -1;
      int dst = -1;
      uint64_t number = 0;
      if (call.op.kind == OpKind::kSend || call.op.kind == OpKind::kRecv) {
        src = call.op.kind == OpKind::kSend ? comm->rank : call.peer;
        dst = call.op.kind == OpKind::kSend ? call.peer : comm->rank;
        // A message to the rank itself has two ends here, which are counted separately.
        const bool own_receive = src == dst && call.op.kind == OpKind::kRecv;
        number = comm->messages[{src, own_receive ? -1 : dst}]++;
      } else {
        number = comm->collectives++;
      }
      place.numbers.push_back(number);
      if (!launched.text.empty()) launched.text += '\n';
      launched.text += fmt::format("{} {} {}", src, dst, number);
    }
    // The kernels of one communicator run in sequence, whatever their streams.
    if (comm->last != nullptr) issue.after.push_back(comm->last);
    comm->last = issue.item->done;
    comm->unfinished.push_back(issue.item);
  }
  if (comm->ranks > 1) Client::Get().Call(comm->link, std::move(launched), nullptr);
  return std::make_unique<LaunchTask>(comm, issue.item.get(), calls, std::move(place));
}

// All-reduces of up to this size use trees.
constexpr uint64_t kTreeBytes = 64 << 10;

std::vector<std::pair<std::string, int>> NeedsOf(const Comm& comm,
                                                 const std::vector<OpCall>& calls) {
  std::vector<std::pair<std::string, int>> needs;
  const auto pair = [&](int from, int to) {
    if (from != to) {
      needs.emplace_back(fmt::format("{} to {}", from, to), from == comm.rank ? to : from);
    }
  };
  for (const OpCall& call : calls) {
    switch (call.op.kind) {
      case OpKind::kSend:
        pair(comm.rank, call.peer);
        break;
      case OpKind::kRecv:
        pair(call.peer, comm.rank);
        break;
      case OpKind::kAlltoAll:
        needs.emplace_back("all pairs", -1);
        break;
      case OpKind::kAllReduce:
        needs.emplace_back(
            call.op.count * ElementBytes(call.op.dtype) <= kTreeBytes ? "trees" : "rings", -1);
        break;
      default:
        needs.emplace_back("rings", -1);
    }
  }
  return needs;
}

}  // namespace

PreparedLaunch Prepare(Comm* comm, std::vector<OpCall> calls, std::vector<void*> streams) {
  Work work;
  work.comm = comm;
  work.name = calls.size() == 1 ? calls[0].name : "an NCCL group";
  for (const OpCall& call : calls) {
    if (const uint64_t bytes = InputBytes(call.op, comm->ranks, comm->rank); bytes > 0) {
      work.accesses.push_back({.address = call.send, .bytes = bytes, .write = false});
    }
  }
  for (const OpCall& call : calls) {
    if (const uint64_t bytes = OutputBytes(call.op, comm->ranks, comm->rank); bytes > 0) {
      work.accesses.push_back({.address = call.receive, .bytes = bytes, .write = true});
    }
  }
  const Calls shared = std::make_shared<const std::vector<OpCall>>(std::move(calls));
  work.make = [comm, shared](Issue& issue) { return MakeTask(comm, shared, issue); };
  return {.comm = comm,
          .needs = NeedsOf(*comm, *shared),
          .streams = std::move(streams),
          .work = std::move(work)};
}

ncclResult_t Launch(const std::vector<PreparedLaunch>& launches) {
  // NCCL launches calls of non-blocking communicators on its own thread, captured or not.
  if (!launches[0].comm->blocking) {
    for (const PreparedLaunch& launch : launches) {
      BeginBusy(launch.comm);
      TheCore().Defer(launch.streams);
      MutexLock lock(launch.comm->mutex);
      ++launch.comm->launching;
      std::vector<void*>& deferred = launch.comm->deferred;
      deferred.insert(deferred.end(), launch.streams.begin(), launch.streams.end());
    }
    const auto launched = [launches](bool connected) {
      for (const PreparedLaunch& launch : launches) {
        const bool submitted =
            connected && TheCore().Submit(launch.streams, launch.work, /*deferred=*/true);
        if (connected && !submitted) {
          Fail(launch.comm, ncclUnhandledCudaError, "the stream refused the operation");
        }
      }
      for (const PreparedLaunch& launch : launches) {
        {
          MutexLock lock(launch.comm->mutex);
          --launch.comm->launching;
        }
        EndBusy(launch.comm);
      }
    };
    Connect(launches, [launched](bool connected) {
      LaterAtRandom([launched, connected] { launched(connected); });
    });
    return ncclInProgress;
  }
  if (const ncclResult_t result = BlockUntilLaunchable(launches); result != ncclSuccess) {
    return result;
  }
  for (const PreparedLaunch& launch : launches) {
    if (!TheCore().Submit(launch.streams, launch.work, /*deferred=*/false)) {
      return Fail(launch.comm, ncclUnhandledCudaError, "the stream refused the operation");
    }
  }
  return ncclSuccess;
}

}  // namespace meshift::fake

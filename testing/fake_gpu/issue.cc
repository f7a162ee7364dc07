// The host's side of streams. When the host issues operations, their order and dependencies are
// fixed here, and races are found here.
#include <fmt/format.h>

#include <thread>

#include "testing/fake_gpu/machine.h"

namespace meshift::fake {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

}  // namespace

Machine& Machine::Get() {
  static Machine& machine = *new Machine();
  return machine;
}

Machine::Machine()
    : options(OptionsFromEnvironment()),
      recorder(options.log),
      random(options.seed),
      memory(options.devices, static_cast<uint64_t>(options.memory_mib) << 20) {
  for (int device = 0; device < options.devices; ++device) {
    devices.push_back(std::make_unique<DeviceState>());
    Context& context = devices.back()->primary;
    context.device = device;
    contexts.insert(&context);
  }
}

Stream* Machine::NewStream(Context* context, unsigned flags) {
  if (streams.size() >= sweep_at_) {
    // Reuses streams that had work when they were destroyed.
    const std::vector<Stream*> all(streams.begin(), streams.end());
    for (Stream* stream : all) {
      if (stream->destroyed) Retire(stream);
    }
    sweep_at_ = 2 * streams.size() + 256;
  }
  auto* stream = new Stream();
  dead_handles.erase(stream);
  if (retired_.empty()) {
    stream->id = next_stream_++;
  } else {
    stream->id = retired_.back().first;
    stream->issued = retired_.back().second;
    retired_.pop_back();
  }
  stream->context = context;
  stream->flags = flags;
  streams.insert(stream);
  return stream;
}

void Machine::Retire(Stream* stream) {
  stream->destroyed = true;
  const bool done = stream->tail == nullptr || stream->tail->done;
  if (!done || !HostKnowsDone(stream->tail) || stream->deferred > 0) return;
  retired_.emplace_back(stream->id, stream->issued);
  std::erase(active_, stream);
  streams.erase(stream);
  dead_handles.insert(stream);
  delete stream;
}

void Machine::HostSaw(const PointRef& point) {
  if (point != nullptr) host_clock_.Join(point->clock);
}

bool Machine::HostKnowsDone(const PointRef& point) const {
  return point == nullptr || host_clock_.Covers(point->clock);
}

PointRef Machine::Enqueue(Stream* stream, const Work& work, const std::vector<PointRef>& after) {
  if (stream->deferred > 0) {
    recorder.Violation(fmt::format(
        "{} is issued to stream {} although an NCCL call there still returns ncclInProgress",
        work.name, stream->id));
  }
  auto item = std::make_shared<Item>();
  item->name = work.name;
  item->stream = stream;
  item->done = std::make_shared<Point>();
  stream->clock.Join(host_clock_);
  const auto wait_for = [&](const PointRef& point) {
    if (point == nullptr) return;
    stream->clock.Join(point->clock);
    if (!point->done) item->after.push_back(point);
  };
  for (const PointRef& point : after) wait_for(point);
  // The legacy default stream and the streams that are not "non-blocking" wait for each other.
  if (stream->legacy) {
    for (const Stream* other : streams) {
      if (other != stream && other->context == stream->context && !other->internal &&
          (other->flags & kNonBlocking) == 0) {
        wait_for(other->tail);
      }
    }
  } else if ((stream->flags & kNonBlocking) == 0 && stream->context->legacy != nullptr) {
    wait_for(stream->context->legacy->tail);
  }
  stream->clock.Raise(stream->id, ++stream->issued);
  item->done->clock = stream->clock;
  const Operation who{.stream = stream->id, .number = stream->issued, .name = work.name};
  for (const Access& access : work.accesses) {
    Allocation* allocation = access.bytes == 0 ? nullptr : memory.Find(access.address);
    if (allocation == nullptr) continue;
    const uint64_t begin = access.address - allocation->base;
    const auto race =
        allocation->history.Apply(begin, begin + access.bytes, access.write, who, stream->clock);
    if (!race.has_value()) continue;
    recorder.Violation(fmt::format(
        "race: {} (operation {} of stream {}) {} bytes {} to {} of allocation {:#x} on device {}, "
        "which {} (operation {} of stream {}) {}, and nothing orders the two",
        work.name, who.number, who.stream, access.write ? "writes" : "reads", race->begin,
        race->end, allocation->base, allocation->device, race->earlier.name, race->earlier.number,
        race->earlier.stream, race->earlier_wrote ? "writes" : "reads"));
  }
  if (work.make) {
    Issue issue{.device = stream->context->device, .item = item, .after = {}};
    item->task = work.make(issue);
    for (const PointRef& point : issue.after) {
      if (point != nullptr && !point->done) item->after.push_back(point);
    }
  }
  if (stream->queue.empty()) active_.push_back(stream);
  stream->queue.push_back(item);
  stream->tail = item->done;
  for (; workers_started_ < options.workers; ++workers_started_) {
    std::thread([this] { Worker(); }).detach();
  }
  // Otherwise a worker comes here when its dependencies are done.
  if (stream->queue.size() == 1 && item->after.empty()) work_.notify_one();
  return item->done;
}

bool Machine::Submit(Stream* stream, const Work& work) { return SubmitJoined({stream}, work); }

bool Machine::SubmitJoined(const std::vector<Stream*>& streams, const Work& work) {
  for (const Stream* stream : streams) {
    if (stream->capture != nullptr) return CaptureWork(streams, work);
  }
  std::vector<PointRef> after;
  for (const Stream* stream : streams) {
    if (stream != streams[0] && stream->tail != nullptr) after.push_back(stream->tail);
  }
  const PointRef done = Enqueue(streams[0], work, after);
  for (Stream* stream : streams) {
    if (stream != streams[0]) Enqueue(stream, WaitWork("join"), {done});
  }
  return true;
}

}  // namespace meshift::fake

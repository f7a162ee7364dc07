// Events, and streams that wait for them.
#include <algorithm>

#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {

CUresult FindEvent(const char* function, CUevent handle, Event** result) {
  Machine& machine = TheMachine();
  auto* event = reinterpret_cast<Event*>(handle);
  if (handle == nullptr || !machine.events.contains(event)) {
    machine.recorder.Violation(fmt::format(
        "{}: {}", function,
        machine.dead_handles.contains(event) ? "the event was destroyed" : "no such event"));
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *result = event;
  return CUDA_SUCCESS;
}

namespace {

// The host must not query an event that was recorded in a capture.
CUresult RefuseCaptured(const char* function, const Event& event) {
  if (event.capture == nullptr) return CUDA_SUCCESS;
  const std::string reason = fmt::format("{} of an event that was recorded in a capture", function);
  if (event.capture->invalidated) {
    TheMachine().recorder.Violation(reason);
  } else {
    TheMachine().Invalidate(event.capture, reason);
  }
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult WaitInCapture(Stream* stream, Event* event) {
  Machine& machine = TheMachine();
  if (event->capture == nullptr) {
    machine.Invalidate(
        stream->capture,
        "a captured stream waits for an event that was recorded outside the capture");
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (stream->capture != nullptr && stream->capture != event->capture) {
    machine.Invalidate(stream->capture, "cuStreamWaitEvent joins two captures");
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (event->capture->invalidated) {
    machine.recorder.Violation("cuStreamWaitEvent for an event whose capture has ended");
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The wait adds the stream to the capture.
  if (stream->capture == nullptr) stream->captured_after.clear();
  stream->capture = event->capture;
  stream->capture->streams.insert(stream);
  for (const int node : event->captured_after) {
    std::vector<int>& after = stream->captured_after;
    if (std::find(after.begin(), after.end(), node) == after.end()) after.push_back(node);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

CUresult cuEventCreate(CUevent* result, unsigned int flags) {
  FAKE_ENTER("cuEventCreate", kAllocates, "flags {}", flags);
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  auto* event = new Event();
  event->context = context;
  event->flags = flags;
  machine.events.insert(event);
  machine.dead_handles.erase(event);
  *result = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
  FAKE_ENTER("cuEventDestroy", kAllocates, "{}", static_cast<void*>(handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Event* event = nullptr;
  FAKE_RETURN_IF_ERROR(FindEvent("cuEventDestroy", handle, &event));
  machine.events.erase(event);
  machine.dead_handles.insert(event);
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event_handle, CUstream stream_handle) {
  FAKE_ENTER("cuEventRecord", kPlainCall, "{} {}", static_cast<void*>(event_handle),
             static_cast<void*>(stream_handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Event* event = nullptr;
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindEvent("cuEventRecord", event_handle, &event));
  FAKE_RETURN_IF_ERROR(FindStream("cuEventRecord", stream_handle, &stream));
  if (event->context != stream->context) {
    machine.recorder.Violation("cuEventRecord: event and stream are of two contexts");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture = stream->capture;
    event->captured_after = stream->captured_after;
    return CUDA_SUCCESS;
  }
  event->capture = nullptr;
  event->recorded = machine.Enqueue(stream, WaitWork("event record"));
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle) {
  FAKE_ENTER("cuEventQuery", kPlainCall, "{}", static_cast<void*>(handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Event* event = nullptr;
  FAKE_RETURN_IF_ERROR(FindEvent("cuEventQuery", handle, &event));
  FAKE_RETURN_IF_ERROR(RefuseCaptured("cuEventQuery", *event));
  FAKE_RETURN_IF_ERROR(RefuseInCapture("cuEventQuery"));
  if (event->recorded != nullptr && !event->recorded->done) return CUDA_ERROR_NOT_READY;
  machine.HostSaw(event->recorded);
  return static_cast<CUresult>(event->context->sticky_error);
}

CUresult cuEventSynchronize(CUevent handle) {
  FAKE_ENTER("cuEventSynchronize", kSynchronises, "{}", static_cast<void*>(handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Event* event = nullptr;
  FAKE_RETURN_IF_ERROR(FindEvent("cuEventSynchronize", handle, &event));
  FAKE_RETURN_IF_ERROR(RefuseCaptured("cuEventSynchronize", *event));
  const PointRef point = event->recorded;
  return AwaitPoint(lock, point, event->context);
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  FAKE_ENTER("cuEventElapsedTime", kPlainCall, "");
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Event* start = nullptr;
  Event* end = nullptr;
  FAKE_RETURN_IF_ERROR(FindEvent("cuEventElapsedTime", start_handle, &start));
  FAKE_RETURN_IF_ERROR(FindEvent("cuEventElapsedTime", end_handle, &end));
  FAKE_RETURN_IF_ERROR(RefuseCaptured("cuEventElapsedTime", *start));
  FAKE_RETURN_IF_ERROR(RefuseCaptured("cuEventElapsedTime", *end));
  if (start->recorded == nullptr || end->recorded == nullptr ||
      ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!start->recorded->done || !end->recorded->done) return CUDA_ERROR_NOT_READY;
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->recorded->when - start->recorded->when).count();
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent event_handle, unsigned int flags) {
  FAKE_ENTER("cuStreamWaitEvent", kPlainCall, "{} {}", static_cast<void*>(stream_handle),
             static_cast<void*>(event_handle));
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Event* event = nullptr;
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindEvent("cuStreamWaitEvent", event_handle, &event));
  FAKE_RETURN_IF_ERROR(FindStream("cuStreamWaitEvent", stream_handle, &stream));
  if (event->capture != nullptr || stream->capture != nullptr) return WaitInCapture(stream, event);
  // An event that was never recorded delays nothing.
  if (event->recorded != nullptr) {
    machine.Enqueue(stream, WaitWork("event wait"), {event->recorded});
  }
  return CUDA_SUCCESS;
}

}  // extern "C"

// The first version of the function, which drivers export besides the one in cuda.h.
#undef cuEventElapsedTime
extern "C" CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

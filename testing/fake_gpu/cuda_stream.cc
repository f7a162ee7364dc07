// Streams, host functions, and the begin and end of captures.
#include <algorithm>
#include <map>

#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {
namespace {

// The capture mode for this thread's own unsafe calls.
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
thread_local std::map<Context*, Stream*> per_thread_streams;

Stream* LegacyStream(Context* context) {
  if (context->legacy == nullptr) {
    context->legacy = TheMachine().NewStream(context, 0);
    context->legacy->legacy = true;
  }
  return context->legacy;
}

CUresult CreateStream(CUstream* result, unsigned flags) {
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  if (result == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Stream* stream = machine.NewStream(context, flags);
  *result = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

// Refuses queries of a captured or lent stream.
CUresult RefuseQuery(const char* function, Stream* stream, const char* what) {
  Machine& machine = TheMachine();
  if (stream->lent) {
    machine.recorder.Violation(fmt::format("{}: a lent stream is {}", function, what));
  }
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  machine.Invalidate(stream->capture, fmt::format("{} of a stream that is captured", function));
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// Whether the origin has joined every captured node.
bool AllJoined(const Capture& capture) {
  const std::vector<Node>& nodes = capture.graph->nodes;
  std::vector<bool> joined(nodes.size(), false);
  std::vector<int> open = capture.origin->captured_after;
  while (!open.empty()) {
    const auto node = static_cast<size_t>(open.back());
    open.pop_back();
    if (joined[node]) continue;
    joined[node] = true;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return std::all_of(joined.begin(), joined.end(), [](bool one) { return one; });
}

}  // namespace

CUresult FindStream(const char* function, CUstream handle, Stream** result) {
  Machine& machine = TheMachine();
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context* context = CurrentContextOrNull();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle == CU_STREAM_PER_THREAD) {
      Stream*& stream = per_thread_streams[context];
      if (stream == nullptr) stream = machine.NewStream(context, 0);
      *result = stream;
      return static_cast<CUresult>(context->sticky_error);
    }
    if (machine.recorder.Hot()) {
      machine.recorder.Violation(
          fmt::format("{} uses the legacy default stream on the hot path", function));
    }
    for (const CaptureRef& capture : machine.captures) {
      if (capture->invalidated) continue;
      for (const Stream* stream : capture->streams) {
        if (stream->context != context) continue;
        if ((stream->flags & CU_STREAM_NON_BLOCKING) == 0) {
          machine.Invalidate(capture, fmt::format("{} uses the legacy default stream during the "
                                                  "capture of a stream that waits for it",
                                                  function));
          return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        if (capture->thread == Machine::ThreadId()) {
          machine.recorder.Violation(
              fmt::format("{} uses the legacy default stream during a capture", function));
          break;
        }
      }
    }
    *result = LegacyStream(context);
    return static_cast<CUresult>(context->sticky_error);
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!machine.streams.contains(stream) || stream->internal) {
    machine.recorder.Violation(fmt::format(
        "{}: {}", function,
        machine.dead_handles.contains(stream) ? "the stream was destroyed" : "no such stream"));
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->destroyed) {
    machine.recorder.Violation(fmt::format("{}: the stream was destroyed", function));
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *result = stream;
  return static_cast<CUresult>(stream->context->sticky_error);
}

CUresult RefuseInCapture(const char* function) {
  Machine& machine = TheMachine();
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  for (const CaptureRef& capture : machine.captures) {
    if (capture->invalidated) continue;
    const bool mine = capture->thread == Machine::ThreadId();
    if (mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
             : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                   thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
      machine.Invalidate(capture, fmt::format("{} during a stream capture", function));
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

CUresult SubmitChecked(Stream* stream, const Work& work) {
  Machine& machine = TheMachine();
  if (!machine.CheckAccesses(work.name, work.accesses, stream->context->device)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return machine.Submit(stream, work) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult AwaitPoint(MutexLock& lock, const PointRef& point, Context* context) {
  if (!TheMachine().Await(lock, point, context->device)) return CUDA_ERROR_LAUNCH_FAILED;
  return static_cast<CUresult>(context->sticky_error);
}

}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  FAKE_ENTER("cuStreamCreate", kAllocates, "flags {}", flags);
  return CreateStream(stream, flags);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  FAKE_ENTER("cuStreamCreateWithPriority", kAllocates, "flags {} priority {}", flags, priority);
  return CreateStream(stream, flags);
}

CUresult cuStreamDestroy(CUstream handle) {
  FAKE_ENTER("cuStreamDestroy", kAllocates, "{}", static_cast<void*>(handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuStreamDestroy", handle, &stream));
  FAKE_RETURN_IF_ERROR(RefuseQuery("cuStreamDestroy", stream, "destroyed"));
  // Its work continues.
  machine.Retire(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  FAKE_ENTER("cuStreamSynchronize", kSynchronises, "{}", static_cast<void*>(handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuStreamSynchronize", handle, &stream));
  FAKE_RETURN_IF_ERROR(RefuseQuery("cuStreamSynchronize", stream, "synchronised"));
  return AwaitPoint(lock, stream->tail, stream->context);
}

CUresult cuStreamQuery(CUstream handle) {
  FAKE_ENTER("cuStreamQuery", kPlainCall, "{}", static_cast<void*>(handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuStreamQuery", handle, &stream));
  FAKE_RETURN_IF_ERROR(RefuseQuery("cuStreamQuery", stream, "queried"));
  if (stream->tail != nullptr && !stream->tail->done) return CUDA_ERROR_NOT_READY;
  machine.HostSaw(stream->tail);
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn run, void* data) {
  FAKE_ENTER("cuLaunchHostFunc", kPlainCall, "{}", static_cast<void*>(handle));
  if (run == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuLaunchHostFunc", handle, &stream));
  return SubmitChecked(stream, SimpleWork("cuLaunchHostFunc", {}, [=] { run(data); }));
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  FAKE_ENTER("cuStreamBeginCapture", kPlainCall, "{} mode {}", static_cast<void*>(handle),
             static_cast<int>(mode));
  static uint64_t next_id = 1;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    machine.recorder.Violation("cuStreamBeginCapture of the legacy default stream");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuStreamBeginCapture", handle, &stream));
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = next_id++;
  capture->mode = mode;
  capture->thread = Machine::ThreadId();
  capture->origin = stream;
  capture->graph = std::make_unique<Graph>();
  capture->graph->device = stream->context->device;
  capture->streams.insert(stream);
  stream->capture = capture;
  stream->captured_after.clear();
  machine.captures.push_back(capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  FAKE_ENTER("cuStreamEndCapture", kPlainCall, "{}", static_cast<void*>(handle));
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuStreamEndCapture", handle, &stream));
  const CaptureRef capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    machine.Invalidate(capture, "cuStreamEndCapture of a stream that did not begin the capture");
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != Machine::ThreadId()) {
    machine.Invalidate(capture, "cuStreamEndCapture on another thread than began the capture");
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  for (const Stream* member : capture->streams) {
    if (member->deferred == 0) continue;
    machine.Invalidate(capture,
                       "cuStreamEndCapture although an NCCL call still returns ncclInProgress");
  }
  const bool joined = AllJoined(*capture);
  for (Stream* member : capture->streams) {
    member->capture = nullptr;
    member->captured_after.clear();
  }
  machine.captures.erase(std::find(machine.captures.begin(), machine.captures.end(), capture));
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) {
    machine.Invalidate(capture,
                       "cuStreamEndCapture: captured work of another stream was not joined");
    return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  Graph* result = capture->graph.release();
  capture->invalidated = true;  // no stream can join it any more
  machine.graphs.insert(result);
  *graph = reinterpret_cast<CUgraph>(result);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  FAKE_ENTER("cuStreamIsCapturing", kPlainCall, "{}", static_cast<void*>(handle));
  return cuStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies,
                                const CUgraphEdgeData** edges, size_t* num_dependencies) {
  FAKE_ENTER("cuStreamGetCaptureInfo", kPlainCall, "{}", static_cast<void*>(handle));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    return CurrentContextOrNull() == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  }
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuStreamGetCaptureInfo", handle, &stream));
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  // Nodes are not objects here.
  if (dependencies != nullptr || edges != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *status = stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(stream->capture->graph.get());
  if (num_dependencies != nullptr) *num_dependencies = stream->captured_after.size();
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  FAKE_ENTER("cuThreadExchangeStreamCaptureMode", kPlainCall, "");
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}

}  // extern "C"

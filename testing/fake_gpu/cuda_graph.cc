// Instantiates and launches captured graphs.
#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {
namespace {

CUresult FindGraph(const char* function, CUgraph handle, Graph** result) {
  Machine& machine = TheMachine();
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (handle == nullptr || !machine.graphs.contains(graph)) return CUDA_ERROR_INVALID_VALUE;
  if (graph->destroyed) {
    machine.recorder.Violation(fmt::format("{}: the graph was destroyed", function));
    return CUDA_ERROR_INVALID_VALUE;
  }
  *result = graph;
  return CUDA_SUCCESS;
}

CUresult FindExec(const char* function, CUgraphExec handle, GraphExec** result) {
  Machine& machine = TheMachine();
  auto* exec = reinterpret_cast<GraphExec*>(handle);
  if (handle == nullptr || !machine.execs.contains(exec)) return CUDA_ERROR_INVALID_VALUE;
  if (exec->destroyed) {
    machine.recorder.Violation(fmt::format("{}: the executable graph was destroyed", function));
    return CUDA_ERROR_INVALID_VALUE;
  }
  *result = exec;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

CUresult cuGraphInstantiate(CUgraphExec* result, CUgraph handle,
                            unsigned long long flags) {  // NOLINT: the API's type
  FAKE_ENTER("cuGraphInstantiate", kAllocates, "flags {}", flags);
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Graph* graph = nullptr;
  FAKE_RETURN_IF_ERROR(FindGraph("cuGraphInstantiate", handle, &graph));
  auto* exec = new GraphExec();
  exec->nodes = graph->nodes;
  exec->device = graph->device;
  machine.execs.insert(exec);
  *result = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  FAKE_ENTER("cuGraphLaunch", kPlainCall, "{} {}", static_cast<void*>(handle),
             static_cast<void*>(stream_handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  GraphExec* exec = nullptr;
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindExec("cuGraphLaunch", handle, &exec));
  FAKE_RETURN_IF_ERROR(FindStream("cuGraphLaunch", stream_handle, &stream));
  if (stream->capture != nullptr) {
    machine.Invalidate(stream->capture, "cuGraphLaunch into a capture is not modelled");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (stream->context->device != exec->device) {
    machine.recorder.Violation("cuGraphLaunch on another device than the graph was captured on");
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (const Node& node : exec->nodes) {
    if (!machine.CheckAccesses(node.work.name, node.work.accesses, exec->device)) {
      stream->context->sticky_error = CUDA_ERROR_ILLEGAL_ADDRESS;
      return CUDA_SUCCESS;  // as on a device, the error shows later
    }
  }
  machine.LaunchGraph(exec, stream);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  FAKE_ENTER("cuGraphExecDestroy", kAllocates, "{}", static_cast<void*>(handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  GraphExec* exec = nullptr;
  FAKE_RETURN_IF_ERROR(FindExec("cuGraphExecDestroy", handle, &exec));
  exec->destroyed = true;
  exec->nodes.clear();
  for (const auto& [captured, lane] : exec->lanes) machine.Retire(lane);
  exec->lanes.clear();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  FAKE_ENTER("cuGraphDestroy", kAllocates, "{}", static_cast<void*>(handle));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Graph* graph = nullptr;
  FAKE_RETURN_IF_ERROR(FindGraph("cuGraphDestroy", handle, &graph));
  graph->destroyed = true;
  graph->nodes.clear();
  return CUDA_SUCCESS;
}

}  // extern "C"

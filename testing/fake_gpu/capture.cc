// Stream capture and graph launches. A launch issues the nodes in the order in which they were
// captured, with the captured dependencies, on one hidden stream (lane) for each captured stream.
// So streams, races and collectives work as outside of graphs.
#include <fmt/format.h>

#include <algorithm>

#include "testing/fake_gpu/machine.h"

namespace meshift::fake {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

void AddAll(const std::vector<int>& from, std::vector<int>* to) {
  for (const int node : from) {
    if (std::find(to->begin(), to->end(), node) == to->end()) to->push_back(node);
  }
}

}  // namespace

void Machine::Invalidate(const CaptureRef& capture, const std::string& reason) {
  recorder.Violation(reason);
  capture->invalidated = true;
}

bool Machine::CaptureWork(const std::vector<Stream*>& streams, const Work& work) {
  CaptureRef capture;
  for (const Stream* stream : streams) {
    if (stream->capture != nullptr) capture = stream->capture;
  }
  for (const Stream* stream : streams) {
    if (stream->deferred > 0) {
      Invalidate(capture, fmt::format("{} is captured on stream {} although an NCCL call there "
                                      "still returns ncclInProgress",
                                      work.name, stream->id));
    }
    if (stream->capture == capture) continue;
    Invalidate(capture, fmt::format("{} mixes captured streams with others", work.name));
  }
  if (capture->invalidated) return false;
  Node node{.work = work, .lane = streams[0]->id, .after = {}};
  for (const Stream* stream : streams) AddAll(stream->captured_after, &node.after);
  const int index = static_cast<int>(capture->graph->nodes.size());
  capture->graph->nodes.push_back(std::move(node));
  for (Stream* stream : streams) stream->captured_after = {index};
  return true;
}

PointRef Machine::LaunchGraph(GraphExec* exec, Stream* stream) {
  const PointRef begin = Enqueue(stream, WaitWork("graph begin"), {exec->last});
  std::vector<PointRef> points;
  std::vector<Stream*> used;
  for (const Node& node : exec->nodes) {
    auto lane = std::find_if(exec->lanes.begin(), exec->lanes.end(),
                             [&](const auto& entry) { return entry.first == node.lane; });
    if (lane == exec->lanes.end()) {
      Stream* internal = NewStream(stream->context, kNonBlocking);
      internal->internal = true;
      exec->lanes.emplace_back(node.lane, internal);
      lane = exec->lanes.end() - 1;
    }
    std::vector<PointRef> after = {begin};
    for (const int earlier : node.after) after.push_back(points[static_cast<size_t>(earlier)]);
    points.push_back(Enqueue(lane->second, node.work, after));
    if (std::find(used.begin(), used.end(), lane->second) == used.end()) {
      used.push_back(lane->second);
    }
  }
  std::vector<PointRef> tails;
  for (const Stream* lane : used) tails.push_back(lane->tail);
  exec->last = Enqueue(stream, WaitWork("graph end"), tails);
  return exec->last;
}

}  // namespace meshift::fake

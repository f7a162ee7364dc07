// Primary contexts, streams, events and graphs, guarded by the machine's lock. Handles of the C API
// are pointers to them. An object is kept after its handle is destroyed, so that later use of the
// handle is detected.
#ifndef MESHIFT_TESTING_FAKE_GPU_STREAM_H_
#define MESHIFT_TESTING_FAKE_GPU_STREAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "testing/fake_gpu/work.h"

namespace meshift::fake {

struct Context {
  int device = 0;
  int retained = 0;
  int sticky_error = 0;  // a CUresult that later calls return
  Stream* legacy = nullptr;
};

// One operation of a graph.
struct Node {
  Work work;
  uint32_t lane = 0;       // the stream that it was captured on
  std::vector<int> after;  // earlier nodes
};

struct Graph {
  std::vector<Node> nodes;
  int device = 0;
  bool destroyed = false;
};

// A capture in progress.
struct Capture {
  uint64_t id = 0;
  int mode = 0;  // a CUstreamCaptureMode
  uint64_t thread = 0;
  Stream* origin = nullptr;
  bool invalidated = false;
  std::unique_ptr<Graph> graph;
  std::set<Stream*> streams;
};
using CaptureRef = std::shared_ptr<Capture>;

struct Stream {
  uint32_t id = 0;  // from 1; see Machine::Retire
  Context* context = nullptr;
  unsigned flags = 0;
  bool legacy = false;
  bool internal = false;  // a lane of a graph
  bool destroyed = false;
  bool lent = false;
  int deferred = 0;  // NCCL calls whose work is not on this stream yet
  std::deque<ItemRef> queue;
  uint64_t issued = 0;
  VectorClock clock;
  PointRef tail;  // end of the last issued operation; null: none
  CaptureRef capture;
  std::vector<int> captured_after;  // nodes that the next captured operation depends on
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  PointRef recorded;   // null: never
  CaptureRef capture;  // the capture of the last record, if any
  std::vector<int> captured_after;
};

struct GraphExec {
  std::vector<Node> nodes;
  int device = 0;
  bool destroyed = false;
  std::vector<std::pair<uint32_t, Stream*>> lanes;  // captured stream -> stream that runs it
  PointRef last;                                    // the end of the last launch
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_STREAM_H_

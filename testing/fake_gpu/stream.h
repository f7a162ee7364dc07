// Primary contexts, streams, events and graphs as the machine knows them. All guarded by its lock.
// Handles of the C API are pointers to these, and an object stays when its handle is destroyed, so
// that later use of the handle is noticed.
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
  int sticky_error = 0;  // a CUresult that every later call returns
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
  int deferred = 0;  // NCCL calls that have not put their work here yet
  std::deque<ItemRef> queue;
  uint64_t issued = 0;
  VectorClock clock;
  PointRef tail;  // of what was issued last; null: nothing was
  CaptureRef capture;
  std::vector<int> captured_after;  // nodes that the next captured operation comes after
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  PointRef recorded;   // null: never
  CaptureRef capture;  // of the last record, if that was captured
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

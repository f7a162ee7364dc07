// Captures the work of an engine's stream as a CUDA graph. For tests; every call must succeed.
//
//   CapturedGraph graph(engine);
//   graph.Begin();
//   run->Wait(graph.stream());   // and other work of the graph
//   graph.End();
//   graph.Launch();              // runs all of it; returns when it is done
#ifndef MESHIFT_TESTING_INTERNAL_NCCL_CAPTURED_GRAPH_H_
#define MESHIFT_TESTING_INTERNAL_NCCL_CAPTURED_GRAPH_H_

#include <cuda.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/status.h"
#include "comm/cuda/driver.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"

namespace meshift {

// For use by one thread. Destroy it before the engine.
class CapturedGraph {
 public:
  explicit CapturedGraph(NcclEngine& engine)
      : engine_(engine),
        driver_(CudaDriver::Load().value()),
        stream_(engine.CreateStream().value()),
        handle_(static_cast<CUstream>(engine.HandleOf(*stream_).value())) {}
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() { Drop(); }

  Stream& stream() { return *stream_; }
  void Begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    EXPECT_EQ(Message(driver_->StreamBeginCapture(handle_, mode)), "");
  }
  // Replaces the graph that was captured before.
  void End() {
    Drop();
    EXPECT_EQ(Message(driver_->StreamEndCapture(handle_, &graph_)), "");
    EXPECT_EQ(Message(driver_->GraphInstantiate(&exec_, graph_, 0ULL)), "");
  }
  void Launch() {
    EXPECT_EQ(Message(driver_->GraphLaunch(exec_, handle_)), "");
    EXPECT_EQ(Message(engine_.Synchronize(*stream_)), "");
  }

 private:
  void Drop() {
    if (graph_ == nullptr) return;
    EXPECT_EQ(Message(driver_->GraphExecDestroy(exec_)), "");
    EXPECT_EQ(Message(driver_->GraphDestroy(graph_)), "");
    graph_ = nullptr;
  }

  NcclEngine& engine_;
  const std::shared_ptr<const CudaDriver> driver_;
  const std::unique_ptr<Stream> stream_;
  const CUstream handle_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_NCCL_CAPTURED_GRAPH_H_

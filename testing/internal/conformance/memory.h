// Streams and memory of this process's ranks, for the conformance tests. Each rank's objects are
// used only by its own thread.
//
//   Streams streams(job.size());
//   Buffers send(job.size());
//   send[r].Write(engine, streams(engine, r), Pattern(r, 8));
//   EXPECT_EQ(send[r].Read(engine, streams(engine, r)), Pattern(r, 8));
#ifndef MESHIFT_TESTING_INTERNAL_CONFORMANCE_MEMORY_H_
#define MESHIFT_TESTING_INTERNAL_CONFORMANCE_MEMORY_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/engine.h"
#include "testing/internal/conformance/values.h"

#define MESHIFT_EXPECT_OK(expr) EXPECT_EQ(Message(expr), "")

namespace meshift::conformance {

// Made on first use.
class Streams {
 public:
  explicit Streams(int64_t size) : streams_(size) {}
  Stream& operator()(Engine& engine, int64_t rank) {
    if (streams_[rank] == nullptr) {
      auto stream = engine.CreateStream();
      if (!stream.ok()) {
        ADD_FAILURE() << stream.status();
        return *streams_[rank];
      }
      streams_[rank] = *std::move(stream);
    }
    return *streams_[rank];
  }

 private:
  std::vector<std::unique_ptr<Stream>> streams_;
};

// Memory of a rank's engine, which the host may not be able to access.
class Memory {
 public:
  // Allocates memory for `bytes` and queues a copy to it.
  void Write(Engine& engine, Stream& stream, Bytes8 bytes) {
    host_ = std::move(bytes);
    auto buffer = engine.Allocate(size());
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *std::move(buffer);
    MESHIFT_EXPECT_OK(engine.CopyIn(host_.data(), data(), size(), stream));
  }
  // Reads the bytes back; waits for the stream.
  Bytes8 Read(Engine& engine, Stream& stream) const {
    Bytes8 bytes(host_.size());
    MESHIFT_EXPECT_OK(engine.CopyOut(data(), bytes.data(), size(), stream));
    MESHIFT_EXPECT_OK(engine.Synchronize(stream));
    return bytes;
  }
  uint8_t* data() const {
    return buffer_ == nullptr ? nullptr : static_cast<uint8_t*>(buffer_->data());
  }
  int64_t size() const { return static_cast<int64_t>(host_.size()); }

 private:
  Bytes8 host_;  // the written bytes; must live until the copy is done
  std::unique_ptr<Buffer> buffer_;
};

// Per rank.
using Buffers = std::vector<Memory>;

}  // namespace meshift::conformance

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_MEMORY_H_

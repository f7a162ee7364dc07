#include "tests/gpu/kernel_bandwidth.h"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/cuda/kernels.h"
#include "fmt/format.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "meshift/status.h"
#include "testing/internal/cuda/device_fixture.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// Two buffers and their sizes; all kernels copy between them.
class Meter {
 public:
  Meter(DeviceFixture& device, int64_t bytes, int repetitions, Clock::time_point until)
      : device_(device), bytes_(bytes), repetitions_(repetitions), until_(until) {}

  absl::StatusOr<Bandwidth> Measure() {
    MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr a, device_.Allocate(bytes_));
    MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr b, device_.Allocate(bytes_));
    a_ = reinterpret_cast<char*>(a);
    b_ = reinterpret_cast<char*>(b);
    MESHIFT_RETURN_IF_ERROR(device_.kernels().FillZero(a_, bytes_, device_.stream()));
    MESHIFT_RETURN_IF_ERROR(device_.kernels().FillZero(b_, bytes_, device_.stream()));
    MESHIFT_RETURN_IF_ERROR(Row("cuMemcpyDtoD", 2 * bytes_, [&](CUstream stream) {
      return device_.driver().MemcpyDtoDAsync(b, a, static_cast<size_t>(bytes_), stream);
    }));
    MESHIFT_RETURN_IF_ERROR(Copies());
    MESHIFT_RETURN_IF_ERROR(Transposes());
    MESHIFT_RETURN_IF_ERROR(Casts());
    MESHIFT_RETURN_IF_ERROR(Reductions());
    MESHIFT_RETURN_IF_ERROR(Row("fill f32", bytes_, [&](CUstream stream) {
      return device_.kernels().FillIdentity(a_, bytes_ / 4, DType::kF32, ReduceOp::kMin, stream);
    }));
    return std::move(bandwidth_);
  }

 private:
  using Work = std::function<absl::Status(CUstream)>;

  // `moved`: bytes read plus bytes written.
  absl::Status Row(const std::string& what, int64_t moved, const Work& work) {
    if (Clock::now() >= until_) {
      ++bandwidth_.left_out;
      return absl::OkStatus();
    }
    const auto run = [&] { return work(device_.stream()); };
    MESHIFT_RETURN_IF_ERROR(device_.TimeMs(run).status());  // loads the kernel
    std::vector<float> times;
    for (int i = 0; i < repetitions_ && (i == 0 || Clock::now() < until_); ++i) {
      MESHIFT_ASSIGN_OR_RETURN(const float ms, device_.TimeMs(run));
      times.push_back(ms);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    const double ms = times[times.size() / 2];
    if (ms <= 0) return Internal("{} took {} ms by the device's clock", what, ms);
    const double rate = static_cast<double>(moved) / ms / 1e6;
    std::vector<BandwidthRow>& rows = bandwidth_.rows;
    rows.push_back({what, rate, rows.empty() ? 1 : rate / rows[0].gb_per_s});
    return absl::OkStatus();
  }

  // Boxes whose runs are every second piece of one side.
  absl::Status Copies() {
    for (const int64_t run : {64, 256, 1024, 4096, 65536, 1 << 20}) {
      for (const bool pack : {true, false}) {
        const int64_t rows = bytes_ / 2 / run;
        BoxCopy box{a_, b_, {rows, run}, {2 * run, 1}, {run, 1}};
        if (!pack) std::swap(box.src_strides, box.dst_strides);
        MESHIFT_RETURN_IF_ERROR(
            Row(fmt::format("{}, runs of {} bytes", pack ? "pack" : "unpack", run), 2 * rows * run,
                [&](CUstream stream) {
                  return device_.kernels().CopyBoxes({box}, DType::kU8, stream);
                }));
      }
    }
    // Rows of an odd number of bf16, as uneven shards have.
    for (const int64_t row : {333, 3141, 50257}) {
      const int64_t rows = bytes_ / 4 / (row + 2);
      const BoxCopy box{a_, b_ + 2, {rows, row}, {row + 2, 1}, {row, 1}};
      MESHIFT_RETURN_IF_ERROR(
          Row(fmt::format("pack, rows of {} bf16", row), 4 * rows * row, [&](CUstream stream) {
            return device_.kernels().CopyBoxes({box}, DType::kBF16, stream);
          }));
    }
    const BoxCopy shifted{a_ + 1, b_ + 4, {bytes_ - 16}, {1}, {1}};
    MESHIFT_RETURN_IF_ERROR(
        Row("copy, 3 bytes from alignment", 2 * (bytes_ - 16), [&](CUstream stream) {
          return device_.kernels().CopyBoxes({shifted}, DType::kU8, stream);
        }));
    // One tensor in 64 boxes, like the packed messages of an exchange.
    std::vector<BoxCopy> boxes;
    constexpr int64_t kBoxes = 64;
    const int64_t columns = 4096;
    const int64_t rows = bytes_ / kBoxes / columns;
    for (int64_t i = 0; i < kBoxes; ++i) {
      boxes.push_back({a_ + i * columns,
                       b_ + i * rows * columns,
                       {rows, columns},
                       {kBoxes * columns, 1},
                       {columns, 1}});
    }
    return Row(
        "pack 64 boxes, runs of 4096 bytes", 2 * kBoxes * rows * columns,
        [&](CUstream stream) { return device_.kernels().CopyBoxes(boxes, DType::kU8, stream); });
  }

  absl::Status Transposes() {
    for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64, DType::kC128}) {
      const int64_t size = BitWidth(dtype) / 8;
      int64_t side = 1;
      while (4 * side * side * size <= bytes_) side *= 2;
      const BoxCopy box{a_, b_, {side, side}, {1, side}, {side, 1}};
      MESHIFT_RETURN_IF_ERROR(
          Row(fmt::format("transpose {}", Name(dtype)), 2 * side * side * size,
              [&](CUstream stream) { return device_.kernels().CopyBoxes({box}, dtype, stream); }));
    }
    return absl::OkStatus();
  }

  absl::Status Casts() {
    using enum DType;
    const std::pair<DType, DType> pairs[] = {{kBF16, kF32},   {kF32, kBF16}, {kF16, kF32},
                                             {kF32, kF8E4M3}, {kF32, kF64},  {kI64, kI32}};
    for (const auto& pair : pairs) {
      const DType from = pair.first;  // in clang 14 lambdas cannot capture structured bindings
      const DType to = pair.second;
      const int64_t count = bytes_ * 8 / std::max(BitWidth(from), BitWidth(to));
      MESHIFT_RETURN_IF_ERROR(Row(fmt::format("cast {} to {}", Name(from), Name(to)),
                                  Bytes(from, count) + Bytes(to, count), [&](CUstream stream) {
                                    return device_.kernels().Cast(a_, from, b_, to, count, stream);
                                  }));
    }
    return absl::OkStatus();
  }

  absl::Status Reductions() {
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF8E4M3}) {
      // Fill with ones: a division of zero takes a different path from other numbers.
      MESHIFT_RETURN_IF_ERROR(device_.kernels().FillIdentity(
          a_, bytes_ * 8 / BitWidth(dtype), dtype, ReduceOp::kProduct, device_.stream()));
      for (const int64_t num_inputs : {1, 2, 3, 8}) {
        const int64_t each = bytes_ / num_inputs / 256 * 256;
        const int64_t count = each * 8 / BitWidth(dtype);
        std::vector<const void*> inputs;
        for (int64_t k = 0; k < num_inputs; ++k) inputs.push_back(a_ + k * each);
        const Reduction average{.op = ReduceOp::kAvg, .divisor = num_inputs};
        MESHIFT_RETURN_IF_ERROR(Row(fmt::format("average of {} {}", num_inputs, Name(dtype)),
                                    (num_inputs + 1) * each, [&](CUstream stream) {
                                      return device_.kernels().ReduceBuffers(
                                          inputs, b_, count, dtype, average, stream);
                                    }));
      }
    }
    return absl::OkStatus();
  }

  DeviceFixture& device_;
  int64_t bytes_;
  int repetitions_;
  Clock::time_point until_;
  char* a_ = nullptr;
  char* b_ = nullptr;
  Bandwidth bandwidth_;
};

}  // namespace

absl::StatusOr<Bandwidth> MeasureBandwidth(DeviceFixture& device, int64_t bytes, int repetitions,
                                           std::chrono::steady_clock::time_point until) {
  return Meter(device, bytes, repetitions, until).Measure();
}

}  // namespace meshift

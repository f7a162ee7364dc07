#include "comm/cuda/copy_launches.h"

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/cuda/copy_bodies.h"
#include "comm/cuda/kernel_params.h"
#include "comm/kernels/copy.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift::cuda {
namespace {

using LaunchFunction = absl::FunctionRef<absl::Status(bool, const CopyBoxesParams&)>;

// In bytes: shorter runs are not worth two more boxes for their head and tail.
constexpr int64_t kMinCutRun = 256;
// In bytes: shorter unaligned runs are not worth shifting, since their ends are copied by bytes.
constexpr int64_t kMinShiftedRun = 1024;
// In elements: smaller dims do not fill a tile of the transposing kernel well enough.
constexpr int64_t kMinTransposeSize = 8;

struct Dim {
  int64_t size;
  int64_t src_stride;
  int64_t dst_stride;
};

// A CopyBox of any size; dims innermost first. `unit` and strides are in bytes.
struct Box {
  uint64_t src;
  uint64_t dst;
  int64_t unit;
  absl::InlinedVector<Dim, 8> dims;
  int lanes = 1;
  int64_t run_bytes = 0;
};

int64_t Units(const Box& box) {
  int64_t units = 1;
  for (const Dim& dim : box.dims) units *= dim.size;
  return units;
}

uint64_t AddressOf(const void* data) { return reinterpret_cast<uintptr_t>(data); }

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t TilesOf(const Box& box, int64_t units, bool transpose) {
  if (!transpose) return CeilDiv(units, kTileUnits);
  const int64_t tile = TransposeTile(static_cast<int>(box.unit), box.lanes);
  const int64_t size0 = box.dims[0].size;
  const int64_t size1 = box.dims[1].size;
  return CeilDiv(size0, tile) * CeilDiv(size1, tile) * (units / size0 / size1);
}

// Collects the boxes of one kernel, and launches it when the parameters are full.
class Table {
 public:
  Table(bool transpose, LaunchFunction launch) : transpose_(transpose), launch_(launch) {
    params_.num_boxes = 0;
    params_.num_tiles = 0;
  }

  absl::Status Add(const Box& box) {
    const int64_t units = Units(box);
    if (units > kMaxCopyUnits) return AddParts(box, units);
    const int64_t tiles = TilesOf(box, units, transpose_);
    const int rank = static_cast<int>(box.dims.size());
    if (rank > kMaxCopyDims) {
      return Unimplemented("cannot copy a box of {} dims; the CUDA kernels take at most {}", rank,
                           kMaxCopyDims);
    }
    if (params_.num_boxes == kMaxCopyBoxes || num_dims_ + rank > kMaxCopyDims ||
        params_.num_tiles + tiles > kMaxTiles) {
      MESHIFT_RETURN_IF_ERROR(Flush());
    }
    params_.num_tiles += static_cast<uint32_t>(tiles);
    params_.boxes[params_.num_boxes++] = {.src = box.src,
                                          .dst = box.dst,
                                          .units = static_cast<uint32_t>(units),
                                          .tile_end = params_.num_tiles,
                                          .first_dim = static_cast<uint8_t>(num_dims_),
                                          .rank = static_cast<uint8_t>(rank),
                                          .unit_bytes = static_cast<uint8_t>(box.unit),
                                          .lanes = static_cast<uint8_t>(box.lanes),
                                          .run_bytes = static_cast<uint32_t>(box.run_bytes)};
    for (const Dim& dim : box.dims) {
      const auto size = static_cast<uint32_t>(dim.size);
      params_.dims[num_dims_++] = {size, MagicOf(size), dim.src_stride, dim.dst_stride};
    }
    return absl::OkStatus();
  }

  absl::Status Flush() {
    if (params_.num_boxes == 0) return absl::OkStatus();
    MESHIFT_RETURN_IF_ERROR(launch_(transpose_, params_));
    params_.num_boxes = 0;
    params_.num_tiles = 0;
    num_dims_ = 0;
    return absl::OkStatus();
  }

 private:
  // A kernel's tile index plus the grid size must fit into 32 bits.
  static constexpr int64_t kMaxTiles = int64_t{1} << 30;

  // Cuts a box with too many units along its largest dim. Does not cut along the words of runs,
  // which are few enough; cuts at multiples of `lanes` if possible, else sets lanes to 1.
  absl::Status AddParts(const Box& box, int64_t units) {
    const auto largest =
        std::max_element(box.dims.begin() + (box.run_bytes > 0 ? 1 : 0), box.dims.end(),
                         [](const Dim& a, const Dim& b) { return a.size < b.size; });
    int64_t step = std::max<int64_t>(1, kMaxCopyUnits / (units / largest->size));
    const bool cuts_words = box.lanes > 1 && largest - box.dims.begin() < 2;
    if (cuts_words && step > box.lanes) step -= step % box.lanes;
    for (int64_t i = 0; i < largest->size; i += step) {
      Box part = box;
      if (cuts_words && step % box.lanes != 0) part.lanes = 1;
      part.src += i * largest->src_stride;
      part.dst += i * largest->dst_stride;
      part.dims[largest - box.dims.begin()].size = std::min(step, largest->size - i);
      MESHIFT_RETURN_IF_ERROR(Add(part));
    }
    return absl::OkStatus();
  }

  bool transpose_;
  LaunchFunction launch_;
  int num_dims_ = 0;
  CopyBoxesParams params_;
};

// The largest power of two, up to 16, that divides all values whose bitwise or is `bits`.
int64_t AccessOf(uint64_t bits) {
  return static_cast<int64_t>(std::min<uint64_t>(16, bits & (~bits + 1)));
}

// Cuts copies into boxes, and adds each box to the table of its kernel.
class Cutter {
 public:
  explicit Cutter(LaunchFunction launch) : plain_(false, launch), transposing_(true, launch) {}

  absl::Status Add(const StridedCopy& copy) {
    if (copy.bytes() == 0) return absl::OkStatus();
    const uint64_t src = AddressOf(copy.src());
    const uint64_t dst = AddressOf(copy.dst());
    const int64_t run = copy.run_bytes();
    uint64_t strides = 16;
    for (const int64_t stride : copy.src_strides()) strides |= static_cast<uint64_t>(stride);
    for (const int64_t stride : copy.dst_strides()) strides |= static_cast<uint64_t>(stride);
    const int64_t unit = AccessOf(src | dst | strides | static_cast<uint64_t>(run));
    if (unit == run && Transposes(copy)) return AddTransposing(copy, unit);
    // Bytes up to the next multiple of 16. If source and target have the same skew, only the ends
    // of runs are unaligned.
    const int64_t skew = static_cast<int64_t>((16 - src % 16) % 16);
    if (unit == 16 || run < kMinCutRun || AccessOf(strides) < 16 || (src ^ dst) % 16 != 0) {
      return unit < 4 && run >= kMinShiftedRun ? AddShifted(copy) : AddRuns(copy, 0, run, unit);
    }
    const int64_t body = (run - skew) / 16 * 16;
    MESHIFT_RETURN_IF_ERROR(AddRuns(copy, 0, skew, AccessOf(src | skew)));
    MESHIFT_RETURN_IF_ERROR(AddRuns(copy, skew, body, 16));
    const int64_t rest = run - skew - body;
    return AddRuns(copy, skew + body, rest, AccessOf(16 | static_cast<uint64_t>(rest)));
  }

  absl::Status Flush() {
    MESHIFT_RETURN_IF_ERROR(plain_.Flush());
    return transposing_.Flush();
  }

 private:
  // The dim, other than the target's innermost, that is contiguous in the source; -1: none.
  static int DenseInSource(const StridedCopy& copy) {
    const int last = static_cast<int>(copy.shape().size()) - 1;
    for (int d = 0; d < last; ++d) {
      if (copy.src_strides()[d] == copy.run_bytes()) return d;
    }
    return -1;
  }

  static bool Transposes(const StridedCopy& copy) {
    const int dense = DenseInSource(copy);
    return dense >= 0 && copy.dst_strides().back() == copy.run_bytes() &&
           copy.shape().back() >= kMinTransposeSize && copy.shape()[dense] >= kMinTransposeSize;
  }

  // The elements per access: 4 / unit if source and target allow words of 4 bytes along their
  // contiguous dims, else 1.
  static int TransposedLanes(const StridedCopy& copy, int dense, int64_t unit) {
    const int last = static_cast<int>(copy.shape().size()) - 1;
    uint64_t bits = AddressOf(copy.src()) | AddressOf(copy.dst()) |
                    static_cast<uint64_t>(copy.shape()[dense] * unit) |
                    static_cast<uint64_t>(copy.shape()[last] * unit);
    for (int d = 0; d <= last; ++d) {
      if (d != dense) bits |= static_cast<uint64_t>(copy.src_strides()[d]);
      if (d != last) bits |= static_cast<uint64_t>(copy.dst_strides()[d]);
    }
    return bits % 4 == 0 && unit < 4 ? static_cast<int>(4 / unit) : 1;
  }

  absl::Status AddTransposing(const StridedCopy& copy, int64_t unit) {
    const int dense = DenseInSource(copy);
    const int last = static_cast<int>(copy.shape().size()) - 1;
    Box box = {AddressOf(copy.src()), AddressOf(copy.dst()), unit, {}};
    box.lanes = TransposedLanes(copy, dense, unit);
    const auto add = [&](int d) {
      box.dims.push_back({copy.shape()[d], copy.src_strides()[d], copy.dst_strides()[d]});
    };
    add(last);
    add(dense);
    for (int d = last - 1; d >= 0; --d) {
      if (d != dense) add(d);
    }
    return transposing_.Add(box);
  }

  // Adds the dims over which the runs repeat, innermost first.
  static void AddDims(const StridedCopy& copy, Box* box) {
    for (int d = static_cast<int>(copy.shape().size()) - 1; d >= 0; --d) {
      box->dims.push_back({copy.shape()[d], copy.src_strides()[d], copy.dst_strides()[d]});
    }
  }

  absl::Status AddShifted(const StridedCopy& copy) {
    for (int64_t begin = 0; begin < copy.run_bytes(); begin += kMaxRunBytes) {
      const int64_t bytes = std::min<int64_t>(kMaxRunBytes, copy.run_bytes() - begin);
      Box box = {AddressOf(copy.src()) + begin, AddressOf(copy.dst()) + begin, 1, {}};
      box.run_bytes = bytes;
      box.dims.push_back({RunUnits(static_cast<uint32_t>(bytes)), 8, 8});
      AddDims(copy, &box);
      MESHIFT_RETURN_IF_ERROR(plain_.Add(box));
    }
    return absl::OkStatus();
  }

  // Copies the bytes [begin, begin + bytes) of each run.
  absl::Status AddRuns(const StridedCopy& copy, int64_t begin, int64_t bytes, int64_t unit) {
    if (bytes == 0) return absl::OkStatus();
    Box box = {AddressOf(copy.src()) + begin, AddressOf(copy.dst()) + begin, unit, {}};
    if (bytes > unit) box.dims.push_back({bytes / unit, unit, unit});
    AddDims(copy, &box);
    return plain_.Add(box);
  }

  Table plain_;
  Table transposing_;
};

}  // namespace

absl::Status ForCopyLaunches(absl::Span<const BoxCopy> copies, DType dtype, LaunchFunction launch) {
  for (const BoxCopy& copy : copies) {
    MESHIFT_RETURN_IF_ERROR(StridedCopy::Create(copy, dtype).status());
  }
  Cutter cutter(launch);
  for (const BoxCopy& copy : copies) {
    MESHIFT_ASSIGN_OR_RETURN(const StridedCopy strided, StridedCopy::Create(copy, dtype));
    MESHIFT_RETURN_IF_ERROR(cutter.Add(strided));
  }
  return cutter.Flush();
}

}  // namespace meshift::cuda

#include "testing/fake_gpu/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/cuda/kernel_params.h"
#include "comm/kernels/cast.h"
#include "comm/kernels/reduce.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift::fake {
namespace {

using cuda::CastParams;
using cuda::CopyBox;
using cuda::CopyBoxesParams;
using cuda::CopyDim;
using cuda::FillParams;
using cuda::ReduceBase;
using cuda::ReduceParams;

bool IsWidth(uint32_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

// Calls visit(source, target, bytes) for each unit of a box; for shifted runs, for each run.
template <typename Visit>
void ForEachPiece(const CopyBoxesParams& params, const CopyBox& box, Visit visit) {
  const bool runs = box.run_bytes > 0;
  const uint32_t pieces = runs ? box.units / cuda::RunUnits(box.run_bytes) : box.units;
  const uint64_t bytes = runs ? box.run_bytes : box.unit_bytes;
  uint32_t index[cuda::kMaxCopyDims] = {};
  uint64_t src = box.src;
  uint64_t dst = box.dst;
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    visit(src, dst, bytes);
    for (int k = runs ? 1 : 0; k < box.rank; ++k) {
      const CopyDim& dim = params.dims[box.first_dim + k];
      src += static_cast<uint64_t>(dim.src_stride);
      dst += static_cast<uint64_t>(dim.dst_stride);
      if (++index[k] < dim.size) break;
      src -= static_cast<uint64_t>(dim.src_stride) * dim.size;
      dst -= static_cast<uint64_t>(dim.dst_stride) * dim.size;
      index[k] = 0;
    }
  }
}

// Adds ranges, sorted and merged where they touch, since strided boxes have many.
void AddMerged(std::vector<Access> ranges, std::vector<Access>* accesses) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Access& a, const Access& b) { return a.address < b.address; });
  for (const Access& range : ranges) {
    if (!accesses->empty() && accesses->back().write == range.write &&
        accesses->back().address <= range.address &&
        range.address <= accesses->back().address + accesses->back().bytes) {
      Access& last = accesses->back();
      last.bytes = std::max(last.address + last.bytes, range.address + range.bytes) - last.address;
    } else {
      accesses->push_back(range);
    }
  }
}

uint64_t TotalBytes(const std::vector<Access>& ranges) {
  uint64_t bytes = 0;
  for (const Access& range : ranges) bytes += range.bytes;
  return bytes;
}

// Whether two sorted lists overlap.
bool AnyCommon(const std::vector<Access>& a, const std::vector<Access>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].address + a[i].bytes <= b[j].address) {
      ++i;
    } else if (b[j].address + b[j].bytes <= a[i].address) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

std::string CheckRuns(const CopyBoxesParams& params, const CopyBox& box) {
  if (box.run_bytes == 0) return "";
  if (box.run_bytes > cuda::kMaxRunBytes) return fmt::format("runs of {} bytes", box.run_bytes);
  if (box.rank == 0 || params.dims[box.first_dim].size != cuda::RunUnits(box.run_bytes)) {
    return fmt::format("runs of {} bytes in other words than theirs", box.run_bytes);
  }
  return "";
}

std::string CheckLanes(const CopyBoxesParams& params, const CopyBox& box) {
  if (box.run_bytes != 0) return "runs to transpose";
  if (box.rank < 2) return "a box to transpose with fewer than two dims";
  if (box.lanes == 1) return "";
  const CopyDim* dims = params.dims + box.first_dim;
  bool ok = box.lanes * box.unit_bytes == 4 && box.src % 4 == 0 && box.dst % 4 == 0 &&
            dims[0].size % box.lanes == 0 && dims[1].size % box.lanes == 0 &&
            dims[0].dst_stride == box.unit_bytes && dims[1].src_stride == box.unit_bytes;
  for (int k = 0; k < box.rank; ++k) {
    ok = ok && (k == 1 || dims[k].src_stride % 4 == 0) && (k == 0 || dims[k].dst_stride % 4 == 0);
  }
  return ok ? "" : fmt::format("{} lanes where words of 4 bytes do not fit", box.lanes);
}

template <bool kTranspose>
std::string DescribeCopy(const void* raw, std::vector<Access>* accesses) {
  const auto& params = *static_cast<const CopyBoxesParams*>(raw);
  if (params.num_boxes > cuda::kMaxCopyBoxes) return "too many boxes";
  uint64_t tiles = 0;
  std::vector<Access> reads;
  std::vector<Access> writes;
  for (uint32_t b = 0; b < params.num_boxes; ++b) {
    const CopyBox& box = params.boxes[b];
    if (box.first_dim + box.rank > cuda::kMaxCopyDims) return "a box's dims are out of range";
    if (!IsWidth(box.unit_bytes)) return fmt::format("units of {} bytes", box.unit_bytes);
    if (box.src % box.unit_bytes != 0 || box.dst % box.unit_bytes != 0) return "unaligned box";
    uint64_t units = 1;
    for (int k = 0; k < box.rank; ++k) {
      const CopyDim& dim = params.dims[box.first_dim + k];
      units *= dim.size;
      if (dim.src_stride % box.unit_bytes != 0 || dim.dst_stride % box.unit_bytes != 0) {
        return "a stride that is not a multiple of the unit";
      }
    }
    if (units != box.units) return fmt::format("{} units for sizes of {}", box.units, units);
    if (std::string wrong = kTranspose ? CheckLanes(params, box) : CheckRuns(params, box);
        !wrong.empty()) {
      return wrong;
    }
    if (kTranspose) {
      const uint64_t first = params.dims[box.first_dim].size;
      const uint64_t second = params.dims[box.first_dim + 1].size;
      const auto tile = static_cast<uint64_t>(cuda::TransposeTile(box.unit_bytes, box.lanes));
      tiles +=
          (first + tile - 1) / tile * ((second + tile - 1) / tile) * (units / (first * second));
    } else {
      tiles += (units + cuda::kTileUnits - 1) / cuda::kTileUnits;
    }
    if (tiles != box.tile_end) return fmt::format("tile_end {} for {} tiles", box.tile_end, tiles);
    ForEachPiece(params, box, [&](uint64_t src, uint64_t dst, uint64_t bytes) {
      const auto extend = [&](std::vector<Access>* ranges, uint64_t at, bool write) {
        if (!ranges->empty() && ranges->back().address + ranges->back().bytes == at) {
          ranges->back().bytes += bytes;
        } else {
          ranges->push_back({.address = at, .bytes = bytes, .write = write});
        }
      };
      extend(&reads, src, false);
      extend(&writes, dst, true);
    });
  }
  if (tiles != params.num_tiles) return fmt::format("{} tiles for {}", params.num_tiles, tiles);
  const uint64_t written = TotalBytes(writes);
  std::vector<Access> merged;
  AddMerged(std::move(writes), &merged);
  // Threads run in any order, so units must not overlap.
  if (TotalBytes(merged) != written) return "two units that are written to one place";
  AddMerged(std::move(reads), accesses);
  if (AnyCommon(*accesses, merged)) return "a place that is both read and written";
  accesses->insert(accesses->end(), merged.begin(), merged.end());
  return "";
}

void RunCopy(const void* raw, const DeviceMemory& memory) {
  const auto& params = *static_cast<const CopyBoxesParams*>(raw);
  for (uint32_t b = 0; b < params.num_boxes; ++b) {
    const CopyBox& box = params.boxes[b];
    ForEachPiece(params, box, [&](uint64_t src, uint64_t dst, uint64_t bytes) {
      std::memcpy(memory.Bytes(dst), memory.Bytes(src), bytes);
    });
  }
}

std::string DescribeFill(const void* raw, std::vector<Access>* accesses) {
  const auto& params = *static_cast<const FillParams*>(raw);
  if (!IsWidth(params.element_bytes)) return fmt::format("{} bytes", params.element_bytes);
  accesses->push_back(
      {.address = params.data, .bytes = params.count * params.element_bytes, .write = true});
  return "";
}

void RunFill(const void* raw, const DeviceMemory& memory) {
  const auto& params = *static_cast<const FillParams*>(raw);
  char* data = memory.Bytes(params.data);
  for (uint64_t i = 0; i < params.count; ++i) {
    std::memcpy(data + i * params.element_bytes, params.element, params.element_bytes);
  }
}

bool IsDType(uint8_t number) { return number < cuda::kNumKernelDTypes; }

uint64_t BytesOf(uint8_t dtype, uint64_t count) {
  return static_cast<uint64_t>(Bytes(static_cast<DType>(dtype), static_cast<int64_t>(count)));
}

bool Aligned(uint64_t address, uint8_t access, uint8_t dtype) {
  if (access == cuda::kAccessVectors) return address % 16 == 0;
  if (access != cuda::kAccessElements) return true;
  const uint64_t element = BytesOf(dtype, 1);
  return address % (IsComplex(static_cast<DType>(dtype)) ? element / 2 : element) == 0;
}

// Whether target and source overlap without being equal: threads run in any order.
bool OverlapsPartly(const Access& source, const Access& target) {
  const bool apart = source.address + source.bytes <= target.address ||
                     target.address + target.bytes <= source.address;
  return !apart && !(source.address == target.address && source.bytes == target.bytes);
}

template <int kFrom>
std::string DescribeCast(const void* raw, std::vector<Access>* accesses) {
  const auto& params = *static_cast<const CastParams*>(raw);
  if (params.src_dtype != kFrom) return "the kernel of another source dtype";
  if (!IsDType(params.dst_dtype) || params.src_dtype == params.dst_dtype) return "the dtypes";
  if (!CastFunctionOf(static_cast<DType>(kFrom), static_cast<DType>(params.dst_dtype)).ok()) {
    return "a cast that does not exist";
  }
  if (!Aligned(params.src, params.access, params.src_dtype) ||
      !Aligned(params.dst, params.access, params.dst_dtype)) {
    return "an address that is not as aligned as `access` says";
  }
  const Access source = {.address = params.src, .bytes = BytesOf(kFrom, params.count)};
  const Access target = {
      .address = params.dst, .bytes = BytesOf(params.dst_dtype, params.count), .write = true};
  if (OverlapsPartly(source, target)) return "a target that overlaps the source";
  accesses->push_back(source);
  accesses->push_back(target);
  return "";
}

void RunCast(const void* raw, const DeviceMemory& memory) {
  const auto& params = *static_cast<const CastParams*>(raw);
  const auto cast =
      CastFunctionOf(static_cast<DType>(params.src_dtype), static_cast<DType>(params.dst_dtype));
  (*cast)(memory.Bytes(params.src), memory.Bytes(params.dst), static_cast<int64_t>(params.count));
}

uint64_t InputOf(const ReduceParams& params, uint32_t k) {
  return params.base.strided != 0 ? params.inputs[0] + k * params.base.input_stride
                                  : params.inputs[k];
}

ReduceSpec SpecOf(const ReduceBase& base) {
  ReduceSpec spec;
  spec.dtype = static_cast<DType>(base.dtype);
  spec.reduction.op = static_cast<ReduceOp>(base.op);
  spec.reduction.divisor = base.divisor;
  spec.reduction.block = base.block;
  return spec;
}

template <int kDType>
std::string DescribeReduce(const void* raw, std::vector<Access>* accesses) {
  const auto& params = *static_cast<const ReduceParams*>(raw);
  const ReduceBase& base = params.base;
  if (base.dtype != kDType && !(base.dtype == 0 && kDType == static_cast<int>(DType::kU8))) {
    return "the kernel of another dtype";
  }
  if (base.num_inputs == 0) return "no inputs";
  if (base.block == 0) return "blocks of no inputs";
  if (base.strided == 0 && base.num_inputs > cuda::kMaxReduceInputs) return "too many inputs";
  const ReduceSpec spec = SpecOf(base);
  if (!CheckReduction(spec.dtype, spec.reduction).ok()) return "a reduction that does not exist";
  const uint64_t bytes = BytesOf(base.dtype, base.count);
  const Access out = {.address = base.out, .bytes = bytes, .write = true};
  for (uint32_t k = 0; k < base.num_inputs; ++k) {
    accesses->push_back({.address = InputOf(params, k), .bytes = bytes});
    if (OverlapsPartly(accesses->back(), out)) return "an output that overlaps an input in part";
    if (!Aligned(InputOf(params, k), base.access, base.dtype)) {
      return "an input that is not as aligned as `access` says";
    }
  }
  if (!Aligned(base.out, base.access, base.dtype)) {
    return "an output that is not as aligned as `access` says";
  }
  accesses->push_back(out);
  return "";
}

void RunReduce(const void* raw, const DeviceMemory& memory) {
  const auto& params = *static_cast<const ReduceParams*>(raw);
  std::vector<const void*> inputs;
  for (uint32_t k = 0; k < params.base.num_inputs; ++k) {
    inputs.push_back(memory.Bytes(InputOf(params, k)));
  }
  Reduce(SpecOf(params.base), inputs, 0, static_cast<int64_t>(params.base.count),
         memory.Bytes(params.base.out));
}

template <int kDType>
void AddDType(std::vector<Kernel>* kernels) {
  if constexpr (kDType < cuda::kNumKernelDTypes) {
    if (const char* name = cuda::kCastEntries[kDType]; name != nullptr) {
      kernels->push_back({name, sizeof(CastParams), &DescribeCast<kDType>, &RunCast});
    }
    // bool uses the kernel of u8.
    if (const char* name = cuda::kReduceEntries[kDType]; name != nullptr && kDType != 0) {
      kernels->push_back({name, sizeof(ReduceParams), &DescribeReduce<kDType>, &RunReduce});
    }
    AddDType<kDType + 1>(kernels);
  }
}

}  // namespace

const std::vector<Kernel>& AllKernels() {
  static const std::vector<Kernel>& kernels = *new std::vector<Kernel>([] {
    std::vector<Kernel> made;
    made.push_back(
        {cuda::kCopyBoxesEntry, sizeof(CopyBoxesParams), &DescribeCopy<false>, &RunCopy});
    made.push_back(
        {cuda::kTransposeBoxesEntry, sizeof(CopyBoxesParams), &DescribeCopy<true>, &RunCopy});
    made.push_back({cuda::kFillEntry, sizeof(FillParams), &DescribeFill, &RunFill});
    AddDType<0>(&made);
    return made;
  }());
  return kernels;
}

const Kernel* FindKernel(const std::string& name) {
  for (const Kernel& kernel : AllKernels()) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

}  // namespace meshift::fake

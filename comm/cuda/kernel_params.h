// What a kernel launch carries: one struct by value, and the names of the entry points. Plain C++
// for the kernels, for their launcher and for whatever stands in for the driver.
//
//   FillParams params = {.data = address, .count = 100, .element_bytes = 4};
//   void* arguments[] = {&params};
//   cuLaunchKernel(function_of(kFillEntry), grid, 1, 1, kThreads, 1, 1, 0, stream, arguments, 0);
//
// Every kernel has blocks of kThreads threads, one dimension, no dynamic shared memory, and any
// number of blocks: results do not depend on the grid. Tables travel in the struct, so a launch
// reads no memory but the data, and can be captured into a graph. Strides are in bytes; addresses
// are device addresses. Dtypes and ops are the numbers of meshift::DType and meshift::ReduceOp.
#ifndef MESHIFT_COMM_CUDA_KERNEL_PARAMS_H_
#define MESHIFT_COMM_CUDA_KERNEL_PARAMS_H_

#include <cstdint>

namespace meshift::cuda {

constexpr int kThreads = 256;

// One dim of a box, counted in units of the box.
struct CopyDim {
  uint32_t size;
  uint32_t magic;  // divides by `size`: see DivideBy in copy_bodies.h
  int64_t src_stride;
  int64_t dst_stride;
};

// For all indices i of the dims dims[first_dim + k], k < rank: unit_bytes bytes go from
// src + sum of i[k] * src_stride[k] to dst + sum of i[k] * dst_stride[k]. Without dims: one unit.
// Both addresses and all strides are multiples of unit_bytes.
//
// Shifted runs, where run_bytes > 0: the other dims give the places of runs of run_bytes bytes, at
// any addresses, and the units are the words of 8 bytes of the target that a run may touch: the
// first dim has RunUnits(run_bytes) of them.
struct CopyBox {
  uint64_t src;
  uint64_t dst;
  uint32_t units;     // product of the sizes, at most kMaxCopyUnits
  uint32_t tile_end;  // tiles of this box and those before it
  uint8_t first_dim;
  uint8_t rank;
  uint8_t unit_bytes;  // 1, 2, 4, 8 or 16
  uint8_t lanes;       // units in an access of the transposing kernel: 1, or 4 / unit_bytes
  uint32_t run_bytes;  // 0: no shifted runs
};
constexpr uint32_t kMaxRunBytes = 1U << 30;
constexpr uint32_t RunUnits(uint32_t run_bytes) { return (run_bytes + 14) / 8; }

constexpr uint32_t kMaxCopyUnits = 1U << 30;
constexpr int kMaxCopyBoxes = 40;
constexpr int kMaxCopyDims = 112;

// Both copying kernels. They differ in what a tile is:
//   kCopyBoxesEntry       kTileUnits units, the first dim running fastest
//   kTransposeBoxesEntry  TransposeTile(unit_bytes, lanes) indices along each of the first two
//   dims;
//                         the first of these is dense in the target, the second in the source;
//                         rank >= 2; no shifted runs. With lanes > 1 the sizes of the two are
//                         multiples of it, and addresses and all other strides of 4
struct CopyBoxesParams {
  uint32_t num_boxes;
  uint32_t num_tiles;  // tile_end of the last box
  CopyBox boxes[kMaxCopyBoxes];
  CopyDim dims[kMaxCopyDims];
};
constexpr int kTileUnits = 4 * kThreads;
constexpr int TransposeTile(int unit_bytes, int lanes) {
  return lanes == 4 ? 128 : (unit_bytes <= 4 ? 64 : 32);
}

// Writes `count` times the first element_bytes bytes of `element` to `data`.
struct FillParams {
  uint64_t data;
  uint64_t count;
  uint8_t element[16];
  uint32_t element_bytes;  // 1, 2, 4, 8 or 16
  uint32_t reserved;
};

// What all addresses of a launch are multiples of.
enum Access : uint8_t {
  kAccessBytes,     // 1
  kAccessElements,  // the bytes of an element (of complex ones: of a component)
  kAccessVectors,   // 16
};

// dst[i] = the cast of src[i] (placement/cast.h) for i < count. Not from a dtype to itself.
struct CastParams {
  uint64_t src;
  uint64_t dst;
  uint64_t count;
  uint8_t src_dtype;
  uint8_t dst_dtype;
  uint8_t access;
  uint8_t reserved[5];
};

// out[i] = the reduction of in_0[i], in_1[i], ... in this order, as comm/kernels/reduce.h says
// (without runs, without a shift; the first `block` inputs, then the next ones, and so on, then
// what comes of these), for i < count. `out` may be one of the inputs.
struct ReduceBase {
  uint64_t out;
  uint64_t count;
  int64_t divisor;  // of an average
  uint64_t input_stride;
  uint32_t num_inputs;  // one or more
  uint32_t block;       // one or more
  uint8_t dtype;
  uint8_t op;
  uint8_t access;
  uint8_t strided;  // input k is at inputs[0] + k * input_stride; else at inputs[k]
  uint8_t reserved[4];
};
constexpr int kMaxReduceInputs = 480;
struct ReduceParams {
  ReduceBase base;
  uint64_t inputs[kMaxReduceInputs];
};

constexpr int kMaxParamBytes = 4096;
static_assert(sizeof(CopyDim) == 24 && sizeof(CopyBox) == 32);
static_assert(sizeof(CopyBoxesParams) == 8 + 32 * kMaxCopyBoxes + 24 * kMaxCopyDims);
static_assert(sizeof(CopyBoxesParams) < kMaxParamBytes);
static_assert(sizeof(FillParams) == 40);
static_assert(sizeof(CastParams) == 32);
static_assert(sizeof(ReduceBase) == 48);
static_assert(sizeof(ReduceParams) == 48 + 8 * kMaxReduceInputs);
static_assert(sizeof(ReduceParams) < kMaxParamBytes);

constexpr const char* kCopyBoxesEntry = "meshift_copy_boxes";            // CopyBoxesParams
constexpr const char* kTransposeBoxesEntry = "meshift_transpose_boxes";  // CopyBoxesParams
constexpr const char* kFillEntry = "meshift_fill";                       // FillParams

constexpr int kNumKernelDTypes = 18;

// CastParams: the kernel that casts from a dtype; f4e2m1 has none.
constexpr const char* kCastEntries[kNumKernelDTypes] = {
    "meshift_cast_bool", "meshift_cast_i8",     "meshift_cast_i16",    "meshift_cast_i32",
    "meshift_cast_i64",  "meshift_cast_u8",     "meshift_cast_u16",    "meshift_cast_u32",
    "meshift_cast_u64",  "meshift_cast_f16",    "meshift_cast_bf16",   "meshift_cast_f32",
    "meshift_cast_f64",  "meshift_cast_f8e4m3", "meshift_cast_f8e5m2", nullptr,
    "meshift_cast_c64",  "meshift_cast_c128"};

// ReduceParams: the kernel of a dtype, for all ops. bool is reduced as u8.
constexpr const char* kReduceEntries[kNumKernelDTypes] = {
    "meshift_reduce_u8",  "meshift_reduce_i8",     "meshift_reduce_i16",    "meshift_reduce_i32",
    "meshift_reduce_i64", "meshift_reduce_u8",     "meshift_reduce_u16",    "meshift_reduce_u32",
    "meshift_reduce_u64", "meshift_reduce_f16",    "meshift_reduce_bf16",   "meshift_reduce_f32",
    "meshift_reduce_f64", "meshift_reduce_f8e4m3", "meshift_reduce_f8e5m2", nullptr,
    "meshift_reduce_c64", "meshift_reduce_c128"};

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_KERNEL_PARAMS_H_

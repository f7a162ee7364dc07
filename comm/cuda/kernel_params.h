// The parameters of each kernel, one struct that is passed by value, and the names of the entry
// points. Plain C++, for the kernels, their launcher, and the tests' stand-in for the driver.
//
//   FillParams params = {.data = address, .count = 100, .element_bytes = 4};
//   void* arguments[] = {&params};
//   cuLaunchKernel(function_of(kFillEntry), grid, 1, 1, kThreads, 1, 1, 0, stream, arguments, 0);
//
// Every kernel has one-dimensional blocks of kThreads threads, no dynamic shared memory, and any
// number of blocks above 0: results do not depend on the grid. The tables of boxes, dims and inputs
// are part of the struct, so a launch reads no memory other than the data, and can be captured into
// a graph. Strides are in bytes, counts in elements; addresses are device addresses. Dtypes and ops
// are the numbers of meshift::DType and meshift::ReduceOp. Kernels check nothing: copy_launches.h
// and element_launches.h make valid parameters. Internal to Meshift.
#ifndef MESHIFT_COMM_CUDA_KERNEL_PARAMS_H_
#define MESHIFT_COMM_CUDA_KERNEL_PARAMS_H_

#include <cstdint>

namespace meshift::cuda {

constexpr int kThreads = 256;  // per block

// One dim of a box; its size is in units of the box.
struct CopyDim {
  uint32_t size;
  uint32_t magic;  // divides by `size`: see DivideBy in copy_bodies.h
  int64_t src_stride;
  int64_t dst_stride;
};

// A box copies, for all indices i of the dims dims[first_dim + k], k < rank, unit_bytes bytes from
// src + sum of i[k] * src_stride[k] to dst + sum of i[k] * dst_stride[k]. Without dims it is one
// unit. Both addresses and all strides are multiples of unit_bytes.
//
// With run_bytes > 0 a box copies shifted runs: contiguous runs of run_bytes bytes at any
// addresses. A unit is then an aligned 8-byte word of the target that a run may touch. The first
// dim runs over the RunUnits(run_bytes) words of a run, the other dims over the runs.
struct CopyBox {
  uint64_t src;
  uint64_t dst;
  uint32_t units;     // product of the sizes, at most kMaxCopyUnits
  uint32_t tile_end;  // number of tiles of this box and all before it
  uint8_t first_dim;
  uint8_t rank;
  uint8_t unit_bytes;  // 1, 2, 4, 8 or 16
  uint8_t lanes;       // units per access of the transposing kernel: 1, or 4 / unit_bytes
  uint32_t run_bytes;  // 0: not shifted runs
};
constexpr uint32_t kMaxRunBytes = 1U << 30;
constexpr uint32_t RunUnits(uint32_t run_bytes) { return (run_bytes + 14) / 8; }

// Limits of one launch: numbers of units stay below 2^31, as DivideBy needs, and the struct below
// kMaxParamBytes.
constexpr uint32_t kMaxCopyUnits = 1U << 30;
constexpr int kMaxCopyBoxes = 40;
constexpr int kMaxCopyDims = 112;

// The parameters of both copying kernels. A tile is the work of one block in one pass:
//   kCopyBoxesEntry       kTileUnits units; the first dim varies fastest
//   kTransposeBoxesEntry  TransposeTile(unit_bytes, lanes) indices along each of the first two dims
//
// For kTransposeBoxesEntry rank >= 2, the first dim is contiguous in the target and the second in
// the source, and no box has shifted runs. If lanes > 1, the sizes of these two dims are multiples
// of lanes, and addresses and all other strides are multiples of 4.
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

// Writes the first element_bytes bytes of `element` to `data`, `count` times.
struct FillParams {
  uint64_t data;
  uint64_t count;
  uint8_t element[16];
  uint32_t element_bytes;  // 1, 2, 4, 8 or 16
  uint32_t reserved;
};

// The alignment of all addresses of a launch, in bytes.
enum Access : uint8_t {
  kAccessBytes,     // 1
  kAccessElements,  // the size of an element; for complex dtypes, of a component
  kAccessVectors,   // 16
};

// dst[i] = the cast of src[i] (placement/cast.h) for i < count. The dtypes differ.
struct CastParams {
  uint64_t src;
  uint64_t dst;
  uint64_t count;
  uint8_t src_dtype;
  uint8_t dst_dtype;
  uint8_t access;
  uint8_t reserved[5];
};

// out[i] = the reduction of in_0[i], in_1[i], ... for i < count, as comm/kernels/reduce.h defines
// it (without runs and shift). Each block of `block` consecutive inputs is reduced in order, then
// the blocks' results in order. `out` may be one of the inputs.
struct ReduceBase {
  uint64_t out;
  uint64_t count;
  int64_t divisor;  // for averages: one or more
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

// CUDA's limit before CUDA 12.1, and on devices before Volta.
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

// The kernel that casts from each dtype, with CastParams, to those that CheckCast allows. f4e2m1
// has none.
constexpr const char* kCastEntries[kNumKernelDTypes] = {
    "meshift_cast_bool", "meshift_cast_i8",     "meshift_cast_i16",    "meshift_cast_i32",
    "meshift_cast_i64",  "meshift_cast_u8",     "meshift_cast_u16",    "meshift_cast_u32",
    "meshift_cast_u64",  "meshift_cast_f16",    "meshift_cast_bf16",   "meshift_cast_f32",
    "meshift_cast_f64",  "meshift_cast_f8e4m3", "meshift_cast_f8e5m2", nullptr,
    "meshift_cast_c64",  "meshift_cast_c128"};

// The kernel that reduces each dtype, with ReduceParams, for all ops of the dtype. bool is reduced
// as u8; f4e2m1 has none.
constexpr const char* kReduceEntries[kNumKernelDTypes] = {
    "meshift_reduce_u8",  "meshift_reduce_i8",     "meshift_reduce_i16",    "meshift_reduce_i32",
    "meshift_reduce_i64", "meshift_reduce_u8",     "meshift_reduce_u16",    "meshift_reduce_u32",
    "meshift_reduce_u64", "meshift_reduce_f16",    "meshift_reduce_bf16",   "meshift_reduce_f32",
    "meshift_reduce_f64", "meshift_reduce_f8e4m3", "meshift_reduce_f8e5m2", nullptr,
    "meshift_reduce_c64", "meshift_reduce_c128"};

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_KERNEL_PARAMS_H_

// Launches with contradictory parameters or bad memory accesses; each is refused and reported once.
#include <cstring>
#include <functional>

#include "comm/cuda/kernel_params.h"
#include "gmock/gmock.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "testing/fake_gpu/test_rank.h"

namespace meshift {
namespace {

using ::testing::HasSubstr;

class LaunchRulesTest : public ::testing::Test {
 protected:
  LaunchRulesTest() { fake_report()->reset(); }
  ~LaunchRulesTest() override { fake_report()->reset(); }

  // Expects that the violations so far contain `text`, and forgets them.
  static void ExpectViolation(const std::string& text) {
    EXPECT_THAT(Violations(), HasSubstr(text));
    fake_report()->reset();
  }

  struct Shape {
    unsigned grid = 1;
    unsigned threads = cuda::kThreads;
    unsigned shared = 0;
  };
  template <typename Params>
  static CUresult Launch(TestRank& r, const char* entry, Params params, const Shape& shape) {
    const uint32_t image = 0xba55ed50;
    CUmodule module = nullptr;
    OK(cuModuleLoadData(&module, &image));
    CUfunction kernel = nullptr;
    OK(cuModuleGetFunction(&kernel, module, entry));
    void* arguments[] = {&params};
    const CUresult result = cuLaunchKernel(kernel, shape.grid, 1, 1, shape.threads, 1, 1,
                                           shape.shared, r.stream, arguments, nullptr);
    OK(cuModuleUnload(module));
    return result;
  }
  template <typename Params>
  static CUresult Launch(TestRank& r, const char* entry, const Params& params) {
    return Launch(r, entry, params, Shape());
  }

  static cuda::FillParams Fill(CUdeviceptr address, uint64_t bytes) {
    cuda::FillParams params = {};
    params.data = address;
    params.count = bytes;
    params.element_bytes = 1;
    return params;
  }
  // Copies 6 elements of 4 bytes, every second one of a source of 48 bytes, to contiguous places:
  // one box.
  static cuda::CopyBoxesParams Copy(CUdeviceptr from, CUdeviceptr to) {
    cuda::CopyBoxesParams params = {};
    params.num_boxes = 1;
    params.num_tiles = 1;
    cuda::CopyBox& box = params.boxes[0];
    box.src = from;
    box.dst = to;
    box.units = 6;
    box.tile_end = 1;
    box.rank = 2;
    box.unit_bytes = 4;
    box.lanes = 1;
    params.dims[0] = {.size = 3, .magic = 0, .src_stride = 8, .dst_stride = 4};
    params.dims[1] = {.size = 2, .magic = 0, .src_stride = 24, .dst_stride = 12};
    return params;
  }
  static cuda::CastParams Cast(CUdeviceptr from, CUdeviceptr to, uint64_t count) {
    cuda::CastParams params = {};
    params.src = from;
    params.dst = to;
    params.count = count;
    params.src_dtype = static_cast<uint8_t>(DType::kF32);
    params.dst_dtype = static_cast<uint8_t>(DType::kI32);
    params.access = cuda::kAccessElements;
    return params;
  }
  // The sum of two adjacent inputs of `count` f32.
  static cuda::ReduceParams Sum(CUdeviceptr inputs, CUdeviceptr out, uint64_t count) {
    cuda::ReduceParams params = {};
    params.base.out = out;
    params.base.count = count;
    params.base.num_inputs = 2;
    params.base.block = 2;
    params.base.dtype = static_cast<uint8_t>(DType::kF32);
    params.base.op = static_cast<uint8_t>(ReduceOp::kSum);
    params.base.access = cuda::kAccessElements;
    params.inputs[0] = inputs;
    params.inputs[1] = inputs + 4 * count;
    return params;
  }
  static constexpr const char* kCastF32 = "meshift_cast_f32";
  static constexpr const char* kReduceF32 = "meshift_reduce_f32";
};

TEST_F(LaunchRulesTest, WhatIsRightIsNot) {
  TestRank r(0, 1);
  const CUdeviceptr a = r.Buffer(48);
  const CUdeviceptr b = r.Buffer(24);
  OK(cuMemsetD8Async(a, 0, 48, r.stream));
  OK(Launch(r, cuda::kCopyBoxesEntry, Copy(a, b)));
  OK(Launch(r, kCastF32, Cast(a, b, 6)));
  OK(Launch(r, kCastF32, Cast(a, a, 12)));  // element by element in its place
  OK(Launch(r, kReduceF32, Sum(a, b, 6)));
  OK(Launch(r, kReduceF32, Sum(a, a, 6)));
  OK(Launch(r, cuda::kFillEntry, Fill(a, 48)));
  EXPECT_EQ(Violations(), "");
  r.Sync();
}

TEST_F(LaunchRulesTest, SizesThatADeviceRefuses) {
  TestRank r(0, 1);
  const cuda::FillParams fill = Fill(r.Buffer(8), 8);
  EXPECT_EQ(Launch(r, cuda::kFillEntry, fill, {.threads = 2048}), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("a size that a device refuses");
  EXPECT_EQ(Launch(r, cuda::kFillEntry, fill, {.grid = 0}), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("a size that a device refuses");
}

TEST_F(LaunchRulesTest, ShapesThatTheKernelIsNotFor) {
  TestRank r(0, 1);
  const cuda::FillParams fill = Fill(r.Buffer(8), 8);
  EXPECT_EQ(Launch(r, cuda::kFillEntry, fill, {.threads = 128}), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("the kernel is for blocks of 256 threads");
  EXPECT_EQ(Launch(r, cuda::kFillEntry, fill, {.shared = 64}), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("no dynamic shared memory");
}

TEST_F(LaunchRulesTest, CopiesThatContradictThemselves) {
  TestRank r(0, 1);
  const CUdeviceptr a = r.Buffer(96);
  const CUdeviceptr b = r.Buffer(96);
  struct Wrong {
    std::function<void(cuda::CopyBoxesParams&)> change;
    const char* text;
    const char* entry = cuda::kCopyBoxesEntry;
  };
  const Wrong wrong[] = {
      {[&](auto& p) { p.boxes[0].dst = a + 16; }, "a place that is both read and written"},
      {[&](auto& p) { p.boxes[0].dst = a; }, "a place that is both read and written"},
      {[](auto& p) { p.dims[1].dst_stride = 8; }, "two units that are written to one place"},
      {[](auto& p) { p.dims[0].dst_stride = 0; }, "two units that are written to one place"},
      {[](auto& p) { p.boxes[0].units = 5; }, "5 units for sizes of 6"},
      {[](auto& p) { p.boxes[0].tile_end = 2; }, "tile_end 2 for 1 tiles"},
      {[](auto& p) { p.num_tiles = 2; }, "2 tiles for 1"},
      {[](auto& p) { p.boxes[0].src += 2; }, "unaligned box"},
      {[](auto& p) { p.dims[0].src_stride = 6; }, "a stride that is not a multiple of the unit"},
      {[](auto& p) { p.boxes[0].unit_bytes = 3; }, "units of 3 bytes"},
      {[](auto& p) { p.boxes[0].first_dim = cuda::kMaxCopyDims - 1; },
       "a box's dims are out of range"},
      {[](auto& p) { p.num_boxes = cuda::kMaxCopyBoxes + 1; }, "too many boxes"},
      {[](auto& p) {
         p.boxes[0].rank = 1;
         p.boxes[0].units = 3;
       },
       "a box to transpose with fewer than two dims", cuda::kTransposeBoxesEntry},
      {[](auto& p) { p.boxes[0].lanes = 2; }, "2 lanes where words of 4 bytes do not fit",
       cuda::kTransposeBoxesEntry},
      {[](auto& p) { p.boxes[0].run_bytes = 20; }, "runs to transpose", cuda::kTransposeBoxesEntry},
      {[](auto& p) { p.boxes[0].run_bytes = 20; }, "runs of 20 bytes in other words than theirs"},
      {[](auto& p) { p.boxes[0].run_bytes = 2000000000; }, "runs of 2000000000 bytes"},
  };
  for (const Wrong& one : wrong) {
    cuda::CopyBoxesParams params = Copy(a, b);
    one.change(params);
    EXPECT_EQ(Launch(r, one.entry, params), CUDA_ERROR_INVALID_VALUE) << one.text;
    ExpectViolation(std::string("wrong parameters: ") + one.text);
  }
}

TEST_F(LaunchRulesTest, FillsCastsAndSumsThatContradictThemselves) {
  TestRank r(0, 1);
  const CUdeviceptr a = r.Buffer(96);
  const CUdeviceptr b = r.Buffer(96);
  const auto refused = [&](CUresult result, const std::string& text) {
    EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE) << text;
    ExpectViolation("wrong parameters: " + text);
  };
  cuda::FillParams fill = Fill(a, 8);
  fill.element_bytes = 5;
  refused(Launch(r, cuda::kFillEntry, fill), "5 bytes");
  refused(Launch(r, kCastF32, Cast(a, a + 4, 6)), "a target that overlaps the source");
  refused(Launch(r, kCastF32, Cast(a + 2, b, 6)), "an address that is not as aligned");
  refused(Launch(r, "meshift_cast_f64", Cast(a, b, 6)), "the kernel of another source dtype");
  cuda::CastParams cast = Cast(a, b, 6);
  cast.dst_dtype = cast.src_dtype;
  refused(Launch(r, kCastF32, cast), "the dtypes");
  refused(Launch(r, kReduceF32, Sum(a, a + 4, 6)), "an output that overlaps an input in part");
  refused(Launch(r, kReduceF32, Sum(a + 1, b, 6)), "an input that is not as aligned");
  refused(Launch(r, "meshift_reduce_f64", Sum(a, b, 6)), "the kernel of another dtype");
  cuda::ReduceParams sum = Sum(a, b, 6);
  sum.base.num_inputs = 0;
  refused(Launch(r, kReduceF32, sum), "no inputs");
  sum.base.num_inputs = cuda::kMaxReduceInputs + 1;
  refused(Launch(r, kReduceF32, sum), "too many inputs");
  sum = Sum(a, b, 6);
  sum.base.block = 0;
  refused(Launch(r, kReduceF32, sum), "blocks of no inputs");
  sum = Sum(a, b, 6);
  sum.base.op = static_cast<uint8_t>(ReduceOp::kXor);
  refused(Launch(r, kReduceF32, sum), "a reduction that does not exist");
}

// A device detects an access outside its memory only when the kernel runs; the context is then
// lost.
TEST_F(LaunchRulesTest, AnIllegalAddressSticks) {
  const auto lost = [](const std::function<CUresult(TestRank&, CUdeviceptr)>& launch,
                       const std::string& text) {
    TestRank r(0, 1);
    CUcontext context = nullptr;
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuCtxSetCurrent(context));
    CUstream stream = nullptr;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr address = 0;
    OK(cuMemAlloc(&address, 47));
    std::swap(r.stream, stream);
    OK(launch(r, address));
    EXPECT_EQ(cuStreamSynchronize(r.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    std::swap(r.stream, stream);
    ExpectViolation(text);
    OK(cuDevicePrimaryCtxRelease(1));
    OK(cuCtxSetCurrent(r.context));
  };
  const std::string there = " bytes at byte 0 of an allocation of 47 bytes";
  lost([](TestRank& r, CUdeviceptr a) { return Launch(r, cuda::kFillEntry, Fill(a, 48)); },
       "meshift_fill writes 48" + there);
  lost([](TestRank& r, CUdeviceptr a) { return Launch(r, kCastF32, Cast(a, a, 12)); },
       "meshift_cast_f32 reads 48" + there);
  lost([](TestRank& r, CUdeviceptr a) { return Launch(r, kReduceF32, Sum(a, a, 6)); },
       "meshift_reduce_f32 reads 24 bytes at byte 24 of an allocation of 47 bytes");
  lost(
      [](TestRank& r, CUdeviceptr a) {
        cuda::CopyBoxesParams params = Copy(a, a + 24);
        params.dims[1].src_stride = 400;
        return Launch(r, cuda::kCopyBoxesEntry, params);
      },
      "meshift_copy_boxes reads");
}

TEST_F(LaunchRulesTest, OfAnotherContext) {
  TestRank r(0, 2);
  const CUdeviceptr a = r.Buffer(8);
  TestRank one(1, 2);
  EXPECT_EQ(Launch(r, cuda::kFillEntry, Fill(a, 8)), CUDA_ERROR_INVALID_HANDLE);
  ExpectViolation("not of one context");
  OK(cuCtxSetCurrent(r.context));
}

}  // namespace
}  // namespace meshift

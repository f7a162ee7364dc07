#include "meshift/dlpack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

class DlpackTest : public testing::Test {
 protected:
  DlpackTest() {
    tensor_.data = memory_;
    tensor_.device.device_type = kDLCPU;
    tensor_.device.device_id = 0;
    tensor_.ndim = 2;
    tensor_.dtype = {kDLFloat, 32, 1};
    tensor_.shape = shape_;
    tensor_.strides = nullptr;
    tensor_.byte_offset = 0;
  }
  std::string Error() const { return FromDlpack(&tensor_).status().ToString(); }

  char memory_[64] = {};
  int64_t shape_[2] = {2, 3};
  int64_t strides_[2] = {1, 2};
  DLTensor tensor_;
};

TEST_F(DlpackTest, NullStridesAreRowMajor) {
  const TensorView view = FromDlpack(&tensor_).value();
  EXPECT_EQ(view.data, memory_);
  EXPECT_EQ(view.ToString(), "f32[2,3]");
  EXPECT_EQ(view.strides, (Shape{3, 1}));
  EXPECT_EQ(view.device, Device{});
}

TEST_F(DlpackTest, StridesAndOffset) {
  tensor_.strides = strides_;
  tensor_.byte_offset = 8;
  const TensorView view = FromDlpack(&tensor_).value();
  EXPECT_EQ(view.data, memory_ + 8);
  EXPECT_EQ(view.strides, (Shape{1, 2}));
}

TEST_F(DlpackTest, Devices) {
  tensor_.device.device_type = kDLCUDA;
  tensor_.device.device_id = 3;
  EXPECT_EQ(FromDlpack(&tensor_)->device, (Device{.kind = Device::Kind::kCuda, .index = 3}));
  tensor_.device.device_id = -1;
  EXPECT_EQ(Error(), "INVALID_ARGUMENT: a DLPack tensor has CUDA device -1, which is negative");
  tensor_.device.device_type = kDLCUDAHost;
  EXPECT_EQ(FromDlpack(&tensor_)->device, Device{});
  tensor_.device.device_type = kDLMetal;
  EXPECT_EQ(Error(), "UNIMPLEMENTED: unsupported DLPack device type 8; expected CPU or CUDA");
}

TEST_F(DlpackTest, ScalarsAndEmptyTensors) {
  tensor_.ndim = 0;
  tensor_.shape = nullptr;
  EXPECT_EQ(FromDlpack(&tensor_)->ToString(), "f32[]");
  tensor_.ndim = 2;
  tensor_.shape = shape_;
  shape_[0] = 0;
  tensor_.data = nullptr;
  tensor_.byte_offset = 16;
  EXPECT_EQ(FromDlpack(&tensor_)->data, nullptr);
}

// Converts the codes, bits and lanes of every dtype, and back.
TEST_F(DlpackTest, EveryDType) {
  struct Known {
    const char* name;
    DLDataType type;
  };
  const Known all[kNumDTypes] = {
      {"bool", {6, 8, 1}}, {"i8", {0, 8, 1}},      {"i16", {0, 16, 1}},    {"i32", {0, 32, 1}},
      {"i64", {0, 64, 1}}, {"u8", {1, 8, 1}},      {"u16", {1, 16, 1}},    {"u32", {1, 32, 1}},
      {"u64", {1, 64, 1}}, {"f16", {2, 16, 1}},    {"bf16", {4, 16, 1}},   {"f32", {2, 32, 1}},
      {"f64", {2, 64, 1}}, {"f8e4m3", {10, 8, 1}}, {"f8e5m2", {12, 8, 1}}, {"f4e2m1", {17, 4, 1}},
      {"c64", {5, 64, 1}}, {"c128", {5, 128, 1}}};
  shape_[1] = 4;
  for (const Known& known : all) {
    tensor_.dtype = known.type;
    const TensorView view = FromDlpack(&tensor_).value();
    EXPECT_EQ(Name(view.dtype), known.name);
    int64_t shape[3] = {-1, -1, -1};
    int64_t strides[3] = {-1, -1, -1};
    DLTensor out;
    ASSERT_TRUE(ToDlpack(view, shape, strides, &out).ok());
    EXPECT_EQ(out.dtype.code, known.type.code);
    EXPECT_EQ(out.dtype.bits, known.type.bits);
    EXPECT_EQ(out.dtype.lanes, 1);
    EXPECT_EQ(out.data, memory_);
    EXPECT_EQ(out.byte_offset, 0);
    EXPECT_EQ(out.ndim, 2);
    EXPECT_EQ(out.shape, shape);
    EXPECT_EQ(out.strides, strides);
    EXPECT_EQ(std::vector<int64_t>(shape, shape + 3), (std::vector<int64_t>{2, 4, -1}));
    EXPECT_EQ(std::vector<int64_t>(strides, strides + 3), (std::vector<int64_t>{4, 1, -1}));
  }
}

TEST_F(DlpackTest, PairsOfF4) {
  tensor_.dtype = {17, 4, 2};
  EXPECT_EQ(FromDlpack(&tensor_)->ToString(), "f4e2m1[2,6]");
  EXPECT_EQ(FromDlpack(&tensor_)->strides, (Shape{6, 1}));
  tensor_.strides = strides_;
  EXPECT_EQ(Error(),
            "INVALID_ARGUMENT: a DLPack tensor of pairs of f4e2m1 has stride 2 in its last dim; "
            "it must be 1");
  // 2^62 pairs: the number of elements overflows.
  shape_[0] = shape_[1] = int64_t{1} << 31;
  strides_[0] = 0;
  strides_[1] = 1;
  EXPECT_EQ(Error(), "INVALID_ARGUMENT: a DLPack tensor exceeds the address range");
  tensor_.ndim = 0;
  EXPECT_EQ(Error(), "INVALID_ARGUMENT: a DLPack tensor of pairs of f4e2m1 has no dims");
}

TEST_F(DlpackTest, OtherTypesAreRefused) {
  tensor_.dtype = {2, 32, 4};
  EXPECT_EQ(Error(), "UNIMPLEMENTED: unsupported DLPack dtype: type code 2, 32 bits, 4 lanes");
  tensor_.dtype = {2, 8, 1};
  EXPECT_EQ(Error(), "UNIMPLEMENTED: unsupported DLPack dtype: type code 2, 8 bits, 1 lanes");
  tensor_.dtype = {11, 8, 1};  // another kind of e4m3
  EXPECT_EQ(FromDlpack(&tensor_).status().code(), absl::StatusCode::kUnimplemented);
  tensor_.dtype = {3, 64, 1};
  EXPECT_EQ(FromDlpack(&tensor_).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(DlpackTest, BadTensorsAreRefused) {
  EXPECT_EQ(FromDlpack(nullptr).status().ToString(), "INVALID_ARGUMENT: the DLPack tensor is null");
  shape_[1] = -3;
  EXPECT_EQ(Error(),
            "INVALID_ARGUMENT: a DLPack tensor has size -3 in dim 1; it must be 0 or more");
  shape_[0] = shape_[1] = int64_t{1} << 40;
  EXPECT_EQ(Error(), "INVALID_ARGUMENT: a DLPack tensor exceeds the address range");
  shape_[0] = shape_[1] = 4;
  strides_[0] = INT64_MAX / 2;
  tensor_.strides = strides_;
  EXPECT_EQ(Error(), "INVALID_ARGUMENT: a DLPack tensor exceeds the address range");
  tensor_.shape = nullptr;
  EXPECT_EQ(Error(), "INVALID_ARGUMENT: a DLPack tensor of 2 dims has no shape");
  tensor_.ndim = -1;
  EXPECT_EQ(Error(), "INVALID_ARGUMENT: a DLPack tensor has -1 dims; it must have 0 or more");
}

TEST_F(DlpackTest, OutNeedsRoomAndStrides) {
  TensorView view = FromDlpack(&tensor_).value();
  view.device = {.kind = Device::Kind::kCuda, .index = 1};
  DLTensor out;
  int64_t room[2];
  EXPECT_EQ(ToDlpack(view, absl::MakeSpan(room, 1), room, &out).ToString(),
            "INVALID_ARGUMENT: the tensor f32[2,3] has 2 dims, but there is room for 1 sizes and 2 "
            "strides");
  int64_t more[2];
  ASSERT_TRUE(ToDlpack(view, room, more, &out).ok());
  EXPECT_EQ(out.device.device_type, kDLCUDA);
  EXPECT_EQ(out.device.device_id, 1);
  view.strides.pop_back();
  EXPECT_EQ(ToDlpack(view, room, more, &out).ToString(),
            "INVALID_ARGUMENT: the tensor f32[2,3]: the number of strides is 1; expected 2, one "
            "for each dim");
}

}  // namespace
}  // namespace meshift

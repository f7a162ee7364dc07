#include "comm/redistribution/view_check.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "base/status.h"
#include "comm/program/lowering.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

alignas(16) char memory[256];

TensorView View(int64_t offset, DType dtype, Shape shape, Shape strides) {
  TensorView view = TensorView::Contiguous(memory + offset, dtype, std::move(shape));
  view.strides = std::move(strides);
  return view;
}

int64_t BeginOf(const TensorView& view) {
  return static_cast<int64_t>(RangeOf(view).begin - reinterpret_cast<uintptr_t>(memory));
}
int64_t EndOf(const TensorView& view) {
  return static_cast<int64_t>(RangeOf(view).end - reinterpret_cast<uintptr_t>(memory));
}

TEST(ViewCheck, RangesReachFromTheLowestToTheHighestByte) {
  const TensorView columns = View(16, DType::kF32, {2, 3}, {1, 8});
  EXPECT_EQ(BeginOf(columns), 16);
  EXPECT_EQ(EndOf(columns), 16 + (1 + 2 * 8 + 1) * 4);
  const TensorView backwards = View(64, DType::kF64, {3}, {-2});
  EXPECT_EQ(BeginOf(backwards), 64 - 2 * 2 * 8);
  EXPECT_EQ(EndOf(backwards), 64 + 8);
  const TensorView packed = View(8, DType::kF4E2M1, {2, 4}, {6, 1});
  EXPECT_EQ(BeginOf(packed), 8);
  EXPECT_EQ(EndOf(packed), 8 + (6 + 4) / 2);
  const TensorView empty = View(8, DType::kF32, {0, 4}, {1, 1});
  EXPECT_FALSE(RangeOf(empty).Overlaps({0, UINTPTR_MAX}));
  // The highest address.
  const TensorView far = View(0, DType::kC128, {2}, {int64_t{1} << 57});
  EXPECT_EQ(EndOf(far), (int64_t{1} << 61) + 16);
}

TEST(ViewCheck, ContiguousTensorsApartAreLoweredAsPlanned) {
  const TensorView source = View(0, DType::kF32, {4, 1, 2}, {2, 77, 1});
  const TensorView target = View(32, DType::kF32, {4}, {1});
  EXPECT_EQ(LayoutsOf(source, target, false).value(), LoweringOptions{});
  EXPECT_EQ(LayoutsOf(source, target, true).value(), LoweringOptions{.consume_source = true});
  // The strides of dims of size 1 do not matter.
  EXPECT_EQ(LayoutsOf(View(0, DType::kF32, {2, 1, 2}, {1, 5, 2}), target, true).value(),
            (LoweringOptions{.source_strides = {1, 0, 2}}));
}

TEST(ViewCheck, OneBufferBeginsAtOneByte) {
  const TensorView whole = View(0, DType::kF32, {8}, {1});
  const TensorView half = View(0, DType::kF32, {4}, {1});
  EXPECT_TRUE(LayoutsOf(whole, half, true).value().one_buffer);
  EXPECT_FALSE(LayoutsOf(whole, half, true).value().consume_source);
  // Element 0 of a tensor with a negative stride is its last element in memory.
  EXPECT_TRUE(LayoutsOf(whole, View(12, DType::kF32, {4}, {-1}), false).value().one_buffer);
  EXPECT_EQ(Message(LayoutsOf(whole, View(4, DType::kF32, {4}, {1}), false).status()),
            "the source and the target overlap, but begin at different addresses");
}

TEST(ViewCheck, TargetsDoNotOverlapThemselves) {
  EXPECT_TRUE(CheckTarget(View(0, DType::kF32, {4, 2}, {1, 4})).ok());
  EXPECT_TRUE(CheckTarget(View(0, DType::kF32, {0, 2}, {0, 0})).ok());
  EXPECT_EQ(Message(CheckTarget(View(0, DType::kF32, {4, 2}, {1, 3}))),
            "elements of the target f32[4,2] with strides (1,3) overlap each other");
  EXPECT_EQ(Message(CheckTarget(
                        View(0, DType::kF32, Shape(9, 6),
                             {289546311528, 189700432462, 153463659930, 260950575246, 200900931384,
                              169333006409, 210200328628, 166868390665, 213240686848})))
                .substr(0, 64),
            "cannot determine in reasonable time whether elements of the targ");
}

TEST(ViewCheck, WorkspacesAreThereLargeEnoughAndAligned) {
  EXPECT_TRUE(CheckWorkspace(memory, 32, 32).ok());
  EXPECT_TRUE(CheckWorkspace(nullptr, 0, 0).ok());
  EXPECT_EQ(Message(CheckWorkspace(memory, 16, 32).status()),
            "the workspace has 16 bytes; the plan needs 32");
  EXPECT_EQ(Message(CheckWorkspace(memory + 8, 32, 32).status()),
            "the workspace is not aligned to 16 bytes");
  EXPECT_EQ(Message(CheckWorkspace(nullptr, 32, 32).status()),
            "the workspace is null; the plan needs 32 bytes");
}

TEST(ViewCheck, PlainTensorsAreRowMajorAndApart) {
  const PlainTensor row(DType::kF32, {2, 4});
  const auto plain = [&](const TensorView& source, const TensorView& target) {
    return ArePlain(source, row, target, row, Device{});
  };
  const TensorView first = View(0, DType::kF32, {2, 4}, {4, 1});
  const TensorView second = View(32, DType::kF32, {2, 4}, {4, 1});
  EXPECT_TRUE(plain(first, second));
  EXPECT_TRUE(plain(second, first));
  EXPECT_FALSE(plain(first, first));
  EXPECT_FALSE(plain(first, View(28, DType::kF32, {2, 4}, {4, 1})));
  EXPECT_FALSE(plain(first, View(32, DType::kI32, {2, 4}, {4, 1})));
  EXPECT_FALSE(plain(first, View(32, DType::kF32, {4, 2}, {2, 1})));
  EXPECT_FALSE(plain(first, View(32, DType::kF32, {2, 4}, {1, 2})));
  EXPECT_FALSE(plain(first, View(32, DType::kF32, {2, 4}, {4})));
  TensorView elsewhere = second;
  elsewhere.device = {Device::Kind::kCuda, 1};
  EXPECT_FALSE(plain(first, elsewhere));
  TensorView also = first;
  also.device = elsewhere.device;
  EXPECT_FALSE(plain(also, elsewhere));
  EXPECT_TRUE(ArePlain(also, row, elsewhere, row, elsewhere.device));
  EXPECT_TRUE(ArePlain(first, row, second, row, elsewhere.device));  // the default device
  EXPECT_FALSE(ArePlain(also, row, elsewhere, row, {Device::Kind::kCuda, 0}));
  TensorView read_only = second;
  read_only.read_only = true;
  EXPECT_FALSE(plain(first, read_only));
  EXPECT_TRUE(plain(read_only, first));
  TensorView null = second;
  null.data = nullptr;
  EXPECT_FALSE(plain(first, null));
  // A tensor without elements needs no memory, and overlaps nothing.
  const PlainTensor nothing(DType::kF32, {0, 4});
  for (const TensorView& empty : {View(4, DType::kF32, {0, 4}, {4, 1}),
                                  TensorView::Contiguous(nullptr, DType::kF32, {0, 4})}) {
    EXPECT_TRUE(ArePlain(first, row, empty, nothing, Device{}));
    EXPECT_TRUE(ArePlain(empty, nothing, first, row, Device{}));
    EXPECT_FALSE(ArePlain(empty, row, first, row, Device{}));
  }
  // Half a byte is rounded up. Tensors that exceed the address range do not pass the fast check.
  EXPECT_EQ(PlainTensor(DType::kF4E2M1, {5}).bytes, 3);
  EXPECT_EQ(PlainTensor(DType::kF32, {}).bytes, 4);
  EXPECT_EQ(PlainTensor(DType::kF32, {2, 0}).bytes, 0);
  EXPECT_EQ(PlainTensor(DType::kF32, {int64_t{1} << 60}).bytes, -1);
}

// Every pair of views that passes the fast check also passes the other checks, with default
// layouts.
TEST(ViewCheck, WhatIsPlainNeedsNoOtherCheck) {
  int found = 0;
  for (const DType dtype : {DType::kF4E2M1, DType::kU8, DType::kF32}) {
    for (const Shape& shape : {Shape{}, Shape{4}, Shape{2, 3}, Shape{3, 1}, Shape{0, 2}}) {
      const PlainTensor plain(dtype, shape);
      for (int64_t at = 0; at < 48; ++at) {
        for (int64_t inner = 0; inner <= 2; ++inner) {
          TensorView source = TensorView::Contiguous(memory, dtype, shape);
          TensorView target = TensorView::Contiguous(memory + at, dtype, shape);
          if (!shape.empty()) target.strides.back() = inner;
          for (const bool swap : {false, true}) {
            if (swap) std::swap(source, target);
            if (!ArePlain(source, plain, target, plain, Device{})) continue;
            ++found;
            EXPECT_TRUE(CheckView("source", source, dtype, shape, 0).ok());
            EXPECT_TRUE(CheckView("target", target, dtype, shape, 0).ok());
            EXPECT_TRUE(CheckTarget(target).ok());
            EXPECT_EQ(LayoutsOf(source, target, false).value(), LoweringOptions{});
          }
        }
      }
    }
  }
  EXPECT_GT(found, 500);
}

}  // namespace
}  // namespace meshift

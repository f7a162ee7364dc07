#include "meshift/tensor_view.h"

#include <gtest/gtest.h>

#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift {
namespace {

TEST(TensorView, ContiguousHasRowMajorStrides) {
  float x = 0;
  const TensorView view = TensorView::Contiguous(&x, DType::kF32, {2, 3, 4});
  EXPECT_EQ(view.strides, (Shape{12, 4, 1}));
  EXPECT_TRUE(view.IsContiguous());
  EXPECT_EQ(view.NumBytes(), 96);
  EXPECT_EQ(view.ToString(), "f32[2,3,4]");
  EXPECT_EQ(view.device, Device());
}

TEST(TensorView, OfRankZeroIsOneElement) {
  const TensorView view = TensorView::Contiguous(nullptr, DType::kBF16, {});
  EXPECT_TRUE(view.IsContiguous());
  EXPECT_EQ(view.NumBytes(), 2);
  EXPECT_EQ(view.ToString(), "bf16[]");
}

TEST(TensorView, PacksFourBitElements) {
  EXPECT_EQ(TensorView::Contiguous(nullptr, DType::kF4E2M1, {3, 4}).NumBytes(), 6);
}

TEST(TensorView, StridesOfOneElementDimsDoNotMatter) {
  TensorView view = TensorView::Contiguous(nullptr, DType::kF32, {2, 1, 4});
  view.strides[1] = 99;
  EXPECT_TRUE(view.IsContiguous());
  view.strides[0] = 5;
  EXPECT_FALSE(view.IsContiguous());
  view.shape[2] = 0;
  EXPECT_TRUE(view.IsContiguous());
}

}  // namespace
}  // namespace meshift

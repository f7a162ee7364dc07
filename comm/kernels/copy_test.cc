#include "comm/kernels/copy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/sharding.h"

namespace meshift {
namespace {

std::string ErrorOf(const BoxCopy& copy, DType dtype = DType::kF32) {
  return Message(StridedCopy::Create(copy, dtype).status());
}

// The reference: copies element by element.
void NaiveCopy(const BoxCopy& copy, int64_t bytes) {
  std::vector<int64_t> index(copy.shape.size(), 0);
  for (int64_t n = NumElements(copy.shape); n > 0; --n) {
    int64_t src = 0;
    int64_t dst = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      src += index[d] * copy.src_strides[d];
      dst += index[d] * copy.dst_strides[d];
    }
    std::memcpy(static_cast<char*>(copy.dst) + dst * bytes,
                static_cast<const char*>(copy.src) + src * bytes, bytes);
    for (int d = static_cast<int>(index.size()) - 1; d >= 0; --d) {
      if (++index[d] < copy.shape[d]) break;
      index[d] = 0;
    }
  }
}

// Strides of a box of `shape` inside a larger tensor, with the dims laid out in any order.
Shape RandomStrides(const Shape& shape) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (*rc::gen::arbitrary<bool>()) std::reverse(order.begin(), order.end());
  Shape strides(shape.size(), 0);
  int64_t stride = *rc::gen::inRange<int64_t>(1, 3);
  for (const int d : order) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1) + *rc::gen::element<int64_t>(0, 0, 1);
  }
  return strides;
}

int64_t Extent(const Shape& shape, const Shape& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < shape.size(); ++d) last += std::max<int64_t>(shape[d] - 1, 0) * strides[d];
  return last + 1;
}

RC_GTEST_PROP(StridedCopy, CopiesAsElementByElement, ()) {
  const DType dtype =
      *rc::gen::element(DType::kU8, DType::kBF16, DType::kF32, DType::kC64, DType::kC128);
  const int64_t bytes = BitWidth(dtype) / 8;
  BoxCopy copy;
  const int rank = *rc::gen::inRange(0, 5);
  for (int d = 0; d < rank; ++d) copy.shape.push_back(*rc::gen::inRange<int64_t>(0, 6));
  copy.src_strides = RandomStrides(copy.shape);
  copy.dst_strides = RandomStrides(copy.shape);
  std::vector<uint8_t> source(Extent(copy.shape, copy.src_strides) * bytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 37 + i / 256);
  std::vector<uint8_t> expected(Extent(copy.shape, copy.dst_strides) * bytes, 0xee);
  std::vector<uint8_t> actual = expected;
  copy.src = source.data();
  copy.dst = expected.data();
  NaiveCopy(copy, bytes);
  copy.dst = actual.data();
  const auto ready = StridedCopy::Create(copy, dtype);
  RC_ASSERT(ready.ok());
  RC_ASSERT(ready->bytes() == NumElements(copy.shape) * bytes);
  const int64_t cut = *rc::gen::inRange<int64_t>(0, ready->units() + 1);
  ready->ExecuteUnits(cut, ready->units());
  ready->ExecuteUnits(0, cut);
  RC_ASSERT(actual == expected);
}

// Boxes that reach every inner loop: runs of all lengths, transposed planes, and, above 4 MiB,
// non-temporal stores.
TEST(StridedCopy, InnerLoopsCopyAsElementByElement) {
  struct Case {
    Shape shape;
    Shape src_strides;
    Shape dst_strides;
    int64_t misalignment;
  };
  std::vector<Case> cases;
  for (int64_t run = 1; run < 300; run += run < 70 ? 1 : 13) {
    cases.push_back({{9, run}, {run + 5, 1}, {run, 1}, run % 16});
  }
  for (const int64_t size : {3, 16, 63, 64, 65, 130}) {
    cases.push_back({{3, size, 70}, {70 * size, 1, size}, {70 * size, 70, 1}, 0});
    cases.push_back({{size, 3, 70}, {1, 70 * size, size}, {210, 70, 1}, 1});
  }
  for (const int64_t run : {128, 1000, 1024, 5000}) {
    const int64_t count = (5 << 20) / run;
    for (const int64_t misalignment : {0, 3, 32}) {
      cases.push_back({{count, run}, {run + 64, 1}, {run, 1}, misalignment});
      cases.push_back({{count, run}, {run, 1}, {run + 64, 1}, misalignment});
    }
  }
  for (const int64_t misalignment : {0, 3, 32}) {
    for (const int64_t run : {5 << 20, (5 << 20) + 13}) {
      cases.push_back({{run}, {1}, {1}, misalignment});
    }
  }
  std::vector<uint8_t> source(Extent({6000000}, {2}) * 16);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 37 + i / 256);
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64, DType::kC128}) {
    const int64_t bytes = BitWidth(dtype) / 8;
    for (const Case& c : cases) {
      if (NumElements(c.shape) > 1 << 20 && bytes != 1) continue;
      std::vector<uint8_t> expected(Extent(c.shape, c.dst_strides) * bytes + c.misalignment + 64,
                                    0xee);
      std::vector<uint8_t> actual = expected;
      const int64_t at = -reinterpret_cast<intptr_t>(actual.data()) & 63;
      BoxCopy copy{source.data() + c.misalignment, expected.data() + c.misalignment, c.shape,
                   c.src_strides, c.dst_strides};
      if (c.misalignment == 0) copy.dst = expected.data() + at;
      NaiveCopy(copy, bytes);
      copy.dst = actual.data() + (c.misalignment == 0 ? at : c.misalignment);
      StridedCopy::Create(copy, dtype)->Execute();
      ASSERT_EQ(std::memcmp(actual.data(), expected.data(), actual.size()), 0)
          << bytes << "-byte elements, run " << c.shape.back();
    }
  }
}

TEST(StridedCopy, MergesContiguousDims) {
  std::vector<float> from(60);
  std::iota(from.begin(), from.end(), 0.0F);
  std::vector<float> to(60);
  const BoxCopy copy{from.data(), to.data(), {3, 4, 5}, {20, 5, 1}, {20, 5, 1}};
  const auto ready = StridedCopy::Create(copy, DType::kF32);
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(ready->units(), 240);  // one run of bytes
  ready->Execute();
  EXPECT_EQ(from, to);
}

TEST(StridedCopy, MergesDimsInAnyOrder) {
  std::vector<float> from(60);
  std::iota(from.begin(), from.end(), 0.0F);
  std::vector<float> to(60);
  // Column-major on both sides.
  const BoxCopy copy{from.data(), to.data(), {3, 1, 4, 5}, {1, 9, 3, 12}, {1, 7, 3, 12}};
  const auto ready = StridedCopy::Create(copy, DType::kF32);
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(ready->run_bytes(), 240);
  EXPECT_TRUE(ready->shape().empty());
  ready->Execute();
  EXPECT_EQ(from, to);
}

TEST(StridedCopy, IsMadeAnewInPlace) {
  const std::vector<float> from = {0, 1, 2, 3, 4, 5};
  std::vector<float> to(6);
  StridedCopy copy;
  copy.Execute();
  ASSERT_TRUE(copy.Reset({from.data(), to.data(), {3, 2}, {2, 1}, {1, 3}}, DType::kF32).ok());
  copy.Execute();
  EXPECT_EQ(to, (std::vector<float>{0, 2, 4, 1, 3, 5}));
  ASSERT_TRUE(copy.Reset({from.data(), to.data(), {2}, {1}, {1}}, DType::kF32).ok());
  EXPECT_EQ(copy.bytes(), 8);
  EXPECT_TRUE(copy.shape().empty());
  copy.Execute();
  EXPECT_EQ(to, (std::vector<float>{0, 1, 4, 1, 3, 5}));
  ASSERT_TRUE(copy.Reset({nullptr, nullptr, {0}, {1}, {1}}, DType::kF32).ok());
  EXPECT_EQ(copy.bytes(), 0);
  EXPECT_EQ(copy.units(), 0);
  copy.Execute();
}

TEST(StridedCopy, IsPlacedAnywhere) {
  const std::vector<float> from = {0, 1, 2, 3, 4, 5, 6};
  std::vector<float> to(6);
  const auto chars = [](const float* at) { return reinterpret_cast<const char*>(at); };
  StridedCopy copy;
  ASSERT_TRUE(copy.SetLayout({3}, {2}, {1}, DType::kF32).ok());
  EXPECT_EQ(copy.src(), nullptr);
  EXPECT_EQ(copy.bytes(), 12);
  for (const int place : {0, 1}) {
    copy.SetAddresses(chars(&from[place]), reinterpret_cast<char*>(&to[3 * place]));
    copy.Execute();
  }
  EXPECT_EQ(to, (std::vector<float>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(Message(copy.SetLayout({3}, {2, 1}, {1}, DType::kF32)),
            "a copy of a rank-1 box has 2 source and 1 target strides");
}

TEST(StridedCopy, CopiesPackedElements) {
  // The right half of each row of a 4 x 8 tensor of four-bit elements.
  const std::vector<uint8_t> from = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  std::vector<uint8_t> to(8);
  const BoxCopy copy{from.data() + 2, to.data(), {4, 4}, {8, 1}, {4, 1}};
  const auto ready = StridedCopy::Create(copy, DType::kF4E2M1);
  ASSERT_TRUE(ready.ok());
  ready->Execute();
  EXPECT_EQ(to, (std::vector<uint8_t>{2, 3, 6, 7, 10, 11, 14, 15}));
}

TEST(StridedCopy, RefusesToCutAByte) {
  uint8_t from[8] = {};
  uint8_t to[8] = {};
  const std::string error = "a copy of f4e2m1 elements would cut a byte, which holds two";
  EXPECT_EQ(ErrorOf({from, to, {3}, {1}, {1}}, DType::kF4E2M1), error);
  EXPECT_EQ(ErrorOf({from, to, {2, 2}, {3, 1}, {2, 1}}, DType::kF4E2M1), error);
  EXPECT_EQ(ErrorOf({from, to, {4}, {2}, {1}}, DType::kF4E2M1), error);
}

TEST(StridedCopy, RefusesBadArguments) {
  float x = 0;
  EXPECT_EQ(ErrorOf({&x, &x, {1, 2}, {1}, {2, 1}}),
            "a copy of a rank-2 box has 1 source and 2 target strides");
  EXPECT_EQ(ErrorOf({&x, &x, {-1}, {1}, {1}}), "size -1 of a box to copy is negative");
  EXPECT_EQ(ErrorOf({nullptr, &x, {2}, {1}, {1}}), "the source of a copy of 2 elements is null");
  EXPECT_EQ(ErrorOf({&x, nullptr, {}, {}, {}}), "the target of a copy of 1 elements is null");
}

TEST(StridedCopy, TakesNullWhereThereIsNothing) {
  const auto copy = StridedCopy::Create({nullptr, nullptr, {3, 0}, {0, 1}, {0, 1}}, DType::kF32);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->units(), 0);
  copy->Execute();
}

}  // namespace
}  // namespace meshift

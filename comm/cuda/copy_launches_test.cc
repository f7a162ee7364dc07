#include "comm/cuda/copy_launches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/cuda/copy_bodies.h"
#include "comm/cuda/kernel_params.h"
#include "comm/kernels/copy.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/sharding.h"
#include "testing/internal/cuda/emulator.h"

namespace meshift::cuda {
namespace {

using Random = std::mt19937_64;

int64_t Between(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

// The launches of copies, which the emulator has run on the CPU.
struct Launched {
  int plain = 0;
  int transposing = 0;
  std::vector<CopyBox> boxes;
};

absl::Status CheckTable(const CopyBoxesParams& params) {
  uint32_t end = 0;
  for (uint32_t i = 0; i < params.num_boxes; ++i) {
    const CopyBox& box = params.boxes[i];
    uint64_t units = 1;
    uint64_t bits = box.src | box.dst;
    for (int d = 0; d < box.rank; ++d) {
      const CopyDim& dim = params.dims[box.first_dim + d];
      units *= dim.size;
      bits |= static_cast<uint64_t>(dim.src_stride) | static_cast<uint64_t>(dim.dst_stride);
    }
    if (units != box.units) return Internal("box {} has {} units, not {}", i, box.units, units);
    if (box.run_bytes > 0 && params.dims[box.first_dim].size != RunUnits(box.run_bytes)) {
      return Internal("box {} has other words than its runs", i);
    }
    if (bits % box.unit_bytes != 0) return Internal("box {} is not aligned", i);
    if (box.lanes > 1) {
      uint64_t words = box.src | box.dst;
      for (int d = 0; d < box.rank; ++d) {
        const CopyDim& dim = params.dims[box.first_dim + d];
        if (d < 2) words |= uint64_t{dim.size} * box.unit_bytes;
        if (d != 1) words |= static_cast<uint64_t>(dim.src_stride);
        if (d != 0) words |= static_cast<uint64_t>(dim.dst_stride);
      }
      if (words % 4 != 0) return Internal("box {} has no whole words", i);
    }
    if (box.tile_end <= end) return Internal("box {} has no tile", i);
    end = box.tile_end;
  }
  if (end != params.num_tiles) return Internal("{} tiles, not {}", params.num_tiles, end);
  return absl::OkStatus();
}

absl::Status Emulate(const std::vector<BoxCopy>& copies, DType dtype, uint32_t blocks,
                     Launched* launched) {
  return ForCopyLaunches(copies, dtype, [&](bool transpose, const CopyBoxesParams& params) {
    ++(transpose ? launched->transposing : launched->plain);
    launched->boxes.insert(launched->boxes.end(), params.boxes, params.boxes + params.num_boxes);
    if (absl::Status status = CheckTable(params); !status.ok()) return status;
    return EmulateLaunch(transpose ? kTransposeBoxesEntry : kCopyBoxesEntry,
                         std::min(blocks, params.num_tiles), &params);
  });
}

// Strides in elements of a box of `shape` within a larger tensor whose dims lie in any order.
Shape RandomStrides(Random& random, const Shape& shape, bool packed) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (!packed) std::shuffle(order.begin(), order.end(), random);
  Shape strides(shape.size(), 0);
  int64_t stride = packed || Between(random, 0, 3) > 0 ? 1 : 2;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = stride;
    int64_t room = std::max<int64_t>(shape[*d], 1);
    if (Between(random, 0, 2) == 0) room += Between(random, 1, 5);
    if (packed && stride % 2 != 0) room += room % 2;  // two elements to a byte
    stride *= room;
  }
  return strides;
}

int64_t Extent(const Shape& shape, const Shape& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < shape.size(); ++d) last += std::max<int64_t>(shape[d] - 1, 0) * strides[d];
  return last + 1;
}

// Boxes with their memory: a source, and two targets that are compared byte by byte.
class Boxes {
 public:
  Boxes(Random& random, DType dtype, int count, int64_t max_size) : dtype_(dtype) {
    for (int i = 0; i < count; ++i) Add(random, max_size);
  }

  // The CPU copy and the kernels must give targets with the same bytes.
  void Check(uint32_t blocks, Launched* launched) {
    std::vector<BoxCopy> copies;
    for (size_t i = 0; i < copies_.size(); ++i) {
      BoxCopy copy = copies_[i];
      copy.src = sources_[i].data() + offsets_[i].first;
      copy.dst = expected_[i].data() + offsets_[i].second;
      const auto twin = StridedCopy::Create(copy, dtype_);
      ASSERT_TRUE(twin.ok()) << twin.status();
      twin->Execute();
      copy.dst = actual_[i].data() + offsets_[i].second;
      copies.push_back(copy);
    }
    const absl::Status status = Emulate(copies, dtype_, blocks, launched);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(actual_, expected_);
  }

 private:
  void Add(Random& random, int64_t max_size) {
    BoxCopy copy;
    const bool packed = dtype_ == DType::kF4E2M1;
    const int64_t rank = Between(random, packed ? 1 : 0, 5);
    for (int64_t d = 0; d < rank; ++d) {
      const bool large = Between(random, 0, 2) == 0;
      copy.shape.push_back(Between(random, large ? 0 : 1, large ? max_size : 9));
    }
    while (NumElements(copy.shape) > 1 << 16) copy.shape.pop_back();
    if (packed && !copy.shape.empty()) copy.shape.back() += copy.shape.back() % 2;
    copy.src_strides = RandomStrides(random, copy.shape, packed);
    copy.dst_strides = RandomStrides(random, copy.shape, packed);
    const auto bytes = [&](const Shape& strides) {
      return (Extent(copy.shape, strides) * BitWidth(dtype_) + 7) / 8;
    };
    // Elements need not lie at multiples of their size.
    const int64_t src_offset = Between(random, 0, 1) * Between(random, 0, 17);
    const int64_t dst_offset =
        Between(random, 0, 1) == 0 ? src_offset : Between(random, 0, 1) * Between(random, 0, 17);
    offsets_.emplace_back(src_offset, dst_offset);
    sources_.emplace_back(bytes(copy.src_strides) + src_offset + 1);
    for (uint8_t& byte : sources_.back()) byte = static_cast<uint8_t>(random());
    expected_.emplace_back(bytes(copy.dst_strides) + dst_offset + 20, 0xee);
    actual_.emplace_back(expected_.back());
    copies_.push_back(copy);
  }

  DType dtype_;
  std::vector<BoxCopy> copies_;
  std::vector<std::pair<int64_t, int64_t>> offsets_;
  std::vector<std::vector<uint8_t>> sources_;
  std::vector<std::vector<uint8_t>> expected_;
  std::vector<std::vector<uint8_t>> actual_;
};

TEST(CopyLaunches, RandomBoxesAsOnTheCpu) {
  Random random(7);
  Launched launched;
  for (int i = 0; i < 400; ++i) {
    const auto dtype = static_cast<DType>(i % kNumDTypes);
    const auto boxes = static_cast<int>(Between(random, 1, 8));
    Boxes(random, dtype, boxes, i % 4 == 0 ? 4000 : 70)
        .Check(static_cast<uint32_t>(Between(random, 1, 9)), &launched);
    if (HasFatalFailure()) FAIL() << "case " << i << " of " << Name(dtype);
  }
  // Every width of access and both kernels were used.
  EXPECT_GT(launched.plain, 300);
  EXPECT_GT(launched.transposing, 50);
  for (const int unit : {1, 2, 4, 8, 16}) {
    EXPECT_GT(std::count_if(launched.boxes.begin(), launched.boxes.end(),
                            [&](const CopyBox& box) { return box.unit_bytes == unit; }),
              50)
        << unit;
  }
}

TEST(CopyLaunches, ManyBoxesTakeSeveralLaunches) {
  Random random(8);
  Launched launched;
  Boxes(random, DType::kBF16, 300, 20).Check(5, &launched);
  EXPECT_GE(launched.plain, 6);
  EXPECT_GT(launched.boxes.size(), 200U);
}

TEST(CopyLaunches, LongRunsWithOddEndsMoveInWideAccesses) {
  std::vector<uint8_t> from(3001);
  std::vector<uint8_t> to(3001);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
  // A count and offsets that need a head and a tail.
  auto* src = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(from.data()) + 15) / 16 * 16);
  auto* dst = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(to.data()) + 15) / 16 * 16);
  Launched launched;
  const BoxCopy copy{src + 6, dst + 22, {1401}, {1}, {1}};
  ASSERT_TRUE(Emulate({copy}, DType::kBF16, 3, &launched).ok());
  EXPECT_EQ(std::memcmp(src + 6, dst + 22, 2802), 0);
  ASSERT_EQ(launched.boxes.size(), 3U);
  EXPECT_EQ(launched.boxes[0].unit_bytes, 2);
  EXPECT_EQ(launched.boxes[0].units, 5U);
  EXPECT_EQ(launched.boxes[1].unit_bytes, 16);
  EXPECT_EQ(launched.boxes[1].units, 174U);
  EXPECT_EQ(launched.boxes[2].unit_bytes, 8);
  EXPECT_EQ(launched.boxes[2].units, 1U);
}

TEST(CopyLaunches, LongRunsAtOddAddressesAreShifted) {
  Random random(10);
  for (int i = 0; i < 200; ++i) {
    // Rows at any address, packed at another address.
    const int64_t rows = Between(random, 1, 4);
    const int64_t row = Between(random, 1024, 1060);
    const int64_t pitch = row + Between(random, 0, 9);
    const int64_t src = Between(random, 0, 15);
    const int64_t dst = Between(random, 0, 15);
    std::vector<uint8_t> from(src + rows * pitch);
    for (uint8_t& byte : from) byte = static_cast<uint8_t>(random());
    std::vector<uint8_t> to(dst + rows * row + 16, 0xee);
    std::vector<uint8_t> expected = to;
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(from.begin() + src + r * pitch, row, expected.begin() + dst + r * row);
    }
    Launched launched;
    const BoxCopy copy{from.data() + src, to.data() + dst, {rows, row}, {pitch, 1}, {row, 1}};
    const absl::Status status = Emulate({copy}, DType::kU8, 2, &launched);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(to, expected) << "case " << i;
    if (rows == 1 || pitch % 2 == 0 || pitch == row) continue;  // may be copied without shifting
    ASSERT_EQ(launched.boxes.size(), 1U);
    EXPECT_EQ(launched.boxes[0].run_bytes, row) << "case " << i;
  }
}

TEST(CopyLaunches, SmallUnitsAreTransposedInWords) {
  for (const DType dtype : {DType::kU8, DType::kBF16}) {
    const int64_t bytes = BitWidth(dtype) / 8;
    for (const int64_t rows : {12, 128, 132, 300, 301}) {
      const int64_t columns = 200;
      std::vector<uint8_t> from(3 * rows * columns * bytes);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 251);
      std::vector<uint8_t> to(from.size());
      std::vector<uint8_t> expected(from.size());
      for (int64_t i = 0; i < 3 * rows * columns; ++i) {
        const int64_t plane = i / (rows * columns) * (rows * columns);
        const int64_t transposed = plane + i % columns * rows + i % (rows * columns) / columns;
        std::copy_n(from.begin() + i * bytes, bytes, expected.begin() + transposed * bytes);
      }
      Launched launched;
      const BoxCopy copy{from.data(),
                         to.data(),
                         {3, columns, rows},
                         {rows * columns, 1, columns},
                         {rows * columns, rows, 1}};
      const absl::Status status = Emulate({copy}, dtype, 2, &launched);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(to, expected) << rows << " rows of " << Name(dtype);
      ASSERT_EQ(launched.transposing, 1);
      EXPECT_EQ(launched.boxes[0].lanes, rows == 301 ? 1 : 4 / bytes);
    }
  }
}

TEST(CopyLaunches, HugeBoxesAreCut) {
  // Nothing is read: the test only examines the launches. 2^35 bytes in rows of 2^20.
  Launched launched;
  uint64_t bytes = 0;
  const auto count = [&](bool transpose, const CopyBoxesParams& params) {
    EXPECT_FALSE(transpose);
    for (uint32_t i = 0; i < params.num_boxes; ++i) {
      const CopyBox& box = params.boxes[i];
      EXPECT_LE(box.units, kMaxCopyUnits);
      const uint64_t runs = box.run_bytes > 0 ? box.units / RunUnits(box.run_bytes) : 0;
      bytes += runs > 0 ? runs * box.run_bytes : uint64_t{box.units} * box.unit_bytes;
    }
    return CheckTable(params);
  };
  auto* base = reinterpret_cast<uint8_t*>(uintptr_t{1} << 40);
  const int64_t row = 1 << 20;
  const BoxCopy rows{base, base + (int64_t{1} << 38), {1 << 15, row}, {row + 1, 1}, {row, 1}};
  ASSERT_TRUE(ForCopyLaunches({rows}, DType::kU8, count).ok());
  EXPECT_EQ(bytes, uint64_t{1} << 35);
  for (const int64_t skew : {0, 1}) {
    bytes = 0;
    const BoxCopy run{base, base + (int64_t{1} << 38) + skew, {int64_t{5} << 32}, {1}, {1}};
    ASSERT_TRUE(ForCopyLaunches({run}, DType::kF32, count).ok());
    EXPECT_EQ(bytes, uint64_t{20} << 32);
  }
}

// Uses words of several elements if both sides consist of whole words, also after cuts.
TEST(CopyLaunches, HugeTransposesAreCut) {
  auto* base = reinterpret_cast<uint8_t*>(uintptr_t{1} << 40);
  const auto check = [&](DType dtype, const Shape& shape, int min_lanes) {
    SCOPED_TRACE(std::string(Name(dtype)));
    Shape src(shape.size(), 1);
    Shape dst(shape.size(), 1);
    int64_t stride = 1;
    for (size_t d = 0; d < shape.size(); ++d, stride *= shape[d - 1]) src[d] = stride;
    stride = 1;
    for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) dst[d] = stride;
    uint64_t elements = 0;
    const absl::Status status =
        ForCopyLaunches({{base, base + (int64_t{1} << 38), shape, src, dst}}, dtype,
                        [&](bool transpose, const CopyBoxesParams& params) {
                          EXPECT_TRUE(transpose);
                          for (uint32_t i = 0; i < params.num_boxes; ++i) {
                            EXPECT_LE(params.boxes[i].units, kMaxCopyUnits);
                            EXPECT_GE(params.boxes[i].lanes, min_lanes);
                            elements += params.boxes[i].units;
                          }
                          return CheckTable(params);
                        });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(elements, static_cast<uint64_t>(stride));
  };
  check(DType::kBF16, {40000, 50000}, 2);
  check(DType::kBF16, {50000, 40000}, 2);
  check(DType::kBF16, {12288, 151936}, 2);
  check(DType::kBF16, {29582, 84, 1728}, 2);
  check(DType::kI8, {40000, 40000}, 4);
  check(DType::kI8, {84, 29584, 1728}, 4);
  check(DType::kF32, {40001, 40001}, 1);
  // With this many dims no cut keeps whole words, so elements are copied one by one.
  check(DType::kI8, {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}, 1);
}

TEST(CopyLaunches, RefusesWhatTheTwinRefuses) {
  Launched launched;
  float x[2] = {};
  EXPECT_EQ(Message(Emulate({{x, nullptr, {2}, {1}, {1}}}, DType::kF32, 1, &launched)),
            "the target of a copy of 2 elements is null");
  EXPECT_EQ(launched.plain + launched.transposing, 0);
  EXPECT_TRUE(Emulate({{nullptr, nullptr, {0}, {1}, {1}}}, DType::kF32, 1, &launched).ok());
  EXPECT_TRUE(Emulate({}, DType::kF32, 1, &launched).ok());
  EXPECT_EQ(launched.plain + launched.transposing, 0);
}

TEST(DivideBy, IsDivision) {
  Random random(9);
  const auto check = [](uint32_t size, uint32_t n) {
    ASSERT_EQ(DivideBy(size, MagicOf(size), n), n / size) << n << " / " << size;
  };
  for (uint32_t size = 1; size < 300; ++size) {
    for (uint32_t n = 0; n < 2000; ++n) check(size, n);
  }
  const uint32_t most = kMaxCopyUnits + kTileUnits;
  for (int i = 0; i < 2000000; ++i) {
    const auto size = static_cast<uint32_t>(random() % kMaxCopyUnits >> (random() % 30)) + 1;
    const auto n = static_cast<uint32_t>(random() % most);
    check(size, n);
    check(size, n / size * size);
    check(size, n / size * size + size - 1);
  }
}

}  // namespace
}  // namespace meshift::cuda

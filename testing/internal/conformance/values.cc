#include "testing/internal/conformance/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "comm/kernels/small_float.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "placement/op_table.h"

namespace meshift::conformance {
namespace {

// Appends `value` to `out` as an element of `dtype`.
template <typename T>
void Put(T value, Bytes8* out) {
  out->resize(out->size() + sizeof(T));
  std::memcpy(out->data() + out->size() - sizeof(T), &value, sizeof(T));
}

void Encode(DType dtype, float value, Bytes8* out) {
  const auto integer = static_cast<int64_t>(value);
  switch (dtype) {
    case DType::kBool:
      return Put<uint8_t>(integer != 0, out);
    case DType::kI8:
    case DType::kU8:
      return Put(static_cast<uint8_t>(integer), out);
    case DType::kI16:
    case DType::kU16:
      return Put(static_cast<uint16_t>(integer), out);
    case DType::kI32:
    case DType::kU32:
      return Put(static_cast<uint32_t>(integer), out);
    case DType::kI64:
    case DType::kU64:
      return Put(integer, out);
    case DType::kF16:
      return Put(F16::FromFloat(value), out);
    case DType::kBF16:
      return Put(BF16::FromFloat(value), out);
    case DType::kF32:
      return Put(value, out);
    case DType::kF64:
      return Put(static_cast<double>(value), out);
    case DType::kF8E4M3:
      return Put(F8E4M3::FromFloat(value), out);
    case DType::kF8E5M2:
      return Put(F8E5M2::FromFloat(value), out);
    case DType::kC64:
      return Put(std::complex<float>(value, 0), out);
    case DType::kC128:
      return Put(std::complex<double>(value, 0), out);
    case DType::kF4E2M1:
      return;  // it is never reduced
  }
}

int64_t Value(DType dtype, ReduceOp op, int64_t rank, int64_t i) {
  if (dtype == DType::kBool) return (rank + i) % 3 != 0 ? 1 : 0;
  if (op == ReduceOp::kProduct) return (rank + i) % 2 + 1;
  return (rank * 5 + i * 3) % 4;
}

// The result by the op's definition; averages divide by `size`.
float Expected(DType dtype, ReduceOp op, int64_t size, int64_t i) {
  int64_t result = Value(dtype, op, 0, i);
  for (int64_t r = 1; r < size; ++r) {
    const int64_t value = Value(dtype, op, r, i);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result += value;
        break;
      case ReduceOp::kProduct:
        result *= value;
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kAnd:
        result &= value;
        break;
      case ReduceOp::kOr:
        result |= value;
        break;
      case ReduceOp::kXor:
        result ^= value;
        break;
    }
  }
  if (op != ReduceOp::kAvg) return static_cast<float>(result);
  if (IsInteger(dtype)) result /= size;
  if (IsInteger(dtype)) return static_cast<float>(result);
  return static_cast<float>(result) / static_cast<float>(size);
}

// MESHIFT_TEST_FRACTION = n runs one case in n.
int64_t TestFraction() {
  const char* text = std::getenv("MESHIFT_TEST_FRACTION");
  return text == nullptr ? 1 : std::max<int64_t>(1, std::atoll(text));
}

}  // namespace

bool IsInexactAverage(DType dtype, ReduceOp op, int64_t size) {
  const bool wide = dtype == DType::kF64 || dtype == DType::kC128;
  return op == ReduceOp::kAvg && wide && (size & (size - 1)) != 0;
}

Bytes8 Contribution(DType dtype, ReduceOp op, int64_t rank, int64_t count) {
  Bytes8 bytes;
  for (int64_t i = 0; i < count; ++i) {
    Encode(dtype, static_cast<float>(Value(dtype, op, rank, i)), &bytes);
  }
  return bytes;
}

Bytes8 Result(DType dtype, ReduceOp op, int64_t size, int64_t first, int64_t count) {
  Bytes8 bytes;
  for (int64_t i = first; i < first + count; ++i) {
    Encode(dtype, Expected(dtype, op, size, i), &bytes);
  }
  return bytes;
}

Bytes8 Pattern(int64_t seed, int64_t bytes) {
  Bytes8 result(bytes);
  for (int64_t i = 0; i < bytes; ++i) {
    result[i] = static_cast<uint8_t>(seed * 101 + i * 7 + i / 256);
  }
  return result;
}

Bytes8 AnyBits(DType dtype, ReduceOp op, int64_t rank, int64_t bytes) {
  std::minstd_rand random(1 + 1000 * rank + 20 * static_cast<int>(dtype) + static_cast<int>(op));
  Bytes8 result(bytes);
  for (uint8_t& byte : result) byte = static_cast<uint8_t>(random() >> 8);
  if (dtype == DType::kBool) {
    for (uint8_t& byte : result) byte &= 1;
  }
  return result;
}

Bytes8 Slice(const Bytes8& bytes, int64_t first, int64_t count) {
  return Bytes8(bytes.begin() + first, bytes.begin() + first + count);
}

void Append(const Bytes8& more, Bytes8* bytes) {
  bytes->insert(bytes->end(), more.begin(), more.end());
}

std::vector<int64_t> RaggedCounts(int64_t size, int kind) {
  std::vector<int64_t> counts(size, 0);
  if (kind == 1) counts.back() = 70000;
  for (int64_t i = 0; i < size && kind == 2; ++i) counts[i] = i * 14 % 10;
  return counts;
}

void ForEachReduction(int64_t salt, const std::function<void(DType, ReduceOp)>& visit) {
  int64_t number = salt;
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      if (!CheckReduce(static_cast<ReduceOp>(o), static_cast<DType>(d)).ok()) continue;
      if (number++ % TestFraction() == 0) visit(static_cast<DType>(d), static_cast<ReduceOp>(o));
    }
  }
}

std::string Text(DType dtype, ReduceOp op, int64_t size, int64_t rank, int64_t count) {
  return fmt::format("{} of {} x {}, rank {} of {}", Name(op), count, Name(dtype), rank, size);
}

}  // namespace meshift::conformance

#include "comm/kernels/float_environment.h"

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/kernels/cast.h"
#include "comm/kernels/reduce.h"
#include "comm/kernels/strict_math.h"
#include "meshift/dtype.h"

namespace meshift {
namespace {

// More elements than the widest vector instruction processes, and not a multiple.
constexpr int64_t kCount = 35;

// Whether every element of the reduction has the bits of `expected`. Each input is an array of
// kCount equal elements.
template <typename T>
bool Gives(DType dtype, const Reduction& reduction, const std::vector<T>& inputs,
           const T& expected) {
  std::vector<std::vector<T>> memory;
  std::vector<const void*> in;
  for (const T& input : inputs) memory.emplace_back(kCount, input);
  for (const std::vector<T>& input : memory) in.push_back(input.data());
  std::vector<T> out(kCount);
  ReduceSpec spec;
  spec.dtype = dtype;
  spec.reduction = reduction;
  Reduce(spec, in, 0, kCount, out.data());
  for (const T& element : out) {
    if (std::memcmp(&element, &expected, sizeof(T)) != 0) return false;
  }
  return true;
}

template <typename T>
using Complex = std::array<T, 2>;

template <typename T>
std::string_view FirstWrong(DType dtype, DType complex, T one_ulp, T tiny, T five_thirds) {
  const Reduction sum{.op = ReduceOp::kSum};
  const Reduction product{.op = ReduceOp::kProduct};
  const T large = 1 / one_ulp;  // adjacent values at 2 * large differ by 2
  if (!Gives<T>(dtype, sum, {large * 2, 1, -large * 2}, 0)) return "the order of sums";
  if (!Gives<T>(dtype, {.op = ReduceOp::kAvg, .divisor = 3}, {5}, five_thirds)) return "quotients";
  if (!Gives<T>(dtype, product, {tiny, T{0.5}}, tiny / 2)) return "subnormal numbers";
  if (!Gives<T>(dtype, sum, {T{-0.0}, T{-0.0}}, T{-0.0})) return "the sign of zero";
  // (1 + e)^2 - (1 + 2e) is 0 if each product is rounded, since that loses e^2.
  const T a = 1 + one_ulp;
  const Complex<T> x = {a, 1};
  const Complex<T> y = {a, 1 + 2 * one_ulp};
  if (!Gives<Complex<T>>(complex, product, {x, y}, {0, a * y[1] + a})) {
    return "products of complex numbers";
  }
  return "";
}

}  // namespace

absl::Status CheckArithmetic() {
  std::string_view wrong =
      FirstWrong<float>(DType::kF32, DType::kC64, 0x1p-23F, 0x1p-126F, 0x1.aaaaaap+0F);
  if (wrong.empty()) {
    wrong = FirstWrong<double>(DType::kF64, DType::kC128, 0x1p-52, 0x1p-1022, 0x1.aaaaaaaaaaaabp+0);
  }
  if (wrong.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "the CPU kernels change {}: Meshift promises equal bits, and must be compiled without "
      "-ffast-math and the options that it implies",
      wrong);
}

}  // namespace meshift

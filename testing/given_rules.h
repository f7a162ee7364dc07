// The rules for right results of one element, per family of dtypes. Private to //testing.
//
//   RealRule<F32> rule(reduction);
//   rule.Expect({1, 2, 3});                 // held by the source's partial coordinates
//   rule.Allows(0x40c00000)                 // whether a rank may hold 6
//   rule.AllowsTogether({6, 0})             // whether a partial target's coordinates may hold
//   these
#ifndef MESHIFT_TESTING_GIVEN_RULES_H_
#define MESHIFT_TESTING_GIVEN_RULES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "meshift/placement.h"
#include "testing/given_value.h"
#include "testing/number.h"

namespace meshift::testkit {

// How the source's contributions combine, and how the target's do; an op is nullopt if that side is
// not partial.
struct Reduction {
  std::optional<ReduceOp> from_op;
  std::optional<ReduceOp> to_op;
  // Contributions are grouped into parts that stay separate in the target. The part of each partial
  // coordinate of the source:
  std::vector<int64_t> part_of = {0};
  int64_t parts = 1;
  int64_t reduced_divisor = 1;  // for averages over mesh dims that are reduced
  int64_t kept_divisor = 1;     // for averages over mesh dims that stay partial
  int64_t to_divisor = 1;       // for averages of the target
  int64_t to_count = 1;         // partial coordinates of the target
};

// For integers and bools: exact in 128 bits; values wrap when the tensor's dtype holds them.
template <typename T>
class IntegerRule {
 public:
  using Wide = typename T::Wide;
  explicit IntegerRule(const Reduction& reduction) : reduction_(reduction) {}

  void Expect(absl::Span<const Wide> contributions) {
    std::vector<std::optional<Wide>> parts(reduction_.parts);
    for (size_t i = 0; i < contributions.size(); ++i) {
      std::optional<Wide>& part = parts[reduction_.part_of[i]];
      part = part ? Fold<T>(*reduction_.from_op, *part, contributions[i]) : contributions[i];
    }
    std::optional<Wide> total;
    for (const std::optional<Wide>& part : parts) {
      const Wide value = Wrapped(Quotient<T>(Wrapped(*part), reduction_.reduced_divisor));
      total = total ? Fold<T>(*reduction_.from_op, *total, value) : value;
    }
    expected_ = Wrapped(Quotient<T>(*total, reduction_.kept_divisor));
  }
  bool Allows(typename T::Bits got) const { return got == T::Encode(expected_); }
  bool AllowsTogether(absl::Span<const Wide> held) const {
    Wide together = held[0];
    for (const Wide value : held.subspan(1)) together = Fold<T>(*reduction_.to_op, together, value);
    return Wrapped(Quotient<T>(together, reduction_.to_divisor)) == expected_;
  }
  typename T::Bits Nearest() const { return T::Encode(expected_); }
  Wide expected() const { return expected_; }

 private:
  static Wide Wrapped(Wide value) { return T::Decode(T::Encode(value)); }
  const Reduction& reduction_;
  Wide expected_ = 0;
};

// For real numbers, and for the parts of complex numbers that are added.
template <typename T>
class RealRule {
 public:
  using Wide = double;
  explicit RealRule(const Reduction& reduction) : reduction_(reduction) {}

  void Expect(absl::Span<const double> contributions) {
    const ReduceOp op = reduction_.from_op.value_or(ReduceOp::kSum);
    bits_count_ = contributions.size() == 1 || op == ReduceOp::kMin || op == ReduceOp::kMax;
    if (contributions.size() == 1) {
      expected_ = {.value = contributions[0]};
    } else if (bits_count_) {
      double value = contributions[0];
      for (const double next : contributions.subspan(1)) value = Fold<T>(op, value, next);
      expected_ = {.value = value};
    } else {
      const auto operations = static_cast<int64_t>(contributions.size()) + reduction_.to_count + 8;
      expected_ =
          op == ReduceOp::kProduct
              ? ExpectedProduct<T>(contributions, operations)
              : ExpectedSum<T>(contributions, reduction_.reduced_divisor * reduction_.kept_divisor,
                               operations);
    }
  }
  bool Allows(typename T::Bits got) const {
    if (bits_count_) return got == Nearest();
    return IsWithin(expected_, T::Decode(got));
  }
  bool AllowsTogether(absl::Span<const double> held) const {
    const ReduceOp op = *reduction_.to_op;
    Real together = held[0];
    Real magnitude = FiniteMagnitude(held[0]);
    for (const double value : held.subspan(1)) {
      if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
        together = Fold<T>(op, static_cast<double>(together), value);
      } else if (op == ReduceOp::kProduct) {
        together *= value;
        magnitude = FiniteMagnitude(together);
      } else {
        together += value;
        magnitude += FiniteMagnitude(value);
      }
    }
    // The error of combining the values here.
    Expected expected = expected_;
    expected.bound += static_cast<Real>(held.size()) * std::numeric_limits<Real>::epsilon() *
                      magnitude / static_cast<Real>(reduction_.to_divisor);
    return IsWithin(expected, together / static_cast<Real>(reduction_.to_divisor));
  }
  typename T::Bits Nearest() const { return T::Encode(static_cast<double>(expected_.value)); }
  const Expected& expected() const { return expected_; }

 private:
  static Real FiniteMagnitude(Real value) { return std::isfinite(value) ? std::abs(value) : 0; }

  const Reduction& reduction_;
  Expected expected_;
  bool bits_count_ = false;
};

template <typename T>
class ComplexRule {
 public:
  using Wide = typename T::Wide;
  using Part = typename T::Part;
  explicit ComplexRule(const Reduction& reduction)
      : reduction_(reduction), re_(reduction), im_(reduction) {}

  void Expect(absl::Span<const Wide> contributions) {
    multiplies_ = reduction_.from_op == ReduceOp::kProduct && contributions.size() > 1;
    if (multiplies_) return ExpectProduct(contributions);
    re_.Expect(PartsOf(contributions, &Wide::re));
    im_.Expect(PartsOf(contributions, &Wide::im));
    if (reduction_.to_op != ReduceOp::kProduct) return;
    // The only factor that is not the identity is the sum of the contributions.
    const Expected& re = re_.expected();
    const Expected& im = im_.expected();
    ExpectProduct({{static_cast<double>(re.value), static_cast<double>(im.value)}});
    product_re_.bound += re.bound;
    product_im_.bound += im.bound;
    product_re_.may_overflow |= re.may_overflow;
    product_im_.may_overflow |= im.may_overflow;
  }
  bool Allows(typename T::Bits got) const {
    return multiplies_ ? IsProduct(T::Decode(got)) : re_.Allows(got.re) && im_.Allows(got.im);
  }
  bool AllowsTogether(absl::Span<const Wide> held) const {
    if (reduction_.to_op != ReduceOp::kProduct && !multiplies_) {
      return re_.AllowsTogether(PartsOf(held, &Wide::re)) &&
             im_.AllowsTogether(PartsOf(held, &Wide::im));
    }
    Wide together = held[0];
    for (const Wide value : held.subspan(1)) together = Fold<T>(*reduction_.to_op, together, value);
    const auto divisor = static_cast<double>(reduction_.to_divisor);
    return IsProduct({together.re / divisor, together.im / divisor});
  }
  typename T::Bits Nearest() const {
    if (!multiplies_) return {re_.Nearest(), im_.Nearest()};
    return T::Encode(
        {static_cast<double>(product_re_.value), static_cast<double>(product_im_.value)});
  }

  const Expected& expected_re() const { return multiplies_ ? product_re_ : re_.expected(); }
  const Expected& expected_im() const { return multiplies_ ? product_im_ : im_.expected(); }

 private:
  static std::vector<double> PartsOf(absl::Span<const Wide> values, double Wide::*part) {
    std::vector<double> parts;
    for (const Wide& value : values) parts.push_back(value.*part);
    return parts;
  }
  bool IsProduct(Wide value) const {
    return IsWithin(product_re_, value.re) && IsWithin(product_im_, value.im);
  }
  // A complex multiplication takes four real ones and two additions.
  void ExpectProduct(absl::Span<const Wide> factors) {
    Real re = 1;
    Real im = 0;
    Real magnitude = 1;
    Real most = 1;
    for (const Wide& factor : factors) {
      const Real next = re * factor.re - im * factor.im;
      im = re * factor.im + im * factor.re;
      re = next;
      const Real size =
          std::abs(static_cast<Real>(factor.re)) + std::abs(static_cast<Real>(factor.im));
      magnitude *= size;
      most *= std::max(size, Real{1});
    }
    const auto operations = 4 * (static_cast<int64_t>(factors.size()) + reduction_.to_count + 8);
    const Real bound = RelativeError<Part>(operations) * magnitude +
                       static_cast<Real>(operations) * Part::Tiny() * most;
    product_re_ = {.value = re, .bound = bound};
    product_im_ = {.value = im, .bound = bound};
    product_re_.may_overflow = product_im_.may_overflow = !(4 * most <= LargestOf<Part>());
    // The product of infinities or NaN depends on the way to multiply.
    if (std::isfinite(re) && std::isfinite(im) && std::isfinite(most)) return;
    product_re_ = product_im_ = {
        .value = 0, .bound = std::numeric_limits<Real>::infinity(), .may_overflow = true};
  }

  const Reduction& reduction_;
  RealRule<Part> re_;
  RealRule<Part> im_;
  bool multiplies_ = false;
  Expected product_re_;
  Expected product_im_;
};

template <typename T>
using RuleOf = std::conditional_t<
    T::kFamily == Family::kComplex, ComplexRule<T>,
    std::conditional_t<T::kFamily == Family::kFloat, RealRule<T>, IntegerRule<T>>>;

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_GIVEN_RULES_H_

#include "testing/given_cast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/testing.h"
#include "testing/cast.h"
#include "testing/given.h"
#include "testing/given_rules.h"
#include "testing/given_value.h"
#include "testing/given_world.h"
#include "testing/number.h"

namespace meshift::testkit {
namespace {

std::string TextOf(const Number& number) {
  if (number.is_integer) return fmt::format("{}", number.integer);
  return number.im == 0 ? fmt::format("{}", number.re)
                        : fmt::format("{}{:+}i", number.re, number.im);
}

// The right values in the target's dtype: those between two values, both included, and maybe NaN or
// results of an overflow. For complex numbers, of one part.
struct Allowed {
  Number low;
  Number high;
  bool nan = false;       // NaN is right
  bool overflow = false;  // the cast of an infinity or NaN is right
};

// The values that the cast of any value within `expected` gives, in a real target dtype.
Allowed CastOf(const Expected& expected, const NumberOps& to) {
  const auto cast = [&](double value) { return to.round({.is_integer = false, .re = value}); };
  Allowed allowed;
  allowed.overflow = expected.may_overflow;
  const double infinity = std::numeric_limits<double>::infinity();
  if (std::isnan(expected.value)) {
    allowed.low = allowed.high = cast(std::numeric_limits<double>::quiet_NaN());
    allowed.nan = true;
    return allowed;
  }
  auto low = static_cast<double>(expected.value - expected.bound);
  auto high = static_cast<double>(expected.value + expected.bound);
  if (expected.bound > 0) {
    low = std::nextafter(low, -infinity);
    high = std::nextafter(high, infinity);
  }
  allowed.low = cast(low);
  allowed.high = cast(high);
  if (to.dtype == DType::kBool) {
    // bool has no order: 0 is right if zero is in the range, 1 if another value is.
    allowed.low = {.integer = low <= 0 && high >= 0 ? 0 : 1};
    allowed.high = {.integer = low == 0 && high == 0 ? 0 : 1};
  }
  // A value that is too large for e4m3 becomes NaN.
  if (std::isnan(allowed.low.re) || std::isnan(allowed.high.re)) allowed.nan = true;
  if (std::isnan(allowed.low.re)) allowed.low.re = low < 0 ? -infinity : infinity;
  if (std::isnan(allowed.high.re)) allowed.high.re = high < 0 ? -infinity : infinity;
  return allowed;
}

// `slack`: the error that the computation of `got` may have added.
bool Contains(const Allowed& allowed, const Number& got, const NumberOps& to, Real slack) {
  if (got.is_integer) {
    if (allowed.low.integer <= got.integer && got.integer <= allowed.high.integer) return true;
    const double infinity = std::numeric_limits<double>::infinity();
    const auto is_cast_of = [&](double value) {
      return to.round({.is_integer = false, .re = value}).integer == got.integer;
    };
    return allowed.overflow && (is_cast_of(infinity) || is_cast_of(-infinity) || got.integer == 0);
  }
  if (std::isnan(got.re)) return allowed.nan || allowed.overflow;
  if (std::isinf(got.re) && allowed.overflow) return true;
  return allowed.low.re - slack <= got.re && got.re <= allowed.high.re + slack;
}

// Reduces values of the target's dtype by `op` and divides; integers wrap.
Number Combined(absl::Span<const Number> values, ReduceOp op, int64_t divisor,
                const NumberOps& to) {
  if (values[0].is_integer) {
    Int128 total = values[0].integer;
    for (const Number& value : values.subspan(1)) total = Fold<I64>(op, total, value.integer);
    return to.round({.integer = Quotient<I64>(total, divisor)});
  }
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAvg;
  Real re = values[0].re;
  Real im = values[0].im;
  for (const Number& value : values.subspan(1)) {
    if (sums) {
      re += value.re;
      im += value.im;
    } else if (op == ReduceOp::kProduct && IsComplex(to.dtype)) {
      const Real next = re * value.re - im * value.im;
      im = re * value.im + im * value.re;
      re = next;
    } else if (op == ReduceOp::kProduct) {
      re *= value.re;
    } else {
      re = Fold<F64>(op, static_cast<double>(re), value.re);
    }
  }
  const auto d = static_cast<Real>(divisor);
  return {
      .is_integer = false, .re = static_cast<double>(re / d), .im = static_cast<double>(im / d)};
}

// R: the number type of the reduce dtype.
template <typename R>
class CastSumJudge {
 public:
  CastSumJudge(const World& world, DType from, DType to, BufferViews sources, BufferViews targets)
      : world_(world),
        from_(NumberOpsOf(from)),
        to_(NumberOpsOf(to)),
        sources_(sources),
        targets_(targets),
        rule_(world.reduction) {}

  CheckResult Run() {
    ForEachElement(world_, [&](size_t s, int64_t source, size_t t, int64_t target) {
      Expect(s, source);
      Judge(t, target);
    });
    return result_;
  }

 private:
  // Sets re_ and im_, the right values.
  void Expect(size_t s, int64_t source) {
    const Positions& at = world_.from.positions;
    contributions_.clear();
    for (const int64_t partial : at.partials) {
      const int64_t position = at.shards[s] + partial + at.replicas[0];
      const Number number = from_.load(sources_[position].data(), source);
      contributions_.push_back(R::Decode(FromNumber<R>(number)));
    }
    im_ = {.low = {.is_integer = false}, .high = {.is_integer = false}};
    if constexpr (R::kFamily == Family::kInteger || R::kFamily == Family::kBool) {
      re_.low = re_.high = WholeOf();
      re_.nan = std::isnan(re_.low.re);
      re_.overflow = false;
    } else {
      rule_.Expect(contributions_);
      if constexpr (R::kFamily == Family::kComplex) {
        re_ = CastOf(rule_.expected_re(), PartOps());
        im_ = CastOf(rule_.expected_im(), PartOps());
      } else {
        re_ = CastOf(rule_.expected(), IsComplex(to_.dtype) ? PartOps() : to_);
      }
    }
  }

  // For integers: parts that stay separate are cast separately.
  Number WholeOf() {
    const Reduction& reduction = world_.reduction;
    std::vector<std::optional<Int128>> parts(reduction.parts);
    for (size_t i = 0; i < contributions_.size(); ++i) {
      std::optional<Int128>& part = parts[reduction.part_of[i]];
      const auto value = static_cast<Int128>(contributions_[i]);
      part = part ? Fold<I64>(*reduction.from_op, *part, value) : value;
    }
    std::vector<Number> cast;
    for (const std::optional<Int128>& part : parts) {
      const auto wrapped = R::Decode(R::Encode(static_cast<typename R::Wide>(*part)));
      const auto reduced = Quotient<R>(wrapped, reduction.reduced_divisor);
      cast.push_back(to_.round({.integer = static_cast<Int128>(reduced)}));
    }
    return Combined(cast, *reduction.from_op, reduction.kept_divisor, to_);
  }

  // The dtype of the real and imaginary parts of the target.
  const NumberOps& PartOps() const {
    return NumberOpsOf(to_.dtype == DType::kC64 ? DType::kF32 : DType::kF64);
  }

  void Judge(size_t t, int64_t target) {
    const Positions& at = world_.to.positions;
    const auto held = [&](int64_t position) { return to_.load(targets_[position].data(), target); };
    if (!world_.to.IsReduced()) {
      for (const int64_t replica : at.replicas) {
        const int64_t position = at.shards[t] + replica;
        const Number got = held(position);
        if (!IsRight(got, 0)) AddWrong(t, position, target, got);
      }
      return;
    }
    together_.clear();
    Real magnitude = 0;
    for (const int64_t partial : at.partials) {
      together_.push_back(held(at.shards[t] + partial + at.replicas[0]));
      const Number& last = together_.back();
      if (std::isfinite(last.re)) magnitude += std::abs(static_cast<Real>(last.re));
      if (std::isfinite(last.im)) magnitude += std::abs(static_cast<Real>(last.im));
    }
    const ReduceOp op = *world_.reduction.to_op;
    const Number got = Combined(together_, op, world_.reduction.to_divisor, to_);
    if (op == ReduceOp::kProduct && std::isfinite(got.re))
      magnitude = std::abs(got.re) + std::abs(got.im);
    const bool rounds = op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kProduct;
    const Real slack = rounds ? static_cast<Real>(together_.size() + 2) *
                                    std::numeric_limits<double>::epsilon() * magnitude /
                                    static_cast<Real>(world_.reduction.to_divisor)
                              : 0;
    if (IsRight(got, slack)) return;
    AddWrong(t, at.shards[t] + at.replicas[0], target, held(at.shards[t] + at.replicas[0]));
  }

  bool IsRight(const Number& got, Real slack) const {
    if (!IsComplex(to_.dtype)) return Contains(re_, got, to_, slack);
    return Contains(re_, {.is_integer = false, .re = got.re}, PartOps(), slack) &&
           Contains(im_, {.is_integer = false, .re = got.im}, PartOps(), slack);
  }

  void AddWrong(size_t t, int64_t position, int64_t local, const Number& got) {
    ++result_.wrong;
    if (!result_.first_wrong.empty()) return;
    const std::string low = TextOf(re_.low);
    const std::string high = TextOf(re_.high);
    result_.first_wrong = WrongText(world_, t, position, local, TextOf(got),
                                    low == high ? low : fmt::format("{} to {}", low, high));
  }

  const World& world_;
  const NumberOps& from_;
  const NumberOps& to_;
  const BufferViews sources_;
  const BufferViews targets_;
  RuleOf<R> rule_;
  CheckResult result_;
  std::vector<typename R::Wide> contributions_;
  std::vector<Number> together_;
  Allowed re_;
  Allowed im_;
};

}  // namespace

CheckResult CheckCastSum(const World& world, DType from, DType reduce, DType to,
                         BufferViews sources, BufferViews targets) {
  return WithType(reduce, [&](auto type) {
    return CastSumJudge<decltype(type)>(world, from, to, sources, targets).Run();
  });
}

}  // namespace meshift::testkit

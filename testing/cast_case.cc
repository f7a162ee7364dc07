#include "testing/cast_case.h"

#include <algorithm>
#include <vector>

#include "meshift/placement.h"

namespace meshift::testkit {

CastCase::CastCase(DType source, DType reduce, DType target, bool probes)
    : source_(&NumberOpsOf(source)),
      reduce_(&NumberOpsOf(reduce)),
      target_(&NumberOpsOf(target)),
      reduce_ops_(&OpsOf(reduce)),
      target_ops_(&OpsOf(target)),
      probes_(probes) {}

void CastCase::StoreProbe(const Recipe& recipe, bool special, int64_t element, std::byte* to,
                          int64_t index) const {
  const uint64_t hash = ElementHash(recipe, element);
  source_->store_probe(target_->landmark(Mix(hash + 1)), special, Mix(hash + 2), to, index);
}

void CastCase::Fill(const Recipe& recipe, bool special, absl::Span<const int64_t> shape,
                    const Region& region, uint64_t place, std::byte* out) const {
  if (!probes_ && source_ == reduce_) {
    return reduce_ops_->fill(recipe, shape, region, place, out);
  }
  std::vector<std::byte> parts(probes_ ? 0 : region.NumElements() * reduce_->bytes);
  if (!probes_) reduce_ops_->fill(recipe, shape, region, place, parts.data());
  ForEachRun(shape, region, [&](int64_t global, int64_t local, int64_t length) {
    for (int64_t k = 0; k < length; ++k) {
      if (probes_) {
        StoreProbe(recipe, special, global + k, out, local + k);
      } else {
        source_->store_disturbed(reduce_->load(parts.data(), local + k), *reduce_,
                                 Mix(ElementHash(recipe, global + k) + place), out, local + k);
      }
    }
  });
}

void CastCase::Total(const Recipe& recipe, bool special, absl::Span<const int64_t> shape,
                     const Region& region, absl::Span<const uint64_t> places, int64_t divisor,
                     std::byte* out) const {
  const int64_t elements = region.NumElements();
  std::vector<std::byte> totals(elements * (probes_ ? source_ : reduce_)->bytes);
  if (probes_) {
    Fill(recipe, special, shape, region, 0, totals.data());
  } else {
    reduce_ops_->total(recipe, shape, region, places, divisor, totals.data());
  }
  for (int64_t k = 0; k < elements; ++k) {
    target_->store((probes_ ? source_ : reduce_)->load(totals.data(), k), out, k);
  }
}

class CastCase::CastWants : public Wants {
 public:
  CastWants(const CastCase& c, const Recipe& recipe, bool special)
      : case_(c), recipe_(recipe), special_(special) {}

  void Get(int64_t global, int64_t count, Number* values, double* magnitudes) const override {
    std::vector<std::byte> totals(count * (case_.probes_ ? case_.source_ : case_.reduce_)->bytes);
    if (!case_.probes_) {
      case_.reduce_ops_->totals(recipe_, global, count, totals.data(), magnitudes);
    }
    for (int64_t k = 0; k < count; ++k) {
      if (case_.probes_) {
        case_.StoreProbe(recipe_, special_, global + k, totals.data(), k);
        values[k] = case_.source_->load(totals.data(), k);
        magnitudes[k] = 0;
      } else {
        values[k] = case_.reduce_->load(totals.data(), k);
      }
    }
  }

 private:
  const CastCase case_;
  const Recipe& recipe_;
  const bool special_;
};

std::unique_ptr<Wants> CastCase::WantsOf(const Recipe& recipe, bool special,
                                         int64_t operations) const {
  auto wants = std::make_unique<CastWants>(*this, recipe, special);
  wants->exact = probes_ || IsExactMode(recipe.mode);
  wants->zeros_are_equal = IsComplex(target_->dtype) && recipe.op == ReduceOp::kProduct;
  if (wants->exact) return wants;
  const Tolerance reduced = reduce_ops_->tolerance(recipe, operations);
  const Tolerance cast = target_ops_->tolerance(recipe, operations);
  wants->tolerance = {(1 + reduced.relative) * (1 + cast.relative) - 1,
                      (1 + cast.relative) * reduced.absolute + cast.absolute};
  return wants;
}

}  // namespace meshift::testkit

#include "planner/verifier/casts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "meshift/dtype.h"
#include "placement/cast.h"

namespace meshift::verifier_internal {
namespace {

using Result = std::optional<PlanFault>;

template <typename... Args>
PlanFault Fault(std::optional<size_t> step, std::string_view rule,
                fmt::format_string<Args...> format, Args&&... args) {
  const std::optional<int> index = step ? std::optional(static_cast<int>(*step)) : std::nullopt;
  return {index, std::string(rule), fmt::format(format, std::forward<Args>(args)...)};
}

class CastRules {
 public:
  CastRules(const PlanFields& plan, const std::vector<StepView>& views)
      : plan_(plan), views_(views) {
    for (size_t i = 0; i < views.size(); ++i) {
      if (views[i].step.op == StepOp::kCast) casts_.push_back(i);
      if (views[i].Reduces()) reductions_.push_back(i);
    }
  }

  Result Run() const {
    if (Result fault = CheckReduceDType()) return fault;
    if (Result fault = CheckReduced()) return fault;
    if (Result fault = CheckChains()) return fault;
    for (const size_t c : casts_) {
      if (Result fault = CheckPartials(c)) return fault;
      if (Result fault = CheckMasks(c)) return fault;
    }
    return std::nullopt;
  }

 private:
  // All reductions are in the reduce dtype of the plan's inputs.
  Result CheckReduceDType() const {
    const DType right = plan_.inputs.options.reduce_dtype.value_or(
        DefaultReduceDType(plan_.from.dtype(), plan_.to.dtype()));
    for (const size_t r : reductions_) {
      const DType dtype = views_[r].before.dtype;
      if (dtype == right) continue;
      return Fault(r, "cast", "it reduces in {}; the reduce dtype is {}", Name(dtype), Name(right));
    }
    return std::nullopt;
  }

  // The mesh dims that are P in the source only are reduced, in the reduce dtype. A plan with casts
  // that reduces masked values, or a P that the target has too, would round differently.
  Result CheckReduced() const {
    if (casts_.empty()) return std::nullopt;
    const bool one_mesh = plan_.from_mesh == plan_.to_mesh;
    const State& source = views_.front().before;
    const State& target = views_.back().after;
    bool any = reductions_.empty();
    for (const size_t r : reductions_) {
      if (views_[r].mesh_before() != plan_.from_mesh) continue;
      for (const int d : views_[r].ReducedDims()) {
        if (!source.dims[d].IsPartial()) continue;
        any = true;
        if (!one_mesh || !target.dims[d].IsPartial()) continue;
        return Fault(r, "cast", "it reduces mesh dim {}, which is {} in source and target",
                     views_[r].Name(d), source.dims[d].ToString());
      }
    }
    if (any) return std::nullopt;
    return Fault(reductions_.front(), "cast", "it reduces no mesh dim that is P in the source");
  }

  // Casts are before the first reduction or after the last; anywhere in a plan without reductions.
  Result CheckChains() const {
    if (reductions_.empty()) return CheckChain(0, views_.size());
    for (const size_t c : casts_) {
      if (c < reductions_.front() || c > reductions_.back()) continue;
      return Fault(c, "cast", "it stands between the reductions of steps {} and {}",
                   reductions_.front(), reductions_.back());
    }
    if (Result fault = CheckChain(0, reductions_.front())) return fault;
    return CheckChain(reductions_.back(), views_.size());
  }

  // Checks the casts among steps begin .. end - 1: only the last one rounds, none between two
  // integers leads through a float, and they do not lead back.
  Result CheckChain(size_t begin, size_t end) const {
    std::vector<size_t> chain;
    for (const size_t c : casts_) {
      if (begin <= c && c < end) chain.push_back(c);
    }
    if (chain.empty()) return std::nullopt;
    const DType first = views_[chain.front()].before.dtype;
    const DType last = views_[chain.back()].after.dtype;
    if (first == last) {
      return Fault(chain.front(), "cast", "the casts from here on lead from {} back to {}",
                   Name(first), Name(last));
    }
    for (const size_t c : chain) {
      const State& before = views_[c].before;
      const State& after = views_[c].after;
      if (c != chain.back() && !IsExactCast(before.dtype, after.dtype)) {
        return Fault(c, "cast", "{} to {} rounds, and step {} casts once more", Name(before.dtype),
                     Name(after.dtype), chain.back());
      }
      // An integer cast keeps the low bits; a cast from a float saturates.
      if (c != chain.back() && IsInteger(first) && IsInteger(last) && !IsInteger(after.dtype)) {
        return Fault(c, "cast", "{} becomes {} by way of {}, and would saturate", Name(first),
                     Name(last), Name(after.dtype));
      }
    }
    return std::nullopt;
  }

  // A partial value that is cast must be reduced later, or be cast exactly.
  Result CheckPartials(size_t c) const {
    const StepView& cast = views_[c];
    for (int d = 0; d < static_cast<int>(cast.before.dims.size()); ++d) {
      if (!cast.before.dims[d].IsPartial() || IsReduced(cast, d, c, views_.size())) continue;
      if (IsExactCast(cast.before.dtype, cast.after.dtype)) continue;
      return Fault(c, "cast", "mesh dim {} stays {}: each of its parts would be rounded to {}",
                   cast.Name(d), cast.before.dims[d].ToString(), Name(cast.after.dtype));
    }
    return std::nullopt;
  }

  // A mask fills with the identity of its dtype, so a later cast needs a reduction in between.
  Result CheckMasks(size_t c) const {
    for (size_t m = 0; m < c; ++m) {
      if (views_[m].step.op != StepOp::kMask) continue;
      for (const int d : views_[m].step.mesh_dims) {
        if (IsReduced(views_[m], d, m, c)) continue;
        return Fault(c, "cast", "step {} masked mesh dim {}, which has not been reduced since", m,
                     views_[m].Name(d));
      }
    }
    return std::nullopt;
  }

  // Whether one of the steps begin .. end - 1 reduces over mesh dim d of the mesh of `view`.
  bool IsReduced(const StepView& view, int d, size_t begin, size_t end) const {
    return std::any_of(reductions_.begin(), reductions_.end(), [&](size_t r) {
      return begin <= r && r < end && views_[r].mesh_before() == view.step.mesh &&
             Contains(views_[r].ReducedDims(), d);
    });
  }

  const PlanFields& plan_;
  const std::vector<StepView>& views_;
  std::vector<size_t> casts_;
  std::vector<size_t> reductions_;
};

}  // namespace

std::optional<PlanFault> CheckCasts(const PlanFields& plan, const std::vector<StepView>& views) {
  return CastRules(plan, views).Run();
}

}  // namespace meshift::verifier_internal

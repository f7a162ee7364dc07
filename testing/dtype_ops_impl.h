// The loops of TypedOps. Included only by typed_*.cc.
#ifndef MESHIFT_TESTING_DTYPE_OPS_IMPL_H_
#define MESHIFT_TESTING_DTYPE_OPS_IMPL_H_

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "testing/cast.h"
#include "testing/contribution.h"
#include "testing/dtype_ops.h"
#include "testing/geometry.h"
#include "testing/number.h"

namespace meshift::testkit {

template <typename Bits>
Bits Load(const std::byte* from, int64_t index) {
  Bits bits;
  std::memcpy(&bits, from + index * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
  return bits;
}
template <typename Bits>
void Store(Bits bits, std::byte* to, int64_t index) {
  std::memcpy(to + index * static_cast<int64_t>(sizeof(Bits)), &bits, sizeof(Bits));
}

inline constexpr int64_t kBlock = 256;

template <typename T>
double Magnitude(typename T::Wide value) {
  if constexpr (T::kFamily == Family::kComplex) {
    return std::abs(value.re) + std::abs(value.im);
  } else if constexpr (T::kFamily == Family::kFloat) {
    return std::abs(value);
  } else {
    return 0;
  }
}

// Wraps integers to T.
template <typename T>
typename T::Wide Wrapped(typename T::Wide value) {
  if constexpr (T::kFamily == Family::kInteger || T::kFamily == Family::kBool) {
    return T::Decode(T::Encode(value));
  } else {
    return value;
  }
}

template <typename T>
bool SameBits(typename T::Bits a, typename T::Bits b) {
  return a == b;
}

// Equal values; NaN equals NaN, and the sign of zero counts.
template <typename T>
bool SameValue(typename T::Wide a, typename T::Wide b) {
  if constexpr (T::kFamily == Family::kComplex) {
    return SameValue<typename T::Part>(a.re, b.re) && SameValue<typename T::Part>(a.im, b.im);
  } else if constexpr (T::kFamily == Family::kFloat) {
    return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
  } else {
    return a == b;
  }
}

template <typename T>
class Typed {
 public:
  using Bits = typename T::Bits;
  using Wide = typename T::Wide;

  static Recipe MakeRecipeOf(const RecipeInput& input) { return MakeRecipe<T>(input); }

  static void Fill(const Recipe& recipe, absl::Span<const int64_t> shape, const Region& region,
                   uint64_t place, std::byte* out) {
    WithMode<T>(recipe.mode, [&](auto mode) {
      ForEachRun(shape, region, [&](int64_t global, int64_t local, int64_t length) {
        const Recipe r = recipe;  // a copy, so that stores cannot alias it
        for (int64_t k = 0; k < length; ++k) {
          Store(Contribution<T, mode()>(r, ElementHash(r, global + k), place), out, local + k);
        }
      });
    });
  }

  static void FillIdentity(ReduceOp op, int64_t count, std::byte* out) {
    const Bits identity = Identity<T>(op);
    for (int64_t k = 0; k < count; ++k) Store(identity, out, k);
  }

  static void Total(const Recipe& recipe, absl::Span<const int64_t> shape, const Region& region,
                    absl::Span<const uint64_t> places, int64_t divisor, std::byte* out) {
    WithMode<T>(recipe.mode, [&](auto mode) {
      ForEachRun(shape, region, [&](int64_t global, int64_t local, int64_t length) {
        for (int64_t k = 0; k < length; ++k) {
          Wide total;
          double magnitude = 0;
          if (places.empty()) {
            Totals<mode()>(recipe, global + k, 1, &total, &magnitude);
          } else {
            total = PartTotal<mode()>(recipe, ElementHash(recipe, global + k), places, divisor);
          }
          Store(T::Encode(total), out, local + k);
        }
      });
    });
  }

  static void TotalsOf(const Recipe& recipe, int64_t global, int64_t count, std::byte* out,
                       double* magnitudes) {
    WithMode<T>(recipe.mode, [&](auto mode) {
      for (int64_t k = 0; k < count; ++k) {
        Wide total;
        Totals<mode()>(recipe, global + k, 1, &total, magnitudes + k);
        Store(T::Encode(total), out, k);
      }
    });
  }

  static Tolerance ToleranceFor(const Recipe& recipe, int64_t operations) {
    return ToleranceOf<T>(recipe, operations);
  }

  static Judgement Judge(const Recipe& recipe, const JudgeInput& input) {
    JudgeRun judge(recipe, input);
    return judge.Run();
  }

  static std::string ToText(const std::byte* value) {
    const Bits bits = Load<Bits>(value, 0);
    const Wide wide = T::Decode(bits);
    if constexpr (T::kFamily == Family::kComplex) {
      return fmt::format("{}{:+}i ({:#x}, {:#x})", wide.re, wide.im, bits.re, bits.im);
    } else if constexpr (T::kFamily == Family::kFloat) {
      return fmt::format("{} ({:#x})", wide, bits);
    } else if constexpr (sizeof(Bits) == 16) {
      return fmt::format("{:#x}", bits);
    } else {
      return fmt::format("{}", wide);
    }
  }

  static constexpr TypedOps kOps = {static_cast<int>(sizeof(Bits)),
                                    &MakeRecipeOf,
                                    &Fill,
                                    &Total,
                                    &TotalsOf,
                                    &ToleranceFor,
                                    &FillIdentity,
                                    &Judge,
                                    &ToText};

 private:
  // The tensor's values for elements global .. global + length - 1, and the magnitudes that bound
  // their errors.
  template <Mode kMode>
  static void Totals(const Recipe& recipe, int64_t global, int64_t length, Wide* totals,
                     double* magnitudes) {
    const ReduceOp op = OpOf(kMode, recipe.op);
    for (int64_t k = 0; k < length; ++k) {
      const uint64_t hash = ElementHash(recipe, global + k);
      Wide total = T::Decode(Active<T, kMode>(recipe, hash, 0));
      double magnitude = IsExactMode(kMode) ? 0 : Magnitude<T>(total);
      for (uint64_t s = 1; s < recipe.active; ++s) {
        const Wide term = T::Decode(Active<T, kMode>(recipe, hash, s));
        total = Fold<T>(op, total, term);
        if (kMode == Mode::kMantissa) magnitude += Magnitude<T>(term);
        if (kMode == Mode::kRoughFactors) magnitude *= Magnitude<T>(term);
      }
      totals[k] = Wrapped<T>(Quotient<T>(Wrapped<T>(total), recipe.divisor));
      magnitudes[k] = magnitude / static_cast<double>(recipe.divisor);
    }
  }

  template <Mode kMode>
  static Wide PartTotal(const Recipe& recipe, uint64_t hash, absl::Span<const uint64_t> places,
                        int64_t divisor) {
    const ReduceOp op = OpOf(kMode, recipe.op);
    Wide total = T::Decode(Contribution<T, kMode>(recipe, hash, places[0]));
    for (size_t i = 1; i < places.size(); ++i) {
      total = Fold<T>(op, total, T::Decode(Contribution<T, kMode>(recipe, hash, places[i])));
    }
    return Quotient<T>(Wrapped<T>(total), divisor);
  }

  // One check of all buffers.
  class JudgeRun {
   public:
    JudgeRun(const Recipe& recipe, const JudgeInput& input)
        : recipe_(recipe),
          input_(input),
          positions_(*input.positions),
          exact_(input.wants != nullptr ? input.wants->exact : IsExactMode(recipe.mode)),
          zeros_are_equal_(input.wants != nullptr
                               ? input.wants->zeros_are_equal
                               : T::kFamily == Family::kComplex && recipe.op == ReduceOp::kProduct),
          tolerance_(input.wants != nullptr
                         ? input.wants->tolerance
                         : ToleranceOf<T>(recipe, static_cast<int64_t>(recipe.partials +
                                                                       positions_.partials.size()) +
                                                      8)) {}

    Judgement Run() {
      for (size_t s = 0; s < positions_.shards.size(); ++s) {
        const Region& region = input_.regions[s];
        if (region.NumElements() == 0) continue;
        FindDifferingReplicas(positions_.shards[s], region.NumElements());
        if (input_.wants != nullptr) {
          JudgeWants(positions_.shards[s], region);
          continue;
        }
        WithMode<T>(recipe_.mode, [&](auto mode) {
          ForEachRun(input_.shape, region, [&](int64_t global, int64_t local, int64_t length) {
            for (int64_t begin = 0; begin < length; begin += kBlock) {
              const int64_t count = std::min(kBlock, length - begin);
              Totals<mode()>(recipe_, global + begin, count, wants_, magnitudes_);
              JudgeBlock(positions_.shards[s], global + begin, local + begin, count);
            }
          });
        });
      }
      return result_;
    }

   private:
    // As Run(), with the values from input_.wants.
    void JudgeWants(int64_t shard, const Region& region) {
      if constexpr (!kIsRaw<T>) {
        Number numbers[kBlock];
        ForEachRun(input_.shape, region, [&](int64_t global, int64_t local, int64_t length) {
          for (int64_t begin = 0; begin < length; begin += kBlock) {
            const int64_t count = std::min(kBlock, length - begin);
            input_.wants->Get(global + begin, count, numbers, magnitudes_);
            for (int64_t k = 0; k < count; ++k) {
              reals_[k] =
                  numbers[k].is_integer ? static_cast<double>(numbers[k].integer) : numbers[k].re;
              wants_[k] = T::Decode(FromNumber<T>(numbers[k]));
            }
            JudgeBlock(shard, global + begin, local + begin, count);
          }
        });
      }
    }

    const std::byte* Buffer(int64_t position) const { return input_.buffers[position].data(); }

    void FindDifferingReplicas(int64_t shard, int64_t elements) {
      differing_.clear();
      for (const int64_t partial : positions_.partials) {
        const int64_t first = shard + partial + positions_.replicas[0];
        for (size_t r = 1; r < positions_.replicas.size(); ++r) {
          const int64_t other = shard + partial + positions_.replicas[r];
          if (std::memcmp(Buffer(first), Buffer(other), elements * sizeof(Bits)) != 0) {
            differing_.emplace_back(first, other);
          }
        }
      }
    }

    // Not inlined: the code is the same for all modes.
    [[gnu::noinline]] void JudgeBlock(int64_t shard, int64_t global, int64_t local, int64_t count) {
      if (input_.op.has_value()) {
        JudgeCombined(shard, global, local, count);
      } else {
        const auto equals = static_cast<int64_t>(positions_.replicas.size() - differing_.size());
        JudgeHeld(shard, global, local, count, equals);
        for (const auto& [first, other] : differing_) JudgeHeld(other, global, local, count, 1);
      }
      if (!differing_.empty()) CountDifferences(global, local, count);
    }

    // Checks the values of the rank at `position`; `times` ranks hold the same.
    void JudgeHeld(int64_t position, int64_t global, int64_t local, int64_t count, int64_t times) {
      const std::byte* held = Buffer(position);
      for (int64_t k = 0; k < count; ++k) {
        const Bits got = Load<Bits>(held, local + k);
        if (exact_ && SameBits<T>(got, T::Encode(wants_[k]))) continue;
        if ((!exact_ || zeros_are_equal_) && IsClose(T::Decode(got), k)) continue;
        AddWrong(position, global + k, got, wants_[k], times);
      }
    }

    // Checks the reduced values of a partial group.
    void JudgeCombined(int64_t shard, int64_t global, int64_t local, int64_t count) {
      // Skips identities: for complex numbers they are not neutral to infinity and NaN, since (nan
      // + 0i) * (1 + 0i) has two NaNs.
      const Bits identity = Identity<T>(*input_.op);
      Wide combined[kBlock];
      bool has_value[kBlock] = {};
      for (size_t p = 0; p < positions_.partials.size(); ++p) {
        const std::byte* held = Buffer(shard + positions_.partials[p] + positions_.replicas[0]);
        for (int64_t k = 0; k < count; ++k) {
          const Bits bits = Load<Bits>(held, local + k);
          const Wide value = T::Decode(bits);
          const bool counts = !SameBits<T>(bits, identity);
          if (p == 0 || (counts && !has_value[k])) {
            combined[k] = value;
          } else if (counts) {
            combined[k] = Fold<T>(*input_.op, combined[k], value);
          }
          has_value[k] |= counts;
        }
      }
      for (int64_t k = 0; k < count; ++k) {
        const Wide got = Wrapped<T>(Quotient<T>(combined[k], input_.divisor));
        if (exact_ && SameValue<T>(got, wants_[k])) continue;
        if ((!exact_ || zeros_are_equal_) && IsClose(got, k)) continue;
        AddWrong(shard + positions_.partials[0] + positions_.replicas[0], global + k,
                 T::Encode(got), wants_[k], 1);
      }
    }

    bool IsClose(Wide got, int64_t k) const {
      const double bound = tolerance_.relative * magnitudes_[k] + tolerance_.absolute;
      if constexpr (T::kFamily == Family::kComplex) {
        return std::abs(got.re - wants_[k].re) <= bound && std::abs(got.im - wants_[k].im) <= bound;
      } else if constexpr (T::kFamily == Family::kFloat) {
        return std::abs(got - wants_[k]) <= bound;
      } else if constexpr (kIsRaw<T>) {
        return got == wants_[k];
      } else if constexpr (T::kFamily == Family::kBool) {
        return got == wants_[k] || (!exact_ && std::abs(reals_[k]) <= bound);
      } else {
        // Not exact: casts of floats, which truncate.
        return got == wants_[k] ||
               (!exact_ && std::abs(static_cast<double>(got) - reals_[k]) <= bound + 1);
      }
    }

    void AddWrong(int64_t position, int64_t element, Bits got, Wide want, int64_t times) {
      result_.wrong += times;
      if (result_.first_wrong.has_value()) return;
      result_.first_wrong = MakeFault(position, -1, element, got, T::Encode(want));
    }

    void CountDifferences(int64_t global, int64_t local, int64_t count) {
      for (size_t begin = 0, end = 0; begin < differing_.size(); begin = end) {
        const int64_t first = differing_[begin].first;
        while (end < differing_.size() && differing_[end].first == first) ++end;
        for (int64_t k = 0; k < count; ++k) {
          const Bits one = Load<Bits>(Buffer(first), local + k);
          for (size_t i = begin; i < end; ++i) {
            const Bits two = Load<Bits>(Buffer(differing_[i].second), local + k);
            if (SameBits<T>(one, two)) continue;
            ++result_.replicas_differ;
            if (!result_.first_difference.has_value()) {
              result_.first_difference =
                  MakeFault(first, differing_[i].second, global + k, one, two);
            }
            break;
          }
        }
      }
    }

    static Fault MakeFault(int64_t position, int64_t other, int64_t element, Bits got, Bits want) {
      Fault fault{.position = position, .other = other, .element = element};
      Store(got, fault.got, 0);
      Store(want, fault.want, 0);
      return fault;
    }

    const Recipe recipe_;
    const JudgeInput& input_;
    const Positions& positions_;
    const bool exact_;
    const bool zeros_are_equal_;
    const Tolerance tolerance_;
    Judgement result_;
    // Pairs of replicas with different bytes: the first replica's position and the other's, sorted.
    std::vector<std::pair<int64_t, int64_t>> differing_;
    Wide wants_[kBlock];
    double magnitudes_[kBlock];
    double reals_[kBlock];  // of input_.wants, before the cast to an integer
  };
};

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_DTYPE_OPS_IMPL_H_

#include "testing/reference_engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "placement/cast.h"
#include "testing/dispatch_dtype.h"
#include "testing/number.h"
#include "testing/random.h"

namespace meshift::testkit {
namespace {

using Index = std::vector<int64_t>;

// Calls visit(global index, local index) for every element of `box`.
template <typename Visit>
void ForEachElement(const Shape& shape, const Box& box, Visit visit) {
  for (int64_t local = 0; local < box.NumElements(); ++local) {
    int64_t rest = local;
    int64_t global = 0;
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      global += (box.offset[d] + rest % box.size[d]) * stride;
      rest /= box.size[d];
      stride *= shape[d];
    }
    visit(global, local);
  }
}

template <typename T>
class ReferenceEngine {
 public:
  using Bits = typename T::Bits;

  // Unless `keeps`, mesh dims that are partial on both sides are reduced too.
  ReferenceEngine(const Sharding& from, const Sharding& to, const Buffers& in,
                  const NaiveOptions& options, bool keeps)
      : from_(from), to_(to), in_(in), options_(options), keeps_(keeps), random_(options.seed) {
    for (int d = 0; d < from.mesh().NumDims(); ++d) {
      if (!from.placement(d).IsPartial()) continue;
      op_ = from.placement(d).op();
      if (!keeps || !to.placement(d).IsPartial()) reduced_.push_back(d);
      std::vector<int64_t> order(from.mesh().dim(d).size);
      std::iota(order.begin(), order.end(), 0);
      random_.Shuffle(order);
      orders_[d] = order;
    }
    random_.Shuffle(reduced_);
    divides_at_once_ = T::kFamily == Family::kInteger || random_.OneIn(2);
  }

  Buffers Run() {
    FindOwners();
    const DeviceMesh& mesh = to_.mesh();
    Buffers out(mesh.NumRanks());
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      const Box box = to_.LocalBox(mesh.RankAt(p));
      out[p].resize(box.NumElements() * sizeof(Bits));
      const Coordinate at = mesh.CoordinateAt(p);
      ForEachElement(to_.shape(), box, [&](int64_t global, int64_t local) {
        const Bits bits = ValueAt({at.begin(), at.end()}, global);
        std::memcpy(out[p].data() + local * sizeof(Bits), &bits, sizeof(Bits));
      });
    }
    return out;
  }

 private:
  int64_t FlattenedPartial(const Index& coordinate) const {
    int64_t flat = 0;
    for (int d = 0; d < from_.mesh().NumDims(); ++d) {
      if (from_.placement(d).IsPartial()) flat = flat * from_.mesh().dim(d).size + coordinate[d];
    }
    return flat;
  }

  void FindOwners() {
    const DeviceMesh& mesh = from_.mesh();
    const int64_t elements = NumElements(from_.shape());
    owners_.resize(mesh.NumRanks());
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      const Coordinate at = mesh.CoordinateAt(p);
      auto& owned = owners_[FlattenedPartial({at.begin(), at.end()})];
      owned.resize(elements);
      ForEachElement(from_.shape(), from_.LocalBox(mesh.RankAt(p)),
                     [&](int64_t global, int64_t local) {
                       owned[global] = {p, local};
                     });
    }
  }

  Bits ValueAt(Index coordinate, int64_t element) {
    for (int d = 0; d < to_.mesh().NumDims(); ++d) {
      const Placement& placement = to_.placement(d);
      if (!placement.IsPartial() || (keeps_ && from_.placement(d).IsPartial())) continue;
      if (placement.op() != ReduceOp::kAvg && coordinate[d] != 0) {
        return Identity<T>(placement.op());
      }
    }
    // For another mesh all partial mesh dims are reduced, whatever the coordinate.
    if (!(from_.mesh() == to_.mesh())) coordinate.assign(from_.mesh().NumDims(), 0);
    int64_t divisor = 1;
    for (const int d : reduced_) {
      if (from_.placement(d).op() == ReduceOp::kAvg) divisor *= from_.mesh().dim(d).size;
    }
    const Bits bits = Reduce(coordinate, element, 0);
    if (!divides_at_once_ || divisor == 1) return bits;  // moved, not computed
    return T::Encode(Quotient<T>(T::Decode(bits), divisor));
  }

  // Reduces over reduced_[i], reduced_[i + 1], ..., the last innermost.
  Bits Reduce(Index& coordinate, int64_t element, size_t i) {
    if (i == reduced_.size()) {
      const int64_t partial = FlattenedPartial(coordinate);
      if (options_.lost == partial) return Identity<T>(op_);
      const auto [position, local] = owners_[partial][element];
      Bits bits;
      std::memcpy(&bits, in_[position].data() + local * sizeof(Bits), sizeof(Bits));
      return bits;
    }
    const int d = reduced_[i];
    const int64_t kept = coordinate[d];
    Bits total{};
    bool first = true;
    for (const int64_t member : orders_[d]) {
      coordinate[d] = member;
      const Bits bits = Reduce(coordinate, element, i + 1);
      total = first ? bits : T::Encode(Fold<T>(op_, T::Decode(total), T::Decode(bits)));
      first = false;
    }
    coordinate[d] = kept;
    if (!divides_at_once_ && from_.placement(d).op() == ReduceOp::kAvg) {
      total = T::Encode(Quotient<T>(T::Decode(total), from_.mesh().dim(d).size));
    }
    return total;
  }

  const Sharding& from_;
  const Sharding& to_;
  const Buffers& in_;
  const NaiveOptions& options_;
  const bool keeps_;
  Random random_;
  ReduceOp op_ = ReduceOp::kSum;
  std::vector<int> reduced_;  // mesh dims
  std::map<int, std::vector<int64_t>> orders_;
  bool divides_at_once_ = false;
  // Per flattened partial coordinate and element: a position that holds it, and the local index.
  std::vector<std::vector<std::pair<int64_t, int64_t>>> owners_;
};

template <typename T>
Buffers RunAs(const Sharding& from, const Sharding& to, const Buffers& in,
              const NaiveOptions& options, bool keeps) {
  return ReferenceEngine<T>(from, to, in, options, keeps).Run();
}

// All magnitudes of a float of at most 16 bits, and one beyond the largest: a sorted list, indexed
// by bits.
template <typename T>
const std::vector<long double>& Magnitudes() {
  static const auto& magnitudes = *new std::vector<long double>([] {
    std::vector<long double> list;
    for (uint32_t bits = 0; bits <= T::kMaxBits; ++bits) {
      list.push_back(T::Decode(static_cast<typename T::Bits>(bits)));
    }
    list.push_back(2 * list.back() - list[list.size() - 2]);
    return list;
  }());
  return magnitudes;
}

// Holds any value of any real dtype.
using Real = long double;
static_assert(std::numeric_limits<Real>::digits >= 64);

template <typename T>
typename T::Bits Nearest(Real value) {
  using Bits = typename T::Bits;
  if (std::isnan(value)) return T::kNan;
  if constexpr (sizeof(Bits) == 8) {
    return T::Encode(static_cast<double>(value));
  } else if constexpr (sizeof(Bits) == 4) {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  } else {
    const std::vector<Real>& all = Magnitudes<T>();
    const Real magnitude = std::abs(value);
    const auto above = std::lower_bound(all.begin(), all.end(), magnitude) - all.begin();
    auto best = above;
    if (above == std::ssize(all)) {
      best = above - 1;
    } else if (above > 0) {
      const Real down = magnitude - all[above - 1];
      const Real up = all[above] - magnitude;
      if (down < up || (down == up && above % 2 == 1)) best = above - 1;
    }
    const bool beyond = best > T::kMaxBits;
    if (beyond && T::kInfinity == T::kMaxBits) return T::kNan;
    const Bits bits = beyond ? T::kInfinity : static_cast<Bits>(best);
    return static_cast<Bits>(std::signbit(value) ? bits | T::kSign : bits);
  }
}

template <typename S, typename T>
typename T::Bits CastOne(typename S::Bits bits) {
  constexpr bool kFromReal = S::kFamily == Family::kFloat;
  constexpr bool kToReal = T::kFamily == Family::kFloat;
  if constexpr (T::kFamily == Family::kComplex) {
    if constexpr (S::kFamily == Family::kComplex) {
      return {CastOne<typename S::Part, typename T::Part>(bits.re),
              CastOne<typename S::Part, typename T::Part>(bits.im)};
    } else {
      return {CastOne<S, typename T::Part>(bits), 0};
    }
  } else if constexpr (S::kFamily == Family::kComplex) {
    return {};  // refused
  } else if constexpr (T::kFamily == Family::kBool) {
    return S::Decode(bits) != 0 ? 1 : 0;
  } else if constexpr (kToReal) {
    return Nearest<T>(static_cast<Real>(S::Decode(bits)));
  } else if constexpr (kFromReal) {
    const Real value = std::trunc(static_cast<Real>(S::Decode(bits)));
    if (std::isnan(value)) return 0;
    if (value <= static_cast<Real>(T::Decode(T::kMin))) return T::kMin;
    if (value >= static_cast<Real>(T::Decode(T::kMax))) return T::kMax;
    return static_cast<typename T::Bits>(static_cast<Int128>(value));
  } else {
    return static_cast<typename T::Bits>(S::Decode(bits));
  }
}

Buffers CastAll(DType from, DType to, const Buffers& in) {
  if (from == to) return in;
  return WithType(from, [&]<typename S>(S /*type*/) {
    return WithType(to, [&]<typename T>(T /*type*/) {
      Buffers out(in.size());
      for (size_t p = 0; p < in.size(); ++p) {
        const size_t count = in[p].size() / sizeof(typename S::Bits);
        out[p].resize(count * sizeof(typename T::Bits));
        for (size_t i = 0; i < count; ++i) {
          typename S::Bits bits;
          std::memcpy(&bits, in[p].data() + i * sizeof(bits), sizeof(bits));
          const typename T::Bits cast = CastOne<S, T>(bits);
          std::memcpy(out[p].data() + i * sizeof(cast), &cast, sizeof(cast));
        }
      }
      return out;
    });
  });
}

// Writes the identity of the target's dtype on ranks that a mask leaves without values.
void FillMasked(const Sharding& from, const Sharding& to, bool keeps, Buffers* out) {
  for (int64_t p = 0; p < to.mesh().NumRanks(); ++p) {
    const Coordinate at = to.mesh().CoordinateAt(p);
    for (int d = 0; d < to.mesh().NumDims(); ++d) {
      const Placement& placement = to.placement(d);
      if (!placement.IsPartial() || placement.op() == ReduceOp::kAvg || at[d] == 0) continue;
      if (keeps && from.placement(d).IsPartial()) continue;
      WithType(to.dtype(), [&]<typename T>(T /*type*/) {
        const typename T::Bits identity = Identity<T>(placement.op());
        std::vector<std::byte>& buffer = (*out)[p];
        for (size_t i = 0; i < buffer.size(); i += sizeof(identity)) {
          std::memcpy(buffer.data() + i, &identity, sizeof(identity));
        }
      });
    }
  }
}

}  // namespace

Buffers RunNaively(const Sharding& from, const Sharding& to, const Buffers& in,
                   const NaiveOptions& options) {
  const bool one_mesh = from.mesh() == to.mesh();
  bool reduces = false;
  bool any_stays = false;
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (!from.placement(d).IsPartial() || from.mesh().dim(d).size == 1) continue;
    (one_mesh && to.placement(d).IsPartial() ? any_stays : reduces) = true;
  }
  bool keeps = one_mesh && IsExactCast(from.dtype(), to.dtype());
  DType reduce = from.dtype();
  if (reduces || (any_stays && !keeps)) {
    reduce = options.reduce_dtype.value_or(DefaultReduceDType(from.dtype(), to.dtype()));
    keeps = keeps && IsExactCast(from.dtype(), reduce) && IsExactCast(reduce, to.dtype());
  }
  const Sharding from_reduced = from.WithDType(reduce).value();
  const Sharding to_reduced = to.WithDType(reduce).value();
  const Buffers cast = CastAll(from.dtype(), reduce, in);
  const Buffers reduced = WithType(reduce, [&]<typename T>(T /*type*/) {
    return RunAs<T>(from_reduced, to_reduced, cast, options, keeps);
  });
  const DType detour = options.detour.value_or(reduce);
  Buffers out = CastAll(detour, to.dtype(), CastAll(reduce, detour, reduced));
  FillMasked(from, to, keeps, &out);
  return out;
}

}  // namespace meshift::testkit

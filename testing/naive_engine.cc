#include "testing/naive_engine.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "mesh/device_mesh.h"
#include "placement/box.h"
#include "placement/dtype.h"
#include "placement/placement.h"
#include "placement/sharding.h"
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
class NaiveEngine {
 public:
  using Bits = typename T::Bits;

  NaiveEngine(const Sharding& from, const Sharding& to, const Buffers& in,
              const NaiveOptions& options)
      : from_(from), to_(to), in_(in), options_(options), random_(options.seed) {
    for (int d = 0; d < from.mesh().NumDims(); ++d) {
      if (!from.placement(d).IsPartial()) continue;
      op_ = from.placement(d).op();
      if (!to.placement(d).IsPartial()) reduced_.push_back(d);
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
      if (!placement.IsPartial() || from_.placement(d).IsPartial()) continue;
      if (placement.op() != ReduceOp::kAvg && coordinate[d] != 0) {
        return Identity<T>(placement.op());
      }
    }
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
  Random random_;
  ReduceOp op_ = ReduceOp::kSum;
  std::vector<int> reduced_;  // mesh dims
  std::map<int, std::vector<int64_t>> orders_;
  bool divides_at_once_ = false;
  // Per partial coordinate, flattened, and element: a position that has it, and where.
  std::vector<std::vector<std::pair<int64_t, int64_t>>> owners_;
};

template <typename T>
Buffers RunAs(const Sharding& from, const Sharding& to, const Buffers& in,
              const NaiveOptions& options) {
  return NaiveEngine<T>(from, to, in, options).Run();
}

}  // namespace

Buffers RunNaively(const Sharding& from, const Sharding& to, const Buffers& in,
                   const NaiveOptions& options) {
  const auto run = [&] {
    switch (from.dtype()) {
      case DType::kBool:
        return &RunAs<Bool>;
      case DType::kI8:
        return &RunAs<I8>;
      case DType::kI16:
        return &RunAs<I16>;
      case DType::kI32:
        return &RunAs<I32>;
      case DType::kI64:
        return &RunAs<I64>;
      case DType::kU8:
        return &RunAs<U8>;
      case DType::kU16:
        return &RunAs<U16>;
      case DType::kU32:
        return &RunAs<U32>;
      case DType::kU64:
        return &RunAs<U64>;
      case DType::kF16:
        return &RunAs<F16>;
      case DType::kBF16:
        return &RunAs<BF16>;
      case DType::kF32:
        return &RunAs<F32>;
      case DType::kF64:
        return &RunAs<F64>;
      case DType::kF8E4M3:
        return &RunAs<F8E4M3>;
      case DType::kF8E5M2:
        return &RunAs<F8E5M2>;
      case DType::kC64:
        return &RunAs<C64>;
      default:
        return &RunAs<C128>;
    }
  }();
  return run(from, to, in, options);
}

}  // namespace meshift::testkit

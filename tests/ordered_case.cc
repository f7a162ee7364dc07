#include "tests/ordered_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "placement/op_table.h"
#include "testing/random.h"
#include "testing/synthetic_mesh.h"

namespace meshift {
namespace {

using testkit::Random;

// The exponent and fraction bits of a float.
struct Fields {
  int exponent = 0;
  int fraction = 0;
};
Fields FieldsOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {5, 10};
    case DType::kBF16:
      return {8, 7};
    case DType::kF32:
    case DType::kC64:
      return {8, 23};
    case DType::kF64:
    case DType::kC128:
      return {11, 52};
    case DType::kF8E4M3:
      return {4, 3};
    case DType::kF8E5M2:
      return {5, 2};
    default:
      return {};
  }
}

// A number near 1 with a random fraction, so that sums round; one in 32 has arbitrary bits.
uint64_t Number(DType dtype, ReduceOp op, Random& random) {
  const Fields fields = FieldsOf(dtype);
  const uint64_t any = random.Next();
  const int width = fields.exponent + fields.fraction + 1;
  if (fields.exponent == 0) return any;
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  if (random.OneIn(32)) return any & mask;
  const auto bias = (int64_t{1} << (fields.exponent - 1)) - 1;
  const int64_t spread = op == ReduceOp::kProduct ? 1 : 3;
  const int64_t exponent = bias - spread + random.Below(2 * spread);
  const uint64_t fraction = any & ((uint64_t{1} << fields.fraction) - 1);
  const uint64_t sign = random.Next() & 1;
  return sign << (width - 1) | static_cast<uint64_t>(exponent) << fields.fraction | fraction;
}

int64_t ItemBytes(DType dtype) { return Bytes(dtype, 1); }

// The index in the tensor of the k-th element of a box.
int64_t ElementOf(const Shape& shape, const Box& box, int64_t k) {
  int64_t element = 0;
  int64_t stride = 1;
  for (size_t t = shape.size(); t-- > 0;) {
    element += (box.offset[t] + k % box.size[t]) * stride;
    k /= box.size[t];
    stride *= shape[t];
  }
  return element;
}

}  // namespace

Topology DearMessages(int64_t domain) {
  const TopologyConstants usual;
  return Topology::Create({{"near", domain, 100'000, 1000}, {"far", 0, 50'000, 1000}},
                          {.message_latency_ns = 1000 * usual.collective_latency_ns})
      .value();
}

Topology DearCrossings(int64_t domain) {
  return Topology::Create({{"near", domain, 100'000, 0}, {"far", 0, 1, 0}},
                          {.collective_latency_ns = 0, .message_latency_ns = 0})
      .value();
}

std::vector<std::vector<int64_t>> Factorings(int64_t n) {
  std::vector<std::vector<int64_t>> all = {{n}};
  for (int64_t a = 2; a < n; ++a) {
    if (n % a != 0) continue;
    all.push_back({a, n / a});
    for (int64_t b = 2; b < n / a; ++b) {
      if (n / a % b == 0) all.push_back({a, b, n / a / b});
    }
  }
  return all;
}

OrderedCase::OrderedCase(uint64_t seed, const OrderedOptions& options)
    : seed_(seed), shuffle_(options.shuffle) {
  Random random(seed * 0x9e3779b9 + 17);
  constexpr std::array kDTypes = {DType::kBF16, DType::kF16,    DType::kF32, DType::kF64,
                                  DType::kBF16, DType::kF8E4M3, DType::kF32, DType::kF8E5M2,
                                  DType::kI32,  DType::kC64,    DType::kU8,  DType::kI64};
  constexpr std::array kOps = {ReduceOp::kSum,     ReduceOp::kAvg, ReduceOp::kSum,
                               ReduceOp::kProduct, ReduceOp::kMax, ReduceOp::kMin};
  dtype_ = kDTypes[random.Below(kDTypes.size())];
  do {
    op_ = kOps[random.Below(kOps.size())];
  } while (!CheckReduce(op_, dtype_).ok());
  const int64_t max_ranks = options.ranks > 0 ? options.ranks : options.max_ranks;
  do {
    contributions_ = 2 + random.Below(max_ranks - 1);
    others_ = options.ranks > 0 ? options.ranks / contributions_ : 1 + random.Below(3);
  } while (contributions_ * others_ > max_ranks ||
           (options.ranks > 0 && contributions_ * others_ != options.ranks));
  others_cut_ = random.OneIn(2);
  others_first_ = random.OneIn(2);
  const auto rank = 1 + random.Below(3);
  for (int64_t t = 0; t < rank; ++t) {
    shape_.push_back(random.OneIn(12) ? 1 : 1 + random.Below(rank == 1 ? 150 : 14));
  }
  if (options.blocks) {
    const std::array<int64_t, 6> sizes = {1, 2, 3, 4, 8, contributions_};
    block_ = sizes[random.Below(sizes.size())];
  }
  const PlainArithmetic plain(dtype_);
  const int64_t divisor = op_ == ReduceOp::kAvg ? contributions_ : 1;
  std::vector<Bits> list(contributions_);
  for (int64_t element = 0; element < NumElements(shape_); ++element) {
    for (int64_t c = 0; c < contributions_; ++c) list[c] = Contribution(c, element);
    expected_.push_back(plain.ReduceBlocks(op_, divisor, block_, list));
  }
}

std::string OrderedCase::ToString() const {
  return fmt::format("seed {}: {} of {}[{}] over {} in blocks of {}, {} others", seed_, Name(op_),
                     Name(dtype_), fmt::join(shape_, ","), contributions_, block_, others_);
}

Bits OrderedCase::Contribution(int64_t coordinate, int64_t element) const {
  Random random(seed_ ^ (static_cast<uint64_t>(coordinate) << 40) ^
                static_cast<uint64_t>(element) << 8);
  Bits bits = {Number(dtype_, op_, random), 0};
  if (IsComplex(dtype_)) bits[1] = Number(dtype_, op_, random);
  const int width = BitWidth(dtype_) / (IsComplex(dtype_) ? 2 : 1);
  if (width < 64) {
    for (uint64_t& part : bits) part &= (uint64_t{1} << width) - 1;
  }
  return bits;
}

std::vector<OrderedProblem> OrderedCase::Problems() const {
  std::vector<OrderedProblem> problems;
  uint64_t number = 0;
  for (const std::vector<int64_t>& factors : Factorings(contributions_)) {
    Random random(seed_ + 1000 * ++number);
    std::vector<int64_t> sizes = factors;
    const size_t other = others_first_ ? 0 : sizes.size();
    if (others_ > 1) sizes.insert(sizes.begin() + static_cast<int64_t>(other), others_);
    std::vector<std::string> from;
    std::vector<std::string> to;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const bool is_other = others_ > 1 && d == other;
      from.push_back(is_other                ? others_cut_ ? "S(0)" : "R"
                     : op_ == ReduceOp::kSum ? "P"
                                             : fmt::format("P({})", Name(op_)));
      to.push_back(random.OneIn(2)
                       ? "R"
                       : fmt::format("S({})", random.Below(static_cast<int64_t>(shape_.size()))));
    }
    const DeviceMesh mesh = shuffle_ && random.OneIn(3)
                                ? testkit::ShuffledMesh(sizes, seed_ + number).value()
                                : testkit::SyntheticMesh(sizes).value();
    const TensorType tensor = TensorType::Create(dtype_, shape_).value();
    problems.push_back(
        {Sharding::Parse(tensor, mesh, fmt::format("{}", fmt::join(from, ","))).value(),
         Sharding::Parse(tensor, mesh, fmt::format("{}", fmt::join(to, ","))).value()});
  }
  return problems;
}

void OrderedCase::Fill(const Sharding& from, int64_t position, absl::Span<std::byte> local) const {
  const DeviceMesh& mesh = from.mesh();
  const Coordinate at = mesh.CoordinateAt(position);
  int64_t coordinate = 0;
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (from.placement(d).IsPartial()) coordinate = coordinate * mesh.dim(d).size + at[d];
  }
  const Box box = from.BoxAt(at);
  const int64_t item = ItemBytes(dtype_);
  for (int64_t k = 0; k < box.NumElements(); ++k) {
    const Bits bits = Contribution(coordinate, ElementOf(shape_, box, k));
    const int64_t part = IsComplex(dtype_) ? item / 2 : item;
    for (int64_t i = 0; i * part < item; ++i) {
      std::memcpy(local.data() + k * item + i * part, &bits[i], part);
    }
  }
}

std::string OrderedCase::FindWrong(const Sharding& to, int64_t position,
                                   absl::Span<const std::byte> local) const {
  const Box box = to.BoxAt(to.mesh().CoordinateAt(position));
  const int64_t item = ItemBytes(dtype_);
  const int64_t part = IsComplex(dtype_) ? item / 2 : item;
  for (int64_t k = 0; k < box.NumElements(); ++k) {
    const int64_t element = ElementOf(shape_, box, k);
    Bits bits = {0, 0};
    for (int64_t i = 0; i * part < item; ++i) {
      std::memcpy(&bits[i], local.data() + k * item + i * part, part);
    }
    if (bits == expected_[element]) continue;
    return fmt::format("{}: the rank at {} holds {:#x},{:#x} at element {}, not {:#x},{:#x}",
                       ToString(), position, bits[0], bits[1], element, expected_[element][0],
                       expected_[element][1]);
  }
  return "";
}

}  // namespace meshift

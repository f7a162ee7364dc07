// Tests meshift/torch.h against plain PyTorch: each result is compared with that of at::chunk and
// loops of at::add on the same whole tensor. One rank per process:
//
//   mpirun -n 4 ./check
//
// Bits are compared if nothing is reduced, or if sums are exact.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "meshift/mpi_engine.h"
#include "meshift/torch.h"

namespace {

using meshift::DeviceMesh;
using meshift::MpiJob;
using meshift::Sharding;
using meshift::libtorch::Check;
using meshift::libtorch::DTensor;
using meshift::libtorch::Pending;
using meshift::libtorch::RedistributeOptions;
using meshift::libtorch::TensorRedistributor;
using meshift::libtorch::ToDType;
using meshift::libtorch::Transfer;

// A grid of ranks, row-major.
struct Grid {
  std::vector<int64_t> sizes;
  std::vector<int64_t> ranks;

  std::string Text() const {
    std::string text;
    for (size_t d = 0; d < sizes.size(); ++d) {
      text += (d == 0 ? "m" : ",m") + std::to_string(d) + "=" + std::to_string(sizes[d]);
    }
    for (size_t i = 0; i < ranks.size(); ++i)
      text += (i == 0 ? "@" : ",") + std::to_string(ranks[i]);
    return text;
  }
  // Empty if the rank is not in the grid.
  std::vector<int64_t> CoordinateOf(int64_t rank) const {
    auto position = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    if (position == static_cast<int64_t>(ranks.size())) return {};
    std::vector<int64_t> coordinate(sizes.size());
    for (size_t d = sizes.size(); d-- > 0; position /= sizes[d])
      coordinate[d] = position % sizes[d];
    return coordinate;
  }
};

// One mesh dim's placement.
struct Place {
  char kind = 'R';         // R, S, P
  int dim = 0;             // S: the tensor dim
  int order = -1;          // S: its position in the shard order of the dim; -1: mesh order
  std::string op = "sum";  // P

  std::string Text() const {
    if (kind == 'R') return "R";
    if (kind == 'P') return op == "sum" ? "P" : "P(" + op + ")";
    std::string text = "S(" + std::to_string(dim) + ")";
    if (order >= 0) text += "[" + std::to_string(order) + "]";
    return text;
  }
};
using Places = std::vector<Place>;

const Place R = {};
Place S(int dim, int order = -1) { return {.kind = 'S', .dim = dim, .order = order}; }
Place P(std::string op = "sum") { return {.kind = 'P', .op = std::move(op)}; }

std::string Text(const Places& places) {
  std::string text;
  for (const Place& place : places) text += (text.empty() ? "" : ",") + place.Text();
  return text;
}
bool HasPartial(const Places& places) {
  return std::any_of(places.begin(), places.end(), [](const Place& p) { return p.kind == 'P'; });
}

// The memory layout of the source.
enum class Layout { kPlain, kViewOfWhole, kTransposed, kEverySecond, kExpanded, kConjugated };

struct Case {
  Grid grid;
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  Places from;
  Places to;
  std::optional<Grid> to_grid = std::nullopt;  // none: the same
  std::optional<at::ScalarType> to_dtype = std::nullopt;
  std::optional<at::ScalarType> reduce_dtype = std::nullopt;
  Layout layout = Layout::kPlain;
  bool strided_out = false;
  bool exact = true;  // values are small integers, whose sums are exact in any order

  const Grid& ToGrid() const { return to_grid ? *to_grid : grid; }
  std::string Text() const {
    std::ostringstream text;
    text << at::toString(dtype) << at::IntArrayRef(sizes) << " on " << grid.Text() << " as "
         << ::Text(from) << " -> " << at::toString(to_dtype.value_or(dtype)) << " on "
         << ToGrid().Text() << " as " << ::Text(to) << ", layout " << static_cast<int>(layout)
         << (strided_out ? ", strided out" : "") << (exact ? ", small integers" : "");
    return text.str();
  }
};

// The part at a coordinate: cut by cut, outermost first.
at::Tensor PartAt(at::Tensor whole, const Grid& grid, const Places& places,
                  const std::vector<int64_t>& coordinate) {
  std::vector<size_t> cuts;
  for (size_t d = 0; d < places.size(); ++d) {
    if (places[d].kind == 'S') cuts.push_back(d);
  }
  std::stable_sort(cuts.begin(), cuts.end(),
                   [&](size_t a, size_t b) { return places[a].order < places[b].order; });
  for (const size_t d : cuts) {
    const int dim = places[d].dim;
    const std::vector<at::Tensor> chunks = whole.chunk(grid.sizes[d], dim);
    const auto i = static_cast<size_t>(coordinate[d]);
    whole = i < chunks.size() ? chunks[i] : whole.narrow(dim, whole.size(dim), 0);
  }
  return whole;
}

at::Tensor Values(const Case& c, int64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  std::vector<int64_t> sizes = c.sizes;
  if (c.layout == Layout::kExpanded) sizes[0] = 1;
  at::Tensor values;
  if (c.dtype == at::kBool) {
    values = at::randint(0, 2, sizes, generator);
  } else if (at::isComplexType(c.dtype)) {
    const auto part = [&] { return at::randint(-8, 9, sizes, generator).to(at::kFloat); };
    const at::Tensor real = part();
    values = at::complex(real, part());
  } else if (at::isIntegralType(c.dtype, false)) {
    const bool is_signed = c.dtype == at::kChar || c.dtype == at::kShort || c.dtype == at::kInt ||
                           c.dtype == at::kLong;
    values = at::randint(is_signed ? -100 : 0, 100, sizes, generator);
  } else {
    values = c.exact ? at::randint(-8, 9, sizes, generator) : at::randn(sizes, generator);
  }
  values = values.to(c.dtype);
  if (c.layout == Layout::kExpanded) values = values.expand(c.sizes);
  if (c.layout == Layout::kConjugated) values = values.conj();
  return values;
}

// The whole tensors of the source: one tensor, or for partial mesh dims one per coordinate of
// these, in row-major order. Each has a different seed.
std::vector<std::vector<int64_t>> PartialCoordinates(const Grid& grid, const Places& places) {
  std::vector<std::vector<int64_t>> all = {std::vector<int64_t>(places.size(), 0)};
  for (size_t d = 0; d < places.size(); ++d) {
    if (places[d].kind != 'P') continue;
    std::vector<std::vector<int64_t>> next;
    for (const std::vector<int64_t>& one : all) {
      for (int64_t i = 0; i < grid.sizes[d]; ++i) {
        next.push_back(one);
        next.back()[d] = i;
      }
    }
    all = std::move(next);
  }
  return all;
}
int64_t SeedOf(int64_t number, const Places& places, const std::vector<int64_t>& coordinate) {
  int64_t seed = 1000 * number + 1;
  for (size_t d = 0; d < places.size(); ++d) {
    seed = 7 * seed + (places[d].kind == 'P' ? coordinate[d] : 0);
  }
  return seed;
}

bool IsSmallFloat(at::ScalarType type) {
  return at::isFloatingType(type) && at::elementSize(type) < 4;
}

at::Tensor Combine(const std::string& op, const at::Tensor& a, const at::Tensor& b) {
  if (op == "min") return at::minimum(a, b);
  if (op == "max") return at::maximum(a, b);
  if (op == "product") return a * b;
  if (op == "and") return at::bitwise_and(a, b);
  if (op == "or") return at::bitwise_or(a, b);
  if (op == "xor") return at::bitwise_xor(a, b);
  return a + b;  // sum, avg
}

// The value of the source as a whole tensor, in the target's dtype.
at::Tensor Meaning(const Case& c, int64_t number) {
  const at::ScalarType result = c.to_dtype.value_or(c.dtype);
  at::Tensor total;
  std::string op;
  int64_t averaged = 1;
  for (size_t d = 0; d < c.from.size(); ++d) {
    if (c.from[d].kind != 'P') continue;
    if (op.empty() || c.from[d].op != "sum") op = c.from[d].op;
    if (c.from[d].op == "avg") averaged *= c.grid.sizes[d];
  }
  for (const std::vector<int64_t>& coordinate : PartialCoordinates(c.grid, c.from)) {
    at::Tensor one = Values(c, SeedOf(number, c.from, coordinate)).resolve_conj();
    if (!op.empty() && IsSmallFloat(c.dtype)) one = one.to(at::kFloat);
    total = total.defined() ? Combine(op, total, one) : one;
  }
  if (averaged != 1) {
    total = at::isIntegralType(c.dtype, false) ? at::div(total, averaged, "trunc")
                                               : at::div(total, averaged);
  }
  return total.to(result);
}

// A tensor with other strides and the same values; the memory between its elements has other
// values.
at::Tensor EverySecond(const at::Tensor& tensor) {
  return at::stack({tensor, tensor}, tensor.dim()).select(tensor.dim(), 1);
}

at::Tensor Source(const Case& c, int64_t number, int64_t rank) {
  const std::vector<int64_t> coordinate = c.grid.CoordinateOf(rank);
  if (coordinate.empty()) return {};
  at::Tensor part =
      PartAt(Values(c, SeedOf(number, c.from, coordinate)), c.grid, c.from, coordinate);
  switch (c.layout) {
    case Layout::kPlain:
      return part.contiguous();
    case Layout::kTransposed:
      return part.dim() < 2 ? part : part.transpose(0, -1).contiguous().transpose(0, -1);
    case Layout::kEverySecond:
      return EverySecond(part);
    default:
      return part;
  }
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.resolve_conj().contiguous();
  const at::Tensor y = b.resolve_conj().contiguous();
  return x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

bool AreNear(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const int digits = a.scalar_type() == at::kBFloat16 ? 8
                     : a.scalar_type() == at::kHalf   ? 11
                     : a.scalar_type() == at::kFloat  ? 24
                                                      : 53;
  const double unit = std::ldexp(4.0, -digits);
  return at::allclose(a.to(at::kDouble), b.to(at::kDouble), unit, 16 * unit);
}

class Checker {
 public:
  explicit Checker(TensorRedistributor* redistribute) : redistribute_(*redistribute) {}

  void Run(const Case& c) {
    const int64_t number = cases_++;
    const DTensor source = Wrapped(c, number);
    const at::Tensor before = source.local.defined() ? source.local.clone() : at::Tensor();
    const Sharding to = ShardingOf(c.ToGrid(), c.sizes, c.to_dtype.value_or(c.dtype), c.to);
    RedistributeOptions options = {.reduce_dtype = c.reduce_dtype};
    at::Tensor beside;  // memory between the elements of `out`
    if (c.strided_out && redistribute_.Empty(to).local.dim() > 0) {
      const at::Tensor plain = at::zeros_like(redistribute_.Empty(to).local);
      const at::Tensor pairs = at::stack({plain, plain}, 0);
      options.out = pairs.select(0, 1).transpose(0, -1).contiguous().transpose(0, -1);
      const at::Tensor wide = at::stack({options.out, plain}, plain.dim());
      options.out = wide.select(plain.dim(), 0);
      beside = wide.select(plain.dim(), 1);
    }
    const at::Tensor got = redistribute_(source, to, options).local;
    if (source.local.defined()) {
      TORCH_CHECK(SameBits(before, source.local), c.Text(), ": the source has changed");
    }
    if (beside.defined()) {
      TORCH_CHECK(got.is_same(options.out) && !beside.to(at::kBool).any().item<bool>(), c.Text(),
                  ": memory beside the target was written");
    }
    if (HasPartial(c.to)) {
      // Only the sum of the ranks' contributions is known.
      Places whole(c.to.size(), R);
      Judge(c, number, redistribute_({got, to}, Text(whole)).local, whole);
    } else {
      Judge(c, number, got, c.to);
    }
  }

  // All at once: in one call, or all started before the first wait.
  void RunTogether(const std::vector<Case>& cases, bool as_list) {
    std::vector<Transfer> list;
    std::vector<int64_t> numbers;
    for (const Case& c : cases) {
      numbers.push_back(cases_++);
      list.push_back({.source = Wrapped(c, numbers.back()),
                      .to = ShardingOf(c.ToGrid(), c.sizes, c.to_dtype.value_or(c.dtype), c.to),
                      .reduce_dtype = c.reduce_dtype});
    }
    std::vector<DTensor> results;
    if (as_list) {
      results = redistribute_(list);
    } else {
      std::vector<Pending<DTensor>> begun;
      for (const Transfer& t : list) {
        // The source goes out of scope here: the pending run keeps it.
        begun.push_back(redistribute_.Start(
            {t.source.local.defined() ? t.source.local.clone() : at::Tensor(), t.source.sharding},
            t.to));
      }
      for (auto& one : begun) results.push_back(one.Wait());
    }
    for (size_t i = 0; i < cases.size(); ++i)
      Judge(cases[i], numbers[i], results[i].local, cases[i].to);
  }

  int64_t cases() const { return cases_; }
  int64_t by_bits() const { return by_bits_; }

 private:
  static Sharding ShardingOf(const Grid& grid, const std::vector<int64_t>& sizes,
                             at::ScalarType dtype, const Places& places) {
    return Check(Sharding::Parse(
        meshift::TensorType{ToDType(dtype), meshift::Shape(sizes.begin(), sizes.end())},
        Check(DeviceMesh::Parse(grid.Text())), Text(places)));
  }

  DTensor Wrapped(const Case& c, int64_t number) const {
    return redistribute_.Wrap(Source(c, number, redistribute_.rank()),
                              ShardingOf(c.grid, c.sizes, c.dtype, c.from));
  }

  void Judge(const Case& c, int64_t number, const at::Tensor& got, const Places& places) {
    const std::vector<int64_t> coordinate = c.ToGrid().CoordinateOf(redistribute_.rank());
    const bool by_bits = c.exact || !HasPartial(c.from);
    if (by_bits) ++by_bits_;
    if (coordinate.empty()) {
      TORCH_CHECK(got.numel() == 0, c.Text(), ": a rank outside has got ", got);
      return;
    }
    const at::Tensor want = PartAt(Meaning(c, number), c.ToGrid(), places, coordinate);
    TORCH_CHECK(by_bits ? SameBits(got, want) : AreNear(got, want), "case ", number, ", rank ",
                redistribute_.rank(), ": ", c.Text(), "\ngot\n", got, "\nwant\n", want);
  }

  TensorRedistributor& redistribute_;
  int64_t cases_ = 0;
  int64_t by_bits_ = 0;
};

// The types of these names that this PyTorch has.
std::vector<at::ScalarType> TypesNamed(const std::vector<std::string>& names) {
  std::vector<at::ScalarType> types;
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (std::find(names.begin(), names.end(), at::toString(type)) != names.end()) {
      types.push_back(type);
    }
  }
  return types;
}

std::vector<Case> ListedCases() {
  const Grid line = {{4}, {0, 1, 2, 3}};
  const Grid square = {{2, 2}, {0, 1, 2, 3}};
  const Grid turned = {{2, 2}, {3, 1, 0, 2}};
  const Grid pair = {{2}, {1, 3}};
  std::vector<Case> cases;
  // Dtypes: the same moves for all, with uneven and empty chunks.
  for (const at::ScalarType dtype :
       TypesNamed({"Bool", "Char", "Byte", "Short", "Int", "Long", "Half", "BFloat16", "Float",
                   "Double", "ComplexFloat", "ComplexDouble", "UInt16", "UInt32", "UInt64",
                   "Float8_e4m3fn", "Float8_e5m2"})) {
    cases.push_back({line, {10, 6}, dtype, {S(0)}, {R}});
    cases.push_back({line, {5, 7}, dtype, {S(0)}, {S(1)}});
  }
  // Uneven, empty, of one element, without dims.
  cases.push_back({line, {3, 5}, at::kFloat, {S(0)}, {S(1)}});
  cases.push_back({line, {0, 5}, at::kFloat, {S(0)}, {S(1)}});
  cases.push_back({line, {1}, at::kDouble, {S(0)}, {R}});
  cases.push_back({line, {}, at::kFloat, {P()}, {R}});
  cases.push_back({line, {7, 3, 5}, at::kBFloat16, {R}, {S(2)}});
  cases.push_back({line, {13, 4}, at::kHalf, {S(1)}, {S(0)}});
  // Nested.
  cases.push_back({square, {10, 6}, at::kFloat, {S(0), S(0)}, {R, R}});
  cases.push_back({square, {10, 6}, at::kFloat, {S(0), S(0)}, {S(0), R}});
  cases.push_back({square, {7, 6}, at::kBFloat16, {S(0), S(0)}, {S(1), S(0)}});
  cases.push_back({square, {11, 3}, at::kInt, {S(0), S(0)}, {S(0, 1), S(0, 0)}});
  cases.push_back({square, {9, 9}, at::kDouble, {S(1), S(0)}, {S(0), S(1)}});
  cases.push_back({turned, {6, 10}, at::kFloat, {S(1), S(1)}, {R, S(0)}});
  // Strided.
  for (const Layout layout :
       {Layout::kViewOfWhole, Layout::kTransposed, Layout::kEverySecond, Layout::kExpanded}) {
    cases.push_back({.grid = line,
                     .sizes = {10, 6},
                     .from = {S(0)},
                     .to = {S(1)},
                     .layout = layout,
                     .strided_out = layout != Layout::kExpanded});
    cases.push_back({.grid = square,
                     .sizes = {5, 4, 6},
                     .dtype = at::kBFloat16,
                     .from = {S(1), R},
                     .to = {R, S(2)},
                     .layout = layout,
                     .strided_out = true});
  }
  cases.push_back({.grid = line,
                   .sizes = {6, 4},
                   .dtype = at::kComplexFloat,
                   .from = {S(0)},
                   .to = {R},
                   .layout = Layout::kConjugated});
  // Casts.
  cases.push_back({.grid = line,
                   .sizes = {10, 6},
                   .from = {S(0)},
                   .to = {R},
                   .to_dtype = at::kBFloat16,
                   .exact = false});
  cases.push_back({.grid = line,
                   .sizes = {10, 6},
                   .dtype = at::kDouble,
                   .from = {S(0)},
                   .to = {S(1)},
                   .to_dtype = at::kHalf,
                   .exact = false});
  cases.push_back({.grid = line,
                   .sizes = {9, 6},
                   .dtype = at::kBFloat16,
                   .from = {S(0)},
                   .to = {R},
                   .to_dtype = at::kFloat,
                   .exact = false});
  for (const at::ScalarType f8 : TypesNamed({"Float8_e4m3fn", "Float8_e5m2"})) {
    cases.push_back({.grid = line,
                     .sizes = {64, 9},
                     .from = {S(0)},
                     .to = {R},
                     .to_dtype = f8,
                     .exact = false});
  }
  // Partial: exact and inexact sums.
  for (const bool exact : {true, false}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      cases.push_back({.grid = line,
                       .sizes = {10, 6},
                       .dtype = dtype,
                       .from = {P()},
                       .to = {S(0)},
                       .reduce_dtype = dtype == at::kDouble ? dtype : at::kFloat,
                       .exact = exact});
      cases.push_back({.grid = square,
                       .sizes = {5, 6},
                       .dtype = dtype,
                       .from = {P(), P()},
                       .to = {R, R},
                       .exact = exact});
    }
    cases.push_back({.grid = line,
                     .sizes = {7, 6},
                     .dtype = at::kBFloat16,
                     .from = {P()},
                     .to = {S(0)},
                     .to_dtype = at::kFloat,
                     .reduce_dtype = at::kFloat,
                     .exact = exact});
    cases.push_back({.grid = line, .sizes = {7, 6}, .from = {P("avg")}, .to = {R}, .exact = exact});
    cases.push_back({.grid = square,
                     .sizes = {7, 6},
                     .from = {P(), P("avg")},
                     .to = {S(0), R},
                     .exact = exact});
    cases.push_back({.grid = square,
                     .sizes = {6, 7},
                     .from = {P("max"), S(0)},
                     .to = {S(0), R},
                     .exact = exact});
  }
  for (const char* op : {"sum", "avg", "min", "max", "product", "and", "or", "xor"}) {
    cases.push_back(
        {.grid = line, .sizes = {9, 5}, .dtype = at::kInt, .from = {P(op)}, .to = {S(1)}});
  }
  for (const char* op : {"and", "or", "min", "max"}) {
    cases.push_back(
        {.grid = line, .sizes = {9, 5}, .dtype = at::kBool, .from = {P(op)}, .to = {R}});
  }
  cases.push_back({.grid = line, .sizes = {4, 6}, .from = {R}, .to = {P()}});
  cases.push_back({.grid = square, .sizes = {4, 6}, .from = {S(0), R}, .to = {P(), P()}});
  // Onto other meshes.
  cases.push_back({line, {10, 6}, at::kFloat, {S(0)}, {R}, pair});
  cases.push_back({line, {10, 6}, at::kFloat, {S(0)}, {S(1), S(0)}, turned});
  cases.push_back({pair, {10, 6}, at::kBFloat16, {S(1)}, {S(0), S(0)}, square});
  cases.push_back({.grid = pair,
                   .sizes = {10, 6},
                   .from = {S(0)},
                   .to = {S(1)},
                   .to_grid = Grid{{2}, {2, 0}},
                   .to_dtype = at::kBFloat16,
                   .exact = false});
  cases.push_back(
      {.grid = square, .sizes = {10, 6}, .from = {P(), S(0)}, .to = {S(1)}, .to_grid = pair});
  cases.push_back({.grid = Grid{{1}, {2}},
                   .sizes = {3, 3},
                   .from = {R},
                   .to = {S(0)},
                   .to_grid = line,
                   .layout = Layout::kTransposed});
  return cases;
}

// The same on all ranks.
Case RandomCase(std::mt19937& random) {
  const auto draw = [&](int below) { return static_cast<int>(random() % below); };
  const Grid grids[] = {{{4}, {0, 1, 2, 3}},      {{2, 2}, {0, 1, 2, 3}}, {{2, 2}, {2, 0, 1, 3}},
                        {{3}, {3, 0, 2}},         {{1, 4}, {0, 1, 2, 3}}, {{2}, {1, 0}},
                        {{2, 1, 2}, {3, 2, 1, 0}}};
  const at::ScalarType dtypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble,
                                   at::kInt,   at::kLong,     at::kChar, at::kByte};
  Case c;
  c.grid = grids[draw(std::size(grids))];
  if (draw(3) == 0) c.to_grid = grids[draw(std::size(grids))];
  c.sizes.resize(1 + draw(4));
  for (int64_t& size : c.sizes) size = draw(8) == 0 ? 0 : 1 + draw(9);
  c.dtype = dtypes[draw(std::size(dtypes))];
  const auto places = [&](const Grid& grid, bool may_be_partial) {
    Places all(grid.sizes.size());
    for (Place& place : all) {
      const int kind = draw(may_be_partial ? 5 : 4);
      if (kind == 4) place = P();
      if (kind == 1 || kind == 2 || kind == 3) place = S(draw(static_cast<int>(c.sizes.size())));
    }
    return all;
  };
  c.from = places(c.grid, true);
  c.to = places(c.ToGrid(), false);
  c.exact = at::isIntegralType(c.dtype, false) || draw(2) == 0;
  c.layout = static_cast<Layout>(draw(4));
  c.strided_out = draw(3) == 0;
  return c;
}

// Pairs of 4-bit floats, if this PyTorch has them: moved as bytes.
void CheckPairs(TensorRedistributor& redistribute) {
  const int64_t rank = redistribute.rank();
  for (const at::ScalarType pairs : TypesNamed({"Float4_e2m1fn_x2"})) {
    const at::Tensor whole = at::arange(80, at::kByte).reshape({10, 8});
    const DTensor rows = redistribute.Wrap(whole.chunk(4, 0)[rank].view(pairs), {10, 8}, "S(0)");
    const at::Tensor all = redistribute(rows, "R").local;
    TORCH_CHECK(all.scalar_type() == pairs && SameBits(all.view(at::kByte), whole), "pairs, all");
    const at::Tensor columns = redistribute(rows, "S(1)").local;
    TORCH_CHECK(SameBits(columns.view(at::kByte), whole.chunk(4, 1)[rank]), "pairs, columns");
  }
}

void Run(meshift::Engine* engine) {
  // Redistributes among all meshes of these ranks.
  TensorRedistributor redistribute(Check(DeviceMesh::Parse("all=4")), engine);
  CheckPairs(redistribute);
  Checker checker(&redistribute);
  for (const Case& c : ListedCases()) checker.Run(c);
  std::mt19937 random(20);
  std::vector<Case> together;
  for (int i = 0; i < 200; ++i) {
    const Case c = RandomCase(random);
    checker.Run(c);
    together.push_back(c);
    if (together.size() == 20) {
      checker.RunTogether(together, /*as_list=*/true);
      checker.RunTogether(together, /*as_list=*/false);
      together.clear();
    }
  }
  if (redistribute.rank() == 0) {
    std::printf("PyTorch %s: %lld cases right, %lld of them bit for bit\n", TORCH_VERSION,
                static_cast<long long>(checker.cases()), static_cast<long long>(checker.by_bits()));
  }
}

}  // namespace

int main() {
  try {
    const auto job = Check(MpiJob::Start());
    try {
      Run(job->engine());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::fflush(nullptr);
      job->Leave(1);
    }
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
  return 0;
}

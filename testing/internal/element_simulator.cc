#include "testing/internal/element_simulator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "meshift/device_mesh.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

using Elements = std::vector<int64_t>;  // row-major indices, ascending
constexpr int64_t kItem = 4;

// torch.chunk(indices, n)[i]; empty if there are fewer chunks.
Elements Chunk(const Elements& indices, int64_t n, int64_t i) {
  const auto size = static_cast<int64_t>(indices.size());
  const int64_t chunk = (size + n - 1) / n;
  Elements result;
  for (int64_t k = i * chunk; k < std::min(size, (i + 1) * chunk); ++k) {
    result.push_back(indices[k]);
  }
  return result;
}

// The sizes of tensor dim t's outermost cut, if it is ragged.
Placement::Sizes SizesOf(const Sharding& s, int t) {
  return s.CutsOf(t).empty() ? Placement::Sizes() : s.placement(s.CutsOf(t)[0]).sizes();
}

// The indices along tensor dim t of the rank at a coordinate; with `before`, those that this mesh
// dim cuts.
Elements IndicesOf(const Sharding& s, const Coordinate& at, int t, int before = -1) {
  Elements indices;
  for (int64_t i = 0; i < s.shape()[t]; ++i) indices.push_back(i);
  const Placement::Sizes sizes = SizesOf(s, t);
  for (const int d : s.CutsOf(t)) {
    if (d == before) break;
    if (d != s.CutsOf(t)[0] || sizes.empty()) {
      indices = Chunk(indices, s.mesh().dim(d).size, at[d]);
      continue;
    }
    auto begin = indices.begin();
    for (int64_t i = 0; i < at[d]; ++i) begin += sizes[i];
    indices = Elements(begin, begin + sizes[at[d]]);
  }
  return indices;
}

// Whether an At leaves the rank at a coordinate out.
bool IsLeftOut(const Sharding& s, const Coordinate& at) {
  for (int d = 0; d < s.mesh().NumDims(); ++d) {
    if (!s.placement(d).IsAt()) continue;
    const Placement::Sizes& owners = s.placement(d).coordinates();
    if (std::count(owners.begin(), owners.end(), at[d]) == 0) return true;
  }
  return false;
}

Elements ElementsOf(const Sharding& s, const Coordinate& at) {
  if (IsLeftOut(s, at)) return {};
  Elements elements = {0};
  for (int t = 0; t < static_cast<int>(s.shape().size()); ++t) {
    const Elements indices = IndicesOf(s, at, t);
    Elements longer;
    for (const int64_t e : elements) {
      for (const int64_t i : indices) longer.push_back(e * s.shape()[t] + i);
    }
    elements = longer;
  }
  return elements;
}

bool HasOneOwner(const Placement& p) { return p.IsAt() && p.coordinates().size() == 1; }
bool HasManyOwners(const Placement& p) { return p.IsAt() && p.coordinates().size() > 1; }

// Whether no two coordinates of a mesh dim hold the same element.
bool Splits(const Placement& p) { return p.IsShard() || HasOneOwner(p); }

// The coordinates of a mesh dim that hold all that its ranks hold; none if it is P or a cut.
Placement::Sizes OwnersOf(const Sharding& s, int d) {
  const Placement& p = s.placement(d);
  if (p.IsAt()) return p.coordinates();
  Placement::Sizes owners;
  if (p.IsReplicate()) {
    owners.resize(s.mesh().dim(d).size);
    std::iota(owners.begin(), owners.end(), 0);
  }
  return owners;
}

// The most indices along tensor dim t that a rank has before mesh dim d cuts them.
size_t MostBefore(const Sharding& s, int t, int d) {
  size_t most = 0;
  for (int64_t p = 0; p < s.mesh().NumRanks(); ++p) {
    const Coordinate at = s.mesh().CoordinateAt(p);
    most = std::max(most, IndicesOf(s, at, t, d).size());
  }
  return most;
}

// The coordinate that a cut gives everything to; -1 if there is none.
int64_t OwnerOfCut(const Sharding& s, int t, int d) {
  if (!s.placement(d).IsRagged()) return MostBefore(s, t, d) == 1 ? 0 : -1;
  const Placement::Sizes& sizes = s.placement(d).sizes();
  const auto zeros = static_cast<size_t>(std::count(sizes.begin(), sizes.end(), 0));
  if (zeros + 1 != sizes.size()) return -1;
  return std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
}

// The same layout with At(1) for S(0){0,8,0}, and At(0) where a plain cut divides single rows.
Sharding WithOwners(const Sharding& s) {
  std::vector<Placement> placements(s.placements().begin(), s.placements().end());
  std::vector<Cuts> orders(s.shape().size());
  for (int t = 0; t < static_cast<int>(s.shape().size()); ++t) {
    for (const int d : s.CutsOf(t)) {
      const int64_t owner = OwnerOfCut(s, t, d);
      if (owner < 0) {
        orders[t].push_back(d);
      } else {
        placements[d] = Placement::At({owner});
      }
    }
  }
  return Sharding::Create(s.mesh(), s.tensor(), std::move(placements), std::move(orders)).value();
}

// A rooted op is the name of an op whose mesh dims have one owner each.
StepOp WithoutRoot(StepOp op) {
  switch (op) {
    case StepOp::kBroadcast:
      return StepOp::kAllGather;
    case StepOp::kReduce:
      return StepOp::kReduceScatter;
    case StepOp::kGather:
    case StepOp::kScatter:
    case StepOp::kSend:
      return StepOp::kAllToAll;
    default:
      return op;
  }
}

bool In(const DimSet& dims, int d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

// The number of outermost cuts of tensor dim t that the two shardings share.
size_t CommonCuts(const Sharding& a, const Sharding& b, int t) {
  if (SizesOf(a, t) != SizesOf(b, t)) return 0;
  const auto x = a.CutsOf(t);
  const auto y = b.CutsOf(t);
  return std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin();
}

int64_t Most(const std::vector<Elements>& boxes) {
  size_t most = 0;
  for (const Elements& box : boxes) most = std::max(most, box.size());
  return static_cast<int64_t>(most) * kItem;
}

}  // namespace

ElementSimulator::ElementSimulator(Sharding before, Sharding after, StepOp op, DimSet mesh_dims)
    : from_(std::move(before)),
      to_(std::move(after)),
      before_(from_),
      after_(to_),
      op_(op),
      mesh_dims_(std::move(mesh_dims)),
      n_(before_.mesh().NumRanks()) {
  // A plan without At has only cuts.
  if (from_.HasAt() || to_.HasAt() || op_ != WithoutRoot(op_)) {
    before_ = WithOwners(from_);
    after_ = WithOwners(to_);
  }
  for (int64_t p = 0; p < n_; ++p) {
    at_.push_back(before_.mesh().CoordinateAt(p));
    old_.push_back(ElementsOf(before_, at_[p]));
    new_.push_back(ElementsOf(after_, at_[p]));
  }
  for (int d : mesh_dims_) group_size_ *= before_.mesh().dim(d).size;
}

bool ElementSimulator::Run() {
  if (!NameFits() || !ManyOwnersMayChange()) return false;
  std::vector<Holding> result(n_);
  for (int64_t p = 0; p < n_; ++p) {
    for (const int64_t e : new_[p]) {
      std::optional<Contributions> value = ValueOf(p, e);
      if (!value) return false;
      result[p][e] = *std::move(value);
    }
  }
  return IsComplete(result);
}

// Whether the mesh dims of a rooted op are written as At where its name says so, and only there.
bool ElementSimulator::NameFits() const {
  if (op_ == WithoutRoot(op_)) return true;
  const bool from_owner =
      op_ == StepOp::kBroadcast || op_ == StepOp::kScatter || op_ == StepOp::kSend;
  const bool to_owner = op_ == StepOp::kReduce || op_ == StepOp::kGather || op_ == StepOp::kSend;
  return std::all_of(mesh_dims_.begin(), mesh_dims_.end(), [&](int d) {
    return from_.placement(d).IsAt() == from_owner && to_.placement(d).IsAt() == to_owner;
  });
}

// Only a slice changes a mesh dim with several owners: it keeps some of them.
bool ElementSimulator::ManyOwnersMayChange() const {
  for (int d = 0; d < before_.mesh().NumDims(); ++d) {
    const Placement& b = before_.placement(d);
    const Placement& a = after_.placement(d);
    if (a == b || (!HasManyOwners(a) && !HasManyOwners(b))) continue;
    const Placement::Sizes old_owners = OwnersOf(before_, d);
    const Placement::Sizes new_owners = OwnersOf(after_, d);
    if (op_ != StepOp::kSlice || new_owners.empty() ||
        !std::includes(old_owners.begin(), old_owners.end(), new_owners.begin(),
                       new_owners.end())) {
      return false;
    }
  }
  return true;
}

// Whether a mesh dim is placed otherwise after the step, or has another cut outside it.
bool ElementSimulator::Moves(int d) const {
  const Placement& b = before_.placement(d);
  const Placement& a = after_.placement(d);
  if (a.kind() != b.kind() || (a.IsAt() && a != b)) return true;
  for (int t = 0; t < static_cast<int>(before_.shape().size()); ++t) {
    const size_t common = CommonCuts(before_, after_, t);
    for (const Sharding* s : {&before_, &after_}) {
      const auto cuts = s->CutsOf(t).subspan(common);
      if (std::find(cuts.begin(), cuts.end(), d) != cuts.end()) return true;
    }
  }
  return false;
}

bool ElementSimulator::HasForm() const {
  for (int d = 0; d < before_.mesh().NumDims(); ++d) {
    if (Moves(d) != In(mesh_dims_, d)) return false;
  }
  return NameFits() && ManyOwnersMayChange() &&
         std::all_of(mesh_dims_.begin(), mesh_dims_.end(), [&](int d) {
           const Placement& b = before_.placement(d);
           const Placement& a = after_.placement(d);
           switch (WithoutRoot(op_)) {
             case StepOp::kAllReduce:
               return b.IsPartial() && a.IsReplicate();
             case StepOp::kReduceScatter:
               return b.IsPartial() && Splits(a);
             case StepOp::kAllGather:
               return Splits(b) && a.IsReplicate();
             case StepOp::kAllToAll:
               return Splits(b) && Splits(a);
             case StepOp::kPermute:
             case StepOp::kExchange:
             case StepOp::kSlice:
               return !b.IsPartial() && !a.IsPartial();
             case StepOp::kMask:
               return (b.IsReplicate() || Splits(b)) && a.IsPartial();
             default:
               return false;
           }
         });
}

// Whether two ranks differ only on mesh dims for which may_differ(d).
template <typename MayDiffer>
bool ElementSimulator::Differ(int64_t p, int64_t q, const MayDiffer& may_differ) const {
  for (int d = 0; d < before_.mesh().NumDims(); ++d) {
    if (at_[p][d] != at_[q][d] && !may_differ(d)) return false;
  }
  return true;
}

std::vector<int64_t> ElementSimulator::GroupOf(int64_t p) const {
  std::vector<int64_t> members;
  for (int64_t q = 0; q < n_; ++q) {
    if (Differ(p, q, [&](int d) { return In(mesh_dims_, d); })) members.push_back(q);
  }
  return members;
}

bool ElementSimulator::Holds(int64_t p, int64_t e) const {
  return std::binary_search(old_[p].begin(), old_[p].end(), e);
}

ElementSimulator::Contributions ElementSimulator::OwnOf(int64_t p) const {
  Contributions own(n_, 0);
  own[p] = 1;
  return own;
}

void ElementSimulator::Send(int64_t from, int64_t to) {
  sent_[from] += kItem;
  received_[to] += kItem;
}

// The value of element e on the rank at p after the step; null: the op cannot produce it.
std::optional<ElementSimulator::Contributions> ElementSimulator::ValueOf(int64_t p, int64_t e) {
  switch (WithoutRoot(op_)) {
    case StepOp::kAllReduce:
    case StepOp::kReduceScatter: {
      Contributions sum(n_, 0);
      for (const int64_t q : GroupOf(p)) {
        if (!Holds(q, e)) return std::nullopt;
        ++sum[q];
      }
      return sum;
    }
    case StepOp::kAllGather:
    case StepOp::kAllToAll:
    case StepOp::kExchange: {
      if (Holds(p, e)) return OwnOf(p);
      std::optional<int64_t> holder;
      for (int64_t q = 0; q < n_; ++q) {
        if (!Holds(q, e) || !Differ(p, q, [&](int d) {
              return In(mesh_dims_, d) && Splits(before_.placement(d));
            })) {
          continue;
        }
        if (holder) return std::nullopt;
        holder = q;
      }
      if (!holder) return std::nullopt;
      Send(*holder, p);
      return OwnOf(*holder);
    }
    case StepOp::kPermute: {
      const int64_t q = SourceOfPermute(p);
      if (q < 0 || old_[q] != new_[p]) return std::nullopt;
      if (q != p) Send(q, p);
      return OwnOf(q);
    }
    case StepOp::kSlice:
      if (!Holds(p, e)) return std::nullopt;
      return OwnOf(p);
    case StepOp::kMask: {
      const bool keeps = std::all_of(mesh_dims_.begin(), mesh_dims_.end(), [&](int d) {
        return !before_.placement(d).IsReplicate() || at_[p][d] == 0;
      });
      return keeps && Holds(p, e) ? OwnOf(p) : Contributions(n_, 0);
    }
    default:
      return std::nullopt;
  }
}

// The rank from which the rank at p takes its box; -1 if the format gives it none.
int64_t ElementSimulator::SourceOfPermute(int64_t p) const {
  Coordinate source = at_[p];
  DimSet only_old;
  DimSet only_new;
  std::array<std::vector<int>, 2> moving;
  // An owner is a cut of a dim of its own. No other mesh dim can take that cut over, so each rank
  // takes from its own coordinate.
  for (int d = 0; d < before_.mesh().NumDims(); ++d) {
    if (before_.placement(d).IsAt() != after_.placement(d).IsAt()) return -1;
    if (before_.placement(d) == after_.placement(d) || !after_.placement(d).IsAt()) continue;
    for (std::vector<int>& dims : moving) dims.push_back(d);
  }
  for (int t = 0; t < static_cast<int>(before_.shape().size()); ++t) {
    const auto b = before_.CutsOf(t);
    const auto a = after_.CutsOf(t);
    if (a.size() != b.size()) return -1;
    for (size_t i = CommonCuts(before_, after_, t); i < b.size(); ++i) {
      if (before_.mesh().dim(b[i]).size != before_.mesh().dim(a[i]).size) return -1;
      source[b[i]] = at_[p][a[i]];
      moving[0].push_back(b[i]);
      moving[1].push_back(a[i]);
    }
  }
  for (int64_t size = 1; size <= n_; ++size) {
    for (int d = 0; d < before_.mesh().NumDims(); ++d) {
      if (before_.mesh().dim(d).size != size) continue;
      const bool was = std::count(moving[0].begin(), moving[0].end(), d) > 0;
      const bool is = std::count(moving[1].begin(), moving[1].end(), d) > 0;
      if (was && !is) only_old.push_back(d);
      if (is && !was) only_new.push_back(d);
    }
  }
  if (only_old.size() != only_new.size()) return -1;
  for (size_t i = 0; i < only_old.size(); ++i) source[only_new[i]] = at_[p][only_old[i]];
  return before_.mesh().PositionAt(source);
}

// Whether over each group of partial ranks each element has all contributions of the source, once.
bool ElementSimulator::IsComplete(const std::vector<Holding>& result) const {
  for (int64_t p = 0; p < n_; ++p) {
    for (const auto& [e, own] : result[p]) {
      Contributions sum(n_, 0);
      for (int64_t q = 0; q < n_; ++q) {
        if (!Differ(p, q, [&](int d) { return after_.placement(d).IsPartial(); })) continue;
        for (int64_t i = 0; i < n_; ++i) sum[i] += result[q].at(e)[i];
      }
      // Source ranks with equal coordinates on the partial dims hold the same contribution.
      for (int64_t i = 0; i < n_; ++i) {
        int count = 0;
        for (int64_t j = 0; j < n_; ++j) {
          if (Differ(i, j, [&](int d) { return !before_.placement(d).IsPartial(); })) {
            count += sum[j];
          }
        }
        if (count != 1) return false;
      }
    }
  }
  return true;
}

bool ElementSimulator::AllEven() const {
  for (int64_t p = 0; p < n_; ++p) {
    for (const int64_t q : GroupOf(p)) {
      if (old_[p].size() != old_[q].size() || new_[p].size() != new_[q].size()) return false;
    }
  }
  return true;
}

// Whether the members' pieces, in ascending order of ranks, differ from the parent's content.
bool ElementSimulator::IsPacked(const std::vector<Elements>& pieces,
                                const std::vector<Elements>& parents) const {
  if (!AllEven()) return true;
  for (int64_t p = 0; p < n_; ++p) {
    std::vector<std::pair<int64_t, int64_t>> members;  // rank, position
    for (const int64_t q : GroupOf(p)) members.emplace_back(before_.mesh().RankAt(q), q);
    std::sort(members.begin(), members.end());
    Elements content;
    for (const auto& member : members) {
      const Elements& piece = pieces[member.second];
      content.insert(content.end(), piece.begin(), piece.end());
    }
    if (content != parents[p]) return true;
  }
  return false;
}

// The rule for exact blocks: they are not packed if they are in the order of the cuts and have at
// most one index along the tensor dims before the last cut one.
bool ElementSimulator::AreExactBlocksPacked(const Sharding& cut, const Sharding& parent) const {
  std::vector<int> order;
  int last = -1;
  // An owner is a cut of a dim of size 1 in front of the others.
  for (int d = 0; d < cut.mesh().NumDims(); ++d) {
    if (HasOneOwner(cut.placement(d)) && cut.placement(d) != parent.placement(d)) {
      order.push_back(d);
    }
  }
  for (int t = 0; t < static_cast<int>(cut.shape().size()); ++t) {
    const auto cuts = cut.CutsOf(t);
    for (size_t i = CommonCuts(cut, parent, t); i < cuts.size(); ++i) {
      order.push_back(cuts[i]);
      last = t;
    }
  }
  for (int64_t p = 0; p < n_; ++p) {
    for (int t = 0; t < last; ++t) {
      if (IndicesOf(cut, at_[p], t).size() > 1) return true;
    }
    if (ElementsOf(parent, at_[p]).empty()) continue;
    for (const int64_t q : GroupOf(p)) {
      const auto place = [&](int64_t r) {
        std::vector<int64_t> coordinates;
        for (const int d : order) coordinates.push_back(at_[r][d]);
        return coordinates;
      };
      const DeviceMesh& mesh = before_.mesh();
      if ((place(p) < place(q)) != (mesh.RankAt(p) < mesh.RankAt(q))) return true;
    }
  }
  return false;
}

// Whether each message between two ranks, or kept by one, is contiguous in the rank's box.
bool ElementSimulator::MessagesAreRuns(const std::vector<Elements>& boxes, bool of_senders) const {
  for (int64_t p = 0; p < n_; ++p) {
    for (int64_t q = 0; q < n_; ++q) {
      if (!Differ(p, q, [&](int d) { return In(mesh_dims_, d) && Splits(before_.placement(d)); })) {
        continue;
      }
      Elements message;
      std::set_intersection(old_[q].begin(), old_[q].end(), new_[p].begin(), new_[p].end(),
                            std::back_inserter(message));
      const Elements& box = boxes[of_senders ? q : p];
      if (std::search(box.begin(), box.end(), message.begin(), message.end()) == box.end() &&
          !message.empty()) {
        return false;
      }
    }
  }
  return true;
}

PlanFields ElementSimulator::MakePlan(bool exact) const {
  const DeviceMesh& mesh = before_.mesh();
  PlanFields plan{.meshes = {mesh}, .from = from_, .to = to_, .kept = Reproducibility::kNone};
  Step step{.op = op_, .mesh_dims = mesh_dims_, .after = to_};
  for (int t = 0; t < static_cast<int>(before_.shape().size()); ++t) {
    if (from_.CutsOf(t) != to_.CutsOf(t) || SizesOf(from_, t) != SizesOf(to_, t)) {
      step.tensor_dims.push_back(t);
    }
  }
  const StepOp op = WithoutRoot(op_);
  const bool has_blocks = op == StepOp::kAllGather || op == StepOp::kReduceScatter;
  const bool pads = has_blocks && !exact;
  step.bytes_in = Most(old_);
  step.bytes_out = Most(new_);
  int64_t to_send = 0;
  int64_t to_receive = 0;
  if (IsCollective(op_)) {
    step.group_size = group_size_;
    step.groups = n_ / group_size_;
    step.wire_dtype = DType::kF32;
    step.sizes = AllEven() ? StepSizes::kEven : pads ? StepSizes::kPadded : StepSizes::kExact;
    const bool padded = step.sizes == StepSizes::kPadded;
    if (IsReduction(op_)) {
      step.reduce_op = ReduceOp::kSum;
      step.reduce_order = ReduceOrder::kAny;
      step.accumulate_dtype = DType::kF32;
    }
    if (has_blocks && step.sizes == StepSizes::kExact) {
      const bool gathers = op == StepOp::kAllGather;
      for (int64_t p = 0; p < n_; ++p) {
        int64_t others = 0;
        for (const int64_t q : GroupOf(p)) {
          if (q != p) others += static_cast<int64_t>((gathers ? old_ : new_)[q].size()) * kItem;
        }
        step.bytes_sent = std::max(step.bytes_sent, others);
      }
      if (gathers && AreExactBlocksPacked(before_, after_)) to_receive = step.bytes_out;
      if (!gathers && AreExactBlocksPacked(after_, before_)) to_send = step.bytes_in;
    } else if (op == StepOp::kAllReduce) {
      step.bytes_sent = (2 * step.bytes_in * (group_size_ - 1) + group_size_ - 1) / group_size_;
    } else if (op == StepOp::kReduceScatter) {
      step.bytes_sent = (group_size_ - 1) * step.bytes_out;
      if (IsPacked(new_, old_)) {
        to_send = group_size_ * step.bytes_out;
        to_receive = padded ? step.bytes_out : 0;
      }
    } else if (op == StepOp::kAllGather) {
      step.bytes_sent = (group_size_ - 1) * step.bytes_in;
      if (IsPacked(old_, new_)) {
        to_send = padded ? step.bytes_in : 0;
        to_receive = group_size_ * step.bytes_in;
      }
    } else {
      for (const auto& [p, bytes] : sent_) step.bytes_sent = std::max(step.bytes_sent, bytes);
      if (op != StepOp::kPermute) {
        if (!MessagesAreRuns(old_, /*of_senders=*/true)) to_send = step.bytes_sent;
        if (!MessagesAreRuns(new_, /*of_senders=*/false)) {
          for (const auto& [p, bytes] : received_) to_receive = std::max(to_receive, bytes);
        }
      }
    }
    plan.total.collectives = 1;
  }
  plan.total.bytes_sent = step.bytes_sent;
  plan.total.workspace_bytes = (to_send + 15) / 16 * 16 + (to_receive + 15) / 16 * 16;
  plan.total.peak_bytes = step.bytes_in + step.bytes_out + plan.total.workspace_bytes;
  plan.steps.push_back(std::move(step));
  return plan;
}

}  // namespace meshift

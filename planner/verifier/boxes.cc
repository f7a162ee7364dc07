#include "planner/verifier/boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

namespace meshift::verifier_internal {
namespace {

// The dims of `dims` that are not in `others`.
Cuts Without(absl::Span<const int> dims, absl::Span<const int> others) {
  Cuts rest;
  for (const int d : dims) {
    if (!Contains(others, d)) rest.push_back(d);
  }
  return rest;
}

Cuts Within(absl::Span<const int> dims, absl::Span<const int> others) {
  Cuts common;
  for (const int d : dims) {
    if (Contains(others, d)) common.push_back(d);
  }
  return common;
}

Cuts Joined(Cuts first, absl::Span<const int> second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::string Where(const MeshShape& mesh_shape, absl::Span<const int> dims, const Walk& walk) {
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", mesh_shape.mesh.dim(dims[i]).name,
                        walk.coordinate()[i]);
  }
  return text;
}

// The elements of the largest box, over the tensor dims whose cuts do not change.
Int128 LargestUnchanged(const MeshShape& mesh_shape, const State& state, const Change& change) {
  Int128 elements = 1;
  size_t next = 0;
  for (size_t t = 0; t < state.cuts.size(); ++t) {
    if (next < change.cuts.size() && change.cuts[next].tensor_dim == static_cast<int>(t)) {
      ++next;
    } else {
      elements *= LargestPiece(mesh_shape, state, static_cast<int>(t));
    }
  }
  return elements;
}

// Calls `visit(parents)` for each combination of one parent size per changed tensor dim. Different
// mesh dims make the parents of different tensor dims, so some group has each combination.
void ForEachParent(const Change& change,
                   const std::function<void(absl::Span<const size_t>)>& visit) {
  for (const CutChange& cut : change.cuts) {
    if (cut.parents.empty()) return;
  }
  absl::InlinedVector<size_t, 4> choice(change.cuts.size(), 0);
  while (true) {
    visit(choice);
    size_t c = 0;
    while (c < choice.size() && ++choice[c] == change.cuts[c].parents.size()) choice[c++] = 0;
    if (c == choice.size()) return;
  }
}

// The pieces of one parent before and after. held_for, by the coordinates of `holder_dims`: the
// number of indices of a member's piece before that its receivers need, counting each receiver.
struct Tables {
  std::vector<Interval> before;
  std::vector<Interval> after;
  std::vector<int64_t> held_for;
};

std::vector<std::vector<Tables>> MakeTables(const MeshShape& mesh_shape, const Change& change) {
  std::vector<std::vector<Tables>> tables(change.cuts.size());
  for (size_t c = 0; c < tables.size(); ++c) {
    for (const int64_t size : change.cuts[c].parents) {
      const CutChange& cut = change.cuts[c];
      tables[c].push_back({.before = Pieces(mesh_shape, size, cut.before, cut.sizes_before),
                           .after = Pieces(mesh_shape, size, cut.after, cut.sizes_after),
                           .held_for = {}});
    }
  }
  return tables;
}

// Sets held_for of every holder. Its receivers have the holder's coordinates on the mesh dims
// `fixed`, which are some of the cuts after.
void FillHeldFor(const MeshShape& mesh_shape, const CutChange& cut, absl::Span<const int> fixed,
                 Tables* tables) {
  const Cuts free = Without(cut.after, fixed);
  Coverage wanted;
  Walk outer(mesh_shape, fixed, {cut.after});
  do {
    wanted.Clear();
    Walk receivers(mesh_shape, free, {cut.after});
    do wanted.Add(tables->after[outer.index(0) + receivers.index(0)]);
    while (receivers.Next());
    for (const Interval& piece : tables->before) tables->held_for.push_back(wanted.Covered(piece));
  } while (outer.Next());
}

// The bounds of the non-empty pieces of a parent, ascending.
std::vector<int64_t> Ends(const std::vector<Interval>& pieces) {
  std::vector<int64_t> ends;
  for (const Interval& piece : pieces) {
    if (piece.size() == 0) continue;
    ends.push_back(piece.low);
    ends.push_back(piece.high);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

// A message is the common part of a piece before and a piece after. It is contiguous in its box if
// it covers the box along the later tensor dims and has one index along the earlier ones.
void FindContiguous(const MeshShape& mesh_shape, const State& before, const Change& change,
                    const std::vector<std::vector<Tables>>& tables, Traffic* traffic) {
  bool one_index = true;  // each message has one index along the tensor dims before t
  size_t next = 0;
  for (size_t t = 0; t < before.cuts.size(); ++t) {
    if (next == change.cuts.size() || change.cuts[next].tensor_dim != static_cast<int>(t)) {
      one_index = one_index && LargestPiece(mesh_shape, before, static_cast<int>(t)) <= 1;
      continue;
    }
    bool still_one = one_index;
    for (size_t p = 0; p < tables[next].size(); ++p) {
      const std::vector<int64_t> old_ends = Ends(tables[next][p].before);
      const std::vector<int64_t> new_ends = Ends(tables[next][p].after);
      const auto inside = [](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
        return std::includes(b.begin(), b.end(), a.begin(), a.end());
      };
      if (!one_index && !inside(new_ends, old_ends)) traffic->sent_contiguous = false;
      if (!one_index && !inside(old_ends, new_ends)) traffic->received_contiguous = false;
      std::vector<int64_t> all;
      std::set_union(old_ends.begin(), old_ends.end(), new_ends.begin(), new_ends.end(),
                     std::back_inserter(all));
      still_one = still_one && static_cast<int64_t>(all.size()) > change.cuts[next].parents[p];
    }
    one_index = still_one;
    ++next;
  }
}

}  // namespace

int64_t Common(const Interval& a, const Interval& b) {
  return std::max<int64_t>(0, std::min(a.high, b.high) - std::max(a.low, b.low));
}

std::vector<Interval> Pieces(const MeshShape& mesh_shape, int64_t size, absl::Span<const int> cuts,
                             const Sizes& sizes) {
  std::vector<Interval> pieces = {{0, size}};
  if (!cuts.empty() && !sizes.empty()) {
    pieces.clear();
    int64_t at = 0;
    for (const int64_t piece : sizes) {
      // Only the pieces of an owner dim may overlap: its owners all hold [0, 1).
      const int64_t low = at + piece > size ? 0 : at;
      pieces.push_back({low, low + piece});
      at = low + piece;
    }
    cuts.remove_prefix(1);
  }
  for (const int d : cuts) {
    const int64_t n = mesh_shape.sizes[d];
    std::vector<Interval> finer;
    finer.reserve(pieces.size() * n);
    for (const Interval& whole : pieces) {
      const int64_t chunk = whole.size() / n + (whole.size() % n != 0 ? 1 : 0);
      int64_t at = whole.low;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t end = at + std::min(chunk, whole.high - at);
        finer.push_back({at, end});
        at = end;
      }
    }
    pieces = std::move(finer);
  }
  return pieces;
}

Walk::Walk(const MeshShape& mesh_shape, absl::Span<const int> dims,
           absl::Span<const absl::Span<const int>> table_dims)
    : coordinate_(dims.size(), 0),
      index_(table_dims.size(), 0),
      strides_(dims.size() * table_dims.size(), 0) {
  for (const int d : dims) sizes_.push_back(mesh_shape.sizes[d]);
  for (size_t t = 0; t < table_dims.size(); ++t) {
    size_t stride = 1;
    for (size_t i = table_dims[t].size(); i-- > 0;) {
      const int d = table_dims[t][i];
      const auto at = std::find(dims.begin(), dims.end(), d);
      if (at != dims.end()) strides_[(at - dims.begin()) * table_dims.size() + t] = stride;
      stride *= static_cast<size_t>(mesh_shape.sizes[d]);
    }
  }
}

bool Walk::Next() {
  const size_t tables = index_.size();
  for (size_t i = sizes_.size(); i-- > 0;) {
    const size_t* strides = strides_.data() + i * tables;
    if (++coordinate_[i] < sizes_[i]) {
      for (size_t t = 0; t < tables; ++t) index_[t] += strides[t];
      return true;
    }
    coordinate_[i] = 0;
    for (size_t t = 0; t < tables; ++t) index_[t] -= strides[t] * (sizes_[i] - 1);
  }
  return false;
}

bool Coverage::Add(const Interval& interval) {
  if (interval.size() == 0) return true;
  int64_t before = 0;
  if (!entries_.empty()) {
    const Entry& last = entries_.back();
    if (interval.low < last.interval.high) return false;
    before = last.before + last.interval.size();
  }
  entries_.push_back({interval, before});
  return true;
}

int64_t Coverage::Below(int64_t index) const {
  const auto next =
      std::upper_bound(entries_.begin(), entries_.end(), index,
                       [](int64_t i, const Entry& entry) { return i < entry.interval.low; });
  if (next == entries_.begin()) return 0;
  const Entry& entry = *std::prev(next);
  return entry.before + std::min(index, entry.interval.high) - entry.interval.low;
}

std::optional<Uncovered> FindUncovered(const MeshShape& mesh_shape, const CutChange& cut,
                                       absl::Span<const int> sources) {
  const Cuts varying = Within(cut.before, sources);
  const Cuts fixed = Without(cut.before, sources);
  const Cuts free = Without(cut.after, fixed);
  const Cuts all = Joined(fixed, free);
  Coverage held;
  for (const int64_t parent : cut.parents) {
    const std::vector<Interval> before = Pieces(mesh_shape, parent, cut.before, cut.sizes_before);
    const std::vector<Interval> after = Pieces(mesh_shape, parent, cut.after, cut.sizes_after);
    Walk outer(mesh_shape, fixed, {cut.before, cut.after});
    do {
      held.Clear();
      bool once = true;
      Walk members(mesh_shape, varying, {cut.before});
      do once = held.Add(before[outer.index(0) + members.index(0)]) && once;
      while (members.Next());
      Walk receivers(mesh_shape, free, {cut.after});
      do {
        const Interval& wanted = after[outer.index(1) + receivers.index(0)];
        const int64_t found = held.Covered(wanted);
        if (once && found == wanted.size()) continue;
        std::string where = Where(mesh_shape, fixed, outer);
        if (!fixed.empty() && !free.empty()) where += ",";
        where += Where(mesh_shape, free, receivers);
        return Uncovered{std::move(where), !once, found, wanted.size()};
      } while (receivers.Next());
    } while (outer.Next());
  }
  return std::nullopt;
}

std::optional<Uncontained> FindUncontained(const MeshShape& mesh_shape, const Change& change) {
  if (mesh_shape.empty) return std::nullopt;
  const size_t n = change.cuts.size();
  const std::vector<std::vector<Tables>> tables = MakeTables(mesh_shape, change);
  std::vector<absl::Span<const int>> table_dims;
  for (const CutChange& cut : change.cuts) table_dims.push_back(cut.before);
  for (const CutChange& cut : change.cuts) table_dims.push_back(cut.after);
  std::optional<Uncontained> found;
  ForEachParent(change, [&](absl::Span<const size_t> parents) {
    if (found) return;
    Walk walk(mesh_shape, change.moving, table_dims);
    do {
      std::optional<Uncontained> missing;
      bool is_empty = false;
      for (size_t c = 0; c < n; ++c) {
        const Tables& table = tables[c][parents[c]];
        const Interval& wanted = table.after[walk.index(n + c)];
        const int64_t held = Common(table.before[walk.index(c)], wanted);
        is_empty = is_empty || wanted.size() == 0;
        if (held == wanted.size() || missing) continue;
        missing = {change.cuts[c].tensor_dim, {"", false, held, wanted.size()}};
      }
      if (!missing || is_empty) continue;
      missing->uncovered.where = Where(mesh_shape, change.moving, walk);
      found = std::move(missing);
      return;
    } while (walk.Next());
  });
  return found;
}

Traffic TrafficOfExchange(const MeshShape& mesh_shape, const State& before, const State& after,
                          const Change& change) {
  const size_t n = change.cuts.size();
  // Receivers of one holder that have the same box differ in the mesh dims that are cut before and
  // replicated after.
  Int128 copies = 1;
  for (const int d : change.moving) {
    if (before.dims[d].IsCut() && after.dims[d].IsReplicated()) copies *= mesh_shape.sizes[d];
  }
  std::vector<std::vector<Tables>> tables = MakeTables(mesh_shape, change);
  std::vector<Cuts> holder_dims;
  for (size_t c = 0; c < n; ++c) {
    const CutChange& cut = change.cuts[c];
    Cuts fixed;
    for (const int d : cut.after) {
      if (!before.dims[d].IsCut()) fixed.push_back(d);
    }
    for (Tables& table : tables[c]) FillHeldFor(mesh_shape, cut, fixed, &table);
    holder_dims.push_back(Joined(std::move(fixed), cut.before));
  }
  std::vector<absl::Span<const int>> table_dims;
  for (const CutChange& cut : change.cuts) table_dims.push_back(cut.before);
  for (const CutChange& cut : change.cuts) table_dims.push_back(cut.after);
  for (const Cuts& dims : holder_dims) table_dims.push_back(dims);

  Traffic worst;
  ForEachParent(change, [&](absl::Span<const size_t> parents) {
    Walk walk(mesh_shape, change.moving, table_dims);
    do {
      Int128 held_for = copies;
      Int128 kept = 1;
      Int128 wanted = 1;
      for (size_t c = 0; c < n; ++c) {
        const Tables& table = tables[c][parents[c]];
        const Interval& b = table.before[walk.index(c)];
        const Interval& a = table.after[walk.index(n + c)];
        kept *= Common(a, b);
        wanted *= a.size();
        held_for *= table.held_for[walk.index(2 * n + c)];
      }
      worst.sent = std::max(worst.sent, held_for - kept);
      worst.received = std::max(worst.received, wanted - kept);
    } while (walk.Next());
  });
  const Int128 unchanged = LargestUnchanged(mesh_shape, before, change);
  worst.sent = BytesOfElements(before.dtype, worst.sent * unchanged);
  worst.received = BytesOfElements(before.dtype, worst.received * unchanged);
  FindContiguous(mesh_shape, before, change, tables, &worst);
  return worst;
}

std::optional<Sources> SourcesOfPermute(const MeshShape& mesh_shape, const Change& change) {
  Sources sources(change.moving.size(), -1);
  const auto source_of = [&](int mesh_dim) -> int& {
    return sources[std::find(change.moving.begin(), change.moving.end(), mesh_dim) -
                   change.moving.begin()];
  };
  DimSet only_before = change.moving;
  DimSet only_after = change.moving;
  const auto erase = [](int d, DimSet* dims) {
    dims->erase(std::remove(dims->begin(), dims->end(), d), dims->end());
  };
  for (const CutChange& cut : change.cuts) {
    if (cut.before.size() != cut.after.size()) return std::nullopt;
    if (cut.sizes_before != cut.sizes_after) return std::nullopt;
    for (size_t i = 0; i < cut.before.size(); ++i) {
      if (mesh_shape.sizes[cut.before[i]] != mesh_shape.sizes[cut.after[i]]) return std::nullopt;
      source_of(cut.before[i]) = cut.after[i];
      erase(cut.before[i], &only_after);
      erase(cut.after[i], &only_before);
    }
  }
  const auto smaller = [&](int a, int b) { return mesh_shape.sizes[a] < mesh_shape.sizes[b]; };
  std::stable_sort(only_before.begin(), only_before.end(), smaller);
  std::stable_sort(only_after.begin(), only_after.end(), smaller);
  if (only_before.size() != only_after.size()) return std::nullopt;
  for (size_t i = 0; i < only_after.size(); ++i) {
    if (mesh_shape.sizes[only_after[i]] != mesh_shape.sizes[only_before[i]]) return std::nullopt;
    source_of(only_after[i]) = only_before[i];
  }
  return sources;
}

Traffic TrafficOfPermute(const MeshShape& mesh_shape, const State& before, const Change& change,
                         const Sources& sources) {
  const size_t n = change.cuts.size();
  const std::vector<std::vector<Tables>> tables = MakeTables(mesh_shape, change);
  std::vector<absl::Span<const int>> table_dims;
  for (const CutChange& cut : change.cuts) table_dims.push_back(cut.after);
  absl::InlinedVector<size_t, 4> from(sources.size());  // indices in `moving`
  for (size_t i = 0; i < sources.size(); ++i) {
    from[i] =
        std::find(change.moving.begin(), change.moving.end(), sources[i]) - change.moving.begin();
  }
  Int128 worst = 0;
  ForEachParent(change, [&](absl::Span<const size_t> parents) {
    Walk walk(mesh_shape, change.moving, table_dims);
    do {
      bool itself = true;
      for (size_t i = 0; i < from.size(); ++i) {
        itself = itself && walk.coordinate()[i] == walk.coordinate()[from[i]];
      }
      if (itself) continue;
      Int128 elements = 1;
      for (size_t c = 0; c < n; ++c) elements *= tables[c][parents[c]].after[walk.index(c)].size();
      worst = std::max(worst, elements);
    } while (walk.Next());
  });
  const Int128 bytes =
      BytesOfElements(before.dtype, worst * LargestUnchanged(mesh_shape, before, change));
  return {.sent = bytes, .received = bytes};
}

}  // namespace meshift::verifier_internal

#include "placement/nested_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "placement/most_pieces.h"
#include "testing/random.h"

namespace meshift {
namespace {

using Digits = NestedCuts::Digits;
using testkit::Random;

struct Piece {
  Digits at;
  Interval interval;
};

// All pieces, with empty ones, in ascending order of coordinates.
std::vector<Piece> PiecesOf(int64_t extent, const std::vector<int64_t>& sizes) {
  std::vector<Piece> pieces = {{{}, {0, extent}}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<Piece> next;
    for (const Piece& whole : pieces) {
      const int64_t chunk = (whole.interval.Length() + sizes[i] - 1) / sizes[i];
      for (int64_t j = 0; j < sizes[i]; ++j) {
        Piece piece = whole;
        piece.at[i] = j;
        piece.interval.begin = std::min(whole.interval.begin + chunk * j, whole.interval.end);
        piece.interval.end = std::min(piece.interval.begin + chunk, whole.interval.end);
        next.push_back(piece);
      }
    }
    pieces = std::move(next);
  }
  return pieces;
}

Nest NestOf(const std::vector<int64_t>& sizes) {
  Nest cuts;
  for (const int64_t size : sizes) cuts.push_back({size});
  return cuts;
}

struct Pieces {
  Pieces(int64_t extent, std::vector<int64_t> of)
      : sizes(std::move(of)), cuts(extent, NestOf(sizes)), pieces(PiecesOf(extent, sizes)) {}
  std::vector<int64_t> sizes;
  NestedCuts cuts;
  std::vector<Piece> pieces;
};

Pieces RandomNest(int64_t extent, Random& random) {
  std::vector<int64_t> sizes(random.Below(4));
  for (int64_t& size : sizes) size = 2 + random.Below(random.OneIn(3) ? 10 : 4);
  return Pieces(extent, sizes);
}

NestedCuts::Range RandomRange(const Pieces& nest, Random& random) {
  NestedCuts::Range range;
  for (size_t i = 0; i < nest.sizes.size(); ++i) {
    range.first[i] = random.Below(nest.sizes[i]);
    range.last[i] = range.first[i] + random.Below(nest.sizes[i] - range.first[i]);
  }
  return range;
}

bool IsIn(const NestedCuts::Range& range, const Digits& at) {
  for (size_t i = 0; i < at.size(); ++i) {
    if (at[i] < range.first[i] || at[i] > range.last[i]) return false;
  }
  return true;
}

int64_t RandomExtent(Random& random) { return 1 + random.Below(random.OneIn(2) ? 40 : 600); }

TEST(NestedCutsTest, CountsAsTheListOfPiecesDoes) {
  Random random(1);
  for (int i = 0; i < 20000 && !HasFailure(); ++i) {
    const int64_t extent = RandomExtent(random);
    const Pieces nest = RandomNest(extent, random);
    const NestedCuts::Range range = RandomRange(nest, random);
    const int64_t begin = random.Below(extent);
    const Interval window{begin, begin + 1 + random.Below(extent - begin)};
    NestedCuts::Sum sum;
    NestedCuts::Lengths lengths{INT64_MAX, 0};
    for (const Piece& piece : nest.pieces) {
      const int64_t length = piece.interval.Length();
      EXPECT_EQ(nest.cuts.Piece(piece.at).Length(), length);
      EXPECT_TRUE(length == 0 || nest.cuts.At(piece.interval.end - 1) == piece.at);
      if (!IsIn(range, piece.at)) continue;
      lengths = {std::min(lengths.least, length), std::max(lengths.most, length)};
      const int64_t common = CommonIndices(piece.interval, window);
      if (common > 0) sum.Add({1, common}, 1);
    }
    EXPECT_EQ(nest.cuts.LongestLength(), nest.pieces.front().interval.Length());
    EXPECT_EQ(nest.cuts.Within(window, range).pieces, sum.pieces);
    EXPECT_EQ(nest.cuts.Within(window, range).items, sum.items);
    EXPECT_EQ(nest.cuts.LengthsOf(range).least, lengths.least);
    EXPECT_EQ(nest.cuts.LengthsOf(range).most, lengths.most);
  }
}

// Two pieces with coordinates in the same runs, and their neighbours.
TEST(NestedCutsTest, InARunLengthsAreConstantAndBeginsLinear) {
  Random random(2);
  for (int i = 0; i < 5000 && !HasFailure(); ++i) {
    const Pieces nest = RandomNest(RandomExtent(random), random);
    for (size_t c = 0; c < nest.sizes.size(); ++c) {
      absl::InlinedVector<int64_t, 16> runs;
      nest.cuts.AppendRunBegins(static_cast<int>(c), &runs);
      for (const Piece& piece : nest.pieces) {
        Digits next = piece.at;
        if (++next[c] == nest.sizes[c]) continue;
        if (std::find(runs.begin(), runs.end(), next[c]) != runs.end()) continue;
        const Interval interval = nest.cuts.Piece(next);
        EXPECT_EQ(interval.Length(), piece.interval.Length());
        Digits after = next;
        if (++after[c] == nest.sizes[c]) continue;
        if (std::find(runs.begin(), runs.end(), after[c]) != runs.end()) continue;
        EXPECT_EQ(nest.cuts.Piece(after).begin - interval.begin,
                  interval.begin - piece.interval.begin);
      }
    }
  }
}

TEST(MostPiecesTest, LargestResidueIsThatOfAll) {
  Random random(3);
  for (int i = 0; i < 100000 && !HasFailure(); ++i) {
    const int64_t modulus = 1 + random.Below(50);
    const int64_t n = 1 + random.Below(60);
    const int64_t first = random.Below(100);
    const int64_t step = random.Below(100);
    int64_t largest = 0;
    for (int64_t j = 0; j < n; ++j) largest = std::max(largest, (first + j * step) % modulus);
    const int64_t at = LargestResidue(first, step, modulus, n);
    EXPECT_TRUE(at >= 0 && at < n);
    EXPECT_EQ((first + at * step) % modulus, largest)
        << first << " + i * " << step << " mod " << modulus << ", n " << n;
  }
  constexpr int64_t kHuge = INT64_MAX;
  EXPECT_EQ(LargestResidue(0, kHuge - 1, kHuge, 1 << 20), 1);
  EXPECT_EQ(LargestResidue(0, 1, kHuge, 1 << 20), (1 << 20) - 1);
}

TEST(MostPiecesTest, IsThatOfAllPieces) {
  Random random(4);
  for (int i = 0; i < 40000 && !HasFailure(); ++i) {
    const int64_t extent = RandomExtent(random);
    const Pieces windows = RandomNest(extent, random);
    const Pieces parts = RandomNest(extent, random);
    uint32_t fixed = 0;
    for (size_t c = 0; c < parts.sizes.size(); ++c) {
      if (random.OneIn(3)) fixed |= uint32_t{1} << c;
    }
    NestedCuts::Sum most;
    for (const Piece& window : windows.pieces) {
      std::map<Digits, NestedCuts::Sum> by_fixed;
      for (const Piece& part : parts.pieces) {
        const int64_t common = CommonIndices(window.interval, part.interval);
        if (common == 0) continue;
        Digits at = {};
        for (size_t c = 0; c < parts.sizes.size(); ++c) {
          if ((fixed >> c & 1) != 0) at[c] = part.at[c];
        }
        by_fixed[at].Add({1, common}, 1);
      }
      for (const auto& [at, sum] : by_fixed) {
        most = {std::max(most.pieces, sum.pieces), std::max(most.items, sum.items)};
      }
    }
    const MostPieces found = FindMostPieces(windows.cuts, parts.cuts, fixed);
    EXPECT_EQ(found.pieces, most.pieces) << extent;
    EXPECT_EQ(found.items, most.items) << extent;
    // The reported window has this number of overlaps.
    NestedCuts::Range range = parts.cuts.FullRange();
    for (size_t c = 0; c < parts.sizes.size(); ++c) {
      if ((fixed >> c & 1) != 0) range.first[c] = range.last[c] = found.parts[c];
    }
    EXPECT_EQ(parts.cuts.Within(windows.cuts.Piece(found.window), range).pieces, most.pieces);
  }
}

}  // namespace
}  // namespace meshift

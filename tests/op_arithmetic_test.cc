// Every op on every dtype that has it, on the in-process engine: the dtype's special values meet in
// all pairs and triples across ranks, and the results of all_reduce, reduce_scatter and mask are
// compared bit for bit with tests/plain_arithmetic.h.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/local_run.h"
#include "meshift/local_world.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/testing.h"
#include "placement/op_table.h"
#include "testing/small_world.h"
#include "tests/plain_arithmetic.h"

namespace meshift {
namespace {

using ::testing::AllOf;
using testkit::IsProven;
using testkit::Takes;

using Values = std::vector<Bits>;

// Bits of special real numbers, or integers.
std::vector<uint64_t> SpecialNumbers(const PlainArithmetic& plain) {
  const uint64_t sign = uint64_t{1} << (plain.width() - 1);
  if (plain.IsBool()) return {0, 1};
  if (!plain.IsFloat()) {
    const uint64_t ones = sign | (sign - 1);
    const uint64_t stripes = 0x5555555555555555 & ones;
    return {0,
            1,
            2,
            3,
            7,
            100 & ones,
            sign,
            sign + 1,
            sign - 1,
            sign - 2,
            ones,
            ones - 1,
            ones - 6,
            stripes,
            ~stripes & ones,
            sign >> 1,
            0x1234567890abcdef & ones};
  }
  std::vector<uint64_t> magnitudes;
  if (plain.IsSmallFloat()) {
    const SmallFormat& f = plain.small();
    for (const double x : {1.0, 1.5, 3.0, 0.1, 17.0, 2000.0}) magnitudes.push_back(f.Encode(x));
    const uint64_t normal = f.Encode(1.0) & -f.Encode(1.0);  // the lowest bit of the exponent
    for (const uint64_t m : {uint64_t{0}, uint64_t{1}, normal - 1, normal, f.largest() - 1,
                             f.largest(), f.highest(), f.nan(), sign - 1}) {
      magnitudes.push_back(m);
    }
    magnitudes.push_back(f.Encode(1.0) + 1);
  } else if (plain.width() == 32) {
    magnitudes = {0,          1,          0x7fffff,   0x800000,   0x33800000, 0x3f800000,
                  0x3f800001, 0x3fc00000, 0x40490fdb, 0x4b800000, 0x7f7ffffe, 0x7f7fffff,
                  0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
  } else {
    magnitudes = {0,
                  1,
                  0xfffffffffffff,
                  0x10000000000000,
                  0x3ca0000000000000,
                  0x3ff0000000000000,
                  0x3ff0000000000001,
                  0x3ff8000000000000,
                  0x400921fb54442d18,
                  0x4340000000000000,
                  0x7feffffffffffffe,
                  0x7fefffffffffffff,
                  0x7ff0000000000000,
                  0x7ff0000000000001,
                  0x7ff8000000000000,
                  0x7fffffffffffffff};
  }
  std::vector<uint64_t> values;
  for (const uint64_t magnitude : magnitudes) {
    values.push_back(magnitude);
    values.push_back(sign | magnitude);
  }
  return values;
}

// For a float a value near 1, so that sums round; otherwise any bits.
uint64_t RandomNumber(const PlainArithmetic& plain, bool near_one, std::mt19937_64& rng) {
  if (plain.IsBool()) return rng() & 1;
  const uint64_t sign = uint64_t{1} << (plain.width() - 1);
  if (!plain.IsFloat() || !near_one) return rng() & (sign | (sign - 1));
  const uint64_t one = plain.IsSmallFloat()  ? plain.small().Encode(1.0)
                       : plain.width() == 32 ? 0x3f800000
                                             : 0x3ff0000000000000;
  const uint64_t exponent = one & -one;  // its lowest bit
  return (rng() & sign) | (one - 3 * exponent + rng() % (6 * exponent));
}

Values SpecialValues(const PlainArithmetic& plain) {
  Values values;
  const std::vector<uint64_t> numbers = SpecialNumbers(plain);
  if (!plain.IsComplex()) {
    for (const uint64_t number : numbers) values.push_back({number, 0});
    return values;
  }
  // Every second number, so that both signs occur, with every third.
  for (size_t i = 0; i < numbers.size(); i += 2) {
    for (size_t k = i / 2 % 3; k < numbers.size(); k += 3)
      values.push_back({numbers[i], numbers[k]});
  }
  return values;
}

// Contributions of `ranks` ranks, [rank][element]: all tuples of special values if these are few,
// else random tuples of them; then random numbers, any and near 1.
std::vector<Values> Contributions(const PlainArithmetic& plain, int ranks) {
  constexpr size_t kMostTuples = 65536;
  const auto fraction = static_cast<size_t>(testkit::TestFraction());
  // All values, for 16 bits.
  const size_t num_any = (plain.width() == 16 ? 65536 : 8192) / fraction;
  const size_t num_near_one = 16384 / fraction;
  Values values = SpecialValues(plain);
  if (ranks == 2 && plain.width() == 8 && !plain.IsBool()) {  // all of them
    values.clear();
    for (uint64_t bits = 0; bits < 256; ++bits) values.push_back({bits, 0});
  }
  size_t tuples = 1;
  for (int r = 0; r < ranks && tuples <= kMostTuples; ++r) tuples *= values.size();
  const bool all = tuples <= kMostTuples;
  if (!all) tuples = kMostTuples / fraction;
  std::vector<Values> contributions(ranks);
  std::mt19937_64 rng(static_cast<uint64_t>(ranks));
  for (size_t i = 0; i < tuples; ++i) {
    size_t rest = i;
    for (int r = 0; r < ranks; ++r) {
      contributions[r].push_back(values[all ? rest % values.size() : rng() % values.size()]);
      rest /= values.size();
    }
  }
  // The first rank has all values of 16 bits; the number of elements allows even shards.
  for (size_t i = 0; i < num_any + num_near_one || contributions[0].size() % ranks != 0; ++i) {
    const bool near_one = i >= num_any;
    for (int r = 0; r < ranks; ++r) {
      const bool next = plain.width() == 16 && r == 0 && !near_one;
      const uint64_t number = next ? i & 0xffff : RandomNumber(plain, near_one, rng);
      const uint64_t im = plain.IsComplex() ? RandomNumber(plain, near_one, rng) : 0;
      contributions[r].push_back({number, im});
    }
  }
  return contributions;
}

std::vector<std::byte> Packed(const PlainArithmetic& plain, const Values& values) {
  const size_t part = plain.width() / 8;
  const size_t parts = plain.IsComplex() ? 2 : 1;
  std::vector<std::byte> bytes(values.size() * parts * part);
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t k = 0; k < parts; ++k) {
      std::memcpy(&bytes[(i * parts + k) * part], &values[i][k], part);  // little-endian
    }
  }
  return bytes;
}

Values Unpacked(const PlainArithmetic& plain, const std::vector<std::byte>& bytes) {
  const size_t part = plain.width() / 8;
  const size_t parts = plain.IsComplex() ? 2 : 1;
  Values values(bytes.size() / (part * parts), Bits{0, 0});
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t k = 0; k < parts; ++k) {
      std::memcpy(&values[i][k], &bytes[(i * parts + k) * part], part);
    }
  }
  return values;
}

// Runs `plan` in rank order; [rank][element] in and out.
absl::StatusOr<std::vector<Values>> RunPlan(const PlainArithmetic& plain, const Plan& plan,
                                            const std::vector<Values>& sources) {
  const DeviceMesh& mesh = plan.from().mesh();
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalWorld> world,
                           LocalWorld::Create({.num_ranks = mesh.NumRanks(), .num_workers = 0}));
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalRunner> runner,
                           LocalRunner::Create(world.get(), mesh));
  std::vector<std::vector<std::byte>> in;
  std::vector<std::vector<std::byte>> out;
  std::vector<void*> in_data;
  std::vector<void*> out_data;
  for (int64_t rank = 0; rank < mesh.NumRanks(); ++rank) {
    in.push_back(Packed(plain, sources[rank]));
    out.emplace_back(Bytes(plan.to().dtype(), plan.to().LocalBox(rank).NumElements()),
                     std::byte{0xa5});
    in_data.push_back(in.back().data());
    out_data.push_back(out.back().data());
  }
  MESHIFT_RETURN_IF_ERROR(runner->Run(plan, in_data, out_data).status());
  std::vector<Values> results;
  for (const std::vector<std::byte>& bytes : out) results.push_back(Unpacked(plain, bytes));
  return results;
}

std::string Text(const Bits& bits) { return fmt::format("{:#x}:{:#x}", bits[0], bits[1]); }

class OpArithmeticTest : public ::testing::TestWithParam<int> {
 protected:
  // Visits the ops of the dtype.
  template <typename Visit>
  void ForEachOp(Visit visit) const {
    for (int i = 0; i < kNumReduceOps; ++i) {
      const auto op = static_cast<ReduceOp>(i);
      if (!CheckReduce(op, dtype_).ok()) continue;
      SCOPED_TRACE(fmt::format("{} of {}", Name(op), Name(dtype_)));
      visit(op);
      ++visited_;
    }
    EXPECT_GE(visited_, 3);
  }

  Plan PlanOf(int64_t elements, const std::string& mesh, const std::string& from,
              const std::string& to) const {
    const Sharding source = *Sharding::Parse(fmt::format("{}[{}]", Name(dtype_), elements),
                                             *DeviceMesh::Parse(mesh), from);
    return *MakePlan(source, *source.WithPlacements(to));
  }

  // Each rank's result of `plan` is its part of `want`.
  void ExpectResults(const Plan& plan, const std::vector<Values>& sources,
                     const Values& want) const {
    const auto results = RunPlan(plain_, plan, sources);
    ASSERT_TRUE(results.ok()) << results.status();
    int64_t wrong = 0;
    int64_t compared = 0;
    for (size_t rank = 0; rank < results->size(); ++rank) {
      const Values& got = (*results)[rank];
      const int64_t begin = plan.to().LocalBox(static_cast<int64_t>(rank)).offset[0];
      for (size_t i = 0; i < got.size(); ++i, ++compared) {
        if (got[i] == want[begin + i] || ++wrong > 1) continue;
        std::string inputs;
        for (const Values& of_rank : sources) inputs += " " + Text(of_rank[begin + i]);
        ADD_FAILURE() << "rank " << rank << " holds " << Text(got[i]) << ", not "
                      << Text(want[begin + i]) << ", of" << inputs;
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_GE(compared, static_cast<int64_t>(want.size()));
  }

  Values Reduced(ReduceOp op, int64_t divisor, const std::vector<Values>& contributions) const {
    Values results;
    std::vector<Bits> of_element(contributions.size());
    for (size_t i = 0; i < contributions[0].size(); ++i) {
      for (size_t r = 0; r < contributions.size(); ++r) of_element[r] = contributions[r][i];
      results.push_back(plain_.Reduce(op, divisor, of_element));
    }
    return results;
  }

  const DType dtype_ = static_cast<DType>(GetParam());
  const PlainArithmetic plain_{dtype_};
  mutable int visited_ = 0;
};

TEST_P(OpArithmeticTest, AllReduceAndReduceScatter) {
  for (const int ranks : {2, 3, 5}) {
    const std::vector<Values> sources = Contributions(plain_, ranks);
    const auto elements = static_cast<int64_t>(sources[0].size());
    const std::string mesh = fmt::format("a={}", ranks);
    ForEachOp([&](ReduceOp op) {
      const std::string partial = fmt::format("P({})", Name(op));
      const Values want = Reduced(op, ranks, sources);
      const Plan all_reduce = PlanOf(elements, mesh, partial, "R");
      EXPECT_THAT(all_reduce, AllOf(Takes({"all_reduce{a}"}), IsProven()));
      ExpectResults(all_reduce, sources, want);
      const Plan reduce_scatter = PlanOf(elements, mesh, partial, "S(0)");
      EXPECT_THAT(reduce_scatter, AllOf(Takes({"reduce_scatter{a}"}), IsProven()));
      ExpectResults(reduce_scatter, sources, want);
    });
  }
}

// The average over b of the sum over a: one sum over all ranks, divided once by the size of b.
TEST_P(OpArithmeticTest, AveragesOfSums) {
  if (!CheckReduce(ReduceOp::kAvg, dtype_).ok()) GTEST_SKIP() << "no averages";
  const std::vector<Values> sources = Contributions(plain_, 6);
  const auto elements = static_cast<int64_t>(sources[0].size());
  const Values want = Reduced(ReduceOp::kAvg, 3, sources);
  const Plan plan = PlanOf(elements, "a=2,b=3", "P,P(avg)", "R,R");
  EXPECT_THAT(plan, AllOf(Takes({"all_reduce{a,b}"}), IsProven()));
  ExpectResults(plan, sources, want);
}

TEST_P(OpArithmeticTest, MasksHoldTheIdentity) {
  const Values values = SpecialValues(plain_);
  const auto elements = static_cast<int64_t>(values.size());
  for (const int ranks : {2, 3, 5}) {
    const std::string mesh = fmt::format("a={}", ranks);
    ForEachOp([&](ReduceOp op) {
      const std::string partial = fmt::format("P({})", Name(op));
      // A replicated value stays on coordinate 0 only; for an average it stays everywhere.
      const Plan from_copies = PlanOf(elements, mesh, "R", partial);
      EXPECT_THAT(from_copies, AllOf(Takes({"mask{a}"}), IsProven()));
      const auto masked = RunPlan(plain_, from_copies, std::vector<Values>(ranks, values));
      ASSERT_TRUE(masked.ok()) << masked.status();
      for (int r = 0; r < ranks; ++r) {
        const bool keeps = r == 0 || op == ReduceOp::kAvg;
        EXPECT_EQ((*masked)[r], keeps ? values : Values(elements, plain_.Identity(op))) << r;
      }
      if (op == ReduceOp::kAvg) return;
      // A shard stays in its place, surrounded by the identity.
      const Plan from_shards = PlanOf(elements, mesh, "S(0)", partial);
      EXPECT_THAT(from_shards, AllOf(Takes({"mask{a}"}), IsProven()));
      std::vector<Values> shards(ranks);
      std::vector<Values> want(ranks, Values(elements, plain_.Identity(op)));
      for (int r = 0; r < ranks; ++r) {
        const Box box = from_shards.from().LocalBox(r);
        for (int64_t i = box.offset[0]; i < box.offset[0] + box.size[0]; ++i) {
          shards[r].push_back(values[i]);
          want[r][i] = values[i];
        }
      }
      const auto spread = RunPlan(plain_, from_shards, shards);
      ASSERT_TRUE(spread.ok()) << spread.status();
      EXPECT_EQ(*spread, want);
    });
  }
}

// An identity leaves any value unchanged, on either side; NaN becomes canonical. (Except a product
// of complex numbers: (1, 0) changes signs of zeros and makes NaN of infinities.)
TEST_P(OpArithmeticTest, IdentitiesChangeNothing) {
  for (const Bits& value : SpecialValues(plain_)) {
    ForEachOp([&](ReduceOp op) {
      if (op == ReduceOp::kAvg || (op == ReduceOp::kProduct && plain_.IsComplex())) return;
      Bits want = value;
      for (int part = 0; part < (plain_.IsComplex() ? 2 : 1); ++part) {
        if (plain_.IsNaN(value[part])) want[part] = plain_.CanonicalNaN();
      }
      const Bits identity = plain_.Identity(op);
      // f8e4m3 has no infinity, but its largest value has the same effect.
      EXPECT_EQ(plain_.Reduce(op, 1, {value, identity}), want) << Text(value);
      EXPECT_EQ(plain_.Reduce(op, 1, {identity, value}), want) << Text(value);
    });
  }
}

std::vector<int> ReducedDTypes() {
  std::vector<int> dtypes;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (static_cast<DType>(i) != DType::kF4E2M1) dtypes.push_back(i);
  }
  return dtypes;
}

INSTANTIATE_TEST_SUITE_P(All, OpArithmeticTest, ::testing::ValuesIn(ReducedDTypes()),
                         [](const ::testing::TestParamInfo<int>& info) {
                           return std::string(Name(static_cast<DType>(info.param)));
                         });

// The sum of 40 times 2000 is beyond f16, but its average is not: it is divided before rounding.
TEST(OpArithmetic, AnAverageDoesNotOverflow) {
  const PlainArithmetic plain(DType::kF16);
  const uint64_t value = plain.small().Encode(2000);
  EXPECT_EQ(value, 0x67d0);
  for (const char* const to : {"R", "S(0)"}) {
    const Sharding from = *Sharding::Parse("f16[100] on a=40 as P(avg)");
    const auto results = RunPlan(plain, *MakePlan(from, *from.WithPlacements(to)),
                                 std::vector<Values>(40, Values(100, Bits{value, 0})));
    ASSERT_TRUE(results.ok()) << results.status();
    int64_t elements = 0;
    for (const Values& of_rank : *results) {
      for (const Bits& bits : of_rank) EXPECT_EQ(bits[0], value);
      elements += static_cast<int64_t>(of_rank.size());
    }
    EXPECT_EQ(elements, std::string(to) == "R" ? 4000 : 100);
  }
}

// Checks the reference itself on values computed by hand.
TEST(PlainArithmetic, SmallFloats) {
  const SmallFormat e4m3(4, 3, false);
  EXPECT_EQ(e4m3.Decode(0x7e), 448);
  EXPECT_EQ(e4m3.Encode(464), 0x7e);          // halfway to 480, to even
  EXPECT_EQ(e4m3.Encode(464.5), e4m3.nan());  // no infinity
  EXPECT_EQ(e4m3.nan(), 0x7f);
  EXPECT_EQ(e4m3.Decode(1), 1.0 / 512);
  EXPECT_EQ(e4m3.highest(), 0x7e);
  const SmallFormat e5m2(5, 2, true);
  EXPECT_EQ(e5m2.Decode(0x7b), 57344);
  EXPECT_EQ(e5m2.Encode(61440), 0x7c);  // halfway: infinity is the even one
  EXPECT_EQ(e5m2.nan(), 0x7e);
  const SmallFormat f16(5, 10, true);
  EXPECT_EQ(f16.Decode(0x7bff), 65504);
  EXPECT_EQ(f16.Encode(65519), 0x7bff);
  EXPECT_EQ(f16.Encode(65520), 0x7c00);
  EXPECT_EQ(f16.Encode(-0.0), 0x8000);
  EXPECT_EQ(f16.Encode(0x1p-25), 0);  // half of the least, to even
  EXPECT_EQ(f16.Encode(0x1.8p-25), 1);
  EXPECT_EQ(f16.Encode(2049), f16.Encode(2048));
  EXPECT_EQ(f16.Encode(2051), f16.Encode(2052));
  const SmallFormat bf16(8, 7, true);
  EXPECT_EQ(bf16.Encode(1), 0x3f80);
  EXPECT_EQ(bf16.nan(), 0x7fc0);
  EXPECT_EQ(bf16.Decode(0x7f7f), 0x1.fep127);
}

}  // namespace
}  // namespace meshift

// Runs programs with meshift/c.h only: a small executor runs those of all ranks in one process, and
// the oracle checks the results. Memory and order follow c.h; the arithmetic of dtypes comes from
// test code (tests/plain_arithmetic.h, testing/cast.h), not from the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "meshift/c.h"
#include "meshift/testing.h"
#include "testing/cast.h"
#include "testing/conformance_cases.h"
#include "testing/owner_world.h"
#include "testing/ragged_cases.h"
#include "tests/plain_arithmetic.h"

namespace meshift {
namespace {

using Bytes = std::vector<std::byte>;

// Fails the test with the message, and frees it.
void ExpectOk(meshift_code code, char** error) {
  EXPECT_EQ(code, MESHIFT_OK) << meshift_code_name(code) << ": " << (*error ? *error : "");
  meshift_free(*error);
  *error = nullptr;
}

// --- Arithmetic ---

const PlainArithmetic& PlainOf(meshift_dtype dtype) {
  static auto& all = *new std::map<meshift_dtype, std::unique_ptr<PlainArithmetic>>;
  std::unique_ptr<PlainArithmetic>& plain = all[dtype];
  if (plain == nullptr) plain = std::make_unique<PlainArithmetic>(static_cast<DType>(dtype - 1));
  return *plain;
}

int64_t WidthOf(meshift_dtype dtype) { return meshift_dtype_bits(dtype) / 8; }
bool IsComplexNumber(meshift_dtype dtype) {
  return dtype == MESHIFT_DTYPE_C64 || dtype == MESHIFT_DTYPE_C128;
}

Bits Load(meshift_dtype dtype, const std::byte* from) {
  const int64_t part = IsComplexNumber(dtype) ? WidthOf(dtype) / 2 : WidthOf(dtype);
  Bits bits = {};
  std::memcpy(&bits[0], from, part);
  if (IsComplexNumber(dtype)) std::memcpy(&bits[1], from + part, part);
  return bits;
}

void Store(meshift_dtype dtype, const Bits& bits, std::byte* to) {
  const int64_t part = IsComplexNumber(dtype) ? WidthOf(dtype) / 2 : WidthOf(dtype);
  std::memcpy(to, &bits[0], part);
  if (IsComplexNumber(dtype)) std::memcpy(to + part, &bits[1], part);
}

// `count` elements at `to` become the op over those at `inputs`, which may be at `to` too.
void Reduce(const meshift_instruction& by, const std::vector<const std::byte*>& inputs,
            int64_t count, std::byte* to) {
  const int64_t width = WidthOf(by.dtype);
  std::vector<Bits> contributions(inputs.size());
  for (int64_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < inputs.size(); ++j) {
      contributions[j] = Load(by.dtype, inputs[j] + i * width);
    }
    const auto op = static_cast<ReduceOp>(by.op - 1);
    Store(by.dtype, PlainOf(by.dtype).ReduceBlocks(op, by.divisor, by.op_block, contributions),
          to + i * width);
  }
}

// --- The executor ---

struct Rank {
  int64_t rank = 0;
  meshift_program* program = nullptr;
  meshift_program_info info = {};
  Bytes source, target, workspace;
  std::byte* source_begin = nullptr;  // the element (0, 0, ...)
  std::byte* target_begin = nullptr;
  size_t next = 0;  // instruction
};

std::byte* At(Rank& rank, const meshift_location& place) {
  switch (place.space) {
    case MESHIFT_SPACE_SOURCE:
      return rank.source_begin + place.offset;
    case MESHIFT_SPACE_TARGET:
      return rank.target_begin + place.offset;
    case MESHIFT_SPACE_WORKSPACE:
      return rank.workspace.data() + place.offset;
    default:
      ADD_FAILURE() << "space " << place.space;
      return nullptr;
  }
}

meshift_instruction InstructionOf(const Rank& rank) {
  meshift_instruction instruction = {};
  instruction.size = sizeof(instruction);
  char* error = nullptr;
  ExpectOk(meshift_program_get_instruction(rank.program, rank.next, &instruction, &error), &error);
  return instruction;
}

meshift_program_group GroupOf(const Rank& rank, int32_t index) {
  meshift_program_group group = {};
  group.size = sizeof(group);
  char* error = nullptr;
  ExpectOk(meshift_program_get_group(rank.program, index, &group, &error), &error);
  return group;
}

void Copy(Rank& rank, const meshift_instruction& by, size_t index) {
  meshift_copy copy = {};
  copy.size = sizeof(copy);
  char* error = nullptr;
  ExpectOk(meshift_program_get_copy(rank.program, index, &copy, &error), &error);
  const int64_t width = WidthOf(by.dtype);
  std::vector<int64_t> at(copy.num_dims, 0);
  int64_t elements = 1;
  for (size_t d = 0; d < copy.num_dims; ++d) elements *= copy.shape[d];
  for (int64_t i = 0; i < elements; ++i) {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < copy.num_dims; ++d) {
      from += at[d] * copy.src_strides[d];
      to += at[d] * copy.dst_strides[d];
    }
    std::memcpy(At(rank, copy.dst) + to * width, At(rank, copy.src) + from * width, width);
    for (size_t d = copy.num_dims; d-- > 0;) {
      if (++at[d] < copy.shape[d]) break;
      at[d] = 0;
    }
  }
}

void RunLocal(Rank& rank, const meshift_instruction& by) {
  const int64_t width = WidthOf(by.dtype);
  switch (by.kind) {
    case MESHIFT_INSTRUCTION_COPY:
      for (size_t i = 0; i < by.num_copies; ++i) Copy(rank, by, by.first_copy + i);
      return;
    case MESHIFT_INSTRUCTION_FILL_IDENTITY:
      for (int64_t i = 0; i < by.count; ++i) {
        Store(by.dtype, PlainOf(by.dtype).Identity(static_cast<ReduceOp>(by.op - 1)),
              At(rank, by.dst) + i * width);
      }
      return;
    case MESHIFT_INSTRUCTION_FILL_ZERO:
      std::memset(At(rank, by.dst), 0, by.count);
      return;
    case MESHIFT_INSTRUCTION_CAST: {
      const testkit::NumberOps& from = testkit::NumberOpsOf(static_cast<DType>(by.dtype - 1));
      const testkit::NumberOps& to = testkit::NumberOpsOf(static_cast<DType>(by.to_dtype - 1));
      for (int64_t i = 0; i < by.count; ++i) {
        to.store(from.load(At(rank, by.src), i), At(rank, by.dst), i);
      }
      return;
    }
    case MESHIFT_INSTRUCTION_REDUCE_IN_ORDER: {
      std::vector<const std::byte*> blocks;
      for (int64_t b = 0; b < by.blocks; ++b) {
        blocks.push_back(At(rank, by.src) + b * by.block_bytes);
      }
      Reduce(by, blocks, by.count, At(rank, by.dst));
      return;
    }
    default:
      ADD_FAILURE() << meshift_instruction_kind_name(by.kind) << " is local";
  }
}

// The blocks of a reduce_scatter or all_gather: where each begins, and the end of the last.
std::vector<int64_t> Bounds(const meshift_instruction& by, size_t members) {
  std::vector<int64_t> bounds = {0};
  EXPECT_TRUE(by.num_counts == 0 || by.num_counts == members);
  for (size_t i = 0; i < members; ++i) {
    bounds.push_back(bounds.back() + (by.num_counts != 0 ? by.counts[i] : by.count));
  }
  return bounds;
}

void SendAndReceive(const std::vector<Rank*>& members, const std::vector<meshift_instruction>& by) {
  std::map<std::pair<int32_t, int32_t>, Bytes> messages;  // by sender and receiver
  const auto message = [&](size_t member, size_t index) {
    meshift_message found = {};
    found.size = sizeof(found);
    char* error = nullptr;
    ExpectOk(meshift_program_get_message(members[member]->program, index, &found, &error), &error);
    return found;
  };
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t j = 0; j < by[i].num_sends; ++j) {
      const meshift_message send = message(i, by[i].first_send + j);
      const std::byte* const from = At(*members[i], send.at);
      messages[{i, send.peer}] = Bytes(from, from + send.count * WidthOf(by[i].dtype));
    }
  }
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t j = 0; j < by[i].num_recvs; ++j) {
      const meshift_message recv = message(i, by[i].first_recv + j);
      const auto sent = messages.extract({recv.peer, static_cast<int32_t>(i)});
      ASSERT_FALSE(sent.empty()) << recv.peer << " sends nothing to " << i;
      ASSERT_EQ(std::ssize(sent.mapped()), recv.count * WidthOf(by[i].dtype));
      std::copy(sent.mapped().begin(), sent.mapped().end(), At(*members[i], recv.at));
    }
  }
  EXPECT_TRUE(messages.empty()) << messages.size() << " messages are not received";
}

void RunCollective(const std::vector<Rank*>& members) {
  std::vector<meshift_instruction> by;
  for (const Rank* member : members) by.push_back(InstructionOf(*member));
  for (const meshift_instruction& other : by) {
    ASSERT_EQ(other.kind, by[0].kind);
    ASSERT_EQ(other.dtype, by[0].dtype);
    ASSERT_EQ(other.op, by[0].op);
  }
  if (by[0].kind == MESHIFT_INSTRUCTION_SEND_RECV) {
    SendAndReceive(members, by);
    return;
  }
  // All read before any writes: calls may be in place.
  const int64_t width = WidthOf(by[0].dtype);
  const std::vector<int64_t> bounds = Bounds(by[0], members.size());
  std::vector<Bytes> inputs;
  for (size_t i = 0; i < members.size(); ++i) {
    const int64_t elements = by[0].kind == MESHIFT_INSTRUCTION_REDUCE_SCATTER ? bounds.back()
                             : by[0].kind == MESHIFT_INSTRUCTION_ALL_GATHER
                                 ? bounds[i + 1] - bounds[i]
                                 : by[0].count;
    const std::byte* const from = At(*members[i], by[i].src);
    inputs.emplace_back(from, from + elements * width);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    std::byte* const to = At(*members[i], by[i].dst);
    std::vector<const std::byte*> blocks;
    switch (by[0].kind) {
      case MESHIFT_INSTRUCTION_ALL_REDUCE:
        for (const Bytes& input : inputs) blocks.push_back(input.data());
        Reduce(by[0], blocks, by[0].count, to);
        break;
      case MESHIFT_INSTRUCTION_REDUCE_SCATTER:
        for (const Bytes& input : inputs) blocks.push_back(input.data() + bounds[i] * width);
        Reduce(by[0], blocks, bounds[i + 1] - bounds[i], to);
        break;
      case MESHIFT_INSTRUCTION_ALL_GATHER:
        for (size_t j = 0; j < inputs.size(); ++j) {
          std::copy(inputs[j].begin(), inputs[j].end(), to + bounds[j] * width);
        }
        break;
      default:
        FAIL() << meshift_instruction_kind_name(by[0].kind) << " is a collective";
    }
  }
}

using Tally = std::map<std::string, int64_t>;

// Runs the programs of all ranks to their ends.
void Run(std::vector<Rank>& ranks, Tally* tally) {
  std::map<int64_t, Rank*> by_rank;
  for (Rank& rank : ranks) by_rank[rank.rank] = &rank;
  for (bool moved = true; moved;) {
    moved = false;
    for (Rank& rank : ranks) {
      for (; rank.next < rank.info.num_instructions; ++rank.next) {
        const meshift_instruction by = InstructionOf(rank);
        if (by.group >= 0) break;
        RunLocal(rank, by);
        ++(*tally)[meshift_instruction_kind_name(by.kind)];
        if (by.op_block > 0) ++(*tally)["in blocks"];
        moved = true;
      }
    }
    for (Rank& rank : ranks) {
      if (rank.next == rank.info.num_instructions) continue;
      const meshift_instruction by = InstructionOf(rank);
      if (by.group < 0) continue;
      const meshift_program_group group = GroupOf(rank, by.group);
      ASSERT_EQ(group.ranks[group.member], rank.rank);
      std::vector<Rank*> members;
      for (size_t i = 0; i < group.num_ranks; ++i) {
        Rank* const member = by_rank.at(group.ranks[i]);
        if (member->next == member->info.num_instructions) break;
        const meshift_instruction other = InstructionOf(*member);
        if (other.group < 0) break;
        const meshift_program_group its = GroupOf(*member, other.group);
        if (!std::equal(its.ranks, its.ranks + its.num_ranks, group.ranks,
                        group.ranks + group.num_ranks)) {
          break;
        }
        members.push_back(member);
      }
      if (members.size() < group.num_ranks) continue;
      RunCollective(members);
      if (::testing::Test::HasFatalFailure()) return;
      ++(*tally)[meshift_instruction_kind_name(by.kind)];
      if (by.num_counts > 0) ++(*tally)["blocks that differ"];
      for (Rank* const member : members) ++member->next;
      moved = true;
    }
  }
  for (const Rank& rank : ranks) {
    ASSERT_EQ(rank.next, rank.info.num_instructions) << "rank " << rank.rank << " is stuck";
  }
}

// --- Cases ---

// How the local tensors are given.
enum class Layout { kPlain, kConsumed, kOneBuffer, kStrided };

// Strides of the dims in reverse order, as Fortran and Julia have them.
std::vector<int64_t> ReverseStrides(const meshift_box& box) {
  std::vector<int64_t> strides(box.num_dims);
  int64_t stride = 1;
  for (int32_t d = 0; d < box.num_dims; ++d) {
    strides[d] = stride;
    stride *= std::max<int64_t>(box.shape[d], 1);
  }
  return strides;
}

// Moves elements between the row-major content of the box and the strided one.
void Rearrange(const meshift_box& box, bool to_strided, Bytes* local) {
  const std::vector<int64_t> strides = ReverseStrides(box);
  const int64_t width = WidthOf(box.dtype);
  Bytes other(local->size());
  for (int64_t i = 0; i < box.num_elements; ++i) {
    int64_t rest = i, at = 0;
    for (int32_t d = box.num_dims; d-- > 0;) {
      at += rest % box.shape[d] * strides[d];
      rest /= box.shape[d];
    }
    const int64_t from = to_strided ? i : at, to = to_strided ? at : i;
    std::memcpy(other.data() + to * width, local->data() + from * width, width);
  }
  *local = std::move(other);
}

struct Options {
  std::vector<std::pair<const char*, const char*>> planning;
  Layout layout = Layout::kPlain;
};

// One case through the C interface: plans, lowers for all ranks, runs, and checks with the oracle.
// False: the options do not allow a plan.
bool RunCase(const testkit::ConformanceCase& c, const Options& how, uint64_t seed, Tally* tally) {
  char* error = nullptr;
  meshift_sharding *from = nullptr, *to = nullptr;
  ExpectOk(meshift_sharding_parse(c.from.ToString().c_str(), &from, &error), &error);
  ExpectOk(meshift_sharding_parse(c.to.ToString().c_str(), &to, &error), &error);
  meshift_options* options = nullptr;
  ExpectOk(meshift_options_create(&options, &error), &error);
  for (const auto& [name, value] : how.planning) {
    ExpectOk(meshift_options_set(options, name, value, &error), &error);
  }
  if (c.reduce_dtype) {
    ExpectOk(meshift_options_set(options, "reduce_dtype",
                                 std::string(Name(*c.reduce_dtype)).c_str(), &error),
             &error);
  }
  meshift_plan* plan = nullptr;
  const meshift_code code = meshift_plan_make(from, to, options, &plan, &error);
  meshift_options_destroy(options);
  if (code != MESHIFT_OK) {
    EXPECT_FALSE(how.planning.empty()) << error;
    meshift_free(error);
    meshift_sharding_destroy(from);
    meshift_sharding_destroy(to);
    return false;
  }
  ExpectOk(meshift_plan_verify(plan, 0, nullptr, nullptr, &error), &error);

  const testkit::Oracle oracle = testkit::Oracle::Create(c.from, c.to, c.reduce_dtype).value();
  const testkit::Fill fill{.values = testkit::Values::kExact, .seed = seed};
  std::vector<int64_t> numbers = c.from.mesh().Ranks();
  const std::vector<int64_t> others = c.to.mesh().Ranks();
  numbers.insert(numbers.end(), others.begin(), others.end());
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<Rank> ranks(numbers.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    Rank& rank = ranks[i];
    rank.rank = numbers[i];
    meshift_box source = {}, target = {};
    source.size = target.size = sizeof(source);
    ExpectOk(meshift_sharding_local_box(from, rank.rank, &source, &error), &error);
    ExpectOk(meshift_sharding_local_box(to, rank.rank, &target, &error), &error);
    meshift_program_options lowering = {};
    lowering.size = sizeof(lowering);
    const std::vector<int64_t> source_strides = ReverseStrides(source);
    const std::vector<int64_t> target_strides = ReverseStrides(target);
    if (how.layout == Layout::kStrided) {
      lowering.source_strides = source_strides.data();
      lowering.target_strides = target_strides.data();
    }
    lowering.consume_source = how.layout == Layout::kConsumed;
    lowering.one_buffer = how.layout == Layout::kOneBuffer;
    ExpectOk(meshift_plan_lower(plan, rank.rank, &lowering, &rank.program, &error), &error);
    rank.info.size = sizeof(rank.info);
    ExpectOk(meshift_program_get_info(rank.program, &rank.info, &error), &error);
    EXPECT_EQ(rank.info.rank, rank.rank);
    EXPECT_EQ(rank.info.source_bytes, source.num_bytes);
    EXPECT_EQ(rank.info.target_bytes, target.num_bytes);
    rank.source.resize(source.num_bytes);
    rank.target.resize(target.num_bytes, std::byte{0xa5});
    rank.workspace.resize(rank.info.workspace_bytes, std::byte{0xa5});
    if (const auto position = c.from.mesh().PositionOf(rank.rank)) {
      EXPECT_TRUE(oracle.FillSource(fill, *position, absl::MakeSpan(rank.source)).ok());
    }
    if (how.layout == Layout::kStrided) Rearrange(source, true, &rank.source);
    if (how.layout == Layout::kOneBuffer) {
      rank.target.resize(std::max(source.num_bytes, target.num_bytes));
      std::copy(rank.source.begin(), rank.source.end(), rank.target.begin());
    }
    rank.target_begin = rank.target.data();
    rank.source_begin = how.layout == Layout::kOneBuffer ? rank.target.data() : rank.source.data();
  }
  Run(ranks, tally);

  std::vector<Bytes> targets(c.to.mesh().NumRanks());
  for (Rank& rank : ranks) {
    meshift_box target = {};
    target.size = sizeof(target);
    ExpectOk(meshift_sharding_local_box(to, rank.rank, &target, &error), &error);
    rank.target.resize(target.num_bytes);
    if (how.layout == Layout::kStrided) Rearrange(target, false, &rank.target);
    if (const auto position = c.to.mesh().PositionOf(rank.rank)) {
      targets[*position] = std::move(rank.target);
    }
    meshift_program_destroy(rank.program);
  }
  const std::vector<absl::Span<const std::byte>> views(targets.begin(), targets.end());
  const testkit::CheckResult result = oracle.Check(fill, views).value();
  EXPECT_TRUE(result.ok()) << c.ToString() << ": " << result.ToString();
  meshift_plan_destroy(plan);
  meshift_sharding_destroy(from);
  meshift_sharding_destroy(to);
  return true;
}

Layout LayoutOf(const testkit::ConformanceCase& c, int64_t i) {
  const auto layout = static_cast<Layout>(i % 4);
  // Pairs of f4e2m1 lie along the last dim, so it has no reverse strides.
  const bool is_f4 = c.from.dtype() == DType::kF4E2M1 || c.to.dtype() == DType::kF4E2M1;
  return layout == Layout::kStrided && is_f4 ? Layout::kPlain : layout;
}

const std::vector<std::vector<std::pair<const char*, const char*>>> kPlanning = {
    {},
    {{"reproducibility", "ordered"}},
    {{"reproducibility", "ordered"}, {"reduce_block", "2"}},
    {{"planner", "per-dim"}},
    {{"reproducibility", "batch-invariant"}, {"native_invariance", "none"}},
    {{"topology", "h100"}, {"engine", "nccl"}, {"ragged_sizes", "sum"}},
};

void RunAll(const std::vector<testkit::ConformanceCase>& cases, int64_t least, Tally* tally) {
  int64_t runs = 0;
  for (int64_t i = 0; i < std::ssize(cases); ++i) {
    const Options how{.planning = kPlanning[i % kPlanning.size()],
                      .layout = LayoutOf(cases[i], i / std::ssize(kPlanning))};
    runs += RunCase(cases[i], how, i, tally) ? 1 : 0;
    if (::testing::Test::HasFailure()) FAIL() << cases[i].ToString();
  }
  std::string text;
  for (const auto& [name, count] : *tally) text += name + " " + std::to_string(count) + ", ";
  std::cout << runs << " of " << cases.size() << " problems: " << text << "\n";
  EXPECT_GE(runs, least);
}

TEST(ProgramsByC, AreCompleteOnOneMesh) {
  Tally tally;
  RunAll(testkit::ConformanceCases(8, 1200), 900, &tally);
  for (const char* const what :
       {"copy", "fill_identity", "fill_zero", "all_reduce", "reduce_scatter", "all_gather",
        "send_recv", "cast", "reduce_in_order", "in blocks"}) {
    EXPECT_GT(tally[what], 0) << what;
  }
}

TEST(ProgramsByC, AreCompleteForRaggedShards) {
  Tally tally;
  RunAll(testkit::RaggedCases(8, 600), 500, &tally);
  for (const char* const what : {"reduce_scatter", "all_gather", "blocks that differ"}) {
    EXPECT_GT(tally[what], 0) << what;
  }
}

TEST(ProgramsByC, AreCompleteFromAndToAPartOfTheMesh) {
  Tally tally;
  RunAll(testkit::OwnerCases(8, 300), 250, &tally);  // the per-dim planner refuses some
  for (const char* const what : {"reduce_scatter", "all_gather", "send_recv"}) {
    EXPECT_GT(tally[what], 0) << what;
  }
}

TEST(ProgramsByC, AreCompleteFromMeshToMesh) {
  Tally tally;
  RunAll(testkit::CrossConformanceCases(8, 300), 200, &tally);
  for (const char* const what : {"copy", "send_recv", "cast", "reduce_in_order"}) {
    EXPECT_GT(tally[what], 0) << what;
  }
}

}  // namespace
}  // namespace meshift

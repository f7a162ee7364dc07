// Implements StepLowering::StagedAllReduce and StagedReduceScatter (step_lowering.h): ordered
// reductions in blocks, in two stages. In a group of n members with blocks of k, the member with
// index c (Members::IndexOf) has place c % k in block c / k, and owns a part of the result. A
// column is the parts of all members with the same place.
//
//   1  inside each block: every member receives its column of the block's k contributions, and
//      reduces them in order, in the dtype of accumulation
//   2  across blocks, among members of one place: every owner receives its part of the results of
//      all n / k blocks, reduces them in order, divides, and rounds once
//   3  in an all_reduce only: sends the parts across blocks, then the columns inside each block
//
// All messages are sent in the step's group, so no other communicators are needed. The additions
// and their dtypes are the same as if an owner received all contributions itself
// (Reduction::block). INVALID_ARGUMENT: the step does not have two stages of blocks of two or more
// members that divide a larger group evenly; an all_reduce that changes boxes; a reduce_scatter
// that removes cuts.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "comm/program/step_lowering.h"
#include "meshift/status.h"
#include "placement/cast.h"

namespace meshift::lowering_internal {
namespace {

using Kind = Instruction::Kind;

Value Elements(Location at, DType dtype, int64_t count) {
  return Value::RowMajor(at, dtype, Box{Shape{0}, Shape{count}});
}

// The blocks and places of the group's members.
class Stages {
 public:
  static absl::StatusOr<Stages> Create(const Step& step, const Members& members, int64_t self) {
    const int64_t block = step.reduce_block.value_or(0);
    if (block < 2 || block >= members.size() || members.size() % block != 0 ||
        *step.reduce_stages != 2) {
      return InvalidArgument("{}: {} stages with blocks of {} do not fit a group of {}",
                             step.ToString(), *step.reduce_stages, block, members.size());
    }
    return Stages(members, block, self);
  }
  int64_t block() const { return block_; }  // members of a block
  int64_t blocks() const { return members_.size() / block_; }
  int64_t BlockOf(int64_t number) const { return members_.IndexOfNumber(number) / block_; }
  int64_t PlaceOf(int64_t number) const { return members_.IndexOfNumber(number) % block_; }
  int64_t my_block() const { return BlockOf(self_); }
  int64_t my_place() const { return PlaceOf(self_); }
  int64_t NumberOf(int64_t block, int64_t place) const {
    return members_.NumberOf(block * block_ + place);
  }
  // Inside() calls fn(number, place) for the other members of this member's block, and Across()
  // fn(number, block) for the other members of its place; both in ascending order of numbers.
  template <typename Fn>
  void Inside(const Fn& fn) const {
    for (int64_t number = 0; number < members_.size(); ++number) {
      if (number != self_ && BlockOf(number) == my_block()) fn(number, PlaceOf(number));
    }
  }
  template <typename Fn>
  void Across(const Fn& fn) const {
    for (int64_t number = 0; number < members_.size(); ++number) {
      if (number != self_ && PlaceOf(number) == my_place()) fn(number, BlockOf(number));
    }
  }

 private:
  Stages(const Members& members, int64_t block, int64_t self)
      : members_(members), block_(block), self_(self) {}
  const Members& members_;
  const int64_t block_;
  const int64_t self_;
};

void AddMessage(int64_t number, Location at, int64_t count, std::vector<ProgramMessage>* messages) {
  if (count > 0) messages->push_back({static_cast<int>(number), at, count});
}

// The memory of both stages: a slot for each member of the block, as long as the longest column, in
// the dtype that stage 1 sends. If the dtype of accumulation differs, there are slots in that dtype
// too. Stage 1 reduces into the first slot, and stage 2 receives into the second one.
struct Slots {
  Location in;
  Location wide;
  DType dtype;
  DType wide_dtype;
  int64_t size;  // elements of a slot
  Location In(int64_t slot) const { return ProgramBuilder::Shift(in, Bytes(dtype, slot * size)); }
  Location Wide(int64_t slot, int64_t element = 0) const {
    return ProgramBuilder::Shift(wide, Bytes(wide_dtype, slot * size + element));
  }
};

absl::StatusOr<Slots> TakeSlots(DType dtype, int64_t slots, int64_t size, ProgramBuilder* build) {
  Slots taken{
      .in = {}, .wide = {}, .dtype = dtype, .wide_dtype = AccumulateDType(dtype), .size = size};
  const int64_t in_bytes = Bytes(dtype, SaturatingMul(slots, size));
  const int64_t wide_bytes =
      taken.wide_dtype == dtype ? 0 : Bytes(taken.wide_dtype, SaturatingMul(slots, size));
  MESHIFT_ASSIGN_OR_RETURN(taken.wide, build->TakePiece(SaturatingAdd(in_bytes, wide_bytes)));
  taken.in = ProgramBuilder::Shift(taken.wide, wide_bytes);
  return taken;
}

// `stride`: elements from the begin of one block to that of the next.
void AddReduce(Location blocks, int64_t stride, int64_t num_blocks, Location dst, int64_t count,
               DType dtype, const Reduction& reduction, ProgramBuilder* build) {
  if (count == 0) return;
  Instruction& reduce = build->Add(Kind::kReduceInOrder, dtype);
  reduce.src = blocks;
  reduce.dst = dst;
  reduce.count = count;
  reduce.reduction = reduction;
  reduce.blocks = num_blocks;
  reduce.block_bytes = Bytes(dtype, stride);
}

void AddCast(Location src, DType from, Location dst, DType to, int64_t count,
             ProgramBuilder* build) {
  if (count == 0) return;
  Instruction& cast = build->Add(Kind::kCast, from);
  cast.src = src;
  cast.dst = dst;
  cast.count = count;
  cast.to_dtype = to;
}

// Reduces the contributions in the slots, `column` elements of each, to the first `count` elements
// of this member's part of the result, at `dst`. The owner in block b has elements from b * part
// on.
void Combine(const DimSet& mesh_dims, const Stages& stages, const Slots& slots,
             const Reduction& reduction, int64_t part, int64_t column, Location dst, int64_t count,
             ProgramBuilder* build) {
  const DType wide = slots.wide_dtype;
  const bool widens = wide != slots.dtype;
  if (widens && column == slots.size) {
    AddCast(slots.In(0), slots.dtype, slots.Wide(0), wide, stages.block() * column, build);
  } else if (widens) {
    for (int64_t slot = 0; slot < stages.block(); ++slot) {
      AddCast(slots.In(slot), slots.dtype, slots.Wide(slot), wide, column, build);
    }
  }
  // An average is divided in stage 2.
  const bool averages = reduction.op == ReduceOp::kAvg;
  AddReduce(slots.Wide(0), slots.size, stages.block(), slots.Wide(0), column, wide,
            {.op = averages ? ReduceOp::kSum : reduction.op, .divisor = 1}, build);

  const auto owned = [&](int64_t block) {
    return std::clamp<int64_t>(column - block * part, 0, part);
  };
  const int64_t own = owned(stages.my_block());
  const int64_t mine = stages.my_block() * part;
  std::vector<ProgramMessage> sends;
  std::vector<ProgramMessage> recvs;
  stages.Across([&](int64_t number, int64_t block) {
    AddMessage(number, slots.Wide(0, block * part), owned(block), &sends);
    AddMessage(number, slots.Wide(1, block * part), own, &recvs);
  });
  build->AddCopy(Elements(slots.Wide(0, mine), wide, own), Elements(slots.Wide(1, mine), wide, own),
                 Box{Shape{0}, Shape{own}});
  Instruction& across = build->AddSendRecv(mesh_dims, sends, recvs);
  across.dtype = across.to_dtype = wide;
  AddReduce(slots.Wide(1), part, stages.blocks(), widens ? slots.Wide(1) : dst, count, wide,
            {.op = reduction.op, .divisor = reduction.divisor}, build);
  if (widens) AddCast(slots.Wide(1), wide, dst, slots.dtype, count, build);
}

}  // namespace

absl::Status StepLowering::StagedAllReduce(const StepGeometry& g, const Step& step) {
  if (!g.moved().empty()) return InvalidArgument("{} must not change boxes", step.ToString());
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  const int64_t count = g.box_before().NumElements();
  if (count == 0) return absl::OkStatus();
  const Members members(mesh_, step.mesh_dims, me_);
  MESHIFT_ASSIGN_OR_RETURN(const Stages stages, Stages::Create(step, members, SelfOf(members)));
  const DType dtype = build_.in().dtype;
  // Columns are contiguous slices of the box's row-major elements, and parts are slices of columns.
  const int64_t part = CeilDiv(count, members.size());
  const int64_t size = stages.blocks() * part;
  const auto begin_of = [&](int64_t place) { return std::min(count, place * size); };
  const auto column_of = [&](int64_t place) { return begin_of(place + 1) - begin_of(place); };
  const auto at = [&](const Value& value, int64_t element) {
    return Shift(value.at, Bytes(dtype, element));
  };
  const int64_t place = stages.my_place();
  const int64_t begin = begin_of(place);
  const int64_t column = column_of(place);

  MESHIFT_ASSIGN_OR_RETURN(const Value recv, RowMajorLike(build_.out()));
  MESHIFT_ASSIGN_OR_RETURN(const Value send, RowMajorIn());
  build_.FlushCopies();
  MESHIFT_ASSIGN_OR_RETURN(const Slots slots, TakeSlots(dtype, stages.block(), size, &build_));
  std::vector<ProgramMessage> sends;
  std::vector<ProgramMessage> recvs;
  stages.Inside([&](int64_t number, int64_t other) {
    AddMessage(number, at(send, begin_of(other)), column_of(other), &sends);
    AddMessage(number, slots.In(other), column, &recvs);
  });
  build_.AddCopy(Elements(at(send, begin), dtype, column), Elements(slots.In(place), dtype, column),
                 Box{Shape{0}, Shape{column}});
  build_.AddSendRecv(step.mesh_dims, sends, recvs);
  const auto part_begin = [&](int64_t block) { return begin + std::min(column, block * part); };
  const auto part_of = [&](int64_t block) { return part_begin(block + 1) - part_begin(block); };
  const Location result = at(recv, part_begin(stages.my_block()));
  const int64_t own = part_of(stages.my_block());
  Combine(step.mesh_dims, stages, slots, reduction, part, column, result, own, &build_);

  sends.clear();
  recvs.clear();
  stages.Across([&](int64_t number, int64_t block) {
    AddMessage(number, result, own, &sends);
    AddMessage(number, at(recv, part_begin(block)), part_of(block), &recvs);
  });
  build_.AddSendRecv(step.mesh_dims, sends, recvs);
  sends.clear();
  recvs.clear();
  stages.Inside([&](int64_t number, int64_t other) {
    AddMessage(number, at(recv, begin), column, &sends);
    AddMessage(number, at(recv, begin_of(other)), column_of(other), &recvs);
  });
  build_.AddSendRecv(step.mesh_dims, sends, recvs);
  CopyToOut(recv);
  return absl::OkStatus();
}

// Every part has the size of the largest box after the step.
absl::Status StepLowering::StagedReduceScatter(const StepGeometry& g, const Step& step) {
  if (g.cut_before() != 0) return InvalidArgument("{} must not remove cuts", step.ToString());
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  if (g.box_before().IsEmpty()) return absl::OkStatus();
  const Members members(mesh_, step.mesh_dims, me_);
  MESHIFT_ASSIGN_OR_RETURN(const Stages stages, Stages::Create(step, members, SelfOf(members)));
  const DType dtype = build_.in().dtype;
  const int64_t own = g.box_after().NumElements();
  const int64_t part = FindBlocks(g, members, /*after=*/true, /*exact=*/false).count;
  const int64_t size = stages.blocks() * part;

  MESHIFT_ASSIGN_OR_RETURN(Location packed,
                           build_.TakePiece(Bytes(dtype, (stages.block() - 1) * size)));
  MESHIFT_ASSIGN_OR_RETURN(const Slots slots, TakeSlots(dtype, stages.block(), size, &build_));
  // Packs the boxes of the members of one place, with padding.
  const auto pack = [&](int64_t place, Location to) {
    Coordinate at = me_;
    for (int64_t block = 0; block < stages.blocks(); ++block) {
      members.SetCoordinate(members.IndexOfNumber(stages.NumberOf(block, place)), &at);
      const Box box = g.BoxAfter(at);
      const Location begin = Shift(to, Bytes(dtype, block * part));
      const int64_t filled = Bytes(dtype, box.NumElements());
      build_.AddCopy(build_.in(), Value::RowMajor(begin, dtype, box), box);
      build_.AddFillZero(Shift(begin, filled), Bytes(dtype, part) - filled);
    }
  };
  std::vector<ProgramMessage> sends;
  std::vector<ProgramMessage> recvs;
  stages.Inside([&](int64_t number, int64_t place) {
    pack(place, packed);
    AddMessage(number, packed, size, &sends);
    AddMessage(number, slots.In(place), size, &recvs);
    packed = Shift(packed, Bytes(dtype, size));
  });
  pack(stages.my_place(), slots.In(stages.my_place()));
  build_.AddSendRecv(step.mesh_dims, sends, recvs);
  MESHIFT_ASSIGN_OR_RETURN(const Value result, RowMajorLike(build_.out()));
  Combine(step.mesh_dims, stages, slots, reduction, part, size, result.at, own, &build_);
  CopyToOut(result);
  return absl::OkStatus();
}

}  // namespace meshift::lowering_internal

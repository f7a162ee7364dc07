// What one step of a plan does to one rank's memory. Internal to the lowering.
//
//   StepLowering lower(mesh, rank, me, &builder, /*one_buffer=*/false);
//   MESHIFT_RETURN_IF_ERROR(lower.Add(geometry, before, step));   // behind builder.BeginStep
#ifndef MESHIFT_COMM_PROGRAM_STEP_LOWERING_H_
#define MESHIFT_COMM_PROGRAM_STEP_LOWERING_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "comm/program/message_parts.h"
#include "comm/program/program.h"
#include "comm/program/program_builder.h"
#include "comm/program/step_geometry.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "planner/plan/crossing.h"

namespace meshift::lowering_internal {

class StepLowering {
 public:
  // `mesh` and `build` must outlive this. `one_buffer`: the two values of the step share
  // memory.
  StepLowering(const DeviceMesh& mesh, int64_t rank, Coordinate me, ProgramBuilder* build,
               bool one_buffer)
      : mesh_(mesh), rank_(rank), me_(std::move(me)), build_(*build), one_buffer_(one_buffer) {}

  // What every rank does, whether its group has anything to do or not, and also where it is in
  // none: a step's partition is named, unless there are no elements on any rank.
  static void NamePartition(const Step& step, ProgramBuilder* build);

  // INVALID_ARGUMENT where the step cannot be what it says, or there is no room.
  absl::Status Add(const StepGeometry& g, const Sharding& before, const Step& step);
  // In place of a step in a plan without any: `source` becomes `target`.
  absl::Status AddWithoutSteps(const Value& source, const Value& target);
  // A step that goes to another mesh: an exchange or relabel, which `crossing` says. The mesh of
  // this object is the one of all ranks of both, of one dim.
  absl::Status AddCrossing(const Step& step, const Crossing& crossing);

 private:
  absl::Status LowerOp(const StepGeometry& g, const Sharding& before, const Step& step);
  absl::Status AllReduce(const StepGeometry& g, const Step& step);
  absl::Status ReduceScatter(const StepGeometry& g, const Step& step);
  // In ascending order of coordinates: ordered_lowering.cc.
  absl::Status OrderedAllReduce(const StepGeometry& g, const Step& step);
  absl::Status OrderedReduceScatter(const StepGeometry& g, const Step& step);
  Instruction& ReduceBlocks(Location blocks, Location dst, int64_t count, int64_t num_blocks,
                            const Reduction& reduction);
  // Inside the blocks of `Step::reduce_block`, then across them: staged_lowering.cc.
  absl::Status StagedAllReduce(const StepGeometry& g, const Step& step);
  absl::Status StagedReduceScatter(const StepGeometry& g, const Step& step);
  absl::Status AllGather(const StepGeometry& g, const Step& step);
  // Messages of exact size: exchange_lowering.cc.
  absl::Status Exchange(const StepGeometry& g, const Step& step);
  absl::Status Cross(const Step& step, const Crossing& crossing);
  absl::Status OrderedCross(const Step& step, const Crossing& crossing);
  // What this rank sends and takes in a step, in the order of the members; to itself, what it
  // keeps.
  struct Traffic {
    int64_t self = 0;
    std::vector<Part> receivers;
    std::vector<Part> senders;
  };
  Traffic TrafficOf(const Crossing& crossing) const;
  // Sends parts of the value before the step, and takes others to `places`, by contribution: values
  // that have them. `calls`: whether the group makes a call.
  absl::Status SendParts(const DimSet& mesh_dims, const Traffic& traffic,
                         absl::Span<const Value> places, bool calls);
  absl::Status Permute(const StepGeometry& g, const Step& step);
  absl::Status Slice(const StepGeometry& g, const Step& step);
  absl::Status Mask(const StepGeometry& g, const Sharding& before, const Step& step);
  absl::Status Cast();

  // The blocks of a reduce_scatter or all_gather, one behind the other.
  struct Blocks {
    int64_t count = 0;            // elements of the largest member's box; of a block, unless exact
    bool packed = false;          // else the boxes are the parent's content, in members' order
    std::vector<int64_t> begins;  // exact: where each begins, and the last one ends
    int64_t Begin(int64_t number) const { return begins.empty() ? number * count : begins[number]; }
    int64_t AllBytes(DType dtype, int64_t members) const {
      return begins.empty() ? SaturatingMul(members, Bytes(dtype, count))
                            : Bytes(dtype, begins.back());
    }
    int64_t CountOf(int64_t number) const { return Begin(number + 1) - Begin(number); }
  };
  Blocks FindBlocks(const StepGeometry& g, const Members& members, bool after, bool exact) const;
  // The call of `kind` that moves them.
  Instruction& AddBlocksCall(Instruction::Kind kind, const Step& step, const Members& members,
                             const Blocks& blocks, Location src, Location dst);
  template <typename Fn>
  void ForEachMember(const StepGeometry& g, const Members& members, bool after, const Fn& fn) const;
  absl::StatusOr<Reduction> ReductionOf(const Step& step) const;
  int64_t SelfOf(const Members& members) const;

  // `value` itself where it is row-major, else a row-major place for one like it in the workspace.
  absl::StatusOr<Value> RowMajorLike(const Value& value);
  // A copy of the value before the step in such a place, or that value itself.
  absl::StatusOr<Value> RowMajorIn();
  // Copies what lies at `place` to the value after the step, unless it is there already.
  void CopyToOut(const Value& place);
  // Lowers a step whose two values share memory: `lower` works on a copy of the smaller of them.
  absl::Status LowerApart(absl::FunctionRef<absl::Status()> lower);
  static Location Shift(Location at, int64_t bytes) { return ProgramBuilder::Shift(at, bytes); }

  const DeviceMesh& mesh_;
  const int64_t rank_;
  const Coordinate me_;
  ProgramBuilder& build_;
  const bool one_buffer_;
};

}  // namespace meshift::lowering_internal

#endif  // MESHIFT_COMM_PROGRAM_STEP_LOWERING_H_

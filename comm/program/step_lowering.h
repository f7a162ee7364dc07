// Lowers one step of a plan for one rank: adds the step's copies and calls to a ProgramBuilder.
// Internal to comm/program. Not thread-safe. After an error the builder's program is incomplete.
//
//   StepLowering lower(mesh, rank, me, &builder, /*one_buffer=*/false);
//   MESHIFT_RETURN_IF_ERROR(lower.Add(geometry, before, step));   // after builder.BeginStep
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
  // `mesh` and `build` must outlive this. `me`: the rank's coordinate. `one_buffer`: the values
  // before and after the step share memory.
  StepLowering(const DeviceMesh& mesh, int64_t rank, Coordinate me, ProgramBuilder* build,
               bool one_buffer)
      : mesh_(mesh), rank_(rank), me_(std::move(me)), build_(*build), one_buffer_(one_buffer) {}

  // Adds the group of a collective step to the program, unless the tensor has no elements. Every
  // rank needs the group, even if its group has nothing to do or it is in no group. Add() does
  // this; call it for a rank that is not in the mesh.
  static void AddGroupOf(const Step& step, ProgramBuilder* build);

  // REQUIRES: Lower() has checked the step's mesh dims, dtypes and shapes. INVALID_ARGUMENT if the
  // step is otherwise invalid or does not match its shardings, or the workspace is too small.
  // INTERNAL for a relabel, which AddCrossing lowers.
  absl::Status Add(const StepGeometry& g, const Sharding& before, const Step& step);
  // Lowers a plan without steps: copies `source` to `target`, which have equal boxes. In one buffer
  // of equal layouts it does nothing. INVALID_ARGUMENT: the workspace is too small.
  absl::Status AddWithoutSteps(const Value& source, const Value& target);
  // Lowers a step to another mesh, an exchange or relabel with the messages of `crossing`. The mesh
  // of this object must be the one-dimensional mesh of all ranks of both (UnionMesh).
  absl::Status AddCrossing(const Step& step, const Crossing& crossing);

 private:
  absl::Status LowerOp(const StepGeometry& g, const Sharding& before, const Step& step);
  absl::Status AllReduce(const StepGeometry& g, const Step& step);
  absl::Status ReduceScatter(const StepGeometry& g, const Step& step);
  // Reductions in ascending order of coordinates: ordered_lowering.cc.
  absl::Status OrderedAllReduce(const StepGeometry& g, const Step& step);
  absl::Status OrderedReduceScatter(const StepGeometry& g, const Step& step);
  Instruction& ReduceBlocks(Location blocks, Location dst, int64_t count, int64_t num_blocks,
                            const Reduction& reduction);
  // Reductions inside the blocks of `Step::reduce_block`, then across them: staged_lowering.cc.
  absl::Status StagedAllReduce(const StepGeometry& g, const Step& step);
  absl::Status StagedReduceScatter(const StepGeometry& g, const Step& step);
  absl::Status AllGather(const StepGeometry& g, const Step& step);
  // Messages of exact size: exchange_lowering.cc.
  absl::Status Exchange(const StepGeometry& g, const Step& step);
  absl::Status Cross(const Step& step, const Crossing& crossing);
  absl::Status OrderedCross(const Step& step, const Crossing& crossing);
  // The parts that this rank sends and receives in a step, in the order of the members. The parts
  // that it keeps are sent to itself.
  struct Traffic {
    int64_t self = 0;  // this rank's number
    std::vector<Part> receivers;
    std::vector<Part> senders;
  };
  Traffic TrafficOf(const Crossing& crossing) const;
  // Sends parts of the value before the step, and receives parts of contribution c into places[c].
  // `calls`: whether the group makes a call.
  absl::Status LowerMessages(const DimSet& mesh_dims, const Traffic& traffic,
                             absl::Span<const Value> places, bool calls);
  absl::Status Permute(const StepGeometry& g, const Step& step);
  absl::Status Slice(const StepGeometry& g, const Step& step);
  absl::Status Mask(const StepGeometry& g, const Sharding& before, const Step& step);
  absl::Status Cast();

  // The blocks of a reduce_scatter or all_gather, contiguous in memory.
  struct Blocks {
    int64_t count = 0;            // elements of the largest box; of each block, unless exact
    bool packed = false;          // else the boxes are contiguous in the value, in members' order
    std::vector<int64_t> begins;  // if exact: where each block begins, and the last one ends
    int64_t Begin(int64_t number) const { return begins.empty() ? number * count : begins[number]; }
    int64_t AllBytes(DType dtype, int64_t members) const {
      return begins.empty() ? SaturatingMul(members, Bytes(dtype, count))
                            : Bytes(dtype, begins.back());
    }
    int64_t CountOf(int64_t number) const { return Begin(number + 1) - Begin(number); }
  };
  Blocks FindBlocks(const StepGeometry& g, const Members& members, bool after, bool exact) const;
  // Adds the call of `kind` with these blocks.
  Instruction& AddBlocksCall(Instruction::Kind kind, const Step& step, const Members& members,
                             const Blocks& blocks, Location src, Location dst);
  template <typename Fn>
  void ForEachMember(const StepGeometry& g, const Members& members, bool after, const Fn& fn) const;
  absl::StatusOr<Reduction> ReductionOf(const Step& step) const;
  int64_t SelfOf(const Members& members) const;

  // Returns `value` if it is row-major, else a row-major piece of its size.
  absl::StatusOr<Value> RowMajorLike(const Value& value);
  // Returns the value before the step, or a copy of it in such a piece.
  absl::StatusOr<Value> RowMajorIn();
  // Copies `place` to the value after the step, unless it is that value.
  void CopyToOut(const Value& place);
  // Lowers a step whose two values share memory: while `lower` runs, a piece replaces the smaller
  // one.
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

// Puts a program together, step by step: places values and pieces in memory, collects copies into
// instructions, numbers groups. Internal to the lowering.
//
//   ProgramBuilder build(plan.meshes(), rank, memory, num_steps);
//   build.SetMesh(step.mesh);
//   MESHIFT_RETURN_IF_ERROR(build.BeginStep(dtype, geometry.box_after()));
//   build.AddCopy(build.in(), build.out(), part);
//   Program program = std::move(build).Finish();
#ifndef MESHIFT_COMM_PROGRAM_PROGRAM_BUILDER_H_
#define MESHIFT_COMM_PROGRAM_PROGRAM_BUILDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/program/program.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift::lowering_internal {

// The content of a box in memory: of global indices, the first element at `at`.
struct Value {
  Location at;
  DType dtype = DType::kF32;
  Box box;
  Shape strides;  // in elements

  static Value RowMajor(Location at, DType dtype, Box box);
  bool IsRowMajor() const;
  // Where `part` begins, if its elements lie in one run in row-major order; a box with one element
  // does. REQUIRES: `part` is not empty and inside `box`.
  std::optional<Location> RunOf(const Box& part) const;
  int64_t count() const { return box.NumElements(); }
  int64_t bytes() const { return Bytes(dtype, count()); }
};

// What a program may use.
struct ProgramMemory {
  Value source;
  Value target;
  int64_t workspace_bytes = 0;  // at most
  bool consume_source = false;  // scratch once it was read. REQUIRES: the source is row-major
  // Of scratch: only pieces lie there, of steps behind the first. Then no rank needs more workspace
  // than what the plan says of a consumed source: whether a piece fits is a matter of this step
  // alone, and fits sooner where pieces are shorter and the source is longer.
  bool only_pieces = false;
};

class ProgramBuilder {
 public:
  ProgramBuilder(std::vector<DeviceMesh> meshes, int64_t rank, ProgramMemory memory, int num_steps);

  // The mesh that groups of the next calls are over, by its number among the program's.
  void SetMesh(int mesh) { mesh_ = mesh; }
  // Adds a mesh to the program's and sets it.
  void AddMesh(DeviceMesh mesh);
  // Begins the next step, after which the rank holds `box` in `dtype`. Value 0 is the source, the
  // last one the target; between them, odd ones lie at the low end of the workspace (or of a
  // consumed source, where they fit), even ones at the high end. An error where there is no room.
  absl::Status BeginStep(DType dtype, const Box& box);
  const Value& in() const { return in_; }  // the value before the step, and the one after it
  const Value& out() const { return out_; }
  // Moves them: the step is to work on a copy, which the caller makes.
  void set_in(Value in) { in_ = std::move(in); }
  void set_out(Value out) { out_ = std::move(out); }
  // Memory between the values, until the step ends. An error where there is none.
  absl::StatusOr<Location> TakePiece(int64_t bytes);
  // Nothing behind this reads the value before the step, so its memory may be used again.
  void EndInput();

  // Copies `part`. Copies that follow each other become one instruction, whose copies may run in
  // any order, unless FlushCopies comes between.
  void AddCopy(const Value& from, const Value& to, const Box& part);
  void FlushCopies();
  void AddFillZero(Location dst, int64_t bytes);  // nothing for 0 bytes
  // A local instruction on elements of `dtype`.
  Instruction& Add(Instruction::Kind kind, DType dtype);
  // A collective call of the group over `mesh_dims`, on elements of the step's dtype.
  Instruction& AddCall(Instruction::Kind kind, const DimSet& mesh_dims, Location src, Location dst,
                       int64_t count);
  // Elements of each member's block, of the call added last.
  void SetCounts(absl::Span<const int64_t> counts, Instruction* call);
  Instruction& AddSendRecv(const DimSet& mesh_dims, absl::Span<const ProgramMessage> sends,
                           absl::Span<const ProgramMessage> recvs);
  // The index of this rank's group over `mesh_dims`, which is added where it is not there; without
  // ranks, where this one is not in the mesh.
  int GroupOver(const DimSet& mesh_dims);
  // Whether groups of the next calls have one channel (GroupOptions).
  void set_one_channel(bool one_channel) { one_channel_ = one_channel; }

  static Location Shift(Location at, int64_t bytes) { return {at.space, at.offset + bytes}; }
  const Program& program() const { return program_; }
  // The program; its workspace_bytes are what was used.
  Program Finish() &&;

 private:
  // Memory that values and pieces lie in: of a step, [begin, end) is free.
  struct Arena {
    Location::Space space = Location::Space::kWorkspace;
    int64_t size = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  bool Fits(const Arena& arena, int64_t bytes) const { return bytes <= arena.end - arena.begin; }
  // Takes memory for value number `value` out of an arena; where it lies already, if it does.
  Location Place(Arena& arena, int value, int64_t bytes);
  absl::Status NoRoom(int64_t bytes) const;
  void NoteUse();

  const ProgramMemory memory_;
  int mesh_ = 0;
  Program program_;
  int32_t flushed_copies_ = 0;  // that are part of an instruction
  int step_ = -1;
  bool one_channel_ = false;
  DType copies_dtype_ = DType::kF32;  // of copies that are not yet part of one
  Value in_;
  Value out_;
  Arena workspace_;
  Arena scratch_;  // a consumed source
  int64_t used_bytes_ = 0;
};

}  // namespace meshift::lowering_internal

#endif  // MESHIFT_COMM_PROGRAM_PROGRAM_BUILDER_H_

// Builds a program step by step: places values and pieces in memory, collects copies into
// instructions, and numbers groups. Internal to comm/program. Not thread-safe.
//
//   ProgramBuilder build(plan.meshes(), rank, memory, num_steps);
//   build.SetMesh(step.mesh);
//   MESHIFT_RETURN_IF_ERROR(build.BeginStep(dtype, geometry.box_after()));
//   build.AddCopy(build.in(), build.out(), part);
//   Program program = std::move(build).Finish();
//
// The caller calls BeginStep once per step of the plan, in order; a plan without steps needs none,
// and may then only add copies and take pieces. A value is the data between two steps; a piece is
// scratch memory of one step. Adding an instruction invalidates the references to earlier ones.
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

// The data of a box of the tensor (in global indices) in memory. Its first element is at `at`.
struct Value {
  Location at;
  DType dtype = DType::kF32;
  Box box;
  Shape strides;  // in elements

  static Value RowMajor(Location at, DType dtype, Box box);
  bool IsRowMajor() const;
  // The location of `part` if its elements are contiguous in row-major order; else none. A box with
  // one element is contiguous. REQUIRES: `part` is not empty and inside `box`.
  std::optional<Location> RunOf(const Box& part) const;
  int64_t count() const { return box.NumElements(); }
  int64_t bytes() const { return Bytes(dtype, count()); }
};

// The memory that a program may use.
struct ProgramMemory {
  Value source;
  Value target;
  int64_t workspace_bytes = 0;  // the limit; rounded down to a multiple of kWorkspaceAlignment
  // The source's memory is scratch memory once it was read. REQUIRES: the source is row-major.
  bool consume_source = false;
  // Only pieces may lie in the scratch memory, from the second step on. Then no rank needs more
  // workspace than the plan says for a consumed source: whether a piece fits depends on its step
  // alone, and the plan assumes the longest pieces and the shortest source of any rank.
  bool only_pieces = false;
};

class ProgramBuilder {
 public:
  ProgramBuilder(std::vector<DeviceMesh> meshes, int64_t rank, ProgramMemory memory, int num_steps);

  // Sets the mesh of the groups of the next calls, by its index in Program::meshes.
  void SetMesh(int mesh) { mesh_ = mesh; }
  // Adds a mesh to the program, and sets it.
  void AddMesh(DeviceMesh mesh);
  // Begins the next step, after which the rank holds `box` in `dtype`. Value 0 is the source, and
  // the last one the target. Odd values between them lie at the low end of the workspace or of a
  // consumed source, even ones at the high end. INVALID_ARGUMENT if the workspace is too small.
  absl::Status BeginStep(DType dtype, const Box& box);
  const Value& in() const { return in_; }    // the value before the step
  const Value& out() const { return out_; }  // the value after the step
  // Replace them by a copy that the caller makes.
  void set_in(Value in) { in_ = std::move(in); }
  void set_out(Value out) { out_ = std::move(out); }
  // Takes memory between the values, until the step ends. INVALID_ARGUMENT if there is not enough.
  absl::StatusOr<Location> TakePiece(int64_t bytes);
  // No later instruction reads the value before this step. If it is a consumed source, its memory
  // is free from now on, unless ProgramMemory::only_pieces is set.
  void EndInput();

  // Copies `part`, a box inside both values. Successive copies of one dtype become one instruction,
  // which may run them in any order, unless FlushCopies or another instruction comes between them.
  void AddCopy(const Value& from, const Value& to, const Box& part);
  void FlushCopies();
  void AddFillZero(Location dst, int64_t bytes);  // does nothing for 0 bytes
  // Adds a local instruction on elements of `dtype`.
  Instruction& Add(Instruction::Kind kind, DType dtype);
  // Adds a collective call of the group over `mesh_dims`, on elements of the step's dtype.
  Instruction& AddCall(Instruction::Kind kind, const DimSet& mesh_dims, Location src, Location dst,
                       int64_t count);
  // Sets the elements of each member's block in the call that was added last.
  void SetCounts(absl::Span<const int64_t> counts, Instruction* call);
  Instruction& AddSendRecv(const DimSet& mesh_dims, absl::Span<const ProgramMessage> sends,
                           absl::Span<const ProgramMessage> recvs);
  // The index of this rank's group over `mesh_dims`, which is added if it is new. The group has no
  // ranks if this rank is not in the mesh.
  int GroupOver(const DimSet& mesh_dims);
  // Whether the groups of the next calls have one channel (GroupOptions).
  void set_one_channel(bool one_channel) { one_channel_ = one_channel; }

  static Location Shift(Location at, int64_t bytes) { return {at.space, at.offset + bytes}; }
  const Program& program() const { return program_; }
  // Returns the program; its workspace_bytes are the bytes that it uses.
  Program Finish() &&;

 private:
  // Memory for values and pieces. [begin, end) is free in the current step.
  struct Arena {
    Location::Space space = Location::Space::kWorkspace;
    int64_t size = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  bool Fits(const Arena& arena, int64_t bytes) const { return bytes <= arena.end - arena.begin; }
  // Reserves memory for value number `value` in an arena. The place depends only on the number's
  // parity and the size, so that a value stays in its place in the next step.
  Location Place(Arena& arena, int value, int64_t bytes);
  absl::Status NoRoom(int64_t bytes) const;
  void NoteUse();

  const ProgramMemory memory_;
  int mesh_ = 0;
  Program program_;
  int32_t flushed_copies_ = 0;  // number of copies that are part of an instruction
  int step_ = -1;
  bool one_channel_ = false;
  DType copies_dtype_ = DType::kF32;  // of the copies that are not flushed
  Value in_;
  Value out_;
  Arena workspace_;
  Arena scratch_;  // a consumed source
  int64_t used_bytes_ = 0;
};

}  // namespace meshift::lowering_internal

#endif  // MESHIFT_COMM_PROGRAM_PROGRAM_BUILDER_H_

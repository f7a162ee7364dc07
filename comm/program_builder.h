// Puts a program together, step by step: places values and pieces in the workspace, collects copies
// into instructions, numbers groups. Internal to the lowering.
//
//   ProgramBuilder build(mesh, rank, me, dtype, num_steps, workspace_bytes);
//   MESHIFT_RETURN_IF_ERROR(build.BeginStep(bytes_before, bytes_after));
//   build.AddCopy(build.in(), box, build.out(), part, part);
//   Program program = std::move(build).Finish();
#ifndef MESHIFT_COMM_PROGRAM_BUILDER_H_
#define MESHIFT_COMM_PROGRAM_BUILDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/program.h"
#include "mesh/device_mesh.h"
#include "placement/box.h"
#include "placement/dtype.h"
#include "planner/plan.h"

namespace meshift::lowering_internal {

class ProgramBuilder {
 public:
  // `mesh` must outlive the builder; `me` is the coordinate of `rank`.
  ProgramBuilder(const DeviceMesh& mesh, int64_t rank, Coordinate me, DType dtype, int num_steps,
                 int64_t workspace_bytes);

  // Places the values before and after the next step: value 0 is the source, the last one the
  // target, odd ones lie at the low end of the workspace, even ones at the high end. An error where
  // they do not fit.
  absl::Status BeginStep(int64_t bytes_before, int64_t bytes_after);
  Location in() const { return in_; }  // the value before the step, and the one after it
  Location out() const { return out_; }
  // A piece of the workspace between the values, until the step ends. An error where there is none.
  absl::StatusOr<Location> TakePiece(int64_t bytes);

  // Copies `part` from where the content of src_box begins to where that of dst_box begins. Copies
  // that follow each other become one instruction.
  void AddCopy(Location src, const Box& src_box, Location dst, const Box& dst_box, const Box& part);
  void AddFillZero(Location dst, int64_t bytes);  // nothing for 0 bytes
  Instruction& Add(Instruction::Kind kind);
  // A collective call of the group over `mesh_dims`.
  Instruction& AddCall(Instruction::Kind kind, const DimSet& mesh_dims, Location src, Location dst,
                       int64_t count);
  void AddSendRecv(const DimSet& mesh_dims, absl::Span<const ProgramMessage> sends,
                   absl::Span<const ProgramMessage> recvs);
  // The index of this rank's group over `mesh_dims`, which is added where it is not there.
  int GroupOver(const DimSet& mesh_dims);

  int64_t BytesOf(int64_t elements) const { return Bytes(program_.dtype, elements); }
  static Location Shift(Location at, int64_t bytes) { return {at.space, at.offset + bytes}; }
  Program& program() { return program_; }
  Program Finish() &&;

 private:
  void FlushCopies();

  const DeviceMesh& mesh_;
  const Coordinate me_;
  Program program_;
  int32_t flushed_copies_ = 0;  // that are part of an instruction
  int step_ = -1;
  Location in_;
  Location out_;
  int64_t middle_begin_ = 0;  // the workspace between the values, as far as it is free
  int64_t middle_end_ = 0;
};

}  // namespace meshift::lowering_internal

#endif  // MESHIFT_COMM_PROGRAM_BUILDER_H_

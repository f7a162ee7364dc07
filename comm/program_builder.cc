#include "comm/program_builder.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "comm/step_geometry.h"

namespace meshift::lowering_internal {

using Kind = Instruction::Kind;
using Space = Location::Space;

ProgramBuilder::ProgramBuilder(const DeviceMesh& mesh, int64_t rank, Coordinate me, DType dtype,
                               int num_steps, int64_t workspace_bytes)
    : mesh_(mesh), me_(std::move(me)) {
  program_.rank = rank;
  program_.num_steps = num_steps;
  program_.dtype = dtype;
  program_.workspace_bytes = workspace_bytes;
}

absl::Status ProgramBuilder::BeginStep(int64_t bytes_before, int64_t bytes_after) {
  FlushCopies();
  ++step_;
  middle_begin_ = 0;
  middle_end_ = program_.workspace_bytes / kWorkspaceAlignment * kWorkspaceAlignment;
  const auto place = [&](int value, int64_t bytes) -> Location {
    if (value == 0) return {Space::kSource, 0};
    if (value == program_.num_steps) return {Space::kTarget, 0};
    if (value % 2 == 1) {
      middle_begin_ = RoundUp(bytes, kWorkspaceAlignment);
      return {Space::kWorkspace, 0};
    }
    middle_end_ -= RoundUp(bytes, kWorkspaceAlignment);
    return {Space::kWorkspace, middle_end_};
  };
  in_ = place(step_, bytes_before);
  out_ = place(step_ + 1, bytes_after);
  return TakePiece(0).status();
}

absl::StatusOr<Location> ProgramBuilder::TakePiece(int64_t bytes) {
  const Location piece = {Space::kWorkspace, middle_begin_};
  if (bytes > middle_end_ - middle_begin_) {
    return InvalidArgument("step {} needs {} bytes beyond the workspace's {} on rank {}", step_,
                           bytes - (middle_end_ - middle_begin_), program_.workspace_bytes,
                           program_.rank);
  }
  middle_begin_ += RoundUp(bytes, kWorkspaceAlignment);
  return piece;
}

void ProgramBuilder::AddCopy(Location src, const Box& src_box, Location dst, const Box& dst_box,
                             const Box& part) {
  if (part.IsEmpty()) return;
  ProgramCopy copy;
  copy.src = Shift(src, BytesOf(OffsetIn(part, src_box)));
  copy.dst = Shift(dst, BytesOf(OffsetIn(part, dst_box)));
  // Innermost dim first.
  int64_t src_stride = 1;
  int64_t dst_stride = 1;
  for (size_t t = part.size.size(); t-- > 0;) {
    const int64_t size = part.size[t];
    if (size > 1) {
      if (!copy.shape.empty() && copy.shape.back() * copy.src_strides.back() == src_stride &&
          copy.shape.back() * copy.dst_strides.back() == dst_stride) {
        copy.shape.back() *= size;
      } else {
        copy.shape.push_back(size);
        copy.src_strides.push_back(src_stride);
        copy.dst_strides.push_back(dst_stride);
      }
    }
    src_stride *= src_box.size[t];
    dst_stride *= dst_box.size[t];
  }
  if (copy.shape.empty()) {
    copy.shape = copy.src_strides = copy.dst_strides = {1};
  }
  std::reverse(copy.shape.begin(), copy.shape.end());
  std::reverse(copy.src_strides.begin(), copy.src_strides.end());
  std::reverse(copy.dst_strides.begin(), copy.dst_strides.end());
  program_.copies.push_back(std::move(copy));
}

void ProgramBuilder::FlushCopies() {
  const auto size = static_cast<int32_t>(program_.copies.size());
  if (size == flushed_copies_) return;
  Instruction& instruction = program_.instructions.emplace_back();
  instruction.kind = Kind::kCopy;
  instruction.step = std::max(step_, 0);
  instruction.copies = {flushed_copies_, size - flushed_copies_};
  flushed_copies_ = size;
}

void ProgramBuilder::AddFillZero(Location dst, int64_t bytes) {
  if (bytes == 0) return;
  Instruction& fill = Add(Kind::kFillZero);
  fill.dst = dst;
  fill.count = bytes;
}

Instruction& ProgramBuilder::Add(Kind kind) {
  FlushCopies();
  Instruction& instruction = program_.instructions.emplace_back();
  instruction.kind = kind;
  instruction.step = step_;
  return instruction;
}

Instruction& ProgramBuilder::AddCall(Kind kind, const DimSet& mesh_dims, Location src, Location dst,
                                     int64_t count) {
  Instruction& call = Add(kind);
  call.group = GroupOver(mesh_dims);
  call.src = src;
  call.dst = dst;
  call.count = count;
  return call;
}

void ProgramBuilder::AddSendRecv(const DimSet& mesh_dims, absl::Span<const ProgramMessage> sends,
                                 absl::Span<const ProgramMessage> recvs) {
  Instruction& call = Add(Kind::kSendRecv);
  call.group = GroupOver(mesh_dims);
  std::vector<ProgramMessage>& messages = program_.messages;
  call.sends = {static_cast<int32_t>(messages.size()), static_cast<int32_t>(sends.size())};
  messages.insert(messages.end(), sends.begin(), sends.end());
  call.recvs = {static_cast<int32_t>(messages.size()), static_cast<int32_t>(recvs.size())};
  messages.insert(messages.end(), recvs.begin(), recvs.end());
}

int ProgramBuilder::GroupOver(const DimSet& mesh_dims) {
  for (size_t g = 0; g < program_.groups.size(); ++g) {
    if (program_.groups[g].mesh_dims == mesh_dims) return static_cast<int>(g);
  }
  ProgramGroup group{.mesh_dims = mesh_dims,
                     .number = GroupNumber(mesh_, mesh_dims, me_),
                     .ranks = mesh_.GroupOf(mesh_dims, program_.rank)};
  if (!mesh_.IsRowMajor()) std::sort(group.ranks.begin(), group.ranks.end());
  program_.groups.push_back(std::move(group));
  return static_cast<int>(program_.groups.size()) - 1;
}

Program ProgramBuilder::Finish() && {
  FlushCopies();
  return std::move(program_);
}

}  // namespace meshift::lowering_internal

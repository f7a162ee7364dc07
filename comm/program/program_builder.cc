#include "comm/program/program_builder.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "comm/program/step_geometry.h"
#include "comm/tensor/strides.h"

namespace meshift::lowering_internal {

using Kind = Instruction::Kind;
using Space = Location::Space;

Value Value::RowMajor(Location at, DType dtype, Box box) {
  Shape strides = RowMajorStrides(box.size);
  return {at, dtype, std::move(box), std::move(strides)};
}

bool Value::IsRowMajor() const { return meshift::IsRowMajor(box.size, strides); }

std::optional<Location> Value::RunOf(const Box& part) const {
  int64_t offset = 0;
  int64_t run = 1;  // elements
  for (size_t t = part.size.size(); t-- > 0;) {
    offset += (part.offset[t] - box.offset[t]) * strides[t];
    if (part.size[t] == 1) continue;
    if (strides[t] != run) return std::nullopt;
    run *= part.size[t];
  }
  return ProgramBuilder::Shift(at, offset * Bytes(dtype, 1));
}

ProgramBuilder::ProgramBuilder(std::vector<DeviceMesh> meshes, int64_t rank, ProgramMemory memory,
                               int num_steps)
    : memory_(std::move(memory)) {
  const auto whole = [](int64_t bytes) {
    return bytes / kWorkspaceAlignment * kWorkspaceAlignment;
  };
  program_.meshes = std::move(meshes);
  program_.rank = rank;
  program_.num_steps = num_steps;
  program_.consumes_source = memory_.consume_source;
  workspace_ = {.space = Space::kWorkspace, .size = whole(memory_.workspace_bytes)};
  workspace_.end = workspace_.size;
  scratch_ = {.space = Space::kSource,
              .size = memory_.consume_source ? whole(memory_.source.bytes()) : 0};
}

void ProgramBuilder::AddMesh(DeviceMesh mesh) {
  mesh_ = static_cast<int>(program_.meshes.size());
  program_.meshes.push_back(std::move(mesh));
}

Location ProgramBuilder::Place(Arena& arena, int value, int64_t bytes) {
  if (value % 2 == 1) {
    arena.begin += RoundUp(bytes, kWorkspaceAlignment);
    return {arena.space, 0};
  }
  arena.end -= RoundUp(bytes, kWorkspaceAlignment);
  return {arena.space, arena.end};
}

absl::Status ProgramBuilder::NoRoom(int64_t bytes) const {
  return InvalidArgument("step {} needs {} bytes more than the workspace of {} bytes on rank {}",
                         step_, bytes - (workspace_.end - workspace_.begin),
                         memory_.workspace_bytes, program_.rank);
}

void ProgramBuilder::NoteUse() {
  used_bytes_ = std::max(used_bytes_, workspace_.begin + (workspace_.size - workspace_.end));
}

absl::Status ProgramBuilder::BeginStep(DType dtype, const Box& box) {
  FlushCopies();
  ++step_;
  for (Arena* arena : {&workspace_, &scratch_}) {
    arena->begin = 0;
    arena->end = arena->size;
  }
  in_ = step_ == 0 ? memory_.source : out_;
  if (step_ == 0) {
    scratch_.end = 0;  // until EndInput
  } else {
    Place(in_.at.space == Space::kSource ? scratch_ : workspace_, step_, in_.bytes());
  }
  if (step_ + 1 == program_.num_steps) {
    out_ = memory_.target;
    NoteUse();
    return absl::OkStatus();
  }
  out_ = Value::RowMajor({}, dtype, box);
  const int64_t bytes = out_.bytes();
  const bool scratch = !memory_.only_pieces && scratch_.end > 0 && Fits(scratch_, bytes);
  Arena& arena = scratch ? scratch_ : workspace_;
  if (!Fits(arena, bytes)) return NoRoom(bytes);
  out_.at = Place(arena, step_ + 1, bytes);
  NoteUse();
  return absl::OkStatus();
}

absl::StatusOr<Location> ProgramBuilder::TakePiece(int64_t bytes) {
  Arena& arena = scratch_.end > 0 && Fits(scratch_, bytes) ? scratch_ : workspace_;
  if (!Fits(arena, bytes)) return NoRoom(bytes);
  const Location piece = {arena.space, arena.begin};
  arena.begin += RoundUp(bytes, kWorkspaceAlignment);
  NoteUse();
  return piece;
}

void ProgramBuilder::EndInput() {
  if (step_ > 0 || scratch_.size == 0 || memory_.only_pieces) return;
  FlushCopies();
  scratch_.end = scratch_.size;
}

void ProgramBuilder::AddCopy(const Value& from, const Value& to, const Box& part) {
  if (part.IsEmpty()) return;
  if (from.dtype != copies_dtype_) FlushCopies();
  copies_dtype_ = from.dtype;
  ProgramCopy copy;
  int64_t src_offset = 0;
  int64_t dst_offset = 0;
  // Innermost dim first.
  for (size_t t = part.size.size(); t-- > 0;) {
    const int64_t size = part.size[t];
    const int64_t src_stride = from.strides[t];
    const int64_t dst_stride = to.strides[t];
    src_offset += (part.offset[t] - from.box.offset[t]) * src_stride;
    dst_offset += (part.offset[t] - to.box.offset[t]) * dst_stride;
    if (size == 1) continue;
    if (!copy.shape.empty() && copy.shape.back() * copy.src_strides.back() == src_stride &&
        copy.shape.back() * copy.dst_strides.back() == dst_stride) {
      copy.shape.back() *= size;
    } else {
      copy.shape.push_back(size);
      copy.src_strides.push_back(src_stride);
      copy.dst_strides.push_back(dst_stride);
    }
  }
  const int64_t item = Bytes(from.dtype, 1);
  copy.src = Shift(from.at, src_offset * item);
  copy.dst = Shift(to.at, dst_offset * item);
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
  instruction.dtype = instruction.to_dtype = copies_dtype_;
  instruction.copies = {flushed_copies_, size - flushed_copies_};
  flushed_copies_ = size;
}

void ProgramBuilder::AddFillZero(Location dst, int64_t bytes) {
  if (bytes == 0) return;
  Instruction& fill = Add(Kind::kFillZero, in_.dtype);
  fill.dst = dst;
  fill.count = bytes;
}

Instruction& ProgramBuilder::Add(Kind kind, DType dtype) {
  FlushCopies();
  Instruction& instruction = program_.instructions.emplace_back();
  instruction.kind = kind;
  instruction.step = step_;
  instruction.dtype = instruction.to_dtype = dtype;
  return instruction;
}

Instruction& ProgramBuilder::AddCall(Kind kind, const DimSet& mesh_dims, Location src, Location dst,
                                     int64_t count) {
  Instruction& call = Add(kind, in_.dtype);
  call.group = GroupOver(mesh_dims);
  call.src = src;
  call.dst = dst;
  call.count = count;
  return call;
}

void ProgramBuilder::SetCounts(absl::Span<const int64_t> counts, Instruction* call) {
  call->counts = {static_cast<int32_t>(program_.counts.size()),
                  static_cast<int32_t>(counts.size())};
  program_.counts.insert(program_.counts.end(), counts.begin(), counts.end());
}

Instruction& ProgramBuilder::AddSendRecv(const DimSet& mesh_dims,
                                         absl::Span<const ProgramMessage> sends,
                                         absl::Span<const ProgramMessage> recvs) {
  Instruction& call = Add(Kind::kSendRecv, in_.dtype);
  call.group = GroupOver(mesh_dims);
  std::vector<ProgramMessage>& messages = program_.messages;
  call.sends = {static_cast<int32_t>(messages.size()), static_cast<int32_t>(sends.size())};
  messages.insert(messages.end(), sends.begin(), sends.end());
  call.recvs = {static_cast<int32_t>(messages.size()), static_cast<int32_t>(recvs.size())};
  messages.insert(messages.end(), recvs.begin(), recvs.end());
  return call;
}

int ProgramBuilder::GroupOver(const DimSet& mesh_dims) {
  for (size_t g = 0; g < program_.groups.size(); ++g) {
    const ProgramGroup& group = program_.groups[g];
    if (group.mesh == mesh_ && group.mesh_dims == mesh_dims && group.one_channel == one_channel_) {
      return static_cast<int>(g);
    }
  }
  const DeviceMesh& mesh = program_.meshes[mesh_];
  ProgramGroup group{
      .mesh = mesh_, .mesh_dims = mesh_dims, .number = 0, .ranks = {}, .one_channel = one_channel_};
  if (const std::optional<Coordinate> me = mesh.CoordinateOf(program_.rank)) {
    group.number = GroupNumber(mesh, mesh_dims, *me);
    group.ranks = mesh.GroupListOf(mesh_dims, program_.rank);
  }
  program_.groups.push_back(std::move(group));
  return static_cast<int>(program_.groups.size()) - 1;
}

Program ProgramBuilder::Finish() && {
  FlushCopies();
  const auto tensor = [](const Value& value) {
    return ProgramTensor{value.dtype, value.box.size, value.IsRowMajor() ? Shape{} : value.strides};
  };
  program_.source = tensor(memory_.source);
  program_.target = tensor(memory_.target);
  program_.workspace_bytes = used_bytes_;
  return std::move(program_);
}

}  // namespace meshift::lowering_internal

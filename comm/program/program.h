// A plan lowered for one rank: copies, and collective calls with offsets and counts. Lower() makes
// it (comm/program/lowering.h); an engine runs it (comm/executor/executable.h).
//
//   MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(plan, 1));
//   fmt::print("{}", program.ToString());
//     // rank 1: source f32[2,4], target f32[4,4], workspace 0
//     // group 0 over 0: number 0 of {0,1}
//     // 0 all_gather group 0: source+0 -> target+0, 8 f32
//
// A Program is a value: it has offsets into buffers, but no addresses. Offsets are in bytes, counts
// in elements, except in a kFillZero (bytes). Nothing here checks a program; Lower() makes only
// those that stay inside their buffers.
#ifndef MESHIFT_COMM_PROGRAM_PROGRAM_H_
#define MESHIFT_COMM_PROGRAM_PROGRAM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// Alignment of pieces in the workspace, in bytes.
inline constexpr int64_t kWorkspaceAlignment = 16;

// A place in one of the three buffers that a program runs on.
struct Location {
  enum class Space : uint8_t { kSource, kTarget, kWorkspace };
  Space space = Space::kSource;
  int64_t offset = 0;            // bytes
  int32_t tensor = 0;            // in a merged program: the tensor's index
  std::string ToString() const;  // "workspace+32", "source 3+0"
  friend bool operator==(const Location&, const Location&) = default;
};

// A BoxCopy (meshift/engine.h) of elements of the instruction's dtype. Lower() drops dims of size 1
// and merges dims that are contiguous on both sides; at least one dim is left.
struct ProgramCopy {
  Location src;
  Location dst;
  Shape shape;
  Shape src_strides;
  Shape dst_strides;
  std::string ToString() const;  // "source+0 (2,4):(8,1) -> workspace+0 :(4,1)"
  friend bool operator==(const ProgramCopy&, const ProgramCopy&) = default;
};

struct ProgramMessage {
  int peer = 0;       // the member's number in the communicator
  Location at;        // of the contiguous elements to send, or where they are received
  int64_t count = 0;  // elements, > 0
  friend bool operator==(const ProgramMessage&, const ProgramMessage&) = default;
};

// This rank's group over some dims of a mesh. The groups over the same dims partition the mesh.
struct ProgramGroup {
  int mesh = 0;  // index into Program::meshes
  DimSet mesh_dims;
  int64_t number = 0;        // among the partition's groups, by the coordinates of the other dims
  RankList ranks;            // ascending; empty: this rank is not in the mesh
  bool one_channel = false;  // GroupOptions
  friend bool operator==(const ProgramGroup&, const ProgramGroup&) = default;
};

// Part of a list: elements [first, first + size).
struct ListRange {
  int32_t first = 0;
  int32_t size = 0;
  friend bool operator==(const ListRange&, const ListRange&) = default;
};

// A local operation or a collective call. Its kind says which of the fields it uses.
struct Instruction {
  enum class Kind : uint8_t {
    kCopy,           // `copies`, in any order
    kFillIdentity,   // `count` elements at dst become reduction.op's identity
    kFillZero,       // `count` bytes at dst
    kAllReduce,      // `count` elements
    kReduceScatter,  // `count` elements per member, or `counts`
    kAllGather,      // `count` elements per member, or `counts`
    kSendRecv,       // `sends` and `recvs`, possibly none
    kCast,           // `count` elements at src are converted to `to_dtype` at dst
    kReduceInOrder,  // reduces `blocks` blocks of `count` elements, in order, to dst; block i is
                     // at src + i * `block_bytes`
  };
  Kind kind = Kind::kCopy;
  int step = 0;    // index into the plan's steps; 0 in a plan without steps
  int group = -1;  // index into Program::groups; -1: local
  Location src;
  Location dst;
  int64_t count = 0;
  DType dtype = DType::kF32;     // of the elements, also when sent
  DType to_dtype = DType::kF32;  // of the result of a kCast; else as `dtype`
  Reduction reduction;
  ListRange copies;  // of Program::copies
  ListRange sends;   // of Program::messages, ascending peers, as `recvs`
  ListRange recvs;
  // In a kReduceScatter or kAllGather whose blocks differ: a range of Program::counts with the
  // elements of each member's block; `count` is then this rank's. Else empty.
  ListRange counts;
  int64_t blocks = 0;  // of kReduceInOrder
  int64_t block_bytes = 0;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};
std::string_view Name(Instruction::Kind kind);

// A local tensor. An f4e2m1 tensor appears as its bytes: u8, with the last dim halved.
struct ProgramTensor {
  DType dtype = DType::kF32;
  Shape shape;                   // of the local box
  Shape strides;                 // in elements; empty: row-major
  std::string ToString() const;  // "f32[2,4]", "f32[2,4]:(1,2)"
  friend bool operator==(const ProgramTensor&, const ProgramTensor&) = default;
};

struct Program {
  int64_t rank = 0;
  int num_steps = 0;
  // More than 1 in a merged program (comm/program/merge_programs.h); `source` and `target` are then
  // those of the first tensor.
  int num_tensors = 1;
  ProgramTensor source;  // without elements if this rank is not in the tensor's mesh
  ProgramTensor target;
  // The plan's workspace_bytes, equal on all ranks, if plan and call have separate buffers
  // (Buffers::kTwo), both tensors are row-major, and the source is not consumed. Else the bytes
  // that this program needs: not more than the plan's if the plan was made for such buffers and the
  // tensors are row-major. 0 on a rank in no mesh of the plan. MergePrograms() defines that of a
  // merged program.
  int64_t workspace_bytes = 0;
  // Source and target (in a merged program, those of some tensors) may begin at the same address:
  // no instruction reads the source after one has written to the target, except calls that run in
  // place.
  bool one_buffer = false;
  // Instructions use the source's memory as scratch memory once they have read the source.
  bool consumes_source = false;
  // The plan's meshes. If messages go from one mesh to another, a third mesh has all ranks of both.
  std::vector<DeviceMesh> meshes;
  // This rank's groups of the partitions that the plan needs, in order of first use. The partitions
  // are the same on every rank, even if this rank's group has nothing to do or it is in no group.
  std::vector<ProgramGroup> groups;
  std::vector<Instruction> instructions;  // in order
  std::vector<ProgramCopy> copies;
  std::vector<ProgramMessage> messages;
  std::vector<int64_t> counts;

  ListRange All() const { return {0, static_cast<int32_t>(instructions.size())}; }
  absl::Span<const ProgramCopy> CopiesOf(const Instruction& instruction) const {
    return absl::MakeConstSpan(copies).subspan(instruction.copies.first, instruction.copies.size);
  }
  // `range`: an instruction's `sends` or `recvs`.
  absl::Span<const ProgramMessage> MessagesOf(const ListRange& range) const {
    return absl::MakeConstSpan(messages).subspan(range.first, range.size);
  }
  absl::Span<const int64_t> CountsOf(const Instruction& instruction) const {
    return absl::MakeConstSpan(counts).subspan(instruction.counts.first, instruction.counts.size);
  }
  // The elements of all members' blocks together, in a reduce_scatter or all_gather.
  int64_t BlocksCount(const Instruction& instruction) const;

  // One line per group and per instruction, each ending in a newline.
  std::string ToString() const;
  friend bool operator==(const Program&, const Program&) = default;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_PROGRAM_H_

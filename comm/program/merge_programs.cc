#include "comm/program/merge_programs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = Instruction::Kind;
using Space = Location::Space;

// The largest power of two that divides `bytes`, at most 16.
int64_t Alignment(int64_t bytes) { return std::min<int64_t>(16, bytes & -bytes); }

// A call of one part.
struct PartCall {
  int part = 0;
  const Instruction* call = nullptr;
  int64_t bytes = 0;   // of a member's piece; of unequal pieces: the bitwise or of their sizes
  int64_t offset = 0;  // of this part in a member's piece of the merged call
};

// A message of one part.
struct PartMessage {
  int part = 0;
  int peer = 0;
  Location at;
  int64_t bytes = 0;
};

// One use: Run() moves the result out.
class Merger {
 public:
  explicit Merger(absl::Span<const MergePart> parts)
      : parts_(parts), next_(parts.size(), 0), base_(parts.size(), 0) {}

  absl::StatusOr<Program> Run() {
    const auto steps = parts_[0].calls.size();
    int64_t base = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Program& program = *parts_[i].program;
      if (parts_[i].calls.size() != steps || program.rank != parts_[0].program->rank) {
        return Internal("cannot merge programs of {} and {} calls, of ranks {} and {}", steps,
                        parts_[i].calls.size(), parts_[0].program->rank, program.rank);
      }
      base_[i] = base;
      base += RoundUp(program.workspace_bytes, kWorkspaceAlignment);
      if (!program.groups.empty() && merged_.groups.empty()) merged_.meshes = program.meshes;
      if (!program.groups.empty() && program.meshes != merged_.meshes) {
        return Internal("cannot merge programs with groups of different meshes");
      }
      for (const ProgramGroup& group : program.groups) GroupOf(group);
      merged_.one_buffer |= program.one_buffer;
      merged_.consumes_source |= program.consumes_source;
    }
    merged_.rank = parts_[0].program->rank;
    merged_.num_steps = std::max(1, static_cast<int>(steps));
    merged_.num_tensors = static_cast<int>(parts_.size());
    merged_.source = parts_[0].program->source;
    merged_.target = parts_[0].program->target;
    buffer_ = {Space::kWorkspace, base};
    for (size_t k = 0; k < steps; ++k) {
      step_ = static_cast<int>(k);
      MESHIFT_RETURN_IF_ERROR(AddStep(k));
    }
    AddLocal([](size_t) { return SIZE_MAX; });
    merged_.workspace_bytes = base + buffer_bytes_;
    return std::move(merged_);
  }

 private:
  int GroupOf(const ProgramGroup& group) {
    for (size_t g = 0; g < merged_.groups.size(); ++g) {
      const ProgramGroup& known = merged_.groups[g];
      if (known.mesh == group.mesh && known.mesh_dims == group.mesh_dims &&
          known.one_channel == group.one_channel) {
        return static_cast<int>(g);
      }
    }
    merged_.groups.push_back(group);
    return static_cast<int>(merged_.groups.size()) - 1;
  }
  Location Moved(int part, Location at) const {
    if (at.space == Space::kWorkspace) {
      at.offset += base_[part];
    } else {
      at.tensor = part;
    }
    return at;
  }
  static Location Shift(Location at, int64_t bytes) {
    at.offset += bytes;
    return at;
  }
  // The buffer of a merged call of `bytes`. All calls share it, so it grows to the largest.
  Location Buffer(int64_t bytes) {
    buffer_bytes_ = std::max(buffer_bytes_, RoundUp(bytes, kWorkspaceAlignment));
    return buffer_;
  }
  Instruction& Add(Kind kind, DType dtype) {
    Instruction& instruction = merged_.instructions.emplace_back();
    instruction.kind = kind;
    instruction.step = step_;
    instruction.dtype = instruction.to_dtype = dtype;
    return instruction;
  }

  // Collects copies, and adds them as one instruction when destroyed.
  class Copies {
   public:
    Copies(Merger& merger, DType dtype) : merger_(merger), first_(merger.merged_.copies.size()) {
      dtype_ = dtype;
    }
    ~Copies() {
      const size_t size = merger_.merged_.copies.size() - first_;
      if (size == 0) return;
      merger_.Add(Kind::kCopy, dtype_).copies = {static_cast<int32_t>(first_),
                                                 static_cast<int32_t>(size)};
    }
    Copies(const Copies&) = delete;
    Copies& operator=(const Copies&) = delete;

    void Take(int part, ProgramCopy copy) {
      copy.src = merger_.Moved(part, copy.src);
      copy.dst = merger_.Moved(part, copy.dst);
      merger_.merged_.copies.push_back(std::move(copy));
    }
    // `n` rows of `bytes` bytes; rows begin `src_row` and `dst_row` bytes after each other.
    void Rows(const Location& src, int64_t src_row, const Location& dst, int64_t dst_row, int64_t n,
              int64_t bytes) {
      if (bytes == 0) return;
      ProgramCopy copy;
      copy.src = src;
      copy.dst = dst;
      if (n > 1) {
        copy.shape = {n, bytes};
        copy.src_strides = {src_row, 1};
        copy.dst_strides = {dst_row, 1};
      } else {
        copy.shape = {bytes};
        copy.src_strides = copy.dst_strides = {1};
      }
      merger_.merged_.copies.push_back(std::move(copy));
    }

   private:
    Merger& merger_;
    const size_t first_;
    DType dtype_ = DType::kU8;
  };

  // Adds the local instructions of each part before its instruction `end_of(part)`. Copies of
  // several parts with the same dtype become one instruction.
  template <typename EndOf>
  void AddLocal(const EndOf& end_of) {
    std::vector<size_t> end(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      end[i] = std::min(end_of(i), parts_[i].program->instructions.size());
    }
    while (true) {
      std::vector<DType> dtypes;  // of the next copies
      bool any = false;
      for (size_t i = 0; i < parts_.size(); ++i) {
        if (next_[i] >= end[i]) continue;
        any = true;
        const Instruction& instruction = parts_[i].program->instructions[next_[i]];
        if (instruction.kind != Kind::kCopy) {
          AddMoved(static_cast<int>(i), instruction);
          ++next_[i];
        } else if (std::find(dtypes.begin(), dtypes.end(), instruction.dtype) == dtypes.end()) {
          dtypes.push_back(instruction.dtype);
        }
      }
      if (!any) return;
      std::vector<bool> done(parts_.size(), false);
      for (const DType dtype : dtypes) {
        Copies copies(*this, dtype);
        for (size_t i = 0; i < parts_.size(); ++i) {
          if (next_[i] >= end[i] || done[i]) continue;
          const Program& program = *parts_[i].program;
          const Instruction& instruction = program.instructions[next_[i]];
          if (instruction.kind != Kind::kCopy || instruction.dtype != dtype) continue;
          for (int c = 0; c < instruction.copies.size; ++c) {
            copies.Take(static_cast<int>(i), program.copies[instruction.copies.first + c]);
          }
          done[i] = true;
          ++next_[i];
        }
      }
    }
  }

  // Adds an instruction of one part, with its locations, step and group moved to the merged
  // program.
  void AddMoved(int part, const Instruction& instruction) {
    const Program& program = *parts_[part].program;
    Instruction moved = instruction;
    moved.step = step_;
    moved.src = Moved(part, moved.src);
    moved.dst = Moved(part, moved.dst);
    if (moved.group >= 0) moved.group = GroupOf(program.groups[moved.group]);
    const absl::Span<const int64_t> counts = program.CountsOf(instruction);
    moved.counts.first = static_cast<int32_t>(merged_.counts.size());
    merged_.counts.insert(merged_.counts.end(), counts.begin(), counts.end());
    for (ListRange* range : {&moved.sends, &moved.recvs}) {
      const int32_t first = range->first;
      range->first = static_cast<int32_t>(merged_.messages.size());
      for (int32_t m = first; m < first + range->size; ++m) {
        ProgramMessage message = program.messages[m];
        message.at = Moved(part, message.at);
        merged_.messages.push_back(message);
      }
    }
    merged_.instructions.push_back(moved);
  }

  absl::Status AddStep(size_t k) {
    std::vector<size_t> ends(parts_.size());
    std::vector<PartCall> calls;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const std::vector<Instruction>& instructions = parts_[i].program->instructions;
      const int step = parts_[i].calls[k];
      // Up to the step's call, or if it has none, up to the end of the step.
      size_t end = next_[i];
      while (end < instructions.size() && instructions[end].step <= step &&
             instructions[end].group < 0) {
        ++end;
      }
      ends[i] = end;
      if (end == instructions.size() || instructions[end].group < 0) continue;
      const Instruction& call = instructions[end];
      if (call.step != step) {
        // A call of a later step: this one has none here.
        continue;
      }
      calls.push_back({.part = static_cast<int>(i), .call = &call});
    }
    AddLocal([&](size_t i) { return ends[i]; });
    for (const PartCall& call : calls) ++next_[call.part];
    if (calls.size() == 1) {
      AddMoved(calls[0].part, *calls[0].call);
    } else if (calls.size() > 1) {
      return AddCall(calls);
    }
    return absl::OkStatus();
  }

  absl::Status AddCall(std::vector<PartCall>& calls) {
    const Instruction& first = *calls[0].call;
    const ProgramGroup& group = GroupOfCall(calls[0]);
    const bool reduces = first.kind == Kind::kAllReduce || first.kind == Kind::kReduceScatter;
    for (const PartCall& call : calls) {
      const bool alike = call.call->kind == first.kind && GroupOfCall(call) == group;
      if (!alike || (reduces && (call.call->dtype != first.dtype ||
                                 !(call.call->reduction == first.reduction)))) {
        return Internal("step {}: cannot merge calls of {} and {} over {} and {} ranks", step_,
                        Name(first.kind), Name(call.call->kind), group.ranks.size(),
                        GroupOfCall(call).ranks.size());
      }
    }
    if (first.kind == Kind::kSendRecv) {
      AddSendRecv(calls, group);
      return absl::OkStatus();
    }
    if (std::any_of(calls.begin(), calls.end(),
                    [](const PartCall& call) { return call.call->counts.size > 0; })) {
      AddRaggedBlocks(calls, group);
      return absl::OkStatus();
    }
    for (PartCall& call : calls) call.bytes = Bytes(call.call->dtype, call.call->count);
    // The order is the same on all members, since the counts are.
    std::stable_sort(calls.begin(), calls.end(), [](const PartCall& a, const PartCall& b) {
      return Alignment(a.bytes) > Alignment(b.bytes);
    });
    int64_t piece = 0;
    for (PartCall& call : calls) {
      call.offset = piece;
      piece += call.bytes;
    }
    const auto members = static_cast<int64_t>(group.ranks.size());
    const int64_t self = std::lower_bound(group.ranks.begin(), group.ranks.end(), merged_.rank) -
                         group.ranks.begin();
    // Whether the source, or the target, has a piece per member.
    const bool scatters = first.kind == Kind::kReduceScatter;
    const bool gathers = first.kind == Kind::kAllGather;
    const Location buffer = Buffer(scatters || gathers ? members * piece : piece);
    const Location own = scatters || gathers ? Shift(buffer, self * piece) : buffer;
    {
      Copies copies(*this, DType::kU8);
      for (const PartCall& c : calls) {
        copies.Rows(Moved(c.part, c.call->src), c.bytes, Shift(scatters ? buffer : own, c.offset),
                    piece, scatters ? members : 1, c.bytes);
      }
    }
    const DType dtype = reduces ? first.dtype : DType::kU8;
    Instruction& call = Add(first.kind, dtype);
    call.group = GroupOf(group);
    call.src = scatters ? buffer : own;
    call.dst = gathers ? buffer : own;
    call.count = piece / Bytes(dtype, 1);
    call.reduction = first.reduction;
    Copies copies(*this, DType::kU8);
    for (const PartCall& c : calls) {
      copies.Rows(Shift(gathers ? buffer : own, c.offset), piece, Moved(c.part, c.call->dst),
                  c.bytes, gathers ? members : 1, c.bytes);
    }
    return absl::OkStatus();
  }

  const ProgramGroup& GroupOfCall(const PartCall& call) const {
    return parts_[call.part].program->groups[call.call->group];
  }

  // A reduce_scatter or all_gather in which a part has blocks of different sizes. A member's block
  // has the member's blocks of all parts, contiguous.
  void AddRaggedBlocks(std::vector<PartCall> calls, const ProgramGroup& group) {
    const Instruction& first = *calls[0].call;
    const bool scatters = first.kind == Kind::kReduceScatter;
    const size_t members = group.ranks.size();
    const size_t self = std::lower_bound(group.ranks.begin(), group.ranks.end(), merged_.rank) -
                        group.ranks.begin();
    const auto bytes_of = [&](const PartCall& c, size_t member) {
      const absl::Span<const int64_t> counts = parts_[c.part].program->CountsOf(*c.call);
      return Bytes(c.call->dtype, counts.empty() ? c.call->count : counts[member]);
    };
    // The order is the same on all members, since they know all counts. The bitwise or of sizes has
    // the smallest of their alignments.
    for (PartCall& c : calls) {
      for (size_t m = 0; m < members; ++m) c.bytes |= bytes_of(c, m);
    }
    std::stable_sort(calls.begin(), calls.end(), [](const PartCall& a, const PartCall& b) {
      return Alignment(a.bytes) > Alignment(b.bytes);
    });
    // Copies between the buffer, which is ordered by member, and the blocks of each part.
    int64_t all = 0;
    int64_t own_begin = 0;
    std::vector<int64_t> piece_bytes(members, 0);
    for (size_t m = 0; m < members; ++m) {
      if (m == self) own_begin = all;
      for (const PartCall& c : calls) piece_bytes[m] += bytes_of(c, m);
      all += piece_bytes[m];
    }
    const Location buffer = Buffer(all);
    const auto copy_blocks = [&](bool packs, bool only_own) {
      Copies copies(*this, DType::kU8);
      std::vector<int64_t> part_offset(calls.size(), 0);
      int64_t offset = 0;
      for (size_t m = 0; m < members; ++m) {
        for (size_t i = 0; i < calls.size(); ++i) {
          const PartCall& c = calls[i];
          const int64_t bytes = bytes_of(c, m);
          const Location packed = Shift(buffer, offset);
          const Location part = Moved(c.part, packs ? c.call->src : c.call->dst);
          if (!only_own || m == self) {
            const Location at = only_own ? part : Shift(part, part_offset[i]);
            copies.Rows(packs ? at : packed, 0, packs ? packed : at, 0, 1, bytes);
          }
          offset += bytes;
          part_offset[i] += bytes;
        }
      }
    };
    copy_blocks(/*packs=*/true, /*only_own=*/!scatters);
    const DType dtype = scatters ? first.dtype : DType::kU8;
    Instruction& call = Add(first.kind, dtype);
    call.group = GroupOf(group);
    call.src = scatters ? buffer : Shift(buffer, own_begin);
    call.dst = scatters ? Shift(buffer, own_begin) : buffer;
    call.count = piece_bytes[self] / Bytes(dtype, 1);
    call.reduction = first.reduction;
    call.counts = {static_cast<int32_t>(merged_.counts.size()), static_cast<int32_t>(members)};
    for (const int64_t bytes : piece_bytes) merged_.counts.push_back(bytes / Bytes(dtype, 1));
    copy_blocks(/*packs=*/false, /*only_own=*/scatters);
  }

  // Merges the messages of all parts to the same peer into one.
  void AddSendRecv(const std::vector<PartCall>& calls, const ProgramGroup& group) {
    const auto collect = [&](const ListRange Instruction::*list) {
      std::vector<PartMessage> messages;
      for (const PartCall& call : calls) {
        const Program& program = *parts_[call.part].program;
        const ListRange& range = call.call->*list;
        for (int m = range.first; m < range.first + range.size; ++m) {
          const ProgramMessage& message = program.messages[m];
          messages.push_back({.part = call.part,
                              .peer = message.peer,
                              .at = Moved(call.part, message.at),
                              .bytes = Bytes(call.call->dtype, message.count)});
        }
      }
      // The order is the same on both ends of a message, since the sizes are.
      std::stable_sort(messages.begin(), messages.end(),
                       [](const PartMessage& a, const PartMessage& b) {
                         if (a.peer != b.peer) return a.peer < b.peer;
                         return Alignment(a.bytes) > Alignment(b.bytes);
                       });
      return messages;
    };
    const std::vector<PartMessage> sends = collect(&Instruction::sends);
    const std::vector<PartMessage> recvs = collect(&Instruction::recvs);
    int64_t used = 0;
    // Places messages back to back; each peer's first one is aligned.
    std::vector<ProgramMessage> merged[2];
    const auto lay = [&](const std::vector<PartMessage>& messages, bool are_sent, bool copy_now) {
      Copies copies(*this, DType::kU8);
      std::vector<ProgramMessage>& list = merged[are_sent ? 0 : 1];
      list.clear();
      for (const PartMessage& m : messages) {
        if (list.empty() || list.back().peer != m.peer) {
          used = RoundUp(used, kWorkspaceAlignment);
          list.push_back({m.peer, Shift(buffer_, used), 0});
        }
        const Location at = Shift(buffer_, used);
        if (copy_now) {
          copies.Rows(are_sent ? m.at : at, 0, are_sent ? at : m.at, 0, 1, m.bytes);
        }
        list.back().count += m.bytes;
        used += m.bytes;
      }
    };
    lay(sends, /*are_sent=*/true, /*copy_now=*/true);
    const int64_t sent = used;
    lay(recvs, /*are_sent=*/false, /*copy_now=*/false);
    Buffer(used);
    ListRange ranges[2];
    for (const int side : {0, 1}) {
      ranges[side] = {static_cast<int32_t>(merged_.messages.size()),
                      static_cast<int32_t>(merged[side].size())};
      merged_.messages.insert(merged_.messages.end(), merged[side].begin(), merged[side].end());
    }
    Instruction& call = Add(Kind::kSendRecv, DType::kU8);
    call.group = GroupOf(group);
    call.sends = ranges[0];
    call.recvs = ranges[1];
    used = sent;
    lay(recvs, /*are_sent=*/false, /*copy_now=*/true);
  }

  const absl::Span<const MergePart> parts_;
  std::vector<size_t> next_;   // the next instruction of each part
  std::vector<int64_t> base_;  // where each part's workspace begins
  Program merged_;
  int step_ = 0;
  Location buffer_;  // shared by all calls
  int64_t buffer_bytes_ = 0;
};

}  // namespace

absl::StatusOr<Program> MergePrograms(absl::Span<const MergePart> parts) {
  if (parts.empty()) return InvalidArgument("no programs to merge");
  return Merger(parts).Run();
}

}  // namespace meshift

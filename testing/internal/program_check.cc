#include "testing/internal/program_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "comm/tensor/strides.h"

namespace meshift {
namespace {

using Kind = Instruction::Kind;

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {
    Add(program.source, &spaces_[0]);
    Add(program.target, &spaces_[1]);
    spaces_[2].bytes.assign(program.workspace_bytes, Byte{});
    for (Byte& byte : spaces_[0].bytes) byte.written = byte.belongs;
  }

  std::string Run() {
    for (const Instruction& instruction : program_.instructions) {
      Step(instruction);
      if (!fault_.empty()) return fault_;
    }
    // With one buffer, equal layouts and no steps, the buffer is right without a write.
    const bool untouched =
        program_.one_buffer && program_.instructions.empty() && program_.source == program_.target;
    const Space& target = spaces_[1];
    for (size_t i = 0; i < target.bytes.size() && !untouched; ++i) {
      if (!target.bytes[i].belongs || target.bytes[i].written) continue;
      return fmt::format("target+{} is never written", static_cast<int64_t>(i) - target.origin);
    }
    return "";
  }

 private:
  struct Byte {
    bool belongs = true;  // part of an element
    bool written = false;
  };
  struct Space {
    std::vector<Byte> bytes;
    int64_t origin = 0;  // of offset 0
  };

  // Marks the bytes of a tensor; those between its elements do not belong to it.
  static void Add(const ProgramTensor& tensor, Space* space) {
    const Shape strides = tensor.strides.empty() ? RowMajorStrides(tensor.shape) : tensor.strides;
    const StridedExtent extent = ExtentOf(tensor.shape, strides).value();
    const int64_t item = Bytes(tensor.dtype, 1);
    space->origin = -extent.low * item;
    space->bytes.assign((extent.high - extent.low) * item, Byte{.belongs = false});
    if (NumElements(tensor.shape) == 0) return;
    ForEachOffset(tensor.shape, strides, [&](int64_t offset) {
      for (int64_t i = 0; i < item; ++i) {
        space->bytes[space->origin + offset * item + i].belongs = true;
      }
    });
  }
  template <typename Fn>
  static void ForEachOffset(const Shape& shape, const Shape& strides, const Fn& fn) {
    Shape index(shape.size(), 0);
    while (true) {
      int64_t offset = 0;
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
      fn(offset);
      size_t d = index.size();
      while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  }

  void Fault(const Location& at, std::string_view what) {
    if (fault_.empty()) fault_ = fmt::format("{} {}", at.ToString(), what);
  }
  Space& SpaceOf(const Location& at) { return spaces_[static_cast<size_t>(at.space)]; }
  Byte& At(const Location& at) { return SpaceOf(at).bytes[SpaceOf(at).origin + at.offset]; }
  bool Inside(const Location& at, int64_t bytes) {
    const Space& space = SpaceOf(at);
    const int64_t begin = space.origin + at.offset;
    if (begin >= 0 && bytes >= 0 && begin + bytes <= static_cast<int64_t>(space.bytes.size())) {
      for (int64_t i = 0; i < bytes; ++i) {
        if (!space.bytes[begin + i].belongs) {
          Fault({at.space, at.offset + i}, "lies between the elements");
          return false;
        }
      }
      return true;
    }
    Fault(at, fmt::format("with {} bytes is out of bounds", bytes));
    return false;
  }
  void CheckDType(const Location& at, DType dtype) {
    const bool source = at.space == Location::Space::kSource;
    if (at.space == Location::Space::kWorkspace || (source && program_.consumes_source)) return;
    const DType has = source ? program_.source.dtype : program_.target.dtype;
    if (has != dtype) Fault(at, fmt::format("is {} to an instruction", Name(dtype)));
  }
  void Read(const Location& at, int64_t bytes) {
    if (!Inside(at, bytes)) return;
    for (int64_t i = 0; i < bytes; ++i) {
      const Location one = {at.space, at.offset + i};
      if (!At(one).written) return Fault(one, "is not written");
    }
  }
  // Writes go to `writes_`, so that the reads of one instruction do not see its writes.
  void Write(const Location& at, int64_t bytes) {
    if (at.space == Location::Space::kSource && !program_.consumes_source) {
      return Fault(at, "is written");
    }
    if (Inside(at, bytes)) writes_.emplace_back(at, bytes);
  }
  void Finish() {
    std::array<std::vector<char>, 3> now;
    for (size_t s = 0; s < 3; ++s) now[s].assign(spaces_[s].bytes.size(), 0);
    for (const auto& [at, bytes] : writes_) {
      for (int64_t i = 0; i < bytes; ++i) {
        const Location one = {at.space, at.offset + i};
        char& mark = now[static_cast<size_t>(at.space)][SpaceOf(at).origin + one.offset];
        if (mark != 0) Fault(one, "is written twice by one instruction");
        mark = 1;
        At(one).written = true;
        if (!program_.one_buffer || at.space != Location::Space::kTarget) continue;
        const auto in_source = static_cast<size_t>(spaces_[1].origin + one.offset);
        if (in_source < spaces_[0].bytes.size()) spaces_[0].bytes[in_source].written = false;
      }
    }
    writes_.clear();
  }
  void Copy(const ProgramCopy& copy, DType dtype) {
    const int64_t item = Bytes(dtype, 1);
    CheckDType(copy.src, dtype);
    CheckDType(copy.dst, dtype);
    // The target's offsets, in the order of the source's.
    std::vector<int64_t> to;
    ForEachOffset(copy.shape, copy.dst_strides, [&](int64_t offset) { to.push_back(offset); });
    size_t i = 0;
    ForEachOffset(copy.shape, copy.src_strides, [&](int64_t from) {
      Read({copy.src.space, copy.src.offset + from * item}, item);
      Write({copy.dst.space, copy.dst.offset + to[i++] * item}, item);
    });
  }
  // In one shared buffer only an all_reduce may read and write the same bytes.
  void CheckInPlace(const Instruction& i) {
    if (!program_.one_buffer || i.kind != Kind::kCopy) return;
    bool reads = false;
    bool writes = false;
    for (int c = i.copies.first; c < i.copies.first + i.copies.size; ++c) {
      reads |= program_.copies[c].src.space == Location::Space::kSource;
      writes |= program_.copies[c].dst.space == Location::Space::kTarget;
    }
    if (reads && writes) Fault(program_.copies[i.copies.first].src, "is read and written at once");
  }

  void CheckCounts(const Instruction& i) {
    if (i.counts.size == 0) return;
    const RankList& ranks = program_.groups[i.group].ranks;
    const absl::Span<const int64_t> counts = program_.CountsOf(i);
    const auto self = std::find(ranks.begin(), ranks.end(), program_.rank) - ranks.begin();
    if (counts.size() != ranks.size() || counts[self] != i.count) {
      Fault(i.dst,
            fmt::format("has counts {} of {} members", fmt::join(counts, ","), ranks.size()));
    }
  }

  void Step(const Instruction& i) {
    const int64_t bytes = Bytes(i.dtype, i.count);
    const int64_t members =
        i.group < 0 ? 0 : static_cast<int64_t>(program_.groups[i.group].ranks.size());
    const int64_t blocks = i.group < 0 ? 0 : Bytes(i.dtype, program_.BlocksCount(i));
    CheckInPlace(i);
    CheckCounts(i);
    switch (i.kind) {
      case Kind::kCopy:
        for (int c = 0; c < i.copies.size; ++c) {
          Copy(program_.copies[i.copies.first + c], i.dtype);
        }
        break;
      case Kind::kFillIdentity:
        CheckDType(i.dst, i.dtype);
        Write(i.dst, bytes);
        break;
      case Kind::kFillZero:
        Write(i.dst, i.count);
        break;
      case Kind::kAllReduce:
        CheckDType(i.src, i.dtype);
        Read(i.src, bytes);
        Write(i.dst, bytes);
        break;
      case Kind::kReduceScatter:
        CheckDType(i.src, i.dtype);
        Read(i.src, blocks);
        Write(i.dst, bytes);
        break;
      case Kind::kAllGather:
        CheckDType(i.src, i.dtype);
        Read(i.src, bytes);
        Write(i.dst, blocks);
        break;
      case Kind::kSendRecv:
        for (const auto& [range, receives] :
             {std::pair(i.sends, false), std::pair(i.recvs, true)}) {
          int last = -1;
          for (int m = range.first; m < range.first + range.size; ++m) {
            const ProgramMessage& message = program_.messages[m];
            if (message.peer <= last || message.peer >= members || message.count <= 0) {
              Fault(message.at, fmt::format("goes to or comes from {} out of order", message.peer));
            }
            last = message.peer;
            CheckDType(message.at, i.dtype);
            if (receives) {
              Write(message.at, Bytes(i.dtype, message.count));
            } else {
              Read(message.at, Bytes(i.dtype, message.count));
            }
          }
        }
        break;
      case Kind::kCast:
        CheckDType(i.src, i.dtype);
        CheckDType(i.dst, i.to_dtype);
        Read(i.src, bytes);
        Write(i.dst, Bytes(i.to_dtype, i.count));
        break;
      case Kind::kReduceInOrder:
        CheckDType(i.src, i.dtype);
        CheckDType(i.dst, i.dtype);
        for (int64_t b = 0; b < i.blocks; ++b) {
          Read({i.src.space, i.src.offset + b * i.block_bytes}, bytes);
        }
        Write(i.dst, bytes);
        break;
    }
    Finish();
  }

  const Program& program_;
  std::array<Space, 3> spaces_;  // by Location::Space
  std::vector<std::pair<Location, int64_t>> writes_;
  std::string fault_;
};

}  // namespace

std::string CheckProgram(const Program& program) { return Checker(program).Run(); }

}  // namespace meshift

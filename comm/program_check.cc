#include "comm/program_check.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshift {
namespace {

using Kind = Instruction::Kind;

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {
    const auto bytes = [&](const Shape& shape) { return Bytes(program.dtype, NumElements(shape)); };
    written_[0].assign(bytes(program.source_shape), 1);
    written_[1].assign(bytes(program.target_shape), 0);
    written_[2].assign(program.workspace_bytes, 0);
  }

  std::string Run() {
    for (const Instruction& instruction : program_.instructions) {
      Step(instruction);
      if (!fault_.empty()) return fault_;
    }
    for (size_t i = 0; i < written_[1].size(); ++i) {
      if (written_[1][i] == 0) return fmt::format("target+{} is never written", i);
    }
    return "";
  }

 private:
  void Fault(const Location& at, std::string_view what) {
    if (fault_.empty()) fault_ = fmt::format("{} {}", at.ToString(), what);
  }
  std::vector<char>& Space(const Location& at) { return written_[static_cast<size_t>(at.space)]; }
  bool Inside(const Location& at, int64_t bytes) {
    if (at.offset >= 0 && bytes >= 0 &&
        at.offset + bytes <= static_cast<int64_t>(Space(at).size())) {
      return true;
    }
    Fault(at, fmt::format("with {} bytes is out of bounds", bytes));
    return false;
  }
  void Read(const Location& at, int64_t bytes) {
    if (!Inside(at, bytes)) return;
    for (int64_t i = 0; i < bytes; ++i) {
      if (Space(at)[at.offset + i] == 0) return Fault({at.space, at.offset + i}, "is not written");
    }
  }
  // Writes into `writes_`, so that the reads of one instruction do not see its writes.
  void Write(const Location& at, int64_t bytes) {
    if (at.space == Location::Space::kSource) return Fault(at, "is written");
    if (Inside(at, bytes)) writes_.emplace_back(at, bytes);
  }
  void Finish() {
    std::array<std::vector<char>, 3> now;
    for (size_t s = 0; s < 3; ++s) now[s].assign(written_[s].size(), 0);
    for (const auto& [at, bytes] : writes_) {
      for (int64_t i = 0; i < bytes; ++i) {
        char& mark = now[static_cast<size_t>(at.space)][at.offset + i];
        if (mark != 0) Fault({at.space, at.offset + i}, "is written twice by one instruction");
        mark = 1;
        Space(at)[at.offset + i] = 1;
      }
    }
    writes_.clear();
  }
  void Copy(const ProgramCopy& copy) {
    const int64_t item = Bytes(program_.dtype, 1);
    Shape index(copy.shape.size(), 0);
    while (true) {
      int64_t from = 0;
      int64_t to = 0;
      for (size_t d = 0; d < index.size(); ++d) {
        from += index[d] * copy.src_strides[d];
        to += index[d] * copy.dst_strides[d];
      }
      Read({copy.src.space, copy.src.offset + from * item}, item);
      Write({copy.dst.space, copy.dst.offset + to * item}, item);
      size_t d = index.size();
      while (d > 0 && ++index[d - 1] == copy.shape[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  }
  void Step(const Instruction& i) {
    const int64_t bytes = Bytes(program_.dtype, i.count);
    const int64_t members =
        i.group < 0 ? 0 : static_cast<int64_t>(program_.groups[i.group].ranks.size());
    switch (i.kind) {
      case Kind::kCopy:
        for (int c = 0; c < i.copies.size; ++c) Copy(program_.copies[i.copies.first + c]);
        break;
      case Kind::kFillIdentity:
        Write(i.dst, bytes);
        break;
      case Kind::kFillZero:
        Write(i.dst, i.count);
        break;
      case Kind::kAllReduce:
        Read(i.src, bytes);
        Write(i.dst, bytes);
        break;
      case Kind::kReduceScatter:
        Read(i.src, bytes * members);
        Write(i.dst, bytes);
        break;
      case Kind::kAllGather:
        Read(i.src, bytes);
        Write(i.dst, bytes * members);
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
            if (receives) {
              Write(message.at, Bytes(program_.dtype, message.count));
            } else {
              Read(message.at, Bytes(program_.dtype, message.count));
            }
          }
        }
        break;
    }
    Finish();
  }

  const Program& program_;
  std::array<std::vector<char>, 3> written_;  // by Location::Space
  std::vector<std::pair<Location, int64_t>> writes_;
  std::string fault_;
};

}  // namespace

std::string CheckProgram(const Program& program) { return Checker(program).Run(); }

}  // namespace meshift

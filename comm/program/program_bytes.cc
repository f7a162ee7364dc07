#include "comm/program/program_bytes.h"

#include "comm/program/byte_count.h"

namespace meshift {

std::vector<int64_t> ProgramBytes(const Program& program) {
  std::vector<int64_t> bytes(program.num_steps, 0);
  for (const Instruction& instruction : program.instructions) {
    if (instruction.group < 0) continue;
    const auto n = static_cast<int64_t>(program.groups[instruction.group].ranks.size());
    const int64_t own = Bytes(instruction.dtype, instruction.count);
    int64_t& sent = bytes[instruction.step];
    switch (instruction.kind) {
      case Instruction::Kind::kAllReduce:
        sent += AllReduceBytes(own, n);
        break;
      case Instruction::Kind::kReduceScatter:
      case Instruction::Kind::kAllGather:
        sent += instruction.counts.size == 0
                    ? BlockBytes(own, n)
                    : RaggedBytes(Bytes(instruction.dtype, program.BlocksCount(instruction)), own);
        break;
      case Instruction::Kind::kSendRecv:
        for (int i = 0; i < instruction.sends.size; ++i) {
          sent += Bytes(instruction.dtype, program.messages[instruction.sends.first + i].count);
        }
        break;
      default:
        break;
    }
  }
  return bytes;
}

}  // namespace meshift

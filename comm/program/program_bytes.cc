#include "comm/program/program_bytes.h"

#include "comm/program/byte_count.h"

namespace meshift {

int64_t InstructionBytes(const Program& program, const Instruction& instruction) {
  if (instruction.group < 0) return 0;
  const auto n = static_cast<int64_t>(program.groups[instruction.group].ranks.size());
  const int64_t own = Bytes(instruction.dtype, instruction.count);
  switch (instruction.kind) {
    case Instruction::Kind::kAllReduce:
      return AllReduceBytes(own, n);
    case Instruction::Kind::kReduceScatter:
    case Instruction::Kind::kAllGather:
      if (instruction.counts.size == 0) return BlockBytes(own, n);
      return RaggedBytes(Bytes(instruction.dtype, program.BlocksCount(instruction)), own);
    case Instruction::Kind::kSendRecv: {
      int64_t sent = 0;
      for (const ProgramMessage& message : program.MessagesOf(instruction.sends)) {
        sent += Bytes(instruction.dtype, message.count);
      }
      return sent;
    }
    default:
      return 0;
  }
}

RunRecord RecordOf(const Program& program) {
  RunRecord record;
  record.bytes_sent.resize(program.num_steps);
  record.calls.resize(program.num_steps);
  for (const Instruction& instruction : program.instructions) {
    // Skip local instructions: a plan without steps may have copies, but has no entry in the lists.
    if (instruction.group < 0) continue;
    record.bytes_sent[instruction.step] += InstructionBytes(program, instruction);
    ++record.calls[instruction.step];
  }
  return record;
}

}  // namespace meshift

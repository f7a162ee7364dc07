// Implements the functions of meshift/c.h on programs, which only describe a plan's calls: nothing
// here runs one. Arrays in the structs that are filled belong to the program. Any threads may read
// it. Offsets are in bytes, strides in elements, counts in elements (of FILL_ZERO in bytes).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "capi/call.h"
#include "capi/handles.h"
#include "capi/numbers.h"
#include "comm/program/lowering.h"
#include "comm/program/program.h"

namespace meshift::capi {
namespace {

static_assert(std::is_same_v<int, int32_t>);  // a DimSet is returned without conversion

meshift_location PlaceOf(const Location& place) { return {NumberOf(place.space), place.offset}; }

bool IsReduction(Instruction::Kind kind) {
  using enum Instruction::Kind;
  return kind == kFillIdentity || kind == kAllReduce || kind == kReduceScatter ||
         kind == kReduceInOrder;
}

bool HasSource(Instruction::Kind kind) {
  using enum Instruction::Kind;
  return kind == kAllReduce || kind == kReduceScatter || kind == kAllGather || kind == kCast ||
         kind == kReduceInOrder;
}

bool HasTarget(Instruction::Kind kind) {
  using enum Instruction::Kind;
  return HasSource(kind) || kind == kFillIdentity || kind == kFillZero;
}

int64_t BytesOf(const ProgramTensor& tensor) {
  return Bytes(tensor.dtype, NumElements(tensor.shape));
}

// INVALID_ARGUMENT: a NULL, or an index out of range.
template <typename List>
absl::Status CheckItem(const meshift_program* program, size_t index, List list) {
  MESHIFT_RETURN_IF_ERROR(NotNull({{"program", program}}));
  return CheckIndex(index, (program->value.*list).size());
}

Shape StridesOf(const int64_t* strides, const Sharding& sharding, int64_t rank) {
  if (strides == nullptr) return {};
  return Shape(strides, strides + sharding.LocalBox(rank).size.size());
}

}  // namespace
}  // namespace meshift::capi

using meshift::Program;
using meshift::capi::Call;
using meshift::capi::CheckItem;
using meshift::capi::CheckStruct;
using meshift::capi::Clear;
using meshift::capi::NotNull;
using meshift::capi::NumberOf;

meshift_code meshift_plan_lower(const meshift_plan* plan, int64_t rank,
                                const meshift_program_options* options, meshift_program** program,
                                char** error) {
  Clear(program);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}, {"program", program}}));
    meshift::LoweringOptions lowering;
    if (options != nullptr) {
      MESHIFT_RETURN_IF_ERROR(CheckStruct("options", options));
      using meshift::capi::StridesOf;
      lowering.source_strides = StridesOf(options->source_strides, plan->value.from(), rank);
      lowering.target_strides = StridesOf(options->target_strides, plan->value.to(), rank);
      lowering.one_buffer = options->one_buffer != 0;
      lowering.consume_source = options->consume_source != 0;
    }
    return meshift::capi::GiveOr(program, meshift::Lower(plan->value, rank, lowering));
  });
}

void meshift_program_destroy(meshift_program* program) { delete program; }

meshift_code meshift_program_text(const meshift_program* program, char** text, char** error) {
  Clear(text);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"program", program}, {"text", text}}));
    return meshift::capi::GiveText(program->value.ToString(), text);
  });
}

meshift_code meshift_program_get_info(const meshift_program* program, meshift_program_info* info,
                                      char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"program", program}}));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("info", info));
    const Program& from = program->value;
    info->rank = from.rank;
    info->workspace_bytes = from.workspace_bytes;
    info->num_groups = from.groups.size();
    info->num_instructions = from.instructions.size();
    info->num_copies = from.copies.size();
    info->num_messages = from.messages.size();
    info->source_dtype = NumberOf(from.source.dtype);
    info->target_dtype = NumberOf(from.target.dtype);
    info->source_bytes = meshift::capi::BytesOf(from.source);
    info->target_bytes = meshift::capi::BytesOf(from.target);
    return absl::OkStatus();
  });
}

meshift_code meshift_program_get_group(const meshift_program* program, size_t index,
                                       meshift_program_group* group, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckItem(program, index, &Program::groups));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("group", group));
    const meshift::ProgramGroup& from = program->value.groups[index];
    const int64_t* const found =
        std::lower_bound(from.ranks.begin(), from.ranks.end(), program->value.rank);
    const bool is_member = found != from.ranks.end() && *found == program->value.rank;
    group->mesh = from.mesh;
    group->mesh_dims = from.mesh_dims.data();
    group->num_mesh_dims = from.mesh_dims.size();
    group->ranks = from.ranks.begin();
    group->num_ranks = from.ranks.size();
    group->member = is_member ? static_cast<int32_t>(found - from.ranks.begin()) : -1;
    group->number = from.number;
    group->one_channel = from.one_channel ? 1 : 0;
    return absl::OkStatus();
  });
}

meshift_code meshift_program_get_instruction(const meshift_program* program, size_t index,
                                             meshift_instruction* instruction, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckItem(program, index, &Program::instructions));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("instruction", instruction));
    const meshift::Instruction& from = program->value.instructions[index];
    *instruction = {};
    instruction->size = sizeof(*instruction);
    instruction->kind = NumberOf(from.kind);
    instruction->step = from.step;
    instruction->group = from.group;
    if (meshift::capi::HasSource(from.kind)) instruction->src = meshift::capi::PlaceOf(from.src);
    if (meshift::capi::HasTarget(from.kind)) instruction->dst = meshift::capi::PlaceOf(from.dst);
    instruction->count = from.count;
    instruction->dtype = NumberOf(from.dtype);
    instruction->to_dtype =
        NumberOf(from.kind == meshift::Instruction::Kind::kCast ? from.to_dtype : from.dtype);
    instruction->divisor = 1;
    if (meshift::capi::IsReduction(from.kind)) {
      instruction->op = NumberOf(from.reduction.op);
      instruction->divisor = from.reduction.divisor;
      instruction->op_block = from.reduction.block;
    }
    instruction->blocks = from.blocks;
    instruction->block_bytes = from.block_bytes;
    const absl::Span<const int64_t> counts = program->value.CountsOf(from);
    instruction->counts = counts.empty() ? nullptr : counts.data();
    instruction->num_counts = counts.size();
    instruction->first_copy = from.copies.first;
    instruction->num_copies = from.copies.size;
    instruction->first_send = from.sends.first;
    instruction->num_sends = from.sends.size;
    instruction->first_recv = from.recvs.first;
    instruction->num_recvs = from.recvs.size;
    return absl::OkStatus();
  });
}

meshift_code meshift_program_get_copy(const meshift_program* program, size_t index,
                                      meshift_copy* copy, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckItem(program, index, &Program::copies));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("copy", copy));
    const meshift::ProgramCopy& from = program->value.copies[index];
    copy->src = meshift::capi::PlaceOf(from.src);
    copy->dst = meshift::capi::PlaceOf(from.dst);
    copy->num_dims = from.shape.size();
    copy->shape = from.shape.data();
    copy->src_strides = from.src_strides.data();
    copy->dst_strides = from.dst_strides.data();
    return absl::OkStatus();
  });
}

meshift_code meshift_program_get_message(const meshift_program* program, size_t index,
                                         meshift_message* message, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckItem(program, index, &Program::messages));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("message", message));
    const meshift::ProgramMessage& from = program->value.messages[index];
    message->peer = from.peer;
    message->at = meshift::capi::PlaceOf(from.at);
    message->count = from.count;
    return absl::OkStatus();
  });
}

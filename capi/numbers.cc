// Also implements the functions of meshift/c.h on versions, codes and dtypes, and on the names of
// enum values. The assertions compare the numbers of meshift/c.h with those of the C++ enums;
// capi/engines.cc does so for reduction orders.
#include "capi/numbers.h"

#include "base/status.h"
#include "capi/call.h"
#include "meshift/version.h"

namespace meshift::capi {

static_assert(NumberOf(DType::kBool) == MESHIFT_DTYPE_BOOL);
static_assert(NumberOf(DType::kI8) == MESHIFT_DTYPE_I8);
static_assert(NumberOf(DType::kI16) == MESHIFT_DTYPE_I16);
static_assert(NumberOf(DType::kI32) == MESHIFT_DTYPE_I32);
static_assert(NumberOf(DType::kI64) == MESHIFT_DTYPE_I64);
static_assert(NumberOf(DType::kU8) == MESHIFT_DTYPE_U8);
static_assert(NumberOf(DType::kU16) == MESHIFT_DTYPE_U16);
static_assert(NumberOf(DType::kU32) == MESHIFT_DTYPE_U32);
static_assert(NumberOf(DType::kU64) == MESHIFT_DTYPE_U64);
static_assert(NumberOf(DType::kF16) == MESHIFT_DTYPE_F16);
static_assert(NumberOf(DType::kBF16) == MESHIFT_DTYPE_BF16);
static_assert(NumberOf(DType::kF32) == MESHIFT_DTYPE_F32);
static_assert(NumberOf(DType::kF64) == MESHIFT_DTYPE_F64);
static_assert(NumberOf(DType::kF8E4M3) == MESHIFT_DTYPE_F8E4M3);
static_assert(NumberOf(DType::kF8E5M2) == MESHIFT_DTYPE_F8E5M2);
static_assert(NumberOf(DType::kF4E2M1) == MESHIFT_DTYPE_F4E2M1);
static_assert(NumberOf(DType::kC64) == MESHIFT_DTYPE_C64);
static_assert(NumberOf(DType::kC128) == MESHIFT_DTYPE_C128);
static_assert(kNumDTypes == MESHIFT_DTYPE_C128);

static_assert(NumberOf(ReduceOp::kSum) == MESHIFT_OP_SUM);
static_assert(NumberOf(ReduceOp::kAvg) == MESHIFT_OP_AVG);
static_assert(NumberOf(ReduceOp::kMin) == MESHIFT_OP_MIN);
static_assert(NumberOf(ReduceOp::kMax) == MESHIFT_OP_MAX);
static_assert(NumberOf(ReduceOp::kProduct) == MESHIFT_OP_PRODUCT);
static_assert(NumberOf(ReduceOp::kAnd) == MESHIFT_OP_AND);
static_assert(NumberOf(ReduceOp::kOr) == MESHIFT_OP_OR);
static_assert(NumberOf(ReduceOp::kXor) == MESHIFT_OP_XOR);
static_assert(kNumReduceOps == MESHIFT_OP_XOR);

static_assert(NumberOf(StepOp::kAllReduce) == MESHIFT_STEP_ALL_REDUCE);
static_assert(NumberOf(StepOp::kReduceScatter) == MESHIFT_STEP_REDUCE_SCATTER);
static_assert(NumberOf(StepOp::kAllGather) == MESHIFT_STEP_ALL_GATHER);
static_assert(NumberOf(StepOp::kAllToAll) == MESHIFT_STEP_ALL_TO_ALL);
static_assert(NumberOf(StepOp::kPermute) == MESHIFT_STEP_PERMUTE);
static_assert(NumberOf(StepOp::kExchange) == MESHIFT_STEP_EXCHANGE);
static_assert(NumberOf(StepOp::kSlice) == MESHIFT_STEP_SLICE);
static_assert(NumberOf(StepOp::kMask) == MESHIFT_STEP_MASK);
static_assert(NumberOf(StepOp::kCast) == MESHIFT_STEP_CAST);
static_assert(NumberOf(StepOp::kRelabel) == MESHIFT_STEP_RELABEL);
static_assert(NumberOf(StepOp::kBroadcast) == MESHIFT_STEP_BROADCAST);
static_assert(NumberOf(StepOp::kReduce) == MESHIFT_STEP_REDUCE);
static_assert(NumberOf(StepOp::kGather) == MESHIFT_STEP_GATHER);
static_assert(NumberOf(StepOp::kScatter) == MESHIFT_STEP_SCATTER);
static_assert(NumberOf(StepOp::kSend) == MESHIFT_STEP_SEND);
static_assert(kNumStepOps == MESHIFT_STEP_SEND);

using Kind = Instruction::Kind;
static_assert(NumberOf(Kind::kCopy) == MESHIFT_INSTRUCTION_COPY);
static_assert(NumberOf(Kind::kFillIdentity) == MESHIFT_INSTRUCTION_FILL_IDENTITY);
static_assert(NumberOf(Kind::kFillZero) == MESHIFT_INSTRUCTION_FILL_ZERO);
static_assert(NumberOf(Kind::kAllReduce) == MESHIFT_INSTRUCTION_ALL_REDUCE);
static_assert(NumberOf(Kind::kReduceScatter) == MESHIFT_INSTRUCTION_REDUCE_SCATTER);
static_assert(NumberOf(Kind::kAllGather) == MESHIFT_INSTRUCTION_ALL_GATHER);
static_assert(NumberOf(Kind::kSendRecv) == MESHIFT_INSTRUCTION_SEND_RECV);
static_assert(NumberOf(Kind::kCast) == MESHIFT_INSTRUCTION_CAST);
static_assert(NumberOf(Kind::kReduceInOrder) == MESHIFT_INSTRUCTION_REDUCE_IN_ORDER);

static_assert(NumberOf(Location::Space::kSource) == MESHIFT_SPACE_SOURCE);
static_assert(NumberOf(Location::Space::kTarget) == MESHIFT_SPACE_TARGET);
static_assert(NumberOf(Location::Space::kWorkspace) == MESHIFT_SPACE_WORKSPACE);

static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) == MESHIFT_UNAUTHENTICATED);

absl::StatusOr<DType> DTypeOf(std::string_view name, meshift_dtype number) {
  if (number < 1 || number > kNumDTypes)
    return InvalidArgument("{} is {}, which is not a dtype number", name, number);
  return static_cast<DType>(number - 1);
}

absl::StatusOr<std::optional<DType>> OptionalDTypeOf(std::string_view name, meshift_dtype number) {
  if (number == MESHIFT_DTYPE_NONE) return std::optional<DType>();
  MESHIFT_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(name, number));
  return std::optional<DType>(dtype);
}

namespace {

// The name of the enum value, a literal; NULL: `number` is not from 1 to `last`.
template <typename Enum>
const char* NameOf(int32_t number, int32_t last) {
  return 1 <= number && number <= last ? Name(static_cast<Enum>(number - 1)).data() : nullptr;
}

}  // namespace
}  // namespace meshift::capi

using meshift::capi::Call;
using meshift::capi::NotNull;
using meshift::capi::NumberOf;

int32_t meshift_abi_version() { return MESHIFT_ABI_VERSION; }

const char* meshift_version() { return MESHIFT_VERSION; }

const char* meshift_code_name(meshift_code code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return MESHIFT_OK <= code && code <= MESHIFT_UNAUTHENTICATED ? kNames[code] : nullptr;
}

const char* meshift_dtype_name(meshift_dtype dtype) {
  return meshift::capi::NameOf<meshift::DType>(dtype, MESHIFT_DTYPE_C128);
}

int32_t meshift_dtype_bits(meshift_dtype dtype) {
  if (dtype < MESHIFT_DTYPE_BOOL || dtype > MESHIFT_DTYPE_C128) return 0;
  return meshift::BitWidth(static_cast<meshift::DType>(dtype - 1));
}

meshift_code meshift_dtype_parse(const char* name, meshift_dtype* dtype, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"name", name}, {"dtype", dtype}}));
    MESHIFT_ASSIGN_OR_RETURN(const meshift::DType parsed, meshift::ParseDType(name));
    *dtype = NumberOf(parsed);
    return absl::OkStatus();
  });
}

const char* meshift_op_name(meshift_op op) {
  return meshift::capi::NameOf<meshift::ReduceOp>(op, MESHIFT_OP_XOR);
}

meshift_code meshift_op_parse(const char* name, meshift_op* op, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"name", name}, {"op", op}}));
    MESHIFT_ASSIGN_OR_RETURN(const meshift::ReduceOp parsed, meshift::ParseReduceOp(name));
    *op = NumberOf(parsed);
    return absl::OkStatus();
  });
}

const char* meshift_step_op_name(meshift_step_op op) {
  return meshift::capi::NameOf<meshift::StepOp>(op, MESHIFT_STEP_SEND);
}

const char* meshift_instruction_kind_name(meshift_instruction_kind kind) {
  return meshift::capi::NameOf<meshift::Instruction::Kind>(kind,
                                                           MESHIFT_INSTRUCTION_REDUCE_IN_ORDER);
}

#include "testing/fake_gpu/reduction.h"

#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace meshift::fake {
namespace {

// --- Arithmetic of one type, with the conversions of CUDA's headers.

template <typename T>
struct Integer {
  using Value = T;
  using Wide = std::make_unsigned_t<T>;
  static T Add(T a, T b) { return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b)); }
  static T Multiply(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  static T Min(T a, T b) { return std::min(a, b); }
  static T Max(T a, T b) { return std::max(a, b); }
  static T Divide(T a, int ranks) { return static_cast<T>(a / static_cast<T>(ranks)); }
};

// NaN loses, and -0 < +0, as for the device's instructions.
template <typename T>
T MinOf(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return std::signbit(a) != std::signbit(b) ? (std::signbit(a) ? a : b) : std::min(a, b);
}

template <typename T>
struct Float {
  using Value = T;
  static T Add(T a, T b) { return a + b; }
  static T Multiply(T a, T b) { return a * b; }
  static T Min(T a, T b) { return MinOf(a, b); }
  static T Max(T a, T b) { return -MinOf(-a, -b); }
  static T Inverse(int ranks) { return static_cast<T>(1.0 / ranks); }
};

struct Half {
  using Value = __half_raw;
  static float Up(Value v) { return __half2float(__half(v)); }
  static Value Down(float v) { return static_cast<Value>(__float2half_rn(v)); }
};

struct Bfloat {
  using Value = __nv_bfloat16_raw;
  static float Up(Value v) { return __bfloat162float(__nv_bfloat16(v)); }
  static Value Down(float v) { return static_cast<Value>(__float2bfloat16_rn(v)); }
};

template <__nv_fp8_interpretation_t kKind>
struct Fp8 {
  using Value = __nv_fp8_storage_t;
  static float Up(Value v) { return Half::Up(__nv_cvt_fp8_to_halfraw(v, kKind)); }
  static Value Down(float v) {
    return __nv_cvt_halfraw_to_fp8(Half::Down(v), __NV_SATFINITE, kKind);
  }
};

// Two f32 operations on two small values, rounded once, like the small type's own instruction (its
// products are exact in f32; its sums too, or off by far less than half a unit).
template <typename Type>
struct Small {
  using Value = typename Type::Value;
  static Value Add(Value a, Value b) { return Type::Down(Type::Up(a) + Type::Up(b)); }
  static Value Multiply(Value a, Value b) { return Type::Down(Type::Up(a) * Type::Up(b)); }
  static Value Min(Value a, Value b) { return Type::Down(MinOf(Type::Up(a), Type::Up(b))); }
  static Value Max(Value a, Value b) { return Type::Down(-MinOf(-Type::Up(a), -Type::Up(b))); }
  static Value Inverse(int ranks) { return Type::Down(1.0F / static_cast<float>(ranks)); }
};

// --- Reductions of arrays.

struct Job {
  const OpDescription* op;
  const std::vector<Payload>* inputs;
  const std::vector<int>* ring;
};

template <typename Arithmetic>
class Reducer {
 public:
  using Value = typename Arithmetic::Value;

  explicit Reducer(const Job& job) : job_(job), ranks_(static_cast<int>(job.ring->size())) {}

  // Reduces elements [first, first + count) of all inputs, beginning with the rank at `place` of
  // the ring.
  void Run(uint64_t first, uint64_t count, int place, char* out) const {
    for (uint64_t i = 0; i < count; ++i) {
      Value value = Load(place, first + i);
      for (int k = 1; k < ranks_; ++k) {
        value = Combine(value, Load((place + k) % ranks_, first + i));
      }
      if constexpr (std::is_integral_v<Value>) {
        if (job_.op->op == ncclAvg && IsInteger()) value = Divide(value);
      }
      std::memcpy(out + i * sizeof(Value), &value, sizeof(Value));
    }
  }

 private:
  bool IsInteger() const {
    return job_.op->dtype <= ncclUint64;  // fp8 is stored in integers, too
  }

  Value Divide(Value value) const {
    if constexpr (requires { Arithmetic::Divide(value, ranks_); }) {
      return Arithmetic::Divide(value, ranks_);
    } else {
      return value;
    }
  }

  Value Load(int place, uint64_t index) const {
    const auto rank = static_cast<size_t>((*job_.ring)[static_cast<size_t>(place)]);
    Value value;
    std::memcpy(&value, (*job_.inputs)[rank]->data() + index * sizeof(Value), sizeof(Value));
    if constexpr (requires { Arithmetic::Inverse(1); }) {
      if (job_.op->op == ncclAvg) return Arithmetic::Multiply(value, Arithmetic::Inverse(ranks_));
    }
    return value;
  }

  Value Combine(Value a, Value b) const {
    switch (job_.op->op) {
      case ncclProd:
        return Arithmetic::Multiply(a, b);
      case ncclMin:
        return Arithmetic::Min(a, b);
      case ncclMax:
        return Arithmetic::Max(a, b);
      default:
        return Arithmetic::Add(a, b);
    }
  }

  Job job_;
  int ranks_;
};

void ReduceRange(const Job& job, uint64_t first, uint64_t count, int place, char* out) {
  const auto run = [&]<typename Arithmetic>(Arithmetic) {
    Reducer<Arithmetic>(job).Run(first, count, place, out);
  };
  switch (job.op->dtype) {
    case ncclInt8:
      return run(Integer<int8_t>());
    case ncclUint8:
      return run(Integer<uint8_t>());
    case ncclInt32:
      return run(Integer<int32_t>());
    case ncclUint32:
      return run(Integer<uint32_t>());
    case ncclInt64:
      return run(Integer<int64_t>());
    case ncclUint64:
      return run(Integer<uint64_t>());
    case ncclFloat16:
      return run(Small<Half>());
    case ncclFloat32:
      return run(Float<float>());
    case ncclFloat64:
      return run(Float<double>());
    case ncclBfloat16:
      return run(Small<Bfloat>());
    case ncclFloat8e4m3:
      return run(Small<Fp8<__NV_E4M3>>());
    case ncclFloat8e5m2:
      return run(Small<Fp8<__NV_E5M2>>());
    default:
      return;
  }
}

Payload MakePayload(uint64_t bytes) { return std::make_shared<std::vector<char>>(bytes); }

int PlaceOf(const std::vector<int>& ring, int rank) {
  return static_cast<int>(std::find(ring.begin(), ring.end(), rank) - ring.begin());
}

Payload AllReduce(const Job& job, uint64_t bytes, int trees) {
  const uint64_t count = job.op->count;
  const auto ranks = static_cast<uint64_t>(job.ring->size());
  const uint64_t parts = trees > 0 ? static_cast<uint64_t>(trees) : ranks;
  Payload result = MakePayload(count * bytes);
  const uint64_t part = (count + parts - 1) / parts;
  for (uint64_t k = 0; k < parts; ++k) {
    const uint64_t first = std::min(count, k * part);
    const uint64_t length = std::min(count - first, part);
    const int place = static_cast<int>((k + 1) % ranks);
    ReduceRange(job, first, length, place, result->data() + first * bytes);
  }
  return result;
}

// The blocks of all `inputs` for `rank`, back to back.
Payload Transposed(const std::vector<Payload>& inputs, size_t rank, uint64_t block) {
  Payload result = MakePayload(block * inputs.size());
  for (size_t from = 0; from < inputs.size(); ++from) {
    std::memcpy(result->data() + from * block, inputs[from]->data() + rank * block, block);
  }
  return result;
}

}  // namespace

std::string ToString(const OpDescription& op) {
  static constexpr const char* kKinds[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast",
                                           "Reduce",    "AlltoAll",      "Send",      "Recv"};
  std::string windows;
  if (op.send_window >= 0) {
    windows = fmt::format(", window {}+{} to {}+{}", op.send_window, op.send_offset,
                          op.receive_window, op.receive_offset);
  }
  return fmt::format("{}(count {}, type {}, op {}, root {}{})",
                     kKinds[static_cast<size_t>(op.kind)], op.count, op.dtype, op.op, op.root,
                     windows);
}

uint64_t ElementBytes(int32_t dtype) {
  switch (dtype) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

uint64_t InputBytes(const OpDescription& op, int ranks, int rank) {
  const uint64_t one = op.count * ElementBytes(op.dtype);
  const uint64_t all = one * static_cast<uint64_t>(ranks);
  switch (op.kind) {
    case OpKind::kReduceScatter:
    case OpKind::kAlltoAll:
      return all;
    case OpKind::kBroadcast:
      return rank == op.root ? one : 0;
    case OpKind::kRecv:
      return 0;
    default:
      return one;
  }
}

uint64_t OutputBytes(const OpDescription& op, int ranks, int rank) {
  const uint64_t one = op.count * ElementBytes(op.dtype);
  const uint64_t all = one * static_cast<uint64_t>(ranks);
  switch (op.kind) {
    case OpKind::kAllGather:
    case OpKind::kAlltoAll:
      return all;
    case OpKind::kReduce:
      return rank == op.root ? one : 0;
    case OpKind::kSend:
      return 0;
    default:
      return one;
  }
}

std::vector<Payload> RunCollective(const OpDescription& op, const std::vector<Payload>& inputs,
                                   const std::vector<int>& ring, int trees) {
  const Job job = {.op = &op, .inputs = &inputs, .ring = &ring};
  const uint64_t bytes = ElementBytes(op.dtype);
  const uint64_t block = op.count * bytes;
  const size_t ranks = inputs.size();
  const auto root = static_cast<size_t>(op.root);
  std::vector<Payload> results(ranks);
  switch (op.kind) {
    case OpKind::kAllReduce:
      results.assign(ranks, AllReduce(job, bytes, trees));
      break;
    case OpKind::kReduceScatter:
      for (size_t rank = 0; rank < ranks; ++rank) {
        results[rank] = MakePayload(block);
        const int place = (PlaceOf(ring, static_cast<int>(rank)) + 1) % static_cast<int>(ranks);
        ReduceRange(job, rank * op.count, op.count, place, results[rank]->data());
      }
      break;
    case OpKind::kReduce:
      results[root] = MakePayload(block);
      ReduceRange(job, 0, op.count, (PlaceOf(ring, op.root) + 1) % static_cast<int>(ranks),
                  results[root]->data());
      break;
    case OpKind::kAllGather:
      results.assign(ranks, Transposed(inputs, 0, block));
      break;
    case OpKind::kBroadcast:
      results.assign(ranks, inputs[root]);
      break;
    case OpKind::kAlltoAll:
      for (size_t rank = 0; rank < ranks; ++rank) results[rank] = Transposed(inputs, rank, block);
      break;
    case OpKind::kSend:
    case OpKind::kRecv:
      break;
  }
  return results;
}

}  // namespace meshift::fake

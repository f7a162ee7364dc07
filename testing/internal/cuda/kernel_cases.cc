#include "testing/internal/cuda/kernel_cases.h"

#include <cuda.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cuda/kernels.h"
#include "comm/kernels/cast.h"
#include "comm/kernels/copy.h"
#include "comm/kernels/identity.h"
#include "comm/kernels/reduce.h"
#include "fmt/format.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "placement/cast.h"
#include "placement/op_table.h"
#include "testing/internal/cuda/device_fixture.h"

namespace meshift {
namespace {

using Random = std::mt19937_64;

constexpr int64_t kBatchBytes = int64_t{32} << 20;

int64_t Between(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

// Work on host or device memory that begins at `base`.
using HostWork = std::function<absl::Status(char* base)>;
using DeviceWork = std::function<absl::Status(char* base, const CudaKernels&, CUstream)>;

// Collects cases until their memory is a batch, then runs them together.
class Batch {
 public:
  Batch(DeviceFixture& device, uint64_t seed) : random(seed), device_(device) {}

  // Reserves `bytes` bytes at `misalignment` past a multiple of 256, apart from all others. Returns
  // the offset.
  int64_t Place(int64_t bytes, int64_t misalignment) {
    const int64_t place = size_ + misalignment;
    size_ = (place + bytes + 64 + 255) / 256 * 256;
    return place;
  }
  // The same, filled with numbers of `dtype` that are close to one another.
  int64_t PlaceNumbers(DType dtype, int64_t count, int64_t misalignment) {
    const int64_t bytes = Bytes(dtype, count);
    const int64_t place = Place(bytes, misalignment);
    if (IsFloat(dtype) && dtype != DType::kF4E2M1 && random() % 2 == 0) {
      std::vector<float> numbers(count);
      for (float& x : numbers)
        x = static_cast<float>(Between(random, -1 << 23, 1 << 23)) / (1 << 21);
      std::vector<char> stored(bytes);
      CastFunctionOf(DType::kF32, dtype).value()(numbers.data(), stored.data(), count);
      initial_.emplace_back(place, std::move(stored));
    }
    return place;
  }
  void Add(std::string name, HostWork on_host, DeviceWork on_device) {
    names_.push_back({std::move(name), begin_, size_});
    begin_ = size_;
    host_work_.push_back(std::move(on_host));
    device_work_.push_back(std::move(on_device));
  }
  absl::Status RunIfFull() { return size_ < kBatchBytes ? absl::OkStatus() : Run(); }

  absl::Status Run() {
    if (names_.empty()) return absl::OkStatus();
    std::vector<char> expected(size_);
    for (int64_t i = 0; i + 8 <= size_; i += 8) {
      const uint64_t bits = random();
      std::memcpy(expected.data() + i, &bits, sizeof(bits));
    }
    for (const auto& [place, bytes] : initial_) {
      std::copy(bytes.begin(), bytes.end(), expected.begin() + place);
    }
    std::vector<char> actual(size_);
    if (memory_ == 0 || size_ > capacity_) {
      capacity_ = 2 * std::max(size_, kBatchBytes);
      MESHIFT_ASSIGN_OR_RETURN(memory_, device_.Allocate(capacity_));
    }
    const CudaDriver& driver = device_.driver();
    MESHIFT_RETURN_IF_ERROR(
        driver.MemcpyHtoDAsync(memory_, expected.data(), expected.size(), device_.stream()));
    MESHIFT_RETURN_IF_ERROR(device_.Synchronize());
    const auto launch = [&]() -> absl::Status {
      for (const DeviceWork& work : device_work_) {
        MESHIFT_RETURN_IF_ERROR(
            work(reinterpret_cast<char*>(memory_), device_.kernels(), device_.stream()));
      }
      return absl::OkStatus();
    };
    MESHIFT_RETURN_IF_ERROR(as_graph_ ? device_.RunAsGraph(launch) : launch());
    as_graph_ = !as_graph_;
    MESHIFT_RETURN_IF_ERROR(
        driver.MemcpyDtoHAsync(actual.data(), memory_, actual.size(), device_.stream()));
    for (const HostWork& work : host_work_) MESHIFT_RETURN_IF_ERROR(work(expected.data()));
    MESHIFT_RETURN_IF_ERROR(device_.Synchronize());
    Compare(expected, actual);
    return absl::OkStatus();
  }

  Random random;
  CaseTally tally;

 private:
  struct Name {
    std::string text;
    int64_t begin;
    int64_t end;
  };

  void Compare(const std::vector<char>& expected, const std::vector<char>& actual) {
    for (const Name& name : names_) {
      ++tally.run;
      const auto begin = expected.begin() + name.begin;
      const auto differs =
          std::mismatch(begin, expected.begin() + name.end, actual.begin() + name.begin);
      if (differs.first == expected.begin() + name.end) continue;
      if (tally.wrong++ == 0) {
        tally.first_wrong =
            fmt::format("{}, at byte {} of its memory", name.text, differs.first - begin);
      }
    }
    names_.clear();
    host_work_.clear();
    device_work_.clear();
    initial_.clear();
    size_ = 0;
    begin_ = 0;
  }

  DeviceFixture& device_;
  CUdeviceptr memory_ = 0;
  int64_t capacity_ = 0;
  bool as_graph_ = false;
  int64_t size_ = 0;
  int64_t begin_ = 0;
  std::vector<Name> names_;
  std::vector<HostWork> host_work_;
  std::vector<DeviceWork> device_work_;
  std::vector<std::pair<int64_t, std::vector<char>>> initial_;
};

// Sometimes elements do not lie at multiples of their size.
int64_t RandomMisalignment(Random& random) {
  return random() % 3 == 0 ? Between(random, 1, 17) : 0;
}

int64_t RandomCount(Random& random) {
  switch (random() % 4) {
    case 0:
      return Between(random, 1, 40);
    case 1:
      return Between(random, 100000, 300000);
    default:
      return Between(random, 40, 5000);
  }
}

// Strides of a box in a larger tensor, with dims in random order.
Shape RandomStrides(Random& random, const Shape& shape) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  Shape strides(shape.size(), 0);
  int64_t stride = random() % 6 == 0 ? 2 : 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = stride;
    stride *= shape[*d] + (random() % 3 == 0 ? Between(random, 1, 16) : 0);
  }
  return strides;
}

struct RandomBox {
  Shape shape;
  Shape src_strides;
  Shape dst_strides;
  int64_t src;
  int64_t dst;
};

RandomBox PlaceBox(Batch& batch, DType dtype) {
  Random& random = batch.random;
  RandomBox box;
  const int64_t rank = Between(random, 0, 4);
  for (int64_t d = 0; d < rank; ++d) {
    box.shape.push_back(Between(random, 1, random() % 3 == 0 ? 600 : 20));
  }
  while (NumElements(box.shape) > 400000) box.shape.pop_back();
  box.src_strides = RandomStrides(random, box.shape);
  box.dst_strides = RandomStrides(random, box.shape);
  const auto bytes = [&](const Shape& strides) {
    int64_t extent = 1;
    for (size_t d = 0; d < box.shape.size(); ++d) extent += (box.shape[d] - 1) * strides[d];
    return Bytes(dtype, extent);
  };
  const int64_t misalignment = RandomMisalignment(random);
  box.src = batch.Place(bytes(box.src_strides), misalignment);
  box.dst = batch.Place(bytes(box.dst_strides),
                        random() % 2 == 0 ? misalignment : RandomMisalignment(random));
  return box;
}

void AddCopyCase(Batch& batch) {
  auto dtype = static_cast<DType>(batch.random() % kNumDTypes);
  if (dtype == DType::kF4E2M1) dtype = DType::kU8;
  const int64_t count = Between(batch.random, 1, batch.random() % 4 == 0 ? 90 : 4);
  std::vector<RandomBox> boxes;
  for (int64_t i = 0; i < count; ++i) boxes.push_back(PlaceBox(batch, dtype));
  const auto copies_at = [boxes](char* base) {  // NOLINT(readability-non-const-parameter)
    std::vector<BoxCopy> copies;
    for (const RandomBox& box : boxes) {
      copies.push_back(
          {base + box.src, base + box.dst, box.shape, box.src_strides, box.dst_strides});
    }
    return copies;
  };
  batch.Add(
      fmt::format("copy of {} boxes of {}, the first {} ({}) to ({})", count, Name(dtype),
                  fmt::join(boxes[0].shape, "x"), fmt::join(boxes[0].src_strides, ","),
                  fmt::join(boxes[0].dst_strides, ",")),
      [=](char* base) -> absl::Status {
        for (const BoxCopy& copy : copies_at(base)) {
          MESHIFT_ASSIGN_OR_RETURN(const StridedCopy ready, StridedCopy::Create(copy, dtype));
          ready.Execute();
        }
        return absl::OkStatus();
      },
      [=](char* base, const CudaKernels& kernels, CUstream stream) {
        return kernels.CopyBoxes(copies_at(base), dtype, stream);
      });
}

void AddCastCase(Batch& batch, DType from, DType to) {
  const int64_t count = RandomCount(batch.random);
  const int64_t misalignment = RandomMisalignment(batch.random);
  const int64_t src = batch.PlaceNumbers(from, count, misalignment);
  const int64_t dst = batch.Place(Bytes(to, count), misalignment);
  batch.Add(
      fmt::format("cast of {} {} to {}, {} bytes off", count, Name(from), Name(to), misalignment),
      [=](char* base) -> absl::Status {
        MESHIFT_ASSIGN_OR_RETURN(const CastFunction cast, CastFunctionOf(from, to));
        cast(base + src, base + dst, count);
        return absl::OkStatus();
      },
      [=](char* base, const CudaKernels& kernels, CUstream stream) {
        return kernels.Cast(base + src, from, base + dst, to, count, stream);
      });
}

void AddReduceCase(Batch& batch, DType dtype, ReduceOp op) {
  Random& random = batch.random;
  const int64_t count = RandomCount(random);
  const int64_t num_inputs = Between(random, 1, 9);
  const int64_t misalignment = RandomMisalignment(random);
  std::vector<int64_t> places;
  for (int64_t k = 0; k < num_inputs; ++k) {
    places.push_back(batch.PlaceNumbers(dtype, count, misalignment));
    if (random() % 4 == 0) batch.Place(256, 0);  // then the inputs are at unequal distances
  }
  const int64_t out = batch.Place(Bytes(dtype, count), misalignment);
  const Reduction reduction{
      .op = op, .divisor = num_inputs, .block = random() % 2 == 0 ? 0 : Between(random, 1, 9)};
  const auto inputs_at = [places](char* base) {
    std::vector<const void*> inputs;
    for (const int64_t place : places) inputs.push_back(base + place);
    return inputs;
  };
  batch.Add(
      fmt::format("{} of {} times {} {} by blocks of {}, {} bytes off", Name(op), num_inputs, count,
                  Name(dtype), reduction.block, misalignment),
      [=](char* base) {
        const ReduceSpec spec{.dtype = dtype, .reduction = reduction, .runs = {}};
        Reduce(spec, inputs_at(base), 0, count, base + out);
        return absl::OkStatus();
      },
      [=](char* base, const CudaKernels& kernels, CUstream stream) {
        return kernels.ReduceBuffers(inputs_at(base), base + out, count, dtype, reduction, stream);
      });
}

void AddScaleCase(Batch& batch, DType dtype) {
  const int64_t count = RandomCount(batch.random);
  const int64_t divisor = Between(batch.random, 1, 1000);
  const int64_t place = batch.PlaceNumbers(dtype, count, RandomMisalignment(batch.random));
  batch.Add(
      fmt::format("{} {} divided by {}", count, Name(dtype), divisor),
      [=](char* base) {
        const ReduceSpec spec{
            .dtype = dtype, .reduction = {.op = ReduceOp::kAvg, .divisor = divisor}, .runs = {}};
        Reduce(spec, {base + place}, 0, count, base + place);
        return absl::OkStatus();
      },
      [=](char* base, const CudaKernels& kernels, CUstream stream) {
        return kernels.Scale(base + place, base + place, count, dtype, divisor, stream);
      });
}

void AddFillCase(Batch& batch, DType dtype, ReduceOp op) {
  const int64_t count = RandomCount(batch.random);
  const int64_t place = batch.Place(Bytes(dtype, count), RandomMisalignment(batch.random));
  const int64_t zeros = batch.Place(count, RandomMisalignment(batch.random));
  batch.Add(
      fmt::format("identity of {} of {} {}", Name(op), count, Name(dtype)),
      [=](char* base) {
        std::memset(base + zeros, 0, count);
        return FillIdentity(dtype, op, base + place, count);
      },
      [=](char* base, const CudaKernels& kernels, CUstream stream) -> absl::Status {
        MESHIFT_RETURN_IF_ERROR(kernels.FillZero(base + zeros, count, stream));
        return kernels.FillIdentity(base + place, count, dtype, op, stream);
      });
}

// Calls `add` for each valid pair of dtype and op.
template <typename AddCase>
absl::StatusOr<CaseTally> ForEachOp(DeviceFixture& device, uint64_t seed, int rounds, AddCase add) {
  Batch batch(device, seed);
  for (int i = 0; i < rounds; ++i) {
    for (int d = 0; d < kNumDTypes; ++d) {
      for (int o = 0; o < kNumReduceOps; ++o) {
        if (!CheckReduce(static_cast<ReduceOp>(o), static_cast<DType>(d)).ok()) continue;
        add(batch, static_cast<DType>(d), static_cast<ReduceOp>(o));
        MESHIFT_RETURN_IF_ERROR(batch.RunIfFull());
      }
    }
  }
  MESHIFT_RETURN_IF_ERROR(batch.Run());
  return batch.tally;
}

}  // namespace

absl::StatusOr<CaseTally> RunCopyCases(DeviceFixture& device, uint64_t seed, int cases) {
  Batch batch(device, seed);
  for (int i = 0; i < cases; ++i) {
    AddCopyCase(batch);
    MESHIFT_RETURN_IF_ERROR(batch.RunIfFull());
  }
  MESHIFT_RETURN_IF_ERROR(batch.Run());
  return batch.tally;
}

absl::StatusOr<CaseTally> RunCastCases(DeviceFixture& device, uint64_t seed, int rounds) {
  Batch batch(device, seed);
  for (int i = 0; i < rounds; ++i) {
    for (int f = 0; f < kNumDTypes; ++f) {
      for (int t = 0; t < kNumDTypes; ++t) {
        // f4e2m1 can only be cast to itself, and its counts must be even.
        if (static_cast<DType>(f) == DType::kF4E2M1) continue;
        if (!CheckCast(static_cast<DType>(f), static_cast<DType>(t)).ok()) continue;
        AddCastCase(batch, static_cast<DType>(f), static_cast<DType>(t));
        MESHIFT_RETURN_IF_ERROR(batch.RunIfFull());
      }
    }
  }
  MESHIFT_RETURN_IF_ERROR(batch.Run());
  return batch.tally;
}

absl::StatusOr<CaseTally> RunReduceCases(DeviceFixture& device, uint64_t seed, int rounds) {
  return ForEachOp(device, seed, rounds, AddReduceCase);
}

absl::StatusOr<CaseTally> RunScaleCases(DeviceFixture& device, uint64_t seed, int rounds) {
  return ForEachOp(device, seed, rounds, [](Batch& batch, DType dtype, ReduceOp op) {
    if (op == ReduceOp::kAvg) AddScaleCase(batch, dtype);
  });
}

absl::StatusOr<CaseTally> RunFillCases(DeviceFixture& device, uint64_t seed, int rounds) {
  return ForEachOp(device, seed, rounds, [](Batch& batch, DType dtype, ReduceOp op) {
    if (op != ReduceOp::kAvg) AddFillCase(batch, dtype, op);
  });
}

}  // namespace meshift

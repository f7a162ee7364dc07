// Speed of the CPU kernels. A copy is compared with memcpy of the same number of bytes, in turn in
// one run, since the speed of a shared machine varies: `of_memcpy` is the ratio of their rates (the
// median over the iterations).
//
//   ./bazelw run //bench:kernels_bench -- --benchmark_filter=Pack
//
// bytes_per_second counts copied bytes once; for casts and reductions, bytes read and written.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "comm/kernels/cast.h"
#include "comm/kernels/copy.h"
#include "comm/kernels/identity.h"
#include "comm/kernels/reduce.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

// Memory aligned to 64 bytes, as engines allocate it.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(bytes + 64, 1) {}
  char* data() { return bytes_.data() + (-reinterpret_cast<intptr_t>(bytes_.data()) & 63); }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()) - 64; }

 private:
  std::vector<char> bytes_;
};

// Processor time of this thread, which depends less on other work on a shared machine.
double Now() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Times `copy`, with a memcpy of `bytes` bytes between every two runs.
template <typename Copy>
void AgainstMemcpy(benchmark::State& state, int64_t bytes, const Copy& copy) {
  Memory from(bytes);
  Memory to(bytes);
  std::vector<double> ratios;
  copy();
  for (auto _ : state) {
    const double begin = Now();
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
    const double middle = Now();
    copy();
    benchmark::ClobberMemory();
    const double end = Now();
    state.SetIterationTime(end - middle);
    ratios.push_back((middle - begin) / (end - middle));
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["of_memcpy"] = Median(ratios);
}

// Copies a box with runs of state.range(0) bytes: every second such piece of one side, contiguous
// on the other; state.range(1) bytes in total.
void CopyRuns(benchmark::State& state, bool pack) {
  const int64_t run = state.range(0);
  const int64_t bytes = state.range(1);
  Memory dense(bytes);
  Memory strided(2 * bytes);
  BoxCopy box;
  box.shape = {bytes / run, run};
  box.src = pack ? strided.data() : dense.data();
  box.dst = pack ? dense.data() : strided.data();
  box.src_strides = {pack ? 2 * run : run, 1};
  box.dst_strides = {pack ? run : 2 * run, 1};
  const StridedCopy copy = StridedCopy::Create(box, DType::kU8).value();
  AgainstMemcpy(state, bytes, [&] { copy.Execute(); });
}

void Pack(benchmark::State& state) { CopyRuns(state, true); }
void Unpack(benchmark::State& state) { CopyRuns(state, false); }

// The runs and two sizes: one within the second-level cache, one larger than all caches.
void Runs(benchmark::internal::Benchmark* bench) {
  for (const int64_t bytes : {int64_t{1} << 18, int64_t{64} << 20}) {
    for (const int64_t run : {16, 64, 256, 1024, 4096, 65536}) bench->Args({run, bytes});
  }
  bench->UseManualTime();
}
BENCHMARK(Pack)->Apply(Runs);
BENCHMARK(Unpack)->Apply(Runs);

// Transposes a matrix of elements of state.range(0) bytes.
void Transpose(benchmark::State& state) {
  const int64_t element = state.range(0);
  const int64_t size = state.range(1);
  const DType dtype = element == 1 ? DType::kU8 : element == 2 ? DType::kBF16 : DType::kF32;
  Memory from(size * size * element);
  Memory to(size * size * element);
  const BoxCopy box{from.data(), to.data(), {size, size}, {1, size}, {size, 1}};
  const StridedCopy copy = StridedCopy::Create(box, dtype).value();
  AgainstMemcpy(state, size * size * element, [&] { copy.Execute(); });
}
BENCHMARK(Transpose)
    ->ArgsProduct({{1, 2, 4}, {256, 4096}})
    ->ArgNames({"element", "size"})
    ->UseManualTime();

void Cast(benchmark::State& state) {
  const auto from = static_cast<DType>(state.range(0));
  const auto to = static_cast<DType>(state.range(1));
  constexpr int64_t kCount = 8 << 20;
  Memory in(Bytes(from, kCount));
  Memory out(Bytes(to, kCount));
  for (int64_t i = 0; i < in.size(); ++i) in.data()[i] = static_cast<char>(i * 37 % 61);
  const CastFunction cast = CastFunctionOf(from, to).value();
  AgainstMemcpy(state, (in.size() + out.size()) / 2, [&] { cast(in.data(), out.data(), kCount); });
  state.SetLabel(std::string(Name(from)) + " to " + std::string(Name(to)));
}
void CastPairs(benchmark::internal::Benchmark* bench) {
  using enum DType;
  const std::pair<DType, DType> pairs[] = {{kBF16, kF32}, {kF32, kBF16},   {kF16, kF32},
                                           {kF32, kF16},  {kF32, kF8E4M3}, {kF8E4M3, kBF16},
                                           {kF32, kF64},  {kI32, kF32},    {kI64, kI32}};
  for (const auto& [from, to] : pairs) bench->Args({static_cast<int>(from), static_cast<int>(to)});
  bench->UseManualTime();
}
BENCHMARK(Cast)->Apply(CastPairs);

// `out` = the sum of state.range(1) buffers.
void Sum(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const int64_t num_inputs = state.range(1);
  constexpr int64_t kCount = 4 << 20;
  const int64_t bytes = Bytes(dtype, kCount);
  std::vector<Memory> buffers(num_inputs, Memory(bytes));
  Memory out(bytes);
  std::vector<const void*> inputs;
  for (Memory& buffer : buffers) inputs.push_back(buffer.data());
  const ReduceSpec spec{.dtype = dtype, .reduction = {.op = ReduceOp::kSum}, .runs = {}};
  AgainstMemcpy(state, bytes * (num_inputs + 1) / 2,
                [&] { Reduce(spec, inputs, 0, kCount, out.data()); });
  state.SetLabel(std::string(Name(dtype)));
}
BENCHMARK(Sum)
    ->ArgsProduct({{static_cast<int>(DType::kBF16), static_cast<int>(DType::kF16),
                    static_cast<int>(DType::kF32), static_cast<int>(DType::kF8E4M3)},
                   {2, 8}})
    ->ArgNames({"dtype", "inputs"})
    ->UseManualTime();

void Fill(benchmark::State& state) {
  constexpr int64_t kCount = 16 << 20;
  Memory out(kCount * 4);
  AgainstMemcpy(state, kCount * 4 / 2, [&] {
    benchmark::DoNotOptimize(FillIdentity(DType::kF32, ReduceOp::kMin, out.data(), kCount).ok());
  });
}
BENCHMARK(Fill)->UseManualTime();

}  // namespace
}  // namespace meshift

#include "testing/internal/cuda/emulator.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "comm/cuda/body.h"
#include "comm/cuda/copy_bodies.h"
#include "comm/cuda/element_bodies.h"
#include "comm/cuda/kernel_params.h"
#include "comm/kernels/codes.h"
#include "fmt/format.h"

namespace meshift::cuda {
namespace {

using Run = void (*)(const void* params, uint32_t blocks);

template <typename Params, void (*kBody)(const Params&, ThreadPosition)>
void RunThreads(const void* params, uint32_t blocks) {
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      kBody(*static_cast<const Params*>(params), {block, blocks, thread});
    }
  }
}

// The threads of a block synchronize twice per tile.
void RunTransposeBoxes(const void* untyped, uint32_t blocks) {
  const auto& params = *static_cast<const CopyBoxesParams*>(untyped);
  alignas(16) unsigned char shared[kTransposeSharedBytes];
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t tile = block; tile < params.num_tiles; tile += blocks) {
      for (int thread = 0; thread < kThreads; ++thread) {
        TransposeTileBody<true>(params, tile, thread, shared);
      }
      for (int thread = 0; thread < kThreads; ++thread) {
        TransposeTileBody<false>(params, tile, thread, shared);
      }
    }
  }
}

template <int kDType>
constexpr bool HasKernels() {
  return kDType != kCodeF4E2M1;
}

template <int... kDType>
Run FindByDType(const std::string& entry, std::integer_sequence<int, kDType...>) {
  Run run = nullptr;
  const auto look = [&]<int kCode>(std::integral_constant<int, kCode>) {
    if constexpr (HasKernels<kCode>()) {
      if (entry == kCastEntries[kCode]) run = RunThreads<CastParams, CastBody<kCode>>;
      // bool is reduced as u8.
      constexpr int kReduced = kCode == kCodeBool ? kCodeU8 : kCode;
      if (entry == kReduceEntries[kCode]) run = RunThreads<ReduceParams, ReduceBody<kReduced>>;
    }
  };
  (look(std::integral_constant<int, kDType>()), ...);
  return run;
}

Run Find(const std::string& entry) {
  if (entry == kCopyBoxesEntry) return RunThreads<CopyBoxesParams, CopyBoxesBody>;
  if (entry == kTransposeBoxesEntry) return RunTransposeBoxes;
  if (entry == kFillEntry) return RunThreads<FillParams, FillBody>;
  return FindByDType(entry, std::make_integer_sequence<int, kNumKernelDTypes>());
}

}  // namespace

absl::Status EmulateLaunch(const std::string& entry, uint32_t blocks, const void* params) {
  const Run run = Find(entry);
  if (run == nullptr) return absl::NotFoundError(fmt::format("no kernel {}", entry));
  run(params, blocks);
  return absl::OkStatus();
}

}  // namespace meshift::cuda

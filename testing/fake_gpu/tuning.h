// The effect of the environment on a communicator: its number of channels, and the algorithms that
// each collective may use. After NCCL 2.28.9 (src/init.cc, src/graph/connect.cc,
// src/graph/tuning.cc), on one host of NVSwitch GPUs.
//
//   const Tuning tuning = TuneByEnvironment(config);
//   if (!tuning.refused.empty()) ...          // communicators of several ranks fail
//   if (!tuning.HasAlgorithm(OpKind::kAllGather)) ...
//
// NCCL reads most of these variables once per process. Here each communicator reads them again, so
// that one process can try many.
#ifndef MESHIFT_TESTING_FAKE_GPU_TUNING_H_
#define MESHIFT_TESTING_FAKE_GPU_TUNING_H_

#include <nccl.h>

#include <cstdint>
#include <string>

#include "testing/fake_gpu/message.h"

namespace meshift::fake {

// The number of rings that NCCL's topology search finds here.
constexpr int kSearchedChannels = 16;
// Channels that NVLS asks for.
constexpr int kNvlsChannels = 16;
constexpr int kMaxChannels = 64;

struct Tuning {
  int channels = kSearchedChannels;
  // The reason why NCCL refuses NCCL_ALGO or NCCL_PROTO; empty if it does not.
  std::string refused;
  // The number of trees of an all-reduce if only trees are allowed: one per channel. 0: a ring.
  int trees = 0;
  uint32_t without = 0;  // a bit for each kind of collective that has no algorithm

  bool HasAlgorithm(OpKind kind) const {
    return (without >> static_cast<uint32_t>(kind) & 1U) == 0;
  }
};

Tuning TuneByEnvironment(const ncclConfig_t& config);

// NCCL's message for a call without an algorithm.
std::string NoAlgorithm(OpKind kind);

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_TUNING_H_

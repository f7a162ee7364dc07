// What NCCL makes of its environment when it makes a communicator: how many channels it has, and
// which collectives are left an algorithm. After NCCL 2.28.9 (src/init.cc, src/graph/connect.cc,
// src/graph/tuning.cc), on one host of NVSwitch GPUs.
//
//   const Tuning tuning = TuneByEnvironment(config);
//   if (!tuning.refused.empty()) ...          // no communicator of several ranks
//   if (!tuning.HasAlgorithm(OpKind::kAllGather)) ...
//
// NCCL reads most of these variables once per process; here each communicator reads them anew, so
// that one process can try many.
#ifndef MESHIFT_TESTING_FAKE_GPU_TUNING_H_
#define MESHIFT_TESTING_FAKE_GPU_TUNING_H_

#include <nccl.h>

#include <cstdint>
#include <string>

#include "testing/fake_gpu/message.h"

namespace meshift::fake {

// So many rings NCCL's search for a topology finds here.
constexpr int kSearchedChannels = 16;
// Channels that NVLS asks for.
constexpr int kNvlsChannels = 16;
constexpr int kMaxChannels = 64;

struct Tuning {
  int channels = kSearchedChannels;
  // Why NCCL refuses NCCL_ALGO or NCCL_PROTO; empty where it does not.
  std::string refused;
  // Trees that do an all-reduce, where nothing else may: one for each channel. 0: a ring does.
  int trees = 0;
  uint32_t without = 0;  // a bit for each kind of collective that has no algorithm

  bool HasAlgorithm(OpKind kind) const {
    return (without >> static_cast<uint32_t>(kind) & 1U) == 0;
  }
};

Tuning TuneByEnvironment(const ncclConfig_t& config);

// NCCL's words for a call without an algorithm.
std::string NoAlgorithm(OpKind kind);

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_TUNING_H_

#include "tests/ordered_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "comm/local_run.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/local_world.h"
#include "meshift/sharding.h"
#include "meshift/union_mesh.h"

namespace meshift {
namespace {

// The local tensors of all ranks, by position.
struct Locals {
  explicit Locals(const Sharding& sharding) {
    for (int64_t p = 0; p < sharding.mesh().NumRanks(); ++p) {
      const Box box = sharding.BoxAt(sharding.mesh().CoordinateAt(p));
      memory.emplace_back(Bytes(sharding.dtype(), box.NumElements()), std::byte{0xa5});
    }
    for (std::vector<std::byte>& local : memory) {
      addresses.push_back(local.empty() ? nullptr : local.data());
    }
  }
  std::vector<std::vector<std::byte>> memory;
  std::vector<void*> addresses;
};

}  // namespace

std::string FindOtherBits(const OrderedCase& c, const Plan& plan, ReductionOrder order,
                          int64_t domain) {
  Locals sources(plan.from());
  Locals targets(plan.to());
  for (size_t p = 0; p < sources.memory.size(); ++p) {
    c.Fill(plan.from(), static_cast<int64_t>(p), absl::MakeSpan(sources.memory[p]));
  }
  const DeviceMesh mesh = UnionMesh(plan.from().mesh(), plan.to().mesh()).value();
  const std::vector<int64_t> ranks = mesh.Ranks();
  const int64_t last = *std::max_element(ranks.begin(), ranks.end());
  const auto world = LocalWorld::Create({.num_ranks = last + 1}).value();
  world->SetReductionOrder(order, domain);
  const auto runner = LocalRunner::Create(world.get(), mesh, {.expert = {.verify_plans = false}});
  if (!runner.ok()) return runner.status().ToString();
  const auto run = (*runner)->Run(plan, sources.addresses, targets.addresses);
  if (!run.ok()) return run.status().ToString();
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const int64_t sent = run->steps[i].bytes_sent;
    if (sent != plan.steps()[i].bytes_sent) {
      return fmt::format("{} has sent {} bytes", plan.steps()[i].ToString(), sent);
    }
  }
  for (size_t p = 0; p < targets.memory.size(); ++p) {
    std::string wrong = c.FindWrong(plan.to(), static_cast<int64_t>(p), targets.memory[p]);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace meshift

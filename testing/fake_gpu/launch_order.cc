#include "testing/fake_gpu/launch_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meshift::fake {
namespace {

std::string NameOf(const OrderToken& token) {
  return token.src < 0 ? fmt::format("collective {} of communicator {}", token.number, token.comm)
                       : fmt::format("message {} from {} to {} of communicator {}", token.number,
                                     token.src, token.dst, token.comm);
}

}  // namespace

std::string LaunchOrder::Launch(const std::string& device, std::vector<OrderToken> tokens) {
  std::deque<Node>& queue = queues_[device];
  queue.push_back({std::move(tokens)});
  if (queue.size() == 1) MakeHeadResident(device);
  if (queue.empty() || reported_.contains(device)) return "";
  const std::string cycle = FindCycle(device);
  if (!cycle.empty()) reported_.insert(device);
  return cycle;
}

void LaunchOrder::MakeHeadResident(const std::string& device) {
  const Node head = queues_[device].front();
  std::vector<std::string> finished = {device};
  for (const OrderToken& token : head.tokens) {
    std::set<std::string>& resident = resident_[token.Key()];
    resident.insert(device);
    if (resident.size() < token.devices.size()) continue;
    // All have met: no device waits for this operation any more.
    for (const std::string& peer : token.devices) {
      std::deque<Node>& queue = queues_[peer];
      if (queue.empty()) continue;
      std::erase_if(queue.front().tokens,
                    [&](const OrderToken& other) { return other.Key() == token.Key(); });
      if (peer != device) finished.push_back(peer);
    }
    resident_.erase(token.Key());
  }
  for (const std::string& peer : finished) PopFinished(peer);
}

void LaunchOrder::PopFinished(const std::string& device) {
  std::deque<Node>& queue = queues_[device];
  if (queue.empty() || !queue.front().tokens.empty()) return;
  queue.pop_front();
  reported_.erase(device);
  if (!queue.empty()) MakeHeadResident(device);
}

std::string LaunchOrder::FindCycle(const std::string& start) const {
  // Depth-first search from `start`; an edge leads to a device that runs another operation.
  std::vector<std::pair<std::string, OrderToken>> path;
  std::set<std::string> seen;
  const auto visit = [&](const auto& self, const std::string& device) -> bool {
    if (!seen.insert(device).second) return false;
    const auto queue = queues_.find(device);
    if (queue == queues_.end() || queue->second.empty()) return false;
    for (const OrderToken& token : queue->second.front().tokens) {
      const auto resident = resident_.find(token.Key());
      for (const std::string& peer : token.devices) {
        if (resident != resident_.end() && resident->second.contains(peer)) continue;
        const auto other = queues_.find(peer);
        if (other == queues_.end() || other->second.empty()) continue;
        path.emplace_back(device, token);
        if (peer == start || self(self, peer)) return true;
        path.pop_back();
      }
    }
    return false;
  };
  if (!visit(visit, start)) return "";
  std::string text =
      "operations are launched in different orders on different devices, which may "
      "deadlock:";
  for (const auto& [device, token] : path) {
    text += fmt::format(" {} waits in {};", device, NameOf(token));
  }
  text.pop_back();
  return text;
}

void LaunchOrder::Forget(const std::string& device, uint64_t comm) {
  const auto found = queues_.find(device);
  if (found == queues_.end()) return;
  std::deque<Node>& queue = found->second;
  reported_.erase(device);  // a later deadlock is reported again
  for (Node& node : queue) {
    std::erase_if(node.tokens, [&](const OrderToken& token) { return token.comm == comm; });
  }
  for (auto it = resident_.begin(); it != resident_.end();) {
    if (std::get<0>(it->first) == comm) it->second.erase(device);
    it = it->second.empty() ? resident_.erase(it) : std::next(it);
  }
  while (!queue.empty() && queue.front().tokens.empty()) {
    queue.pop_front();
    if (!queue.empty()) MakeHeadResident(device);
  }
}

}  // namespace meshift::fake

// Checks NCCL's rule for several communicators on one device: operations must be launched in the
// same order everywhere, because a kernel that waits for its peers keeps later kernels from
// running. Finds launches that could never all run if each device ran one at a time.
//
//   LaunchOrder order;
//   std::string problem = order.Launch("pid 1 device 0", {{.comm = 1, .number = 7, .members = 2}});
//
// A launch waits at the head of its device's queue until all its operations have met their peers. A
// cycle of devices whose heads wait for each other is a deadlock. Not thread-safe.
#ifndef MESHIFT_TESTING_FAKE_GPU_LAUNCH_ORDER_H_
#define MESHIFT_TESTING_FAKE_GPU_LAUNCH_ORDER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace meshift::fake {

// An operation of a launch: a collective (of all members of a communicator) or one message of a
// pair.
struct OrderToken {
  uint64_t comm = 0;
  int32_t src = -1;  // sender of a message; -1: a collective
  int32_t dst = -1;
  uint64_t number = 0;               // of the collective, or of the message between the two
  std::vector<std::string> devices;  // devices that take part

  auto Key() const { return std::tie(comm, src, dst, number); }
};

class LaunchOrder {
 public:
  // Records a launch of a device; returns a description of the deadlock that it makes possible, or
  // "".
  std::string Launch(const std::string& device, std::vector<OrderToken> tokens);
  // A communicator has ended on a device: its operations there no longer wait.
  void Forget(const std::string& device, uint64_t comm);

 private:
  using Key = std::tuple<uint64_t, int32_t, int32_t, uint64_t>;
  struct Node {
    std::vector<OrderToken> tokens;  // not met by all their peers yet
  };

  void MakeHeadResident(const std::string& device);
  void PopFinished(const std::string& device);
  std::string FindCycle(const std::string& device) const;

  std::map<std::string, std::deque<Node>> queues_;
  std::map<Key, std::set<std::string>> resident_;  // devices that have the operation at their head
  std::set<std::string> reported_;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_LAUNCH_ORDER_H_

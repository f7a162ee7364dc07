// What ranks tell each other beside their collectives: which plan each runs in which call, and that
// one has failed. Works while a rank computes, or hangs in a collective.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto root, control->Join(mesh_ranks, on_failure));
//   root->Post({.call = 7, .high = f.high, .low = f.low, .what = "plan 6f..: P -> R"}, false);
//   ... no answer in time ...
//   return root->Explain(7, status);   // "...; rank 3 has made 6 calls; rank 5 is in call 7 with
//   ..."
//
// Each rank of a world has one ControlChannel, from its Bootstrap (meshift/bootstrap.h).
// Everything is safe for concurrent use.
#ifndef MESHIFT_COMM_CONTROL_CONTROL_H_
#define MESHIFT_COMM_CONTROL_CONTROL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace meshift {

// Which plan a rank runs in one of its calls.
struct CallPost {
  int64_t call = 0;   // 0, 1, 2, ... of the root
  uint64_t high = 0;  // the plan's fingerprint
  uint64_t low = 0;
  // For people; not compared. Posts keep no copies: it must outlive the root, or the post that
  // makes it forgotten (ControlRoot::kRememberedPosts).
  const std::string* what = nullptr;
};

// One rank's part in the talk about one set of ranks (a redistributor's root). Leaves it when
// destroyed.
class ControlRoot {
 public:
  static constexpr int64_t kRememberedPosts = 1024;
  virtual ~ControlRoot() = default;

  // Remembers this rank's post, for peers that ask, in place of the one that many calls before.
  // Never waits, and allocates nothing, unless `announce`: then it is also sent to the peers, which
  // may await it.
  virtual void Post(const CallPost& post, bool announce) = 0;
  // Waits until all ranks have announced `call`. FAILED_PRECONDITION where two have other plans,
  // naming both; DEADLINE_EXCEEDED names the ranks that have not; or Health(), or what this rank
  // has told with Fail(), also meanwhile.
  virtual absl::Status Await(int64_t call, std::chrono::nanoseconds timeout) = 0;
  // Asks the peers where they are, and returns `error` with what they say about `call`: who has not
  // made it, who makes it with another plan (then FAILED_PRECONDITION), who is gone. Takes half a
  // second at most.
  virtual absl::Status Explain(int64_t call, const absl::Status& error) = 0;
  // Tells the peers that this rank has failed; the first call counts. Returns once it is on its way
  // to them, after half a second at most: this process may end then. Not from `on_failure`.
  virtual void Fail(const absl::Status& error) = 0;
  // OK, or the first failure of a peer: what it has told, or that its process is gone. Cheap.
  virtual absl::Status Health() const = 0;
};

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  // The root over `ranks` (ascending world ranks, this one among them). All of them join, in one
  // order; waits for nobody. UNAVAILABLE: one of them has gone, or has left without joining it.
  // `on_failure`: called once, from another thread or within Post, when a peer has failed or is
  // gone, or has left without having made a call that is posted here; not after the root was
  // destroyed. It must not destroy the root.
  virtual absl::StatusOr<std::unique_ptr<ControlRoot>> Join(
      absl::Span<const int64_t> ranks, std::function<void(const absl::Status&)> on_failure) = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_CONTROL_H_

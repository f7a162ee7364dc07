// How the ranks of a job find each other: who they are, an exchange of bytes at set-up, and the
// control channel.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto bootstrap, Bootstrap::FromTorchrun());
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<std::string> ids, bootstrap->Exchange(my_id));
//
// A hub in rank 0's process passes messages on; the other ranks are connected to it by TCP, ranks
// of one process directly. meshift/mpi_engine.h starts one from MPI. docs/engines.md says who is
// trusted.
#ifndef MESHIFT_BOOTSTRAP_H_
#define MESHIFT_BOOTSTRAP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// The place of a process in a job.

struct JobRank {
  int64_t rank = 0;  // 0 .. world_size - 1
  int64_t world_size = 1;
  int64_t local_rank = 0;        // among the ranks of its host: which device it takes
  int64_t local_world_size = 0;  // how many ranks its host has; 0: not known
};

// What ranks tell each other beside their collectives: which plan each runs in which call, and that
// one has failed. Works while a rank computes, or hangs in a collective.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto root, control->Join(mesh_ranks, on_failure));
//   root->Post({.call = 7, .high = f.high, .low = f.low, .what = "plan 6f..: P -> R"}, false);
//   ... no answer in time ...
//   return root->Explain(7, status);   // "...; rank 3 has made 6 calls; rank 5 is in call 7 ..."
//
// Each rank of a world has one ControlChannel, from its Bootstrap.
// Everything is safe for concurrent use.

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
  // has told with Fail(), also meanwhile. Calls `meanwhile` over and over, unless it is null.
  virtual absl::Status Await(int64_t call, std::chrono::nanoseconds timeout,
                             const std::function<void()>& meanwhile = nullptr) = 0;
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

// Safe for concurrent use, but that all ranks make their Exchange calls in one order. Destroying it
// leaves the job; rank 0's should go last, since the others lose their hub with it.
class Bootstrap {
 public:
  using Timeout = std::chrono::nanoseconds;
  // Of the rendezvous, and of each exchange.
  static constexpr Timeout kDefaultTimeout = std::chrono::minutes(10);

  virtual ~Bootstrap() = default;

  // Errors of all four: INVALID_ARGUMENT: a job, port, address or interface that cannot be;
  // UNAVAILABLE: a port that is taken, sockets that there are not; RESOURCE_EXHAUSTED: more ranks
  // than descriptors (the soft limit is raised as far as the hard one). Of ranks that connect:
  // DEADLINE_EXCEEDED: nobody there is the job's hub; what others say there ends nothing before the
  // time-out. FAILED_PRECONDITION: the hub of the job has another number of ranks, or this one
  // already.

  // All ranks in this process, as threads: element r is rank r's.
  static absl::StatusOr<std::vector<std::unique_ptr<Bootstrap>>> InProcess(
      int64_t world_size, Timeout timeout = kDefaultTimeout);
  // Rank 0: opens the hub on `port` (0: a free one) and returns without waiting for the others. It
  // listens on loopback alone where one host has all ranks (job.local_world_size), else on the
  // first address of `interfaces` (as NCCL_SOCKET_IFNAME: "eth,ib", "=eth0", "^docker"), or on all
  // where that is empty.
  static absl::StatusOr<std::unique_ptr<Bootstrap>> Listen(const JobRank& job, int port = 0,
                                                           Timeout timeout = kDefaultTimeout,
                                                           const std::string& interfaces = "");
  // The other ranks. `address`: as rank 0's address() says. Retries until the time-out.
  static absl::StatusOr<std::unique_ptr<Bootstrap>> Connect(const JobRank& job,
                                                            const std::string& address,
                                                            Timeout timeout = kDefaultTimeout);
  // By RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Where torchrun
  // itself listens on MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True), the hub takes a free port
  // and rank 0 says in torchrun's store which; else it takes MASTER_PORT. MESHIFT_PORT, if set,
  // names the port. TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT and MESHIFT_SECRET, which ranks
  // prove to know, tell jobs and their attempts apart; MESHIFT_SOCKET_IFNAME is Listen()'s
  // `interfaces`. FAILED_PRECONDITION also where a variable is not set. `getenv`: tests pass their
  // own.
  static absl::StatusOr<std::unique_ptr<Bootstrap>> FromTorchrun(
      Timeout timeout = kDefaultTimeout,
      const std::function<const char*(const char*)>& getenv = {});

  virtual const JobRank& job() const = 0;
  // "token@host,host:port" of the hub; empty in process, under torchrun and on other ranks than 0.
  // The token holds the job's secret: pass it to the ranks on a way that others do not read.
  virtual const std::string& address() const = 0;
  // What each rank has passed, by rank: at most 4 MiB each and 128 MiB together, else
  // INVALID_ARGUMENT. Collective. DEADLINE_EXCEEDED names the ranks that are missing and those that
  // the hub has refused, or that the hub does not answer; UNAVAILABLE one that is gone.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(std::string_view mine) = 0;
  // Leaves the job because of an error of this rank's own (memory, a bad option, a wrong plan), in
  // any state: before its first call too. The others' Exchange calls, and their roots with this
  // rank, those that wait and later ones, end at once with `reason`: its code, and "rank 3: "
  // before its message. The first call counts; OK does nothing. Returns once the hub has told the
  // others, after half a second at most: this process may end then, or destroy the bootstrap. This
  // rank's own Exchange and Join calls return `reason` from here on. Not from `on_failure`.
  virtual void Leave(const absl::Status& reason) = 0;
  virtual ControlChannel* control() = 0;  // owned
};

}  // namespace meshift

#endif  // MESHIFT_BOOTSTRAP_H_

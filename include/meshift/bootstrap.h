// Lets the ranks of a job find each other: gives their numbers, exchanges bytes at set-up, and
// opens the control channel, through which ranks compare plans and report failures.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto bootstrap, Bootstrap::FromTorchrun());
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<std::string> ids, bootstrap->Exchange(my_id));
//
// A hub in rank 0's process forwards messages. The other ranks connect to it by TCP; ranks of one
// process reach it directly. meshift/mpi_engine.h has MpiBootstrap(), which starts from MPI.
// docs/engines.md says which peers are trusted. It does not start processes, and does not carry
// tensors. Time-outs are in nanoseconds.
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
  int64_t rank = 0;              // 0 .. world_size - 1
  int64_t world_size = 1;        // at most 2^20
  int64_t local_rank = 0;        // among the ranks of its host; the default device
  int64_t local_world_size = 0;  // number of ranks on its host; 0: unknown
};

// The control channel: ranks compare the plans that they run, and report failures to each other. It
// works while a rank computes or hangs in a collective.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto root, control->Join(mesh_ranks, on_failure));
//   root->Post({.call = 7, .high = f.high, .low = f.low, .what = &text}, /*announce=*/false);
//   ... no answer in time ...
//   return root->Explain(7, status);   // "...; rank 3 has not made call 7; ..."
//
// Each rank of a world has one ControlChannel, from its Bootstrap.
// Everything is safe for concurrent use.

// Which plan a rank runs in one of its calls.
struct CallPost {
  int64_t call = 0;   // 0, 1, 2, ... of the root
  uint64_t high = 0;  // the plan's fingerprint
  uint64_t low = 0;
  // A description for messages; not compared. The root keeps the pointer: the string must outlive
  // the root, or this post (a root forgets a post after kRememberedPosts later ones).
  const std::string* what = nullptr;
};

// One rank's membership in the control channel of one set of ranks (a redistributor's root). The
// destructor leaves the set.
class ControlRoot {
 public:
  static constexpr int64_t kRememberedPosts = 1024;
  virtual ~ControlRoot() = default;

  // Remembers this rank's post for peers that ask; it replaces the post made kRememberedPosts calls
  // before. With `announce` the post is also sent to the peers, so that their Await() can see it.
  // Never waits and never allocates, unless it calls `on_failure` or `announce` is set.
  virtual void Post(const CallPost& post, bool announce) = 0;
  // Waits until all ranks have announced `call`. FAILED_PRECONDITION: two ranks have different
  // plans; the message names both. After `timeout` returns Explain() of a DEADLINE_EXCEEDED. Also
  // returns at once with the error of Health(), with the one given to Fail(), or with UNAVAILABLE
  // if rank 0, which has the hub, has left. Calls `meanwhile`, unless null, repeatedly while it
  // waits.
  virtual absl::Status Await(int64_t call, std::chrono::nanoseconds timeout,
                             const std::function<void()>& meanwhile = nullptr) = 0;
  // Asks the peers for their position, and returns `error` with their answers about `call`: the
  // ranks that have not made it, those that make it with another plan (the code is then
  // FAILED_PRECONDITION), those that have left, and those that do not answer. If a rank has called
  // Bootstrap::Leave(), returns its reason instead. Takes at most half a second.
  virtual absl::Status Explain(int64_t call, const absl::Status& error) = 0;
  // Reports to the peers that this rank has failed; only the first call counts. Returns once the
  // message is sent, after at most half a second, so that the process may exit. Must not be called
  // from `on_failure`.
  virtual void Fail(const absl::Status& error) = 0;
  // OK, or the error with which `on_failure` was called. Cheap.
  virtual absl::Status Health() const = 0;
};

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  // Joins the root over `ranks` (ascending world ranks that include this one). All of them join
  // their roots in the same order. Does not wait. INVALID_ARGUMENT: other ranks, or a list of ranks
  // whose text has more than 1 MiB. UNAVAILABLE: a rank's process has ended, or it left without
  // joining. Otherwise the error with which one of the ranks has failed or left.
  // `on_failure`: called at most once, from another thread or within Post, when a peer fails, ends,
  // or leaves without having made a call that was posted here; never after the root is destroyed.
  // It must not destroy the root.
  virtual absl::StatusOr<std::unique_ptr<ControlRoot>> Join(
      absl::Span<const int64_t> ranks, std::function<void(const absl::Status&)> on_failure) = 0;
};

// Safe for concurrent use, but all ranks make their Exchange calls in the same order. The
// destructor leaves the job. Destroy rank 0's last: it has the hub of the others.
class Bootstrap {
 public:
  using Timeout = std::chrono::nanoseconds;
  // For the rendezvous, and for each exchange.
  static constexpr Timeout kDefaultTimeout = std::chrono::minutes(10);

  virtual ~Bootstrap() = default;

  // Errors of the four functions below. INVALID_ARGUMENT: a job, port, address or interface that is
  // not valid. UNAVAILABLE: the port is taken, or sockets are not available. RESOURCE_EXHAUSTED:
  // more ranks than file descriptors (the soft limit is raised up to the hard one). For ranks that
  // connect, DEADLINE_EXCEEDED: no hub of this job answered; answers of other servers at that
  // address are ignored until the time-out. FAILED_PRECONDITION: the hub has another number of
  // ranks, or already has this rank.

  // All ranks in this process, as threads: element r belongs to rank r.
  static absl::StatusOr<std::vector<std::unique_ptr<Bootstrap>>> InProcess(
      int64_t world_size, Timeout timeout = kDefaultTimeout);
  // Rank 0: opens the hub on `port` (0: a free one) and returns without waiting for the others. The
  // hub listens on the first address of `interfaces` (syntax of NCCL_SOCKET_IFNAME: "eth,ib",
  // "=eth0", "^docker"). If that is empty, it listens on loopback only if one host has all ranks
  // (job.local_world_size), else on all addresses.
  static absl::StatusOr<std::unique_ptr<Bootstrap>> Listen(const JobRank& job, int port = 0,
                                                           Timeout timeout = kDefaultTimeout,
                                                           const std::string& interfaces = "");
  // The other ranks. `address`: the value of rank 0's address(). Retries until the time-out.
  static absl::StatusOr<std::unique_ptr<Bootstrap>> Connect(const JobRank& job,
                                                            const std::string& address,
                                                            Timeout timeout = kDefaultTimeout);
  // Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The port of
  // the hub is MESHIFT_PORT if set, else MASTER_PORT. But if torchrun itself listens on MASTER_PORT
  // (TORCHELASTIC_USE_AGENT_STORE=True) and MESHIFT_PORT is not set, the hub takes a free port, and
  // rank 0 publishes it in torchrun's store. TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT,
  // MASTER_PORT and MESHIFT_SECRET tell jobs and restarts apart; ranks prove that they know them.
  // MESHIFT_SOCKET_IFNAME is Listen()'s `interfaces`; if it is empty and the job has several hosts,
  // the hub listens on MASTER_ADDR if that is an address of this host, else on all addresses.
  // Required are RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, and MASTER_PORT or MESHIFT_PORT.
  // FAILED_PRECONDITION also if one of them is not set. `getenv`: for tests.
  static absl::StatusOr<std::unique_ptr<Bootstrap>> FromTorchrun(
      Timeout timeout = kDefaultTimeout,
      const std::function<const char*(const char*)>& getenv = {});

  virtual const JobRank& job() const = 0;
  // "token@host,host:port" of the hub; empty in process, under torchrun, and on ranks other than 0.
  // The token contains the job's secret: send it to the ranks over a private channel.
  virtual const std::string& address() const = 0;
  // Returns the bytes that each rank passed, by rank. A rank may pass at most 4 MiB, or 128 MiB /
  // world_size if that is less, else INVALID_ARGUMENT. Collective. DEADLINE_EXCEEDED: the message
  // names the ranks that are missing and those that the hub refused, or says that the hub does not
  // answer. UNAVAILABLE: a rank's process has ended, or it has left. Otherwise the reason of a rank
  // that has called Leave().
  virtual absl::StatusOr<std::vector<std::string>> Exchange(std::string_view mine) = 0;
  // Leaves the job because of an error of this rank (memory, a bad option, a wrong plan), in any
  // state, also before its first call. All current and later Exchange calls of the other ranks, and
  // their roots that contain this rank, end at once with the code of `reason` and its message after
  // "rank 3: ". Only the first call counts; OK does nothing. Returns once the hub has notified the
  // others, after at most half a second, so that the process may exit or destroy the bootstrap.
  // From then on this rank's own Exchange and Join calls return `reason`. Must not be called from
  // `on_failure`.
  virtual void Leave(const absl::Status& reason) = 0;
  virtual ControlChannel* control() = 0;  // owned
};

}  // namespace meshift

#endif  // MESHIFT_BOOTSTRAP_H_

// Proves that a process belongs to a job, by an HMAC with the job's secret; the secret itself is
// not sent. Internal to comm/control.
//
//   JobKey key{.name = "run 7, attempt 2", .secret = RandomBytes().value()};
//   const std::string proof = Proof(key, "rank", {rank_nonce, hub_nonce});
//   if (!SameProof(proof, told)) ...
#ifndef MESHIFT_COMM_CONTROL_SECRET_H_
#define MESHIFT_COMM_CONTROL_SECRET_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift {

// Identifies a job. The handshake sends the name in clear text, and never the secret. Without a
// secret, any process that knows the name is accepted as a rank.
struct JobKey {
  std::string name = {};    // at most kMaxJobName bytes
  std::string secret = {};  // any bytes; empty: none
};

// kNonceBytes random bytes from the kernel. UNAVAILABLE: the kernel provides none.
absl::StatusOr<std::string> RandomBytes();
std::string ToHex(std::string_view bytes);

// HMAC-SHA256, keyed with the secret, over the job's name, the prover's role `who`, and the values
// `said` in the handshake. kNonceBytes long.
std::string Proof(const JobKey& key, std::string_view who, const std::vector<std::string>& said);
// Compares in a time that does not depend on the bytes, only on their numbers.
bool SameProof(std::string_view a, std::string_view b);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_SECRET_H_

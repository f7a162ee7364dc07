// The key of a job. A process proves that it belongs to the job by an HMAC with the job's secret,
// which it does not send.
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

// Identifies a job. The name is sent in clear text, the secret never. Without a secret, any process
// that knows the name is accepted as a rank.
struct JobKey {
  std::string name = {};
  std::string secret = {};
};

// kNonceBytes random bytes from the kernel. UNAVAILABLE: the kernel provides none.
absl::StatusOr<std::string> RandomBytes();
// Two hexadecimal digits per byte.
std::string ToHex(std::string_view bytes);

// HMAC-SHA256, keyed with the secret, over the job's name, the prover's role `who`, and the values
// `said` in the handshake. kNonceBytes long.
std::string Proof(const JobKey& key, std::string_view who, const std::vector<std::string>& said);
// Compares in constant time.
bool SameProof(std::string_view a, std::string_view b);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_SECRET_H_

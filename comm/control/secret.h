// What shows that a process belongs to a job: it knows the job's secret, and proves it without
// sending it.
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

// What tells jobs apart. The name is sent as it is; the secret never. Without a secret, whoever
// knows the name is taken for a rank.
struct JobKey {
  std::string name = {};
  std::string secret = {};
};

// kNonceBytes of the kernel's random bytes. UNAVAILABLE: it gives none.
absl::StatusOr<std::string> RandomBytes();
// As hexadecimal digits, two a byte.
std::string ToHex(std::string_view bytes);

// HMAC-SHA256 by the secret over the job's name, who proves it, and what both sides have said;
// kNonceBytes long.
std::string Proof(const JobKey& key, std::string_view who, const std::vector<std::string>& said);
// In a time that does not depend on where they differ.
bool SameProof(std::string_view a, std::string_view b);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_SECRET_H_

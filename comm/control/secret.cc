#include "comm/control/secret.h"

#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"

namespace meshift {
namespace {

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

absl::StatusOr<std::string> RandomBytes() {
  std::string bytes(kNonceBytes, '\0');
  if (getentropy(bytes.data(), bytes.size()) != 0) {
    return absl::UnavailableError(fmt::format("cannot get random bytes from the kernel: {}",
                                              std::system_category().message(errno)));
  }
  return bytes;
}

std::string ToHex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string Proof(const JobKey& key, std::string_view who, const std::vector<std::string>& said) {
  static_assert(crypto_auth_hmacsha256_BYTES == kNonceBytes);
  // Length-prefixed, so that different lists have different bytes.
  std::vector<std::string> texts = {key.name, std::string(who)};
  texts.insert(texts.end(), said.begin(), said.end());
  const std::string message = EncodeList(texts);
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, Bytes(key.secret), key.secret.size());
  crypto_auth_hmacsha256_update(&state, Bytes(message), message.size());
  std::string proof(kNonceBytes, '\0');
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(proof.data()));
  return proof;
}

bool SameProof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace meshift

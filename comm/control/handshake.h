// The handshake between a rank and the hub: each side proves that it knows the job's secret before
// the other trusts it. If the secret is empty, the job's name suffices for the proof.
//
//   rank: magic, kHello(rank, world size, name, nonce)
//   hub:  kChallenge(nonce), or kWelcome(refusal) if the name is another
//   rank: kProof(proof)
//   hub:  kWelcome(proof, refusal or empty), or kWelcome(refusal) if the proof is wrong
//
// It uses no sockets: the caller passes in what it received (bytes on the hub, frames on a rank),
// and sends the bytes that come out. The caller limits the time. Frames after the handshake are
// neither encrypted nor authenticated. Not thread-safe. Internal to comm/control.
#ifndef MESHIFT_COMM_CONTROL_HANDSHAKE_H_
#define MESHIFT_COMM_CONTROL_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control/frame.h"
#include "comm/control/secret.h"
#include "meshift/bootstrap.h"

namespace meshift {

// The first bytes of a connection. The last one is the version of the protocol.
inline constexpr std::string_view kMagic("MESHIFT\x02", 8);

// The hub's side of one connection.
class HubHandshake {
 public:
  // `key` must outlive this. `nonce`: RandomBytes().
  HubHandshake(const JobKey* key, std::string nonce) : key_(key), nonce_(std::move(nonce)) {}

  // Takes received bytes and sets `said` to the bytes to send. INVALID_ARGUMENT: the peer is not a
  // rank of this version, sent a wrong frame, or sent more than kHandshakeBytes.
  // FAILED_PRECONDITION: its job has another name or secret; `said` has the refusal. Make no call
  // after an error.
  absl::Status Take(std::string_view bytes, std::string* said);
  // Whether the peer has proven that it knows the secret, so that the hub may accept it.
  bool proven() const { return proven_; }
  // Whether the peer has sent a kHello, so that it is probably a rank.
  bool greeted() const { return hello_.has_value(); }
  // The peer's kHello. REQUIRES: greeted().
  const Frame& hello() const { return *hello_; }
  // The last frame of the handshake. `refusal` is the reason for not accepting the rank, or empty.
  // REQUIRES: proven().
  std::string Welcome(const std::string& refusal) const;

 private:
  const JobKey* key_;
  std::string nonce_;
  std::string bytes_;  // received, until the magic number is complete
  size_t taken_ = 0;
  bool magic_ = false;
  bool proven_ = false;
  FrameReader reader_;
  std::optional<Frame> hello_;
};

// The rank's side.
class RankHandshake {
 public:
  // `nonce`: RandomBytes().
  RankHandshake(const JobRank& job, const JobKey& key, std::string nonce)
      : job_(job), key_(key), nonce_(std::move(nonce)) {}

  std::string Hello() const;  // the magic number and the kHello, which the rank sends first
  // Takes the hub's next frame and sets `said` to the bytes to send, if any. FAILED_PRECONDITION:
  // the job's own hub refuses the rank for good. UNAVAILABLE: the peer is not the job's hub, or has
  // not proven it.
  absl::Status Take(const Frame& frame, std::string* said);
  // Whether the hub has proven itself and accepted the rank.
  bool welcome() const { return welcome_; }

 private:
  const JobRank job_;
  const JobKey key_;
  const std::string nonce_;
  std::string hub_nonce_;
  bool welcome_ = false;
};

// A kWelcome without a proof: refuses a peer that has not proven the secret.
std::string Refusal(const std::string& why);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_HANDSHAKE_H_

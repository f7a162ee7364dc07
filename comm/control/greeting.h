// How a rank and the hub make sure of each other, before either takes the other's word: a magic
// number, the job's name, and a proof of its secret from both sides.
//
//   rank: magic, kHello(rank, world size, name, nonce)
//   hub:  kChallenge(nonce), or kWelcome(why not) where the name is another
//   rank: kProof(proof)
//   hub:  kWelcome(proof, why not), or kWelcome(why not) where the proof is wrong
//
// No sockets here: bytes go in, bytes come out.
#ifndef MESHIFT_COMM_CONTROL_GREETING_H_
#define MESHIFT_COMM_CONTROL_GREETING_H_

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

// What a connection begins with. The last byte is the version of what follows.
inline constexpr std::string_view kMagic("MESHIFT\x02", 8);

// The hub's side of one connection.
class HubGreeting {
 public:
  // `nonce`: RandomBytes().
  HubGreeting(const JobKey* key, std::string nonce) : key_(key), nonce_(std::move(nonce)) {}

  // What to send now. INVALID_ARGUMENT: no rank of Meshift's, or more than kGreetingBytes;
  // FAILED_PRECONDITION: not this job's, which `said` tells it.
  absl::Status Take(std::string_view bytes, std::string* said);
  // Has proven that it knows the secret: the hub may let it in.
  bool proven() const { return proven_; }
  // Has said hello, so that somebody waits behind it.
  bool greeted() const { return hello_.has_value(); }
  // What it says of itself: kHello's rank and world size. Only once greeted().
  const Frame& hello() const { return *hello_; }
  // The last frame of the greeting; `refusal`: why it is not let in, empty if it is.
  std::string Welcome(const std::string& refusal) const;

 private:
  const JobKey* key_;
  std::string nonce_;
  std::string bytes_;  // before the whole magic number
  size_t taken_ = 0;
  bool magic_ = false;
  bool proven_ = false;
  FrameReader reader_;
  std::optional<Frame> hello_;
};

// The rank's side.
class RankGreeting {
 public:
  // `nonce`: RandomBytes().
  RankGreeting(const JobRank& job, const JobKey& key, std::string nonce)
      : job_(job), key_(key), nonce_(std::move(nonce)) {}

  std::string Hello() const;
  // Takes the hub's next frame, and says what to send, if anything. FAILED_PRECONDITION: the hub is
  // this job's, and refuses the rank for good; UNAVAILABLE: it is not, or does not know the secret.
  absl::Status Take(const Frame& frame, std::string* said);
  // The hub has let this rank in.
  bool welcome() const { return welcome_; }

 private:
  const JobRank job_;
  const JobKey key_;
  const std::string nonce_;
  std::string hub_nonce_;
  bool welcome_ = false;
};

// A kWelcome of a hub that has seen no proof: why it takes nobody from there.
std::string Refusal(const std::string& why);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_GREETING_H_

#include "comm/control/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"
#include "comm/control/secret.h"
#include "meshift/bootstrap.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = Frame::Kind;

std::string RankProof(const JobKey& key, const Frame& hello, const std::string& hub_nonce) {
  return Proof(key, "rank",
               {hello.text, hub_nonce, std::to_string(hello.rank), std::to_string(hello.number)});
}

std::string HubProof(const JobKey& key, const std::string& rank_nonce, const std::string& hub_nonce,
                     const std::string& refusal) {
  return Proof(key, "hub", {rank_nonce, hub_nonce, refusal});
}

absl::Status OtherJob(const std::string& refusal) { return absl::FailedPreconditionError(refusal); }

// Makes untrusted text safe to print: at most 200 characters, with '?' for unprintable ones.
std::string Printable(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string printable(text.substr(0, kMost));
  for (char& c : printable) {
    if (c < ' ' || c > '~') c = '?';
  }
  return printable;
}

}  // namespace

std::string Refusal(const std::string& why) {
  return Encode({.kind = Kind::kWelcome, .text = why.substr(0, kHandshakeBytes / 2)});
}

absl::Status HubHandshake::Take(std::string_view bytes, std::string* said) {
  said->clear();
  taken_ += bytes.size();
  if (taken_ > kHandshakeBytes) {
    return InvalidArgument("it sent more than {} bytes before the hub accepted it",
                           kHandshakeBytes);
  }
  if (!magic_) {
    bytes_ += bytes;
    const size_t known = std::min(bytes_.size(), kMagic.size());
    if (bytes_.compare(0, known, kMagic.substr(0, known)) != 0) {
      return InvalidArgument("its first bytes are not those of a rank of this version");
    }
    if (known < kMagic.size()) return absl::OkStatus();
    magic_ = true;
    reader_ = FrameReader(HandshakeLimits());
    reader_.Add(bytes_.substr(known));
    bytes_.clear();
  } else {
    reader_.Add(bytes);
  }
  while (true) {
    MESHIFT_ASSIGN_OR_RETURN(std::optional<Frame> frame, reader_.Next());
    if (!frame) return absl::OkStatus();
    MESHIFT_RETURN_IF_ERROR(CheckFrame(*frame, Side::kRank, kMaxRanks));
    if (frame->kind == Kind::kHello && !hello_) {
      if (frame->text.size() != kNonceBytes) return InvalidArgument("its nonce is cut off");
      hello_ = *std::move(frame);
      if (hello_->root != key_->name) {
        const std::string why = "it belongs to another job";
        *said = Refusal(why);
        return OtherJob(why);
      }
      *said += Encode({.kind = Kind::kChallenge, .text = nonce_});
    } else if (frame->kind == Kind::kProof && hello_ && !proven_) {
      if (!SameProof(frame->text, RankProof(*key_, *hello_, nonce_))) {
        const std::string why = "its job has another secret (MESHIFT_SECRET)";
        *said = Refusal(why);
        return OtherJob(why);
      }
      proven_ = true;
    } else {
      return InvalidArgument("unexpected frame of kind {}", static_cast<int>(frame->kind));
    }
  }
}

std::string HubHandshake::Welcome(const std::string& refusal) const {
  return Encode({.kind = Kind::kWelcome,
                 .root = HubProof(*key_, hello_->text, nonce_, refusal),
                 .text = refusal});
}

std::string RankHandshake::Hello() const {
  return std::string(kMagic) + Encode({.kind = Kind::kHello,
                                       .rank = job_.rank,
                                       .number = job_.world_size,
                                       .root = key_.name,
                                       .text = nonce_});
}

absl::Status RankHandshake::Take(const Frame& frame, std::string* said) {
  said->clear();
  const auto refused = [&] {
    return fmt::format("the hub refuses rank {}: {}", job_.rank, Printable(frame.text));
  };
  if (!CheckFrame(frame, Side::kHub, job_.world_size).ok()) {
    return absl::UnavailableError("its answer is not that of a hub of this version");
  }
  if (frame.kind == Kind::kChallenge && hub_nonce_.empty() && frame.text.size() == kNonceBytes) {
    hub_nonce_ = frame.text;
    const Frame hello{.rank = job_.rank, .number = job_.world_size, .text = nonce_};
    *said = Encode({.kind = Kind::kProof, .text = RankProof(key_, hello, hub_nonce_)});
    return absl::OkStatus();
  }
  if (frame.kind != Kind::kWelcome) {
    return absl::UnavailableError("its answer is not that of a hub of this version");
  }
  // Any process can send a refusal; only one with a proof is final.
  if (hub_nonce_.empty() || frame.root.empty()) {
    return absl::UnavailableError(
        frame.text.empty() ? "the hub does not prove that it belongs to this job" : refused());
  }
  if (!SameProof(frame.root, HubProof(key_, nonce_, hub_nonce_, frame.text))) {
    return absl::UnavailableError("the hub does not prove that it belongs to this job");
  }
  if (!frame.text.empty()) return absl::FailedPreconditionError(refused());
  welcome_ = true;
  return absl::OkStatus();
}

}  // namespace meshift

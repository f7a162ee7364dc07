// The hub without sockets. Strangers send bytes: none is accepted, and each gets an answer that a
// rank can read. Ranks send frames: an exchange gives every rank the parts of all, the hub's frames
// keep the rules, and the hub sends nothing to an absent rank.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"
#include "comm/control/handshake.h"
#include "comm/control/message_router.h"
#include "comm/control/secret.h"
#include "fuzz/frames.h"
#include "fuzz/fuzz.h"

namespace {

namespace fuzz = meshift::fuzz;
using meshift::Bytes;
using meshift::Frame;
using meshift::FrameReader;
using meshift::Side;

constexpr int64_t kWorld = 4;

// The frames in the hub's output.
std::vector<Frame> Decoded(const std::string& bytes, const meshift::FrameLimits& limits) {
  FrameReader reader(limits);
  reader.Add(bytes);
  std::vector<Frame> frames;
  while (reader.size() > 0) {
    const auto frame = reader.Next();
    fuzz::Require(frame.ok() && frame->has_value(), "the hub says whole frames");
    const absl::Status rules = CheckFrame(**frame, Side::kHub, kWorld);
    fuzz::Require(rules.ok(), "the hub keeps its rules", rules.ToString());
    frames.push_back(**frame);
  }
  return frames;
}

void Stranger(fuzz::Input input) {
  const meshift::JobKey key{.name = "job", .secret = "a secret of this job"};
  meshift::HubHandshake handshake(&key, std::string(meshift::kNonceBytes, 'n'));
  size_t taken = 0;
  while (!input.empty()) {
    const std::string bytes = input.Bytes(1 + input.Byte());
    taken += bytes.size();
    std::string said;
    const bool goes_on = handshake.Take(bytes, &said).ok();
    fuzz::Require(!handshake.proven(), "no stranger is accepted without the secret");
    fuzz::Require(!goes_on || taken <= meshift::kHandshakeBytes, "a handshake is short");
    if (!said.empty()) Decoded(said, meshift::HandshakeLimits());
    if (!goes_on) return;
  }
}

class Ranks {
 public:
  Ranks()
      : router_(kWorld, [this](int64_t rank, const Bytes& bytes) { Told(rank, *bytes); }),
        readers_(kWorld, FrameReader(meshift::MemberLimits(Side::kRank, kWorld))) {}

  void Play(fuzz::Input input) {
    while (!input.empty()) {
      const uint8_t what = input.Byte();
      const int64_t rank = what % kWorld;
      switch (what / kWorld % 8) {
        case 0:
          if (router_.Refuse(rank, kWorld).empty()) {
            here_[rank] = true;
            router_.Enter(rank);
          }
          break;
        case 1:
          Exit(rank);
          break;
        case 2:
          router_.EndTurn();
          break;
        case 3:
          fuzz::Require(!router_.Refuse(fuzz::NextNumber(&input), kWorld + 1).empty(),
                        "a rank of another job does not come in");
          break;
        default:
          Say(rank, fuzz::NextFrame(&input));
          break;
      }
    }
    for (int64_t rank = 0; rank < kWorld; ++rank) Exit(rank);
    router_.EndTurn();
  }

 private:
  void Exit(int64_t rank) {
    if (here_[rank]) router_.Exit(rank);
    here_[rank] = false;
  }
  void Say(int64_t rank, const std::string& bytes) {
    if (!here_[rank]) return;
    readers_[rank].Add(bytes);
    while (here_[rank]) {
      auto frame = readers_[rank].Next();
      if (frame.ok() && !frame->has_value()) return;
      bool fine = frame.ok();
      if (fine) {
        const bool gives = (**frame).kind == Frame::Kind::kExchange;
        const std::pair<int64_t, std::string> given((**frame).number, (**frame).text);
        if (gives && given_[given.first].size() < kWorld) given_[given.first].resize(kWorld);
        if (gives && !given_[given.first][rank]) given_[given.first][rank] = given.second;
        fine = router_.Handle(rank, **std::move(frame)).ok();
      }
      if (!fine) Exit(rank);
    }
  }
  void Told(int64_t rank, const std::string& bytes) {
    fuzz::Require(rank >= 0 && rank < kWorld && here_[rank], "the receiver of a frame is present");
    const std::vector<Frame> frames = Decoded(bytes, meshift::MemberLimits(Side::kHub, kWorld));
    const Frame& frame = frames.front();
    if (frame.kind != Frame::Kind::kExchange) return;
    const auto all = meshift::DecodeList(frame.text);
    const auto& given = given_[frame.number];
    fuzz::Require(all.ok() && all->size() == kWorld && given.size() == kWorld,
                  "an exchange has one part of each rank");
    for (int64_t i = 0; i < kWorld; ++i) {
      fuzz::Require(given[i] == (*all)[i], "an exchange gives what each gave");
    }
  }

  meshift::MessageRouter router_;
  std::vector<FrameReader> readers_;
  std::array<bool, kWorld> here_ = {};
  std::map<int64_t, std::vector<std::optional<std::string>>> given_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  if (input.Byte() % 4 == 0) {
    Stranger(input);
  } else {
    Ranks().Play(input);
  }
  return 0;
}

// Frames of the control channel: the same frames result wherever the stream is cut, an accepted
// frame is written to the same bytes, and frames that pass the rules are safe to use.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"
#include "fuzz/fuzz.h"

namespace {

using meshift::Frame;
using meshift::FrameReader;
using meshift::Side;

constexpr int64_t kWorld = 10;

// The frames before the end, or before bytes that are not a frame.
std::vector<Frame> Read(const meshift::FrameLimits& limits, std::string_view bytes, size_t piece) {
  FrameReader reader(limits);
  std::vector<Frame> frames;
  while (!bytes.empty()) {
    const std::string_view now = bytes.substr(0, piece);
    bytes.remove_prefix(now.size());
    reader.Add(now);
    while (true) {
      auto frame = reader.Next();
      if (!frame.ok()) return frames;
      if (!frame->has_value()) break;
      frames.push_back(**frame);
    }
  }
  return frames;
}

void CheckLists(const std::string& text) {
  namespace fuzz = meshift::fuzz;
  if (const auto list = meshift::DecodeList(text); list.ok()) {
    fuzz::Require(meshift::EncodeList(*list) == text, "a list is written as it was read");
  }
  const auto ranks = meshift::DecodeRanks(text, kWorld);
  if (!ranks.ok()) return;
  int64_t before = -1;
  for (const int64_t rank : *ranks) {
    fuzz::Require(rank > before && rank < kWorld, "ranks ascend within the world");
    before = rank;
  }
  fuzz::RequireRoundTrip(*ranks, meshift::EncodeRanks(*ranks), [](const std::string& again) {
    return meshift::DecodeRanks(again, kWorld);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fuzz = meshift::fuzz;
  const std::string_view bytes = fuzz::Text(data, size);
  CheckLists(std::string(bytes));
  for (const Side side : {Side::kRank, Side::kHub}) {
    const meshift::FrameLimits limits = meshift::MemberLimits(side, kWorld);
    const std::vector<Frame> frames = Read(limits, bytes, bytes.size());
    fuzz::Require(frames == Read(limits, bytes, 7), "a stream may be cut anywhere");
    std::string written;
    for (const Frame& frame : frames) {
      written += Encode(frame);
      CheckLists(frame.text);
      if (!CheckFrame(frame, side, kWorld).ok()) continue;
      fuzz::Require(frame.rank >= -1 && frame.rank < kWorld, "a rank is one, or the hub's -1");
      fuzz::Require(frame.number >= 0 && frame.id >= 0, "calls and questions count from 0");
      fuzz::Require(frame.code >= 0 && frame.code <= 16, "a code is a status's");
    }
    fuzz::Require(written == bytes.substr(0, written.size()), "a frame is written as it was read");
  }
  Read(meshift::HandshakeLimits(), bytes, 5);
  return 0;
}

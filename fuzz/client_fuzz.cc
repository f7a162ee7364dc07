// A rank whose hub sends arbitrary bytes: the rank stays within its memory, and each of its calls
// ends once the hub hangs up.
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "comm/control/client.h"
#include "comm/control/frame.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "fuzz/frames.h"
#include "fuzz/fuzz.h"
#include "meshift/bootstrap.h"
#include "testing/internal/played_peer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using meshift::Frame;
  namespace fuzz = meshift::fuzz;
  const meshift::JobKey key{.name = "job", .secret = "secret"};
  std::string bytes;
  for (fuzz::Input input(data, size); !input.empty();) bytes += fuzz::NextFrame(&input);
  auto ends = meshift::SocketPair();
  fuzz::Require(ends.ok(), "there are sockets");

  meshift::PlayedHub hub(std::move(ends->first), key);
  std::thread plays([&] {
    fuzz::Require(hub.Greet().ok(), "the rank says hello");
    // After all that the rank sends first, so that each run is the same.
    for (int joins = 0; joins < 2;) {
      const std::optional<Frame> frame = hub.Next();
      fuzz::Require(frame.has_value(), "the rank joins two roots");
      joins += frame->kind == Frame::Kind::kJoin ? 1 : 0;
    }
    hub.socket().SendAll(bytes).IgnoreError();
    shutdown(hub.socket().fd(), SHUT_WR);
    while (hub.Next()) {
    }
  });
  {
    constexpr std::chrono::seconds kLong(10);
    const auto client =
        meshift::Client::Start({.rank = 1, .world_size = 4}, std::move(ends->second), key,
                               std::chrono::steady_clock::now() + kLong);
    fuzz::Require(client.ok(), "a hub lets the rank in");
    const std::string what = "a plan";
    int failures = 0;
    const auto all = (*client)->Join({0, 1, 2, 3}, [&](const absl::Status&) { ++failures; });
    fuzz::Require(all.ok(), "a rank joins what it is in");
    (*all)->Post({.call = 0, .what = &what}, false);
    (*all)->Post({.call = 1023, .what = &what}, false);
    const auto pair = (*client)->Join({0, 1}, nullptr);
    const auto begin = std::chrono::steady_clock::now();
    static_cast<void>((*client)->Exchange("x", kLong));
    static_cast<void>((*all)->Await(0, kLong));
    static_cast<void>((*all)->Explain(1, absl::InternalError("e")));
    fuzz::Require(std::chrono::steady_clock::now() - begin < kLong, "no call outlives the hub");
    fuzz::Require(failures <= 1, "a failure is reported once");
  }
  plays.join();
  return 0;
}

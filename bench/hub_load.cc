// A job whose hub is attacked by strangers; hub_load.sh runs it.
//
//   mpirun -n 4 hub_load job FILE 20000
//   hub_load hub FILE
//   hub_load attack FILE IDLE
//
// job: makes this many redistributions; writes its hub's address to FILE. More words: "always"
// agrees in every call; "wait" ends when the last false rank has come. hub: a hub alone, until it
// is killed. attack: attacks the hub of FILE until it is killed.
//
// The attack: 64 connections that send garbage, lengths that are too large, half frames, nothing,
// or bytes at full speed; IDLE that only connect; ranks with a wrong secret; and false ranks with
// the right secret, each of which sends one frame with one field out of its range.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/connect.h"
#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"
#include "comm/control/handshake.h"
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/mpi_engine.h"
#include "meshift/redistributor.h"
#include "meshift/run_handle.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "testing/internal/played_peer.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Frame::Kind;

constexpr int64_t kRanks = 4;
// Ranks of the job that only false ranks take, one for each wrong frame.
constexpr int64_t kPlaces = 400;
constexpr int64_t kWorld = kRanks + kPlaces;
// Suffix of the hub's file name: this file exists while false ranks are coming.
constexpr char kUnderWay[] = ".attack";

// A value of /proc/self/status, in KiB.
int64_t MemoryLine(std::string_view name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = -1;
  while (status >> word) {
    if (word == name) status >> kib;
  }
  return kib;
}

// Atomically, for a process that waits for the file.
absl::Status WriteFile(const std::string& file, const std::string& text) {
  std::ofstream(file + ".part") << text;
  if (std::rename((file + ".part").c_str(), file.c_str()) != 0) {
    return absl::UnavailableError("cannot write " + file);
  }
  return absl::OkStatus();
}

absl::StatusOr<HubAddress> AwaitFile(const std::string& file) {
  for (int i = 0; i < 600; ++i) {
    std::ifstream in(file);
    if (in.is_open()) {
      return ParseHubAddress(std::string(std::istreambuf_iterator<char>(in), {}));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return absl::DeadlineExceededError("no process has written " + file);
}

absl::Status RunJob(const std::string& file, int64_t calls, bool always, bool waits) {
  MESHIFT_ASSIGN_OR_RETURN(const auto meet, MpiBootstrap());
  const int64_t me = meet->job().rank;
  const JobRank job{.rank = me, .world_size = kWorld, .local_world_size = kWorld};
  std::unique_ptr<Bootstrap> bootstrap;
  if (me == 0) {
    MESHIFT_ASSIGN_OR_RETURN(bootstrap, Bootstrap::Listen(job));
  }
  MESHIFT_ASSIGN_OR_RETURN(const auto told, meet->Exchange(me == 0 ? bootstrap->address() : ""));
  if (me != 0) {
    MESHIFT_ASSIGN_OR_RETURN(bootstrap, Bootstrap::Connect(job, told[0]));
  }
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("a=4"));
  RedistributorOptions options;
  if (always) options.agreement = Agreement::kAlways;
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                           Redistributor::Create(mesh, engine.get(), options));
  constexpr int64_t kElements = 1024;
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[1024]", mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  std::vector<float> source(kElements);
  std::vector<float> target(kElements);
  const auto run = [&](int64_t call) -> absl::Status {
    for (int64_t i = 0; i < kElements; ++i) source[i] = static_cast<float>((call + i + me) % 1000);
    MESHIFT_ASSIGN_OR_RETURN(
        RunHandle done,
        redistribute({.from = from,
                      .to = to,
                      .source = TensorView::Contiguous(source.data(), DType::kF32, {kElements}),
                      .target = TensorView::Contiguous(target.data(), DType::kF32, {kElements})}));
    MESHIFT_RETURN_IF_ERROR(done.Wait());
    for (int64_t i = 0; i < kElements; ++i) {
      float sum = 0;
      for (int64_t rank = 0; rank < kRanks; ++rank) {
        sum += static_cast<float>((call + i + rank) % 1000);
      }
      if (target[i] != sum) return absl::DataLossError(fmt::format("call {} is wrong", call));
    }
    return absl::OkStatus();
  };
  for (int64_t call = 0; call < 500; ++call) MESHIFT_RETURN_IF_ERROR(run(call));
  if (me == 0) MESHIFT_RETURN_IF_ERROR(WriteFile(file, bootstrap->address()));
  // The attack has begun.
  if (me == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
  MESHIFT_RETURN_IF_ERROR(meet->Exchange("").status());
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak of memory
  const int64_t before = MemoryLine("VmRSS:");
  const Clock::time_point begin = Clock::now();
  for (int64_t call = 500; call < 500 + calls; ++call) MESHIFT_RETURN_IF_ERROR(run(call));
  const std::chrono::duration<double> time = Clock::now() - begin;
  if (me == 0) {
    // Measures memory after the last false rank has sent its frame.
    for (int i = 0; waits && i < 600 && std::ifstream(file + kUnderWay).is_open(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    fmt::print("{} right redistributions in {:.3f} s; rank 0 has grown by {} KiB\n", calls,
               time.count(), std::max<int64_t>(0, MemoryLine("VmHWM:") - before));
  }
  return meet->Exchange("").status();
}

absl::Status RunHub(const std::string& file) {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap,
                           Bootstrap::Listen({.world_size = kWorld, .local_world_size = kWorld}));
  MESHIFT_RETURN_IF_ERROR(WriteFile(file, bootstrap->address()));
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

class Attack {
 public:
  Attack(HubAddress hub, Address address, std::string file)
      : hub_(std::move(hub)), address_(address), file_(std::move(file)) {}

  [[noreturn]] void Run(int64_t idle) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 64; ++i) threads.emplace_back([this, i] { Stranger(i); });
    threads.emplace_back([this, idle] { Idle(idle); });
    threads.emplace_back([this] { WrongSecret(); });
    FalseRanks();
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

 private:
  absl::StatusOr<Socket> Come() const {
    return Dial(address_, Clock::now() + std::chrono::seconds(5));
  }

  // Reads from the hub until it hangs up.
  static void Drain(const Socket& socket) {
    char bytes[4096];
    while (recv(socket.fd(), bytes, sizeof(bytes), 0) > 0) {
    }
  }

  void Stranger(int number) {
    std::mt19937 random(number);
    const std::string hello = Encode({.kind = Kind::kHello,
                                      .rank = 7,
                                      .number = kWorld,
                                      .root = hub_.key.name,
                                      .text = std::string(kNonceBytes, 's')});
    while (true) {
      if (const auto socket = Come(); socket.ok()) {
        std::string garbage(1 + random() % 3000, '\0');
        for (char& c : garbage) c = static_cast<char>(random());
        switch (number % 5) {
          case 0:
            socket->SendAll(garbage).IgnoreError();
            break;
          case 1:
            socket->SendAll(std::string(kMagic) + "\xff\xff\xff\xff" + garbage).IgnoreError();
            break;
          case 2:
            socket->SendAll(std::string(kMagic) + hello.substr(0, random() % hello.size()))
                .IgnoreError();
            break;
          case 3:
            break;
          default:
            // At full speed, after a valid handshake.
            socket->SendAll(std::string(kMagic) + hello).IgnoreError();
            while (socket->SendAll(garbage).ok()) {
            }
            break;
        }
        Drain(*socket);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void Idle(int64_t count) {
    std::vector<Socket> sockets(count);
    while (true) {
      for (Socket& socket : sockets) {
        char byte = 0;
        const bool gone = socket.open() && recv(socket.fd(), &byte, 1, MSG_DONTWAIT) == 0;
        if (socket.open() && !gone) continue;
        socket = Socket();
        if (auto again = Come(); again.ok()) socket = *std::move(again);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

  void WrongSecret() {
    JobKey key = hub_.key;
    key.secret += "x";
    while (true) {
      if (auto socket = Come(); socket.ok()) {
        PlayedRank(*std::move(socket), {.rank = 2, .world_size = kWorld}, key)
            .Greet()
            .IgnoreError();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  // One rank of the job for each frame; several come at a time, since all wait among the strangers.
  void FalseRanks() {
    const std::vector<Frame> frames = WrongFrames();
    const auto count = std::min<int64_t>(kPlaces, static_cast<int64_t>(frames.size()));
    std::atomic<int64_t> next = 0;
    std::atomic<int64_t> dropped = 0;
    std::vector<std::thread> threads;
    const auto begin = Clock::now();
    for (int i = 0; i < 32; ++i) {
      threads.emplace_back([&] {
        for (int64_t at = next++; at < count; at = next++) {
          if (IsDropped(kRanks + at, frames[at])) ++dropped;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    fmt::print("{}{} of {} false ranks were dropped for their frame within {} s\n",
               dropped == count ? "" : "FAILED: ", dropped, count,
               (Clock::now() - begin) / std::chrono::seconds(1));
    std::fflush(stdout);
    std::remove((file_ + kUnderWay).c_str());
  }

  // A false rank joins, sends the frame, and learns that it is dropped.
  bool IsDropped(int64_t rank, const Frame& frame) const {
    while (true) {
      auto socket = Come();
      if (!socket.ok()) continue;
      PlayedRank played(*std::move(socket), {.rank = rank, .world_size = kWorld}, hub_.key);
      const absl::Status in = played.Greet();
      if (in.code() == absl::StatusCode::kFailedPrecondition) return false;
      if (!in.ok()) continue;
      played.Send(frame).IgnoreError();
      std::optional<Frame> told = played.Next();
      while (told && told->kind != Kind::kDropped) told = played.Next();
      return told.has_value();
    }
  }

  // Every kind of frame with every field out of its range.
  static std::vector<Frame> WrongFrames() {
    std::vector<Frame> frames;
    for (int kind = 0; kind <= static_cast<int>(Frame::kLast) + 1; ++kind) {
      for (int64_t Frame::*field : {&Frame::rank, &Frame::number, &Frame::id, &Frame::code}) {
        for (const int64_t value : {int64_t{-1}, INT64_MIN, INT64_MAX}) {
          Frame frame{.kind = static_cast<Kind>(kind)};
          frame.*field = value;
          frames.push_back(frame);
        }
      }
      for (std::string Frame::*field : {&Frame::root, &Frame::text}) {
        Frame frame{.kind = static_cast<Kind>(kind)};
        frame.*field = std::string(size_t{9} << 20, 'x');
        frames.push_back(frame);
      }
      frames.push_back({.kind = static_cast<Kind>(kind), .high = 1, .root = "0-3#0"});
    }
    return frames;
  }

  const HubAddress hub_;
  const Address address_;
  const std::string file_;
};

absl::Status RunAttack(const std::string& file, int64_t idle) {
  MESHIFT_RETURN_IF_ERROR(ReserveDescriptors(idle + 200));
  MESHIFT_ASSIGN_OR_RETURN(const HubAddress hub, AwaitFile(file));
  MESHIFT_ASSIGN_OR_RETURN(const auto addresses, Resolve(hub.hosts.front(), hub.port));
  MESHIFT_RETURN_IF_ERROR(WriteFile(file + kUnderWay, ""));
  Attack(hub, addresses.front(), file).Run(idle);
}

absl::Status Run(const std::vector<std::string>& args) {
  const auto number = [&](size_t i) { return std::atoll(args[i].c_str()); };
  if (args.size() == 2 && args[0] == "hub") return RunHub(args[1]);
  if (args.size() == 3 && args[0] == "attack") return RunAttack(args[1], number(2));
  if (args.size() >= 3 && args[0] == "job") {
    const auto has = [&](const char* word) {
      return std::find(args.begin() + 3, args.end(), word) != args.end();
    };
    return RunJob(args[1], number(2), has("always"), has("wait"));
  }
  return InvalidArgument(
      "usage: hub_load job FILE CALLS [always] [wait] | hub FILE | attack FILE IDLE");
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool mpi = !args.empty() && args[0] == "job";
  std::optional<absl::StatusOr<meshift::MpiSession>> session;
  if (mpi) session.emplace(meshift::MpiSession::Start());
  const absl::Status status = mpi && !session->ok() ? session->status() : meshift::Run(args);
  if (status.ok()) return 0;
  fmt::print(stderr, "hub_load: {}\n", status.ToString());
  if (mpi) meshift::MpiSession::Leave(1);
  return 1;
}

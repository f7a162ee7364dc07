// How ranks meet at a scale, and with delays, that a test has no time for; meeting_bench.sh runs
// it.
//
//   meeting_bench crowd 8000 150   # rank 0 with its hub in this process, and 8,000 clients in
//                                  # another process, each with 150 bytes for one exchange
//   meeting_bench rank 15000       # one rank by torchrun's variables, which comes after 15,000 ms
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
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
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Frame::Kind;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The part of `rank` in the exchange.
std::string PartOf(int64_t rank, size_t bytes) {
  std::string part = fmt::format("rank {} ", rank);
  part.resize(bytes, static_cast<char>('a' + rank % 26));
  return part;
}

bool IsRight(const std::vector<std::string>& all, int64_t world_size, size_t bytes) {
  if (static_cast<int64_t>(all.size()) != world_size) return false;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (all[rank] != PartOf(rank, bytes)) return false;
  }
  return true;
}

double ProcessorSeconds(int whose) {
  rusage used = {};
  getrusage(whose, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

// This process's peak memory, in MiB.
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "VmHWM:") {
      int64_t kib = 0;
      status >> kib;
      return kib >> 10;
    }
  }
  return -1;
}

// All ranks except 0, on one thread. Most discard the result, so that memory and time are those of
// the hub; one in `kLooks` checks it.
class Crowd {
 public:
  static constexpr int64_t kLooks = 400;

  Crowd(const HubAddress& hub, int64_t world_size, size_t bytes)
      : hub_(hub), world_size_(world_size), bytes_(bytes), epoll_(epoll_create1(0)) {
    Frame result{.kind = Kind::kExchange};
    std::vector<std::string> all;
    for (int64_t rank = 0; rank < world_size; ++rank) all.push_back(PartOf(rank, bytes));
    result.text = EncodeList(all);
    result_size_ = Encode(result).size();
  }

  absl::Status Run() {
    MESHIFT_ASSIGN_OR_RETURN(const auto addresses, Resolve(hub_.hosts.front(), hub_.port));
    ranks_.resize(world_size_);
    address_ = addresses.front();
    for (int64_t rank = 1; rank < world_size_; ++rank) {
      MESHIFT_RETURN_IF_ERROR(Come(rank));
      MESHIFT_RETURN_IF_ERROR(Turn(0));
    }
    while (done_ < world_size_ - 1) MESHIFT_RETURN_IF_ERROR(Turn(30000));
    return absl::OkStatus();
  }

 private:
  struct Rank {
    Socket socket;
    std::optional<RankHandshake> handshake;
    FrameReader reader;
    size_t got = 0;  // bytes of the result
  };

  absl::Status Come(int64_t rank) {
    MESHIFT_ASSIGN_OR_RETURN(Socket socket,
                             Dial(address_, Clock::now() + std::chrono::seconds(30)));
    Rank& it = ranks_[rank];
    it.socket = std::move(socket);
    it.reader = FrameReader();
    it.handshake.emplace(JobRank{.rank = rank, .world_size = world_size_}, hub_.key,
                         std::string(kNonceBytes, 'r'));
    MESHIFT_RETURN_IF_ERROR(it.socket.SendAll(it.handshake->Hello()));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<uint64_t>(rank);
    epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, it.socket.fd(), &event);
    return absl::OkStatus();
  }

  absl::Status Turn(int timeout) {
    std::array<epoll_event, 512> events;
    const int count =
        epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), timeout);
    if (count == 0 && timeout > 0) return absl::DeadlineExceededError("the hub says nothing");
    for (int i = 0; i < count; ++i) {
      MESHIFT_RETURN_IF_ERROR(Read(ranks_[events[i].data.u64], events[i].data.u64));
    }
    return absl::OkStatus();
  }

  absl::Status Read(Rank& rank, uint64_t number) {
    const bool looks = rank.handshake.has_value() || number % kLooks == 1;
    const ssize_t size = recv(rank.socket.fd(), buffer_.data(), buffer_.size(),
                              looks ? MSG_DONTWAIT : MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
    // As a rank does that comes too slowly.
    if (size <= 0 && rank.handshake) return Come(static_cast<int64_t>(number));
    if (size <= 0) return absl::UnavailableError(fmt::format("rank {} was hung up on", number));
    if (!looks) {
      rank.got += static_cast<size_t>(size);
      if (rank.got >= result_size_) Done(rank);
      return absl::OkStatus();
    }
    rank.reader.Add({buffer_.data(), static_cast<size_t>(size)});
    MESHIFT_ASSIGN_OR_RETURN(const std::optional<Frame> frame, rank.reader.Next());
    if (!frame) return absl::OkStatus();
    if (!rank.handshake) {
      MESHIFT_ASSIGN_OR_RETURN(const auto all, DecodeList(frame->text));
      if (!IsRight(all, world_size_, bytes_)) return absl::DataLossError("the exchange is wrong");
      Done(rank);
      return absl::OkStatus();
    }
    std::string said;
    MESHIFT_RETURN_IF_ERROR(rank.handshake->Take(*frame, &said));
    if (rank.handshake->welcome()) {
      rank.handshake.reset();
      said =
          Encode({.kind = Kind::kExchange, .text = PartOf(static_cast<int64_t>(number), bytes_)});
    }
    return rank.socket.SendAll(said);
  }

  void Done(const Rank& rank) {
    epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, rank.socket.fd(), nullptr);
    ++done_;
  }

  const HubAddress& hub_;
  const int64_t world_size_;
  const size_t bytes_;
  const Socket epoll_;
  Address address_;
  size_t result_size_ = 0;
  std::vector<Rank> ranks_;
  int64_t done_ = 0;
  std::array<char, 1 << 16> buffer_;
};

absl::Status RunCrowd(int64_t clients, size_t bytes) {
  const JobRank job{.world_size = clients + 1, .local_world_size = clients + 1};
  int ends[2];
  if (pipe(ends) != 0) return absl::UnavailableError("no pipe");
  const pid_t child = fork();  // before there are threads
  if (child == 0) {
    close(ends[1]);
    std::string text(4096, '\0');
    text.resize(std::max<ssize_t>(0, read(ends[0], text.data(), text.size())));
    const auto hub = ParseHubAddress(text);
    absl::Status status = hub.ok() ? ReserveDescriptors(clients) : hub.status();
    if (status.ok()) status = std::make_unique<Crowd>(*hub, clients + 1, bytes)->Run();
    if (!status.ok()) fmt::print(stderr, "the clients: {}\n", Message(status));
    std::_Exit(status.ok() ? 0 : 1);
  }
  close(ends[0]);
  const Clock::time_point begin = Clock::now();
  auto bootstrap = Bootstrap::Listen(job, 0, std::chrono::minutes(2));
  absl::Status status = bootstrap.status();
  if (status.ok()) {
    const std::string address = (*bootstrap)->address();
    if (write(ends[1], address.data(), address.size()) < 0) std::perror("write");
    const auto all = (*bootstrap)->Exchange(PartOf(0, bytes));
    status = all.status();
    if (all.ok() && !IsRight(*all, clients + 1, bytes)) status = absl::DataLossError("wrong bytes");
  }
  const double met = SecondsSince(begin);
  const double worked = ProcessorSeconds(RUSAGE_SELF);
  if (!status.ok()) kill(child, SIGKILL);
  int code = 0;
  waitpid(child, &code, 0);
  if (bootstrap.ok()) bootstrap->reset();  // after all others are gone
  MESHIFT_RETURN_IF_ERROR(status);
  if (code != 0) return absl::InternalError("the clients have failed");
  fmt::print(
      "{} clients with {} bytes each: {:.2f} s, {} MiB at most in rank 0's process; "
      "{:.2f} s of a processor there, {:.2f} s for the clients; all gone after {:.2f} s\n",
      clients, bytes, met, PeakMemory(), worked, ProcessorSeconds(RUSAGE_CHILDREN),
      SecondsSince(begin));
  return absl::OkStatus();
}

absl::Status RunRank(int64_t late_ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
  const char* const seconds = std::getenv("MEETING_SECONDS");
  const auto timeout = std::chrono::seconds(seconds == nullptr ? 60 : std::atoi(seconds));
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::FromTorchrun(timeout));
  const JobRank& job = bootstrap->job();
  const char* const run = std::getenv("TORCHELASTIC_RUN_ID");
  const std::string mine = fmt::format("{} {}", run == nullptr ? "" : run, job.rank);
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, bootstrap->Exchange(mine));
  for (int64_t rank = 0; rank < job.world_size; ++rank) {
    if (all[rank] != fmt::format("{} {}", run == nullptr ? "" : run, rank)) {
      return absl::DataLossError(fmt::format("rank {} is '{}'", rank, all[rank]));
    }
  }
  fmt::print("rank {} has met {} ranks of run {}\n", job.rank, all.size(),
             run == nullptr ? "" : run);
  return bootstrap->Exchange("").status();  // rank 0 leaves last
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  const std::vector<std::string_view> args(argv + 1, argv + argc);
  std::optional<absl::Status> status;
  if (args.size() == 3 && args[0] == "crowd" && meshift::Number(args[1]) &&
      meshift::Number(args[2])) {
    status = meshift::RunCrowd(*meshift::Number(args[1]),
                               static_cast<size_t>(*meshift::Number(args[2])));
  } else if (args.size() == 2 && args[0] == "rank" && meshift::Number(args[1])) {
    status = meshift::RunRank(*meshift::Number(args[1]));
  }
  if (!status) {
    fmt::print(stderr, "usage: meeting_bench crowd CLIENTS BYTES | rank MILLISECONDS\n");
    return 2;
  }
  if (status->ok()) return 0;
  fmt::print(stderr, "meeting_bench: {}\n", status->ToString());
  return 1;
}

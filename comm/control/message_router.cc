#include "comm/control/message_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
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
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = Frame::Kind;

constexpr size_t kNamed = 1000;  // missing ranks to name if the list of all is too long

Bytes Share(const Frame& frame) { return std::make_shared<const std::string>(Encode(frame)); }

// Whether `root` names a root over `ranks`: the ranks, "#" and the number of the root.
bool IsRootOf(std::string_view root, std::string_view ranks) {
  return root.size() > ranks.size() + 1 && root.substr(0, ranks.size()) == ranks &&
         root[ranks.size()] == '#' && root.size() < ranks.size() + 22 &&
         root.find_first_not_of("0123456789", ranks.size() + 1) == std::string_view::npos;
}

}  // namespace

MessageRouter::MessageRouter(int64_t world_size, std::function<void(int64_t, const Bytes&)> post)
    : world_size_(world_size),
      post_(std::move(post)),
      presence_(world_size, Presence::kNever),
      farewells_(world_size),
      opened_(world_size) {
  absent_.reserve(world_size);
}

std::string MessageRouter::Refuse(int64_t rank, int64_t world_size) {
  std::string why;
  if (world_size != world_size_) {
    why = fmt::format("its job has {} ranks, not {}", world_size_, world_size);
  } else if (rank < 0 || rank >= world_size_) {
    why = fmt::format("rank {} is not between 0 and {}", rank, world_size_ - 1);
  } else if (presence_[rank] != Presence::kNever) {
    why = fmt::format("rank {} has already joined this job", rank);
  }
  if (!why.empty()) NoteRefusal(rank, why);
  return why;
}

void MessageRouter::NoteRefusal(int64_t rank, const std::string& why) {
  if (rank < 0 || rank >= world_size_ || presence_[rank] != Presence::kNever) return;
  refused_[rank] = why;
}

void MessageRouter::Enter(int64_t rank) {
  EndTurn();  // so that the new rank gets each frame once
  presence_[rank] = Presence::kHere;
  refused_.erase(rank);
  for (const int64_t gone : absent_) post_(rank, farewells_[gone]);
}

absl::Status MessageRouter::Handle(int64_t sender, Frame frame) {
  MESHIFT_RETURN_IF_ERROR(CheckFrame(frame, Side::kRank, world_size_));
  if (presence_[sender] != Presence::kHere) return InvalidArgument("it sent a frame after it left");
  switch (frame.kind) {
    case Kind::kExchange:
      return OnExchange(sender, std::move(frame));
    case Kind::kMissing:
      OnMissing(sender, frame);
      return absl::OkStatus();
    case Kind::kJoin:
      return OnJoin(sender, frame);
    case Kind::kPart: {
      MESHIFT_ASSIGN_OR_RETURN(auto found, Find(frame.root, sender));
      if (found.first != nullptr) Part(roots_.find(frame.root), found.second);
      return absl::OkStatus();
    }
    case Kind::kAnnounce:
      return OnAnnounce(sender, frame);
    case Kind::kAsk:
      return OnAsk(sender, std::move(frame));
    case Kind::kAnswer:
      return OnAnswer(sender, std::move(frame));
    case Kind::kFail:
      return OnFail(sender, std::move(frame));
    case Kind::kBye:
    case Kind::kLeave:
      OnBye(sender, std::move(frame));
      return absl::OkStatus();
    default:
      return InvalidArgument("unexpected frame of kind {}", static_cast<int>(frame.kind));
  }
}

absl::Status MessageRouter::OnExchange(int64_t sender, Frame frame) {
  if (frame.number < first_exchange_ || frame.number >= first_exchange_ + kMaxExchanges) {
    return absl::ResourceExhaustedError(fmt::format("exchange {} is not open; only {} to {} are",
                                                    frame.number, first_exchange_,
                                                    first_exchange_ + kMaxExchanges - 1));
  }
  Exchange& exchange = exchanges_[frame.number];
  if (exchange.given.empty()) exchange.given.resize(world_size_);
  if (exchange.done || exchange.given[sender]) {
    return InvalidArgument("it sent its bytes for exchange {} twice", frame.number);
  }
  exchange.given[sender] = std::move(frame.text);
  if (++exchange.count < world_size_) return absl::OkStatus();

  std::vector<std::string> all;
  all.reserve(exchange.given.size());
  for (std::optional<std::string>& bytes : exchange.given) all.push_back(*std::move(bytes));
  std::vector<std::optional<std::string>>().swap(exchange.given);
  exchange.given.resize(1);  // not empty, unlike a new exchange
  exchange.done = true;
  // All receivers share one buffer.
  SendToAll(Share({.kind = Kind::kExchange, .number = frame.number, .text = EncodeList(all)}));
  while (!exchanges_.empty() && exchanges_.begin()->first == first_exchange_ &&
         exchanges_.begin()->second.done) {
    exchanges_.erase(exchanges_.begin());
    ++first_exchange_;
  }
  return absl::OkStatus();
}

void MessageRouter::OnMissing(int64_t sender, const Frame& frame) {
  const auto it = exchanges_.find(frame.number);
  std::vector<int64_t> missing;
  std::vector<std::string> told(1);
  const bool done = it == exchanges_.end() ? frame.number < first_exchange_ : it->second.done;
  for (int64_t rank = 0; rank < world_size_ && !done; ++rank) {
    if (it == exchanges_.end() || !it->second.given[rank]) missing.push_back(rank);
  }
  told[0] = EncodeRanks(missing);
  if (told[0].size() > kMaxRanksText / 2) {
    missing.resize(kNamed);
    told[0] = EncodeRanks(missing);
  }
  constexpr size_t kMostRefusals = 8;
  for (const auto& [rank, why] : refused_) {
    if (told.size() > kMostRefusals) break;
    told.push_back(fmt::format("rank {} was refused: {}", rank, why));
  }
  if (!note_.empty()) told.push_back(note_);
  Send(sender, {.kind = Kind::kMissing, .number = frame.number, .text = EncodeList(told)});
}

absl::StatusOr<std::pair<MessageRouter::Root*, size_t>> MessageRouter::Find(const std::string& root,
                                                                            int64_t sender) {
  const auto it = roots_.find(root);
  if (it == roots_.end()) return std::pair<Root*, size_t>(nullptr, 0);
  const std::vector<int64_t>& ranks = it->second.ranks;
  const auto place = std::lower_bound(ranks.begin(), ranks.end(), sender);
  if (place == ranks.end() || *place != sender) {
    return InvalidArgument("it sent a frame for a root of which it is not a member");
  }
  return std::pair(&it->second, static_cast<size_t>(place - ranks.begin()));
}

absl::Status MessageRouter::OnJoin(int64_t sender, const Frame& frame) {
  if (!IsRootOf(frame.root, frame.text)) {
    return InvalidArgument("it joins a root whose name does not match its ranks");
  }
  if (roots_.count(frame.root) != 0) return Find(frame.root, sender).status();
  if (opened_[sender] >= kMaxRoots) {
    return absl::ResourceExhaustedError(
        fmt::format("it has opened {} roots; that is the limit", kMaxRoots));
  }
  MESHIFT_ASSIGN_OR_RETURN(std::vector<int64_t> ranks, DecodeRanks(frame.text, world_size_));
  if (!std::binary_search(ranks.begin(), ranks.end(), sender)) {
    return InvalidArgument("it joins a root of which it is not a member");
  }
  const auto it = roots_.emplace(frame.root, Root{}).first;
  Root& root = it->second;
  root.ranks = std::move(ranks);
  root.parted.resize(root.ranks.size());
  root.opener = sender;
  ++opened_[sender];
  // A rank that left before the root existed will never send a kPart.
  for (size_t place = 0; place < root.ranks.size(); ++place) {
    const Presence presence = presence_[root.ranks[place]];
    if (presence == Presence::kLeft || presence == Presence::kGone) {
      root.parted[place] = true;
      ++root.count;
    }
  }
  return absl::OkStatus();
}

MessageRouter::Roots::iterator MessageRouter::Part(Roots::iterator root, size_t place) {
  if (root->second.parted[place]) return std::next(root);
  root->second.parted[place] = true;
  if (++root->second.count < static_cast<int64_t>(root->second.ranks.size())) {
    return std::next(root);
  }
  --opened_[root->second.opener];
  return roots_.erase(root);
}

absl::Status MessageRouter::OnAnnounce(int64_t sender, const Frame& frame) {
  MESHIFT_ASSIGN_OR_RETURN(auto found, Find(frame.root, sender));
  const auto [root, place] = found;
  if (root == nullptr) return absl::OkStatus();
  if (root->calls.size() >= kMaxCalls && root->calls.count(frame.number) == 0) {
    return absl::ResourceExhaustedError(fmt::format(
        "one root has {} calls on which its ranks have not agreed; that is the limit", kMaxCalls));
  }
  Announced& call = root->calls[frame.number];
  if (call.settled != nullptr) {
    post_(sender, call.settled);
    return absl::OkStatus();
  }
  if (call.count == 0) {
    call.first = frame;
    call.first.rank = sender;
    call.given.resize(root->ranks.size());
  }
  if (call.given[place]) return InvalidArgument("it announces call {} twice", frame.number);
  call.given[place] = true;
  ++call.count;
  Frame settled{.kind = Kind::kSettled, .number = frame.number, .root = frame.root};
  if (frame.high != call.first.high || frame.low != call.first.low) {
    settled.code = static_cast<int64_t>(absl::StatusCode::kFailedPrecondition);
    settled.text = fmt::format(
        "the ranks disagree about call {}: rank {} has {}, but "
        "rank {} has {}",
        frame.number, call.first.rank, call.first.text, sender, frame.text);
    call.settled = Share(settled);
    std::vector<bool>().swap(call.given);
  } else if (call.count < static_cast<int64_t>(root->ranks.size())) {
    return absl::OkStatus();
  } else {
    root->calls.erase(frame.number);
  }
  SendToRoot(*root, settled, -1);
  return absl::OkStatus();
}

absl::Status MessageRouter::OnAsk(int64_t sender, Frame frame) {
  // The hub's own answer shows that the hub works.
  Send(sender, {.kind = Kind::kAnswer, .rank = -1, .id = frame.id, .code = Frame::kNotMade});
  MESHIFT_ASSIGN_OR_RETURN(auto found, Find(frame.root, sender));
  if (found.first == nullptr) return absl::OkStatus();
  frame.rank = sender;
  const Bytes question = Share(frame);
  for (const int64_t rank : found.first->ranks) {
    if (rank == sender) continue;
    if (presence_[rank] == Presence::kHere) {
      post_(rank, question);
      continue;
    }
    const Frame::State state = presence_[rank] == Presence::kLeft   ? Frame::kHasLeft
                               : presence_[rank] == Presence::kGone ? Frame::kIsGone
                                                                    : Frame::kNotMade;
    Send(sender, {.kind = Kind::kAnswer, .rank = rank, .id = frame.id, .code = state});
  }
  return absl::OkStatus();
}

absl::Status MessageRouter::OnAnswer(int64_t sender, Frame frame) {
  const int64_t asker = std::exchange(frame.rank, sender);
  if (presence_[asker] == Presence::kHere) Send(asker, frame);
  return absl::OkStatus();
}

absl::Status MessageRouter::OnFail(int64_t sender, Frame frame) {
  MESHIFT_ASSIGN_OR_RETURN(auto found, Find(frame.root, sender));
  frame.rank = sender;
  if (found.first != nullptr) SendToRoot(*found.first, frame, sender);
  // The sender waits for this before its process ends, which may be the hub's.
  Send(sender, {.kind = Kind::kPassed, .root = frame.root});
  return absl::OkStatus();
}

void MessageRouter::OnBye(int64_t sender, Frame frame) {
  frame.rank = sender;
  const bool waits = frame.kind == Kind::kLeave;
  MarkAbsent(sender, Presence::kLeft, Share(frame));
  if (!waits) return;
  // As after a kFail.
  EndTurn();
  Send(sender, {.kind = Kind::kPassed});
}

void MessageRouter::Exit(int64_t rank) {
  if (presence_[rank] != Presence::kHere) return;
  MarkAbsent(rank, Presence::kGone, Share({.kind = Kind::kGone, .rank = rank}));
}

void MessageRouter::MarkAbsent(int64_t rank, Presence how, Bytes farewell) {
  presence_[rank] = how;
  farewells_[rank] = std::move(farewell);
  absent_.push_back(rank);
  for (auto it = roots_.begin(); it != roots_.end();) {
    const std::vector<int64_t>& ranks = it->second.ranks;
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
    const bool in = place != ranks.end() && *place == rank;
    it = in ? Part(it, static_cast<size_t>(place - ranks.begin())) : std::next(it);
  }
}

Bytes MessageRouter::LastWord() { return Share({.kind = Kind::kBye, .rank = -1}); }

void MessageRouter::EndTurn() {
  if (num_announced_absent_ == absent_.size()) return;
  // One message for all ranks that left in this turn, and none to those ranks: so when many ranks
  // leave together, the work is linear.
  auto farewells = std::make_shared<std::string>();
  for (size_t i = num_announced_absent_; i < absent_.size(); ++i) {
    *farewells += *farewells_[absent_[i]];
  }
  num_announced_absent_ = absent_.size();
  SendToAll(std::move(farewells));
}

void MessageRouter::Send(int64_t rank, const Frame& frame) { post_(rank, Share(frame)); }

void MessageRouter::SendToRoot(const Root& root, const Frame& frame, int64_t but) {
  const Bytes bytes = Share(frame);
  // Rank 0 comes last: its process, and with it the hub, may end when it learns of an error.
  for (auto rank = root.ranks.rbegin(); rank != root.ranks.rend(); ++rank) {
    if (*rank != but && presence_[*rank] == Presence::kHere) post_(*rank, bytes);
  }
}

void MessageRouter::SendToAll(const Bytes& frames) {
  for (int64_t rank = world_size_ - 1; rank >= 0; --rank) {
    if (presence_[rank] == Presence::kHere) post_(rank, frames);
  }
}

}  // namespace meshift

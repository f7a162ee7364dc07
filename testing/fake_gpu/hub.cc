#include "testing/fake_gpu/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "testing/fake_gpu/random.h"
#include "testing/fake_gpu/reduction.h"

namespace meshift::fake {
namespace {

Message Answer(const Message& call, Message::Kind kind, std::string text) {
  Message answer;
  answer.kind = kind;
  answer.request = call.request;
  answer.comm = call.comm;
  answer.rank = call.rank;
  answer.text = std::move(text);
  return answer;
}

}  // namespace

void Hub::Handle(const SinkRef& from, Message message) {
  Outbox out;
  Ready ready;
  {
    MutexLock lock(mutex_);
    if (message.kind == Message::Kind::kJoin) {
      HandleJoin(from, std::move(message), &out);
    } else if (const auto it = comms_.find(message.comm); it != comms_.end()) {
      Comm& comm = it->second;
      switch (message.kind) {
        case Message::Kind::kSplit:
          HandleSplit(comm, std::move(message), &out);
          break;
        case Message::Kind::kCollective:
          HandleCollective(comm, std::move(message), &out, &ready);
          break;
        case Message::Kind::kSend:
        case Message::Kind::kRecv:
          HandleTransfer(comm, std::move(message), &out);
          break;
        case Message::Kind::kConnect:
          HandleConnect(comm, std::move(message), &out);
          break;
        case Message::Kind::kLaunched:
          HandleLaunched(comm, message, &out);
          break;
        case Message::Kind::kDestroy:
          HandleDestroy(comm, message, &out);
          break;
        case Message::Kind::kLeave:
          Leave(comm, message.rank, State::kLeft, &out);
          break;
        case Message::Kind::kDead:
          Leave(comm, message.rank, State::kDead, &out);
          break;
        default:
          break;
      }
    }
  }
  if (ready.any) {
    const std::vector<Payload> results = RunCollective(ready.collective.op, ready.collective.inputs,
                                                       ready.ring, ready.collective.trees);
    for (size_t rank = 0; rank < ready.answers.size(); ++rank) {
      auto& [sink, answer] = ready.answers[rank];
      answer.payload = results[rank];
      out.emplace_back(sink, std::move(answer));
    }
  }
  for (auto& [sink, answer] : out) sink->Deliver(std::move(answer));
}

Message Hub::Made(const Comm& comm, int rank, uint64_t request) {
  Message answer;
  answer.kind = Message::Kind::kDone;
  answer.request = request;
  answer.comm = comm.id;
  answer.rank = rank;
  answer.a = static_cast<int64_t>(comm.members.size());
  for (const Member& member : comm.members) {
    if (!answer.text.empty()) answer.text += '\n';
    answer.text += member.device;
  }
  return answer;
}

Hub::Comm& Hub::NewComm(std::vector<Member> members) {
  Comm& comm = comms_[next_comm_];
  comm.id = next_comm_++;
  comm.members = std::move(members);
  comm.ring.resize(comm.members.size());
  std::iota(comm.ring.begin(), comm.ring.end(), 0);
  // The direction of the ring depends on the topology.
  Random random(seed_ * 1000003 + comm.id);
  for (size_t i = comm.ring.size(); i > 1; --i) {
    std::swap(comm.ring[i - 1], comm.ring[random.Below(i)]);
  }
  return comm;
}

void Hub::HandleJoin(const SinkRef& from, Message message, Outbox* out) {
  const auto refuse = [&](const std::string& text) {
    out->emplace_back(from, Answer(message, Message::Kind::kRefused, text));
  };
  const uint64_t id = message.comm;
  if (used_ids_.contains(id)) {
    refuse("the unique id was used before: one id makes one communicator");
    return;
  }
  Join& join = joins_[id];
  if (join.calls.empty()) join.ranks = message.a;
  if (join.ranks != message.a) {
    refuse(fmt::format("rank {} says {} ranks, others {}", message.rank, message.a, join.ranks));
    join.failed = true;
    return;
  }
  if (join.calls.contains(message.rank)) {
    refuse(fmt::format("rank {} joins twice", message.rank));
    return;
  }
  const int rank = message.rank;
  join.calls[rank] = {std::move(message), from};
  if (static_cast<int64_t>(join.calls.size()) < join.ranks) return;
  std::string duplicate;
  std::map<std::string, int> devices;
  std::vector<Member> members;
  for (auto& [member_rank, call] : join.calls) {
    const auto [it, fresh] = devices.emplace(call.first.text, member_rank);
    if (!fresh) {
      duplicate = fmt::format("Duplicate GPU detected: rank {} and rank {} both on {}", it->second,
                              member_rank, it->first);
    }
    members.push_back({.sink = call.second, .device = call.first.text});
  }
  used_ids_.insert(id);
  if (!duplicate.empty()) {
    for (auto& [member_rank, call] : join.calls) {
      out->emplace_back(call.second, Answer(call.first, Message::Kind::kRefused, duplicate));
    }
  } else {
    const Comm& comm = NewComm(std::move(members));
    for (auto& [member_rank, call] : join.calls) {
      out->emplace_back(call.second, Made(comm, member_rank, call.first.request));
    }
  }
  joins_.erase(id);
}

void Hub::HandleSplit(Comm& comm, Message message, Outbox* out) {
  const uint64_t number = message.seq;
  Split& split = comm.splits[number];
  split.calls[message.rank] = std::move(message);
  if (split.calls.size() < comm.members.size()) return;
  // Maps each color to its ranks, ordered by key, then by the parent's rank.
  std::map<int64_t, std::vector<std::pair<int64_t, int>>> colors;
  for (const auto& [rank, call] : split.calls) {
    if (call.a >= 0) {
      colors[call.a].emplace_back(call.b, rank);
    } else {
      out->emplace_back(comm.members[static_cast<size_t>(rank)].sink,
                        Answer(call, Message::Kind::kDone, ""));
    }
  }
  const std::map<int, Message> calls = std::move(split.calls);
  comm.splits.erase(number);
  for (auto& [color, order] : colors) {
    std::sort(order.begin(), order.end());
    std::vector<Member> members;
    for (const auto& [key, rank] : order) {
      const Member& parent = comm.members[static_cast<size_t>(rank)];
      members.push_back({.sink = parent.sink, .device = parent.device});
    }
    const Comm& child = NewComm(std::move(members));
    for (size_t i = 0; i < order.size(); ++i) {
      out->emplace_back(child.members[i].sink,
                        Made(child, static_cast<int>(i), calls.at(order[i].second).request));
    }
  }
}

void Hub::HandleCollective(Comm& comm, Message message, Outbox* out, Ready* ready) {
  const size_t ranks = comm.members.size();
  const auto rank = static_cast<size_t>(message.rank);
  Collective& collective = comm.collectives[message.seq];
  if (collective.arrived == 0) {
    collective.op = message.op;
    collective.first_rank = message.rank;
    collective.splits = message.b;
    collective.empty_calls = message.c;
    collective.trees = message.peer;
    collective.inputs.resize(ranks);
    collective.requests.resize(ranks);
  } else if (!(collective.op == message.op) && !collective.broken) {
    collective.broken = true;
    Violation(comm,
              fmt::format("operation {} of communicator {} differs: rank {} calls {}, rank {} "
                          "calls {}; it never ends",
                          message.seq, comm.id, collective.first_rank, ToString(collective.op),
                          message.rank, ToString(message.op)),
              out);
  }
  if (collective.splits != message.b && !collective.broken) {
    collective.broken = true;
    Violation(comm,
              fmt::format("before operation {} of communicator {}, rank {} has split it {} times "
                          "and rank {} {} times: every rank must take part in a split",
                          message.seq, comm.id, collective.first_rank, collective.splits,
                          message.rank, message.b),
              out);
  }
  if (collective.empty_calls != message.c && !collective.broken) {
    collective.broken = true;
    Violation(comm,
              fmt::format("before operation {} of communicator {}, rank {} has made {} calls of no "
                          "elements and rank {} {}: NCCL drops them, so all ranks must make them",
                          message.seq, comm.id, collective.first_rank, collective.empty_calls,
                          message.rank, message.c),
              out);
  }
  collective.inputs[rank] = std::move(message.payload);
  collective.requests[rank] = message.request;
  if (++collective.arrived < static_cast<int>(ranks) || collective.broken || comm.dead) return;
  ready->any = true;
  ready->collective = std::move(collective);
  ready->ring = comm.ring;
  comm.collectives.erase(message.seq);
  for (size_t r = 0; r < ranks; ++r) {
    Message answer;
    answer.kind = Message::Kind::kDone;
    answer.request = ready->collective.requests[r];
    answer.comm = comm.id;
    answer.rank = static_cast<int>(r);
    ready->answers.emplace_back(comm.members[r].sink, std::move(answer));
  }
}

void Hub::HandleTransfer(Comm& comm, Message message, Outbox* out) {
  const bool is_send = message.kind == Message::Kind::kSend;
  const int sender = is_send ? message.rank : message.peer;
  const int receiver = is_send ? message.peer : message.rank;
  Pair& pair = comm.pairs[{sender, receiver}];
  (is_send ? pair.sends : pair.receives)
      .push_back(
          {.op = message.op, .request = message.request, .data = std::move(message.payload)});
  while (!pair.broken && !comm.dead && !pair.sends.empty() && !pair.receives.empty()) {
    Transfer& send = pair.sends.front();
    Transfer& receive = pair.receives.front();
    if (send.op.count != receive.op.count || send.op.dtype != receive.op.dtype) {
      pair.broken = true;
      Violation(comm,
                fmt::format("a message of communicator {} differs: rank {} sends {} elements of "
                            "type {}, rank {} receives {} of type {}; it never ends",
                            comm.id, sender, send.op.count, send.op.dtype, receiver,
                            receive.op.count, receive.op.dtype),
                out);
      return;
    }
    Message to_receiver;
    to_receiver.kind = Message::Kind::kDone;
    to_receiver.comm = comm.id;
    to_receiver.rank = receiver;
    to_receiver.request = receive.request;
    to_receiver.payload = std::move(send.data);
    Message to_sender;
    to_sender.kind = Message::Kind::kDone;
    to_sender.comm = comm.id;
    to_sender.rank = sender;
    to_sender.request = send.request;
    out->emplace_back(comm.members[static_cast<size_t>(receiver)].sink, std::move(to_receiver));
    out->emplace_back(comm.members[static_cast<size_t>(sender)].sink, std::move(to_sender));
    pair.sends.pop_front();
    pair.receives.pop_front();
  }
}

void Hub::HandleConnect(Comm& comm, Message message, Outbox* out) {
  const size_t ranks = message.peer < 0 ? comm.members.size() : 2;
  const std::string what = message.text;
  std::map<int, Message>& calls = comm.connects[what];
  calls[message.rank] = std::move(message);
  if (calls.size() < ranks) return;
  for (const auto& [rank, call] : calls) {
    out->emplace_back(comm.members[static_cast<size_t>(rank)].sink,
                      Answer(call, Message::Kind::kDone, ""));
  }
  comm.connects.erase(what);
}

void Hub::HandleLaunched(Comm& comm, const Message& message, Outbox* out) {
  // Lines of "src dst number"; src -1: a collective.
  std::vector<OrderToken> tokens;
  const char* at = message.text.c_str();
  while (*at != '\0') {
    char* next = nullptr;
    OrderToken token;
    token.comm = comm.id;
    token.src = static_cast<int32_t>(std::strtol(at, &next, 10));
    token.dst = static_cast<int32_t>(std::strtol(next, &next, 10));
    token.number = std::strtoull(next, &next, 10);
    at = *next == '\n' ? next + 1 : next;
    if (token.src == token.dst && token.src >= 0) continue;  // a message to the rank itself
    if (token.src < 0) {
      for (const Member& member : comm.members) token.devices.push_back(member.device);
    } else {
      token.devices = {comm.members[static_cast<size_t>(token.src)].device,
                       comm.members[static_cast<size_t>(token.dst)].device};
    }
    tokens.push_back(std::move(token));
  }
  const std::string problem =
      order_.Launch(comm.members[static_cast<size_t>(message.rank)].device, std::move(tokens));
  if (!problem.empty()) Violation(comm, problem, out);
}

void Hub::HandleDestroy(Comm& comm, const Message& message, Outbox* out) {
  Member& member = comm.members[static_cast<size_t>(message.rank)];
  member.destroying = true;
  member.destroy_request = message.request;
  const bool all = std::all_of(comm.members.begin(), comm.members.end(), [](const Member& other) {
    return other.destroying || other.state != State::kIn;
  });
  if (!all) return;
  for (Member& other : comm.members) {
    other.quiet = true;
    if (other.destroy_request == 0 || other.state != State::kIn) continue;
    Message answer;
    answer.kind = Message::Kind::kDone;
    answer.comm = comm.id;
    answer.request = std::exchange(other.destroy_request, 0);
    out->emplace_back(other.sink, std::move(answer));
  }
}

void Hub::Leave(Comm& comm, int rank, State state, Outbox* out) {
  Member& member = comm.members[static_cast<size_t>(rank)];
  if (member.state != State::kIn) return;
  member.state = state;
  for (const auto& [number, split] : comm.splits) {
    if (split.calls.contains(rank) || state == State::kDead) continue;
    Violation(comm,
              fmt::format("rank {} ends communicator {} although others wait for it in split {}",
                          rank, comm.id, number),
              out);
  }
  order_.Forget(member.device, comm.id);
  if (state == State::kDead) comm.dead = true;
  bool any_left = false;
  for (size_t r = 0; r < comm.members.size(); ++r) {
    Member& other = comm.members[r];
    if (other.state != State::kIn) continue;
    any_left = true;
    if (state != State::kDead) continue;
    Message notice;
    notice.kind = Message::Kind::kPeerDead;
    notice.comm = comm.id;
    notice.rank = static_cast<int>(r);
    notice.peer = rank;
    out->emplace_back(other.sink, std::move(notice));
  }
  if (!any_left) {
    comms_.erase(comm.id);
    return;
  }
  // A rank that destroys waits for the others, and this one will not come.
  for (Member& other : comm.members) {
    if (other.state == State::kIn && other.destroying) {
      Message again;
      again.rank = static_cast<int>(&other - comm.members.data());
      again.request = other.destroy_request;
      if (again.request != 0) HandleDestroy(comm, again, out);
      break;
    }
  }
}

void Hub::Gone(const SinkRef& client) {
  Outbox out;
  {
    MutexLock lock(mutex_);
    std::vector<std::pair<uint64_t, int>> gone;
    for (auto& [id, comm] : comms_) {
      for (size_t rank = 0; rank < comm.members.size(); ++rank) {
        if (comm.members[rank].sink == client) gone.emplace_back(id, static_cast<int>(rank));
      }
    }
    for (const auto& [id, rank] : gone) {
      if (const auto it = comms_.find(id); it != comms_.end()) {
        const bool quiet = it->second.members[static_cast<size_t>(rank)].quiet;
        Leave(it->second, rank, quiet ? State::kLeft : State::kDead, &out);
      }
    }
  }
  for (auto& [sink, message] : out) {
    if (sink != client) sink->Deliver(std::move(message));
  }
}

bool Hub::Empty() {
  MutexLock lock(mutex_);
  return comms_.empty();
}

void Hub::Violation(const Comm& comm, const std::string& text, Outbox* out) {
  std::set<Sink*> told;
  for (const Member& member : comm.members) {
    if (!told.insert(member.sink.get()).second) continue;
    Message message;
    message.kind = Message::Kind::kViolation;
    message.comm = comm.id;
    message.text = text;
    out->emplace_back(member.sink, std::move(message));
  }
}

}  // namespace meshift::fake

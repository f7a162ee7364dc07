// Implements the part of StepLowering (step_lowering.h) for steps that send messages of exact size:
// all_to_all, exchange, and crossings from one mesh to another. A message that is contiguous in
// memory is sent from, or received at, its place; others are packed. INVALID_ARGUMENT: the
// workspace is too small, or a crossing's reduction is invalid.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/checked_math.h"
#include "comm/program/step_lowering.h"
#include "meshift/status.h"

namespace meshift::lowering_internal {

absl::Status StepLowering::LowerMessages(const DimSet& mesh_dims, const Traffic& traffic,
                                         absl::Span<const Value> places, bool calls) {
  const DType dtype = build_.in().dtype;
  // The messages to or from other members. `packed`: those that are not contiguous in the value;
  // they lie back to back in a piece of memory.
  struct Side {
    std::vector<ProgramMessage> messages;
    std::vector<std::pair<size_t, const Part*>> packed;
  };
  const auto lay = [&](absl::Span<const Value> values, const std::vector<Part>& parts,
                       Side* side) -> absl::Status {
    int64_t total = 0;
    side->messages.reserve(parts.size());
    for (const Part& part : parts) {
      if (part.number == traffic.self) continue;
      const int64_t count = part.box.NumElements();
      const std::optional<Location> run = values[part.contribution].RunOf(part.box);
      if (!run) {
        side->packed.emplace_back(side->messages.size(), &part);
        total += count;
      }
      side->messages.push_back({static_cast<int>(part.number), run.value_or(Location()), count});
    }
    MESHIFT_ASSIGN_OR_RETURN(Location at, build_.TakePiece(Bytes(dtype, total)));
    for (const auto& [i, part] : side->packed) {
      side->messages[i].at = at;
      at.offset += Bytes(dtype, side->messages[i].count);
    }
    return absl::OkStatus();
  };
  Side sends;
  Side recvs;
  const Value in = build_.in();
  MESHIFT_RETURN_IF_ERROR(lay({&in, 1}, traffic.receivers, &sends));
  for (const auto& [i, part] : sends.packed) {
    build_.AddCopy(in, Value::RowMajor(sends.messages[i].at, dtype, part->box), part->box);
  }
  for (const Part& part : traffic.senders) {
    if (part.number == traffic.self) build_.AddCopy(in, places[part.contribution], part.box);
  }
  if (sends.packed.size() == sends.messages.size()) build_.EndInput();
  MESHIFT_RETURN_IF_ERROR(lay(places, traffic.senders, &recvs));
  if (calls) build_.AddSendRecv(mesh_dims, sends.messages, recvs.messages);
  for (const auto& [i, part] : recvs.packed) {
    build_.AddCopy(Value::RowMajor(recvs.messages[i].at, dtype, part->box),
                   places[part->contribution], part->box);
  }
  return absl::OkStatus();
}

absl::Status StepLowering::Exchange(const StepGeometry& g, const Step& step) {
  const Members members(mesh_, step.mesh_dims, me_);
  const Traffic traffic{.self = SelfOf(members),
                        .receivers = Receivers(g, members, me_),
                        .senders = Senders(g, members, me_)};
  const auto others = [&](const std::vector<Part>& parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Part& part) { return part.number != traffic.self; });
  };
  const bool calls =
      others(traffic.receivers) || others(traffic.senders) || AnyMemberNeedsData(g, members, me_);
  const Value out = build_.out();
  return LowerMessages(step.mesh_dims, traffic, {&out, 1}, calls);
}

absl::Status StepLowering::AddCrossing(const Step& step, const Crossing& crossing) {
  if (!one_buffer_) return Cross(step, crossing);
  // In one buffer, data whose box and strides do not change is in place already.
  if (step.op == StepOp::kRelabel && build_.in().box == build_.out().box &&
      build_.in().strides == build_.out().strides) {
    return absl::OkStatus();
  }
  return LowerApart([&] { return Cross(step, crossing); });
}

StepLowering::Traffic StepLowering::TrafficOf(const Crossing& crossing) const {
  const auto number = [&](int64_t rank) { return *mesh_.PositionOf(rank); };
  Traffic traffic{.self = number(rank_), .receivers = {}, .senders = {}};
  for (const int32_t i : crossing.MessagesFrom(rank_)) {
    // This rank sends parts of one contribution only: its value before the step.
    const CrossingMessage& message = crossing.messages()[i];
    traffic.receivers.push_back({number(message.receiver), crossing.PartOf(message), 0});
  }
  for (const CrossingMessage& message : crossing.MessagesTo(rank_)) {
    traffic.senders.push_back(
        {number(message.sender), crossing.PartOf(message), message.contribution});
  }
  int64_t contribution = 0;
  if (std::optional<Box> kept = crossing.KeptBy(rank_, &contribution)) {
    traffic.senders.push_back({traffic.self, *std::move(kept), contribution});
  }
  // Two members have at most one message in each direction.
  for (std::vector<Part>* parts : {&traffic.receivers, &traffic.senders}) {
    std::sort(parts->begin(), parts->end(),
              [](const Part& a, const Part& b) { return a.number < b.number; });
  }
  return traffic;
}

absl::Status StepLowering::Cross(const Step& step, const Crossing& crossing) {
  if (step.reduce_op) return OrderedCross(step, crossing);
  const Value out = build_.out();
  return LowerMessages({0}, TrafficOf(crossing), {&out, 1}, /*calls=*/step.op == StepOp::kExchange);
}

// Receives each contribution to this rank's box into a block of its own, then reduces the blocks in
// order.
absl::Status StepLowering::OrderedCross(const Step& step, const Crossing& crossing) {
  MESHIFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(step));
  const Value out = build_.out();
  const int64_t own = out.bytes();
  const int64_t n = crossing.contributions();
  MESHIFT_ASSIGN_OR_RETURN(const Location blocks, build_.TakePiece(SaturatingMul(n, own)));
  std::vector<Value> places;
  for (int64_t c = 0; c < n; ++c) {
    places.push_back(Value::RowMajor(Shift(blocks, c * own), out.dtype, out.box));
  }
  MESHIFT_RETURN_IF_ERROR(LowerMessages({0}, TrafficOf(crossing), places, /*calls=*/true));
  if (own == 0) return absl::OkStatus();
  MESHIFT_ASSIGN_OR_RETURN(const Value result, RowMajorLike(out));
  ReduceBlocks(blocks, result.at, out.count(), n, reduction);
  CopyToOut(result);
  return absl::OkStatus();
}

}  // namespace meshift::lowering_internal

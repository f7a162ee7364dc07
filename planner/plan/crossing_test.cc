#include "planner/plan/crossing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"

namespace meshift {
namespace {

Sharding Parse(std::string_view tensor, std::string_view mesh, std::string_view placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

Topology Links(std::string_view text) { return Topology::Parse(text).value(); }

// "0->4 [0:2, 0:8]" per message.
std::vector<std::string> Lines(const Crossing& crossing) {
  std::vector<std::string> lines;
  for (const CrossingMessage& m : crossing.messages()) {
    lines.push_back(fmt::format("{}->{} {}", m.sender, m.receiver, crossing.PartOf(m).ToString()));
  }
  return lines;
}

TEST(CrossingTest, GivesEachReceiverWhatItLacks) {
  const Crossing crossing = Crossing::Of(Parse("f32[8]", "a=4", "S(0)"),
                                         Parse("f32[8]", "b=2@3,4", "S(0)"), Topology::Flat());
  EXPECT_EQ(Lines(crossing),
            (std::vector<std::string>{"0->3 [0:2]", "1->3 [2:4]", "2->4 [4:6]", "3->4 [6:8]"}));
  EXPECT_FALSE(crossing.KeptBy(3));
  EXPECT_EQ(crossing.ranks(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(crossing.most_messages(), 2);
  EXPECT_EQ(crossing.SentBy(3), 2);
  EXPECT_EQ(crossing.ReceivedBy(3), 4);
  EXPECT_EQ(crossing.ReceivedBy(7), 0);
}

TEST(CrossingTest, KeepsWhatARankHolds) {
  // Rank 1 holds a quarter of the tensor, but not a part of its new half.
  const Crossing crossing = Crossing::Of(Parse("f32[8]", "a=4", "S(0)"),
                                         Parse("f32[8]", "b=2", "S(0)"), Topology::Flat());
  EXPECT_EQ(Lines(crossing), (std::vector<std::string>{"1->0 [2:4]", "2->1 [4:6]", "3->1 [6:8]"}));
  EXPECT_EQ(crossing.KeptBy(0)->ToString(), "[0:2]");
  EXPECT_FALSE(crossing.KeptBy(1));
  EXPECT_EQ(crossing.MessagesTo(1).size(), 2u);
  EXPECT_EQ(crossing.MessagesFrom(3), (std::vector<int32_t>{2}));
  EXPECT_EQ(crossing.most_kept(), 2);
}

TEST(CrossingTest, SpreadsTheLoadOverReplicas) {
  const Crossing crossing =
      Crossing::Of(Parse("f32[4]", "a=2", "R"), Parse("f32[4]", "b=4@2-5", "R"), Topology::Flat());
  EXPECT_EQ(Lines(crossing),
            (std::vector<std::string>{"0->2 [0:4]", "1->3 [0:4]", "0->4 [0:4]", "1->5 [0:4]"}));
}

TEST(CrossingTest, TakesTheNearestReplica) {
  // Ranks 0 and 3 hold all; domains are {0, 1}, {2, 3}, {4, 5}.
  const Crossing crossing = Crossing::Of(Parse("f32[4]", "a=2@0,3", "R"),
                                         Parse("f32[4]", "b=4@1,2,4,5", "R"), Links("nvlink=2"));
  EXPECT_EQ(Lines(crossing),
            (std::vector<std::string>{"0->1 [0:4]", "3->2 [0:4]", "0->4 [0:4]", "3->5 [0:4]"}));
}

TEST(CrossingTest, OfAnotherFactoringOfTheSameRanksNothingMoves) {
  const Crossing crossing = Crossing::Of(Parse("f32[5,3]", "a=8", "S(0)"),
                                         Parse("f32[5,3]", "x=2,y=4", "S(0),S(0)"), Links("flat"));
  // Eight ranks cut five rows one by one, and in pairs of ranks: some boxes differ.
  EXPECT_FALSE(crossing.messages().empty());
  const Crossing even = Crossing::Of(Parse("f32[8,3]", "a=8", "S(0)"),
                                     Parse("f32[8,3]", "x=2,y=4", "S(0),S(0)"), Links("flat"));
  EXPECT_TRUE(even.messages().empty());
  EXPECT_EQ(even.KeptBy(5)->ToString(), "[5:6, 0:3]");
  EXPECT_EQ(even.most_messages(), 0);
}

TEST(CrossingTest, TakesEveryContribution) {
  const Crossing crossing = Crossing::Of(Parse("f32[2]", "a=2,b=2", "P,S(0)"),
                                         Parse("f32[2]", "c=1@1", "R"), Topology::Flat());
  EXPECT_EQ(crossing.contributions(), 2);
  // Rank 1 is (0, 1): it keeps the second element of contribution 0.
  EXPECT_EQ(Lines(crossing), (std::vector<std::string>{"0->1 [0:1]", "2->1 [0:1]", "3->1 [1:2]"}));
  EXPECT_EQ(crossing.messages()[0].contribution, 0);
  EXPECT_EQ(crossing.messages()[1].contribution, 1);
  int64_t contribution = -1;
  EXPECT_EQ(crossing.KeptBy(1, &contribution)->ToString(), "[1:2]");
  EXPECT_EQ(contribution, 0);
}

TEST(CrossingTest, HasNothingToSayOfEmptyTensors) {
  const Crossing crossing = Crossing::Of(Parse("f32[0,4]", "a=4", "S(0)"),
                                         Parse("f32[0,4]", "b=2", "S(1)"), Topology::Flat());
  EXPECT_TRUE(crossing.messages().empty());
  EXPECT_FALSE(crossing.KeptBy(0));
  EXPECT_FALSE(crossing.send_packs());
}

TEST(CrossingTest, OfARankZeroTensorOneRankIsAsked) {
  const Crossing crossing =
      Crossing::Of(Parse("f32[]", "a=2", "R"), Parse("f32[]", "b=2@1,2", "R"), Topology::Flat());
  EXPECT_EQ(Lines(crossing), (std::vector<std::string>{"0->2 []"}));
}

// The rule of docs/plan_format.md, by a loop over all pairs of ranks.
struct Expected {
  std::vector<std::string> lines;
  std::map<int64_t, std::string> kept;
  bool send_packs = false;
  bool receive_packs = false;
};

Expected ByTheRule(const Sharding& before, const Sharding& after, const Topology& topology) {
  Expected expected;
  std::vector<int64_t> senders = before.mesh().Ranks();
  std::vector<int64_t> receivers = after.mesh().Ranks();
  std::sort(senders.begin(), senders.end());
  std::sort(receivers.begin(), receivers.end());
  const auto offset = [](const Box& box) {
    return std::vector<int64_t>(box.offset.begin(), box.offset.end());
  };
  std::map<std::vector<int64_t>, Box> pieces;  // by begin
  for (const int64_t rank : senders) {
    const Box box = before.LocalBox(rank);
    if (!box.IsEmpty()) pieces.emplace(offset(box), box);
  }
  std::map<int64_t, int64_t> given;
  std::vector<std::pair<Box, Box>> sent;      // part, the sender's box
  std::vector<std::pair<Box, Box>> received;  // part, the receiver's box
  for (const int64_t receiver : receivers) {
    const Box wanted = after.LocalBox(receiver);
    for (const auto& [begin, piece] : pieces) {
      const Box part = Intersect(piece, wanted);
      if (part.IsEmpty()) continue;
      sent.emplace_back(part, piece);
      received.emplace_back(part, wanted);
      int64_t best = -1;
      for (const int64_t rank : senders) {
        if (!(before.LocalBox(rank) == piece)) continue;
        if (rank == receiver) {
          best = rank;
          break;
        }
        const auto key = [&](int64_t r) {
          return std::pair(topology.LevelBetween(r, receiver), given[r]);
        };
        if (best < 0 || key(rank) < key(best)) best = rank;
      }
      if (best == receiver) {
        expected.kept[receiver] = part.ToString();
        continue;
      }
      given[best] += part.NumElements();
      expected.lines.push_back(fmt::format("{}->{} {}", best, receiver, part.ToString()));
    }
  }
  const auto packs = [](const std::vector<std::pair<Box, Box>>& parts) {
    for (const auto& [long_part, unused] : parts) {
      for (size_t j = 0; j < long_part.size.size(); ++j) {
        if (long_part.size[j] < 2) continue;
        for (const auto& [part, box] : parts) {
          for (size_t k = j + 1; k < part.size.size(); ++k) {
            if (part.size[k] < box.size[k]) return true;
          }
        }
      }
    }
    return false;
  };
  expected.send_packs = packs(sent);
  expected.receive_packs = packs(received);
  return expected;
}

TEST(CrossingTest, IsTheRuleOnManyPairs) {
  const std::vector<std::string> meshes = {
      "a=1",     "a=2@1,0", "a=3",         "a=4",         "a=2,b=2",         "a=2,b=2@3,1,2,0",
      "a=2,b=3", "a=6@4-9", "a=3,b=2@2-7", "a=2,b=2@5-8", "a=2,b=1,c=2@1-4", "a=5@0,2,4,6,8"};
  const std::vector<std::string> tensors = {"f32[5,3]", "f32[8,6]", "f32[1,7]", "f32[0,2]"};
  const std::vector<std::string> one = {"R", "S(0)", "S(1)"};
  const auto placements = [&](int dims) {
    std::vector<std::string> texts = {""};
    for (int d = 0; d < dims; ++d) {
      std::vector<std::string> next;
      for (const std::string& text : texts) {
        for (const std::string& p : one) next.push_back(text + (d > 0 ? "," : "") + p);
      }
      texts = std::move(next);
    }
    if (dims == 2) texts.push_back("S(0)[1],S(0)[0]");
    return texts;
  };
  int64_t count = 0;
  int64_t chosen = 0;  // crossings with more than one sender
  uint64_t random = 1;
  for (const std::string& from_text : meshes) {
    const DeviceMesh from_mesh = DeviceMesh::Parse(from_text).value();
    for (const std::string& to_text : meshes) {
      const DeviceMesh to_mesh = DeviceMesh::Parse(to_text).value();
      for (const std::string& before_text : placements(from_mesh.NumDims())) {
        for (const std::string& after_text : placements(to_mesh.NumDims())) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          const std::string& tensor = tensors[random >> 40 & 3];
          const Topology topology = Links(std::vector<std::string>{
              "flat", "nvlink=2", "nvlink=2,rail=4", "nvlink=3"}[random >> 50 & 3]);
          const Sharding before = Sharding::Parse(tensor, from_mesh, before_text).value();
          const Sharding after = Sharding::Parse(tensor, to_mesh, after_text).value();
          const Crossing crossing = Crossing::Of(before, after, topology);
          const Expected expected = ByTheRule(before, after, topology);
          const std::string what = before.ToString() + " -> " + after.ToString();
          ASSERT_EQ(Lines(crossing), expected.lines) << what;
          ASSERT_EQ(crossing.send_packs(), expected.send_packs) << what;
          ASSERT_EQ(crossing.receive_packs(), expected.receive_packs) << what;
          for (int level = 0; level < topology.NumLevels(); ++level) {
            std::map<int64_t, int64_t> sent;
            std::map<int64_t, int64_t> received;
            int64_t most = 0;
            for (const CrossingMessage& m : crossing.messages()) {
              if (topology.LevelBetween(m.sender, m.receiver) < level) continue;
              most = std::max(
                  {most, sent[m.sender] += m.elements, received[m.receiver] += m.elements});
            }
            ASSERT_EQ(crossing.MostAcross(level), most) << what << " level " << level;
            for (const int64_t rank : crossing.ranks()) {
              int64_t above = 0;
              for (int l = level; l < topology.NumLevels(); ++l) above += crossing.SentBy(rank, l);
              ASSERT_EQ(above, sent[rank]) << what << " level " << level;
            }
          }
          int64_t most_sent = 0;
          int64_t most_received = 0;
          int64_t most_messages = 0;
          for (const int64_t rank : crossing.ranks()) {
            const auto kept = expected.kept.find(rank);
            ASSERT_EQ(crossing.KeptBy(rank).has_value(), kept != expected.kept.end()) << what;
            if (kept != expected.kept.end()) {
              ASSERT_EQ(crossing.KeptBy(rank)->ToString(), kept->second) << what;
            }
            int64_t sent = 0;
            int64_t received = 0;
            for (const int32_t i : crossing.MessagesFrom(rank)) {
              ASSERT_EQ(crossing.messages()[i].sender, rank);
              sent += crossing.PartOf(crossing.messages()[i]).NumElements();
            }
            for (const CrossingMessage& m : crossing.MessagesTo(rank)) {
              ASSERT_EQ(m.receiver, rank);
              ASSERT_EQ(m.elements, crossing.PartOf(m).NumElements());
              received += m.elements;
            }
            ASSERT_EQ(crossing.SentBy(rank), sent) << what;
            ASSERT_EQ(crossing.ReceivedBy(rank), received) << what;
            most_sent = std::max(most_sent, sent);
            most_received = std::max(most_received, received);
            most_messages =
                std::max({most_messages, static_cast<int64_t>(crossing.MessagesFrom(rank).size()),
                          static_cast<int64_t>(crossing.MessagesTo(rank).size())});
          }
          ASSERT_EQ(crossing.most_sent(), most_sent) << what;
          ASSERT_EQ(crossing.most_received(), most_received) << what;
          ASSERT_EQ(crossing.most_messages(), most_messages) << what;
          ++count;
          std::set<int64_t> ranks;
          for (const CrossingMessage& m : crossing.messages()) ranks.insert(m.sender);
          chosen += before.HasPartial() || ranks.size() > 1 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(count, 5000);
  EXPECT_GT(chosen, 1000);
}

TEST(CrossingTest, OfThousandsOfRanksIsQuick) {
  // A replicated tensor. A loop over all pairs would take 4096 x 2048 steps. Here each sender
  // serves at most one receiver.
  const Crossing crossing =
      Crossing::Of(Parse("f32[64,64]", "a=4096", "R"), Parse("f32[64,64]", "b=2048@4096-6143", "R"),
                   Links("nvlink=8"));
  EXPECT_EQ(crossing.messages().size(), 2048u);
  EXPECT_EQ(crossing.most_sent(), 64 * 64);
  EXPECT_EQ(crossing.most_messages(), 1);
}

}  // namespace
}  // namespace meshift

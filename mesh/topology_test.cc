#include "meshift/topology.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "mesh/topology_presets.h"
#include "rapidcheck/gtest.h"

namespace meshift {
namespace {

using ::testing::StartsWith;

Topology Parsed(const std::string& text) {
  absl::StatusOr<Topology> topology = Topology::Parse(text);
  EXPECT_TRUE(topology.ok()) << topology.status();
  return *std::move(topology);
}

TopologyLevel Inside(const std::string& name, int64_t domain_size) {
  return {.name = name,
          .domain_size = domain_size,
          .bandwidth_bytes_per_us = 367000,
          .latency_ns = 1000,
          .in_switch_bandwidth_bytes_per_us = 263000,
          .in_switch_members = 5};
}
TopologyLevel Beyond(const std::string& name, int64_t domain_size) {
  return {.name = name,
          .domain_size = domain_size,
          .bandwidth_bytes_per_us = 48000,
          .latency_ns = 5000,
          .entry_ns = 15000,
          .direct_bandwidth_bytes_per_us = 23200,
          .domain_bandwidth_bytes_per_us = 384000};
}

// The message with which `topology` was refused.
std::string Refusal(const absl::StatusOr<Topology>& topology) {
  if (topology.ok()) return "accepted: " + topology->ToString();
  EXPECT_EQ(topology.status().code(), absl::StatusCode::kInvalidArgument);
  return Message(topology.status());
}

TEST(TopologyTest, Flat) {
  const Topology flat = Topology::Flat();
  ASSERT_EQ(flat.NumLevels(), 1);
  EXPECT_EQ(flat.level(0), (TopologyLevel{"flat", 0, 360000, 1000}));
  EXPECT_EQ(flat.constants(), TopologyConstants());
  EXPECT_EQ(flat.LevelBetween(0, 1000000), 0);
  EXPECT_EQ(flat.DomainOf(0, 1000000), 0);
  EXPECT_EQ(flat, Parsed("flat"));
}

TEST(TopologyTest, NvlinkDomainsAndTheNetwork) {
  const Topology topology = Parsed("nvlink=8");
  ASSERT_EQ(topology.NumLevels(), 2);
  EXPECT_EQ(topology.level(0), Inside("nvlink", 8));
  EXPECT_EQ(topology.level(1), Beyond("net", 0));
  EXPECT_EQ(topology.DomainOf(0, 13), 1);
  EXPECT_EQ(topology.DomainOf(1, 13), 0);
  EXPECT_EQ(topology.LevelBetween(8, 15), 0);
  EXPECT_EQ(topology.LevelBetween(7, 8), 1);
  EXPECT_EQ(topology, Parsed("h100"));
}

TEST(TopologyTest, SeveralLevels) {
  const Topology topology = Parsed("nvlink=8,rail=64");
  ASSERT_EQ(topology.NumLevels(), 3);
  EXPECT_EQ(topology.level(1), Beyond("rail", 64));
  EXPECT_EQ(topology.LevelBetween(0, 7), 0);
  EXPECT_EQ(topology.LevelBetween(0, 63), 1);
  EXPECT_EQ(topology.LevelBetween(63, 64), 2);
}

TEST(TopologyTest, NamesAreFree) {
  const Topology topology = Parsed("board=2,rack=6");
  EXPECT_EQ(topology.level(0), Inside("board", 2));
  EXPECT_EQ(topology.level(1), Beyond("rack", 6));
  EXPECT_EQ(Parsed("rail=4").level(0), Beyond("rail", 4));
}

TEST(TopologyTest, Presets) {
  EXPECT_EQ(Parsed("a100").level(0).bandwidth_bytes_per_us, 220000);
  EXPECT_EQ(Parsed("a100").level(0).in_switch_bandwidth_bytes_per_us, 0);
  EXPECT_EQ(Parsed("a100").level(1).bandwidth_bytes_per_us, 24000);
  EXPECT_EQ(Parsed("h200").level(0), Parsed("h100").level(0));
  EXPECT_EQ(Parsed("h200").constants().copy_bandwidth_bytes_per_us, 2150000);
  EXPECT_EQ(Parsed("gb200").level(0).domain_size, 72);
  EXPECT_EQ(Parsed("gb300-roce").level(1).bandwidth_bytes_per_us, 96000);
  EXPECT_EQ(Parsed("h100-ndr"), Parsed("h100"));
  EXPECT_EQ(Parsed("a100-hdr"), Parsed("a100"));
  const Topology efa = Parsed("h100-efa");
  EXPECT_EQ(efa.level(1).latency_ns, 16000);
  EXPECT_EQ(efa.protocols().size(), 3);
  EXPECT_EQ(efa.ToString(), "h100-efa");
  const std::vector<std::string> names = PresetNames();
  EXPECT_EQ(names.size(), 19);
  for (const std::string& name : names) EXPECT_EQ(Parsed(Parsed(name).ToString()), Parsed(name));
}

TEST(TopologyTest, NicsOfOnesOwn) {
  // 4 NICs of 100 Gb/s for 8 GPUs are 6,250 bytes/us each, of which NDR gives 96 %.
  const Topology own = Parsed("h100,nics=4x100");
  EXPECT_EQ(own.level(0), Parsed("h100").level(0));
  EXPECT_EQ(own.level(1).bandwidth_bytes_per_us, 6000);
  EXPECT_EQ(own.level(1).direct_bandwidth_bytes_per_us, 6000);
  EXPECT_EQ(Parsed(own.ToString()), own);
  EXPECT_EQ(Parsed("h100-efa,nics=8x400").ToString(), "h100-efa");
  EXPECT_EQ(Parsed("gb200,nics=4x400").ToString(), "gb200");  // 4 GPUs share them
}

TEST(TopologyTest, PrintsTheShortestText) {
  for (const std::string text :
       {"flat", "a100", "h100", "h200", "b200-roce", "gb200", "nvlink=4", "nvlink=8,rail=64", "x=1",
        R"({"levels":[{"name":"x","domain_size":0,"bandwidth_bytes_per_us":1,"latency_ns":0}]})"}) {
    EXPECT_EQ(Parsed(text).ToString(), text);
  }
  EXPECT_EQ(Parsed("nvlink=8").ToString(), "h100");
  EXPECT_THAT(Topology::Create({Topology::Flat().level(0)}, {.group_setup_ns = 7})->ToString(),
              StartsWith(R"({"levels":[{"name":"flat",)"));
}

TEST(TopologyTest, Json) {
  const std::string json = R"({
  "levels": [
    {
      "name": "nvlink",
      "domain_size": 72,
      "bandwidth_bytes_per_us": 673000,
      "latency_ns": 1000,
      "in_switch_bandwidth_bytes_per_us": 460000,
      "in_switch_members": 4
    },
    {
      "name": "net",
      "domain_size": 0,
      "bandwidth_bytes_per_us": 48000,
      "latency_ns": 5000,
      "entry_ns": 15000,
      "direct_bandwidth_bytes_per_us": 23200,
      "domain_bandwidth_bytes_per_us": 384000
    }
  ],
  "constants": {
    "collective_latency_ns": 10000,
    "message_latency_ns": 100,
    "copy_latency_ns": 2000,
    "copy_bandwidth_bytes_per_us": 3600000,
    "group_setup_ns": 100000000
  },
  "protocols": [
    {
      "name": "LL",
      "start_ns": 0,
      "latency_percent": 100,
      "bandwidth_percent": 30,
      "domain_percent": 12
    },
    {
      "name": "LL128",
      "start_ns": 24000,
      "latency_percent": 200,
      "bandwidth_percent": 92,
      "domain_percent": 92
    },
    {
      "name": "Simple",
      "start_ns": 50000,
      "latency_percent": 500,
      "bandwidth_percent": 100,
      "domain_percent": 100
    }
  ]
})";
  EXPECT_EQ(Parsed("gb200").ToJson(), json);
  EXPECT_EQ(Parsed(json).ToString(), "gb200");
}

// A topology in the format from before protocols.
TEST(TopologyTest, JsonWithoutNewFields) {
  const Topology old = Parsed(
      R"({"levels":[{"name":"net","domain_size":0,"bandwidth_bytes_per_us":48000,"latency_ns":5}]})");
  EXPECT_EQ(old.level(0), (TopologyLevel{"net", 0, 48000, 5}));
  EXPECT_TRUE(old.protocols().empty());
}

TEST(TopologyTest, TextRefuses) {
  const auto refusal = [](const std::string& text) {
    const std::string message = Refusal(Topology::Parse(text));
    const std::string prefix = "topology '" + text + "': ";
    EXPECT_THAT(message, StartsWith(prefix));
    return message.substr(prefix.size());
  };
  const std::string unknown =
      " is neither name=size nor a preset (flat, a100-hdr, a100-ndr, a100-efa, a100-roce, "
      "h100-ndr, h100-efa, h100-roce, h200-ndr, h200-efa, h200-roce, b200-ndr, b200-efa, "
      "b200-roce, gb200-ndr, gb200-efa, gb200-roce, gb300-ndr, gb300-efa, gb300-roce; a GPU alone "
      "means its first preset)";
  EXPECT_EQ(refusal(""), "''" + unknown);
  EXPECT_EQ(refusal("b100"), "'b100'" + unknown);
  EXPECT_EQ(refusal("h100-eth"), "'h100-eth'" + unknown);
  EXPECT_EQ(refusal("h100 "), "'h100 '" + unknown);
  EXPECT_EQ(refusal("nvlink=8,"), "'' is not name=size");
  EXPECT_EQ(refusal("nvlink=8,h100"), "'h100' is not name=size");
  for (const char* change : {"", "nics", "nics=", "nics=4", "nics=4x", "nics=x100", "nics=0x100",
                             "nics=4x0", "nics=4x100x", "nics=4x100,nics=4x100", "nics=1000001x1",
                             "nics= 4x100", "nics=-4x100", "rail=8"}) {
    EXPECT_EQ(refusal("h100," + std::string(change)),
              "'" + std::string(change) +
                  "' is not nics=COUNTxGBPS, the NICs of a node, each of 1 to 1000000 Gb/s");
  }
  EXPECT_EQ(refusal("nvlink=8x"), "domain size '8x' of level 'nvlink' is not a 64-bit number");
  EXPECT_EQ(refusal("nvlink="), "domain size '' of level 'nvlink' is not a 64-bit number");
  EXPECT_EQ(refusal("nvlink=9223372036854775808"),
            "domain size '9223372036854775808' of level 'nvlink' is not a 64-bit number");
  EXPECT_EQ(refusal("nvlink=0"),
            "level 'nvlink' has domain size 0; it must be 1 or more below the last level");
  EXPECT_EQ(refusal("nvlink=-8"),
            "level 'nvlink' has domain size -8; it must be 1 or more below the last level");
  EXPECT_EQ(refusal("nvlink=8,rail=12"),
            "domain size 12 of level 'rail' is not a multiple (2 or more) of 8, that of 'nvlink'");
  EXPECT_EQ(refusal("nvlink=8,rail=8"),
            "domain size 8 of level 'rail' is not a multiple (2 or more) of 8, that of 'nvlink'");
  EXPECT_EQ(refusal("nvlink=8,nvlink=64"), "level 'nvlink' is named twice");
  EXPECT_EQ(refusal("nvlink=8,net=64"), "level 'net' is named twice");
  EXPECT_EQ(refusal("=8"), "level name '' is not of the form [A-Za-z_][A-Za-z0-9_]*");
}

TEST(TopologyTest, CreateRefuses) {
  const TopologyLevel net = {"net", 0, 48000, 5000};
  EXPECT_EQ(Refusal(Topology::Create({})), "a topology needs at least one level");
  EXPECT_EQ(Refusal(Topology::Create({{"net", 8, 1, 1}})),
            "the last level 'net' has domain size 8; it must be 0 (all ranks)");
  EXPECT_EQ(Refusal(Topology::Create({{"a", 0, 1, 1}, net})),
            "level 'a' has domain size 0; it must be 1 or more below the last level");
  EXPECT_EQ(Refusal(Topology::Create({{"a b", 0, 1, 1}})),
            "level name 'a b' is not of the form [A-Za-z_][A-Za-z0-9_]*");
  EXPECT_EQ(Refusal(Topology::Create({{"a", 0, 0, 1}})),
            "bandwidth_bytes_per_us of level 'a' is 0; it must be 1 or more");
  EXPECT_EQ(Refusal(Topology::Create({{"a", 0, 1, -1}})),
            "latency_ns of level 'a' is -1; it must be 0 or more");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.copy_bandwidth_bytes_per_us = 0})),
            "copy_bandwidth_bytes_per_us is 0; it must be 1 or more");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.collective_latency_ns = -1})),
            "collective_latency_ns is -1; it must be 0 or more");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.message_latency_ns = -1})),
            "message_latency_ns is -1; it must be 0 or more");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.copy_latency_ns = -1})),
            "copy_latency_ns is -1; it must be 0 or more");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.group_setup_ns = -1})),
            "group_setup_ns is -1; it must be 0 or more");
  for (const auto& [member, name] :
       {std::pair(&TopologyLevel::entry_ns, "entry_ns"),
        std::pair(&TopologyLevel::direct_bandwidth_bytes_per_us, "direct_bandwidth_bytes_per_us"),
        std::pair(&TopologyLevel::domain_bandwidth_bytes_per_us, "domain_bandwidth_bytes_per_us"),
        std::pair(&TopologyLevel::in_switch_bandwidth_bytes_per_us,
                  "in_switch_bandwidth_bytes_per_us"),
        std::pair(&TopologyLevel::in_switch_members, "in_switch_members")}) {
    TopologyLevel level = net;
    level.*member = -1;
    EXPECT_EQ(Refusal(Topology::Create({level})),
              std::string(name) + " of level 'net' is -1; it must be 0 or more");
  }
  for (const auto& [protocol, rule] : std::vector<std::pair<TopologyProtocol, std::string>>{
           {{.name = "a b"}, "protocol name 'a b' is not of the form [A-Za-z_][A-Za-z0-9_]*"},
           {{.name = "p", .start_ns = -1}, "start_ns of protocol 'p' is -1; it must be 0 or more"},
           {{.name = "p", .latency_percent = 10001},
            "latency_percent of protocol 'p' is 10001; it must be 10000 or less"},
           {{.name = "p", .bandwidth_percent = 0},
            "bandwidth_percent of protocol 'p' is 0; it must be 1 or more"},
           {{.name = "p", .domain_percent = 101},
            "domain_percent of protocol 'p' is 101; it must be 100 or less"}}) {
    EXPECT_EQ(Refusal(Topology::Create({net}, {}, {protocol})), rule);
  }
  EXPECT_EQ(Refusal(Topology::Create({net}, {}, {{.name = "p"}, {.name = "p"}})),
            "protocol 'p' is named twice");
  EXPECT_EQ(Refusal(Topology::Create({net}, {}, std::vector<TopologyProtocol>(17))),
            "there are 17 protocols; at most 16 may be given");
  // Sums that would overflow 64 bits.
  constexpr int64_t kMost = 1'000'000'000;
  EXPECT_TRUE(Topology::Create({{"a", 0, 1, kMost}}, {kMost, kMost, kMost, 1, 1000 * kMost}).ok());
  EXPECT_EQ(Refusal(Topology::Create({{"a", 0, 1, kMost + 1}})),
            "latency_ns of level 'a' is 1000000001; it must be 1000000000 or less");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.collective_latency_ns = INT64_MAX})),
            "collective_latency_ns is 9223372036854775807; it must be 1000000000 or less");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.message_latency_ns = kMost + 1})),
            "message_latency_ns is 1000000001; it must be 1000000000 or less");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.copy_latency_ns = kMost + 1})),
            "copy_latency_ns is 1000000001; it must be 1000000000 or less");
  EXPECT_EQ(Refusal(Topology::Create({net}, {.group_setup_ns = 1000 * kMost + 1})),
            "group_setup_ns is 1000000000001; it must be 1000000000000 or less");
}

// A node's GPUs are a domain, unless the preset's domains span nodes; they share its NICs.
TEST(TopologyTest, PresetsOnOtherNodes) {
  const Topology h100 = *PresetTopology("h100");
  EXPECT_EQ(*PresetTopology("h100", {.gpus = 8}), h100);
  EXPECT_EQ(*PresetTopology("h100", {.gpus = 8, .nics_gbps = 3200}), h100);
  EXPECT_EQ(*PresetTopology("h100", {.nics_gbps = 400}), *PresetTopology("h100,nics=4x100"));
  const Topology four = *PresetTopology("h100", {.gpus = 4});
  EXPECT_EQ(four.level(0).domain_size, 4);
  EXPECT_EQ(four.level(1), h100.level(1));
  EXPECT_EQ(PresetTopology("h100", {.gpus = 4, .nics_gbps = 1600})->level(1), h100.level(1));
  // The text overrides the node counts.
  EXPECT_EQ(*PresetTopology("h100,nics=8x400", {.nics_gbps = 1}), h100);
  EXPECT_EQ(PresetTopology("gb200", {.gpus = 4})->level(0).domain_size, 72);
  EXPECT_EQ(PresetTopology("gb200", {.gpus = 144})->level(0).domain_size, 144);
  EXPECT_EQ(Refusal(PresetTopology("h100", {.gpus = 0})),
            "a node has 0 GPUs; it must have 1 or more");
}

TEST(TopologyTest, JsonRefuses) {
  const auto level = [](const std::string& members) {
    return Refusal(Topology::FromJson(R"({"levels":[{)" + members + "}]}"));
  };
  const auto json = [](const std::string& text) { return Refusal(Topology::FromJson(text)); };
  EXPECT_EQ(json(""), "topology: the text is not one JSON value");
  EXPECT_EQ(json("{} x"), "topology: the text is not one JSON value");
  EXPECT_EQ(json("{\"\xff\": 1}"), "topology: the text is not one JSON value");
  EXPECT_EQ(Refusal(Topology::Parse("{")), "topology: the text is not one JSON value");
  EXPECT_EQ(json("{\"levels\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}"),
            "topology: JSON is nested deeper than 100");
  EXPECT_EQ(json(R"({"levels":[],"levels":[]})"),
            "topology: key 'levels' appears twice in one object");
  EXPECT_EQ(json("[1]"), "topology: the JSON value is [1]; it must be an object");
  EXPECT_EQ(json("{}"), "topology: the JSON value has no 'levels'");
  EXPECT_EQ(json(R"({"levels":8})"), "topology: 'levels' is 8; it must be an array");
  EXPECT_EQ(json(R"({"levels":[8]})"), "topology: level 0 is 8; it must be an object");
  EXPECT_EQ(json(R"({"levels":[]})"), "topology: a topology needs at least one level");
  EXPECT_EQ(json(R"({"levels":[],"level":[]})"),
            "topology: the JSON value has an unknown key 'level'");
  EXPECT_EQ(json(R"({"levels":[],"constants":[]})"),
            "topology: 'constants' is []; it must be an object");
  EXPECT_EQ(json(R"({"levels":[],"constants":{"x":1}})"),
            "topology: 'constants' has an unknown key 'x'");
  EXPECT_EQ(json(R"({"levels":[],"constants":{"copy_latency_ns":0.5}})"),
            "topology: 'copy_latency_ns' of 'constants' is 0.5; it must be a 64-bit integer");

  EXPECT_EQ(json(R"({"levels":[],"protocols":{}})"),
            "topology: 'protocols' is {}; it must be an array");
  EXPECT_EQ(json(R"({"levels":[],"protocols":[{"name":"p"}]})"),
            "topology: protocol 0 has no 'start_ns'");
  EXPECT_EQ(json(R"({"levels":[],"protocols":[{"name":"p","start_ns":1,"x":1}]})"),
            "topology: protocol 0 has an unknown key 'x'");

  EXPECT_EQ(level(""), "topology: level 0 has no 'name'");
  EXPECT_EQ(level(R"("name":8)"), "topology: 'name' of level 0 is 8; it must be a string");
  EXPECT_EQ(level(R"("name":"a","domain_size":0,"bandwidth_bytes_per_us":1)"),
            "topology: level 0 has no 'latency_ns'");
  EXPECT_EQ(level(R"("name":"a","domain_size":"8")"),
            "topology: 'domain_size' of level 0 is \"8\"; it must be a 64-bit integer");
  EXPECT_EQ(level(R"("name":"a","domain_size":18446744073709551615)"),
            "topology: 'domain_size' of level 0 is 18446744073709551615; "
            "it must be a 64-bit integer");
  EXPECT_EQ(level(R"("name":"a","domain_size":0,"bandwidth_bytes_per_us":0,"latency_ns":1)"),
            "topology: bandwidth_bytes_per_us of level 'a' is 0; it must be 1 or more");
  EXPECT_EQ(level(R"("name":"a","domain_size":0,"bandwidth_bytes_per_us":1,"latency_ns":1,"x":2)"),
            "topology: level 0 has an unknown key 'x'");
}

RC_GTEST_PROP(TopologyProperty, PrintsWhatParses, ()) {
  std::vector<TopologyLevel> levels;
  int64_t size = 1;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    size *= *rc::gen::inRange<int64_t>(2, 5);
    levels.push_back({std::string(1, static_cast<char>('a' + i)), size,
                      *rc::gen::element<int64_t>(360000, 48000, INT64_MAX),
                      *rc::gen::element<int64_t>(1000, 5000, 0)});
  }
  levels.push_back({"net", 0, 48000, 5000});
  levels.back().entry_ns = *rc::gen::element<int64_t>(0, 7);
  levels.back().direct_bandwidth_bytes_per_us = *rc::gen::element<int64_t>(0, 9);
  std::vector<TopologyProtocol> protocols;
  if (*rc::gen::arbitrary<bool>()) protocols = NcclProtocols();
  TopologyConstants constants;
  constants.group_setup_ns = *rc::gen::element<int64_t>(0, 1000000);
  const Topology topology = *Topology::Create(levels, constants, protocols);
  RC_ASSERT(Parsed(topology.ToString()) == topology);
  RC_ASSERT(*Topology::FromJson(topology.ToJson()) == topology);
}

}  // namespace
}  // namespace meshift

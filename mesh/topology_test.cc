#include "mesh/topology.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"

namespace meshift {
namespace {

using ::testing::StartsWith;

Topology Parsed(const std::string& text) {
  absl::StatusOr<Topology> topology = Topology::Parse(text);
  EXPECT_TRUE(topology.ok()) << topology.status();
  return *std::move(topology);
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
  EXPECT_EQ(topology.level(0), (TopologyLevel{"nvlink", 8, 360000, 1000}));
  EXPECT_EQ(topology.level(1), (TopologyLevel{"net", 0, 48000, 5000}));
  EXPECT_EQ(topology.DomainOf(0, 13), 1);
  EXPECT_EQ(topology.DomainOf(1, 13), 0);
  EXPECT_EQ(topology.LevelBetween(8, 15), 0);
  EXPECT_EQ(topology.LevelBetween(7, 8), 1);
  EXPECT_EQ(topology, Parsed("h100"));
}

TEST(TopologyTest, SeveralLevels) {
  const Topology topology = Parsed("nvlink=8,rail=64");
  ASSERT_EQ(topology.NumLevels(), 3);
  EXPECT_EQ(topology.level(1), (TopologyLevel{"rail", 64, 48000, 5000}));
  EXPECT_EQ(topology.LevelBetween(0, 7), 0);
  EXPECT_EQ(topology.LevelBetween(0, 63), 1);
  EXPECT_EQ(topology.LevelBetween(63, 64), 2);
}

TEST(TopologyTest, NamesAreFree) {
  const Topology topology = Parsed("board=2,rack=6");
  EXPECT_EQ(topology.level(0), (TopologyLevel{"board", 2, 360000, 1000}));
  EXPECT_EQ(topology.level(1), (TopologyLevel{"rack", 6, 48000, 5000}));
  EXPECT_EQ(Parsed("rail=4").level(0).bandwidth_bytes_per_us, 48000);
}

TEST(TopologyTest, Presets) {
  EXPECT_EQ(Parsed("a100").level(0), (TopologyLevel{"nvlink", 8, 240000, 1000}));
  EXPECT_EQ(Parsed("a100").level(1), (TopologyLevel{"net", 0, 24000, 5000}));
  EXPECT_EQ(Parsed("h200").level(0), Parsed("h100").level(0));
  EXPECT_EQ(Parsed("h200").constants().copy_bandwidth_bytes_per_us, 2150000);
  EXPECT_EQ(Parsed("gb200").level(0), (TopologyLevel{"nvlink", 72, 720000, 1000}));
}

TEST(TopologyTest, PrintsTheShortestText) {
  for (const std::string text :
       {"flat", "a100", "h100", "h200", "gb200", "nvlink=4", "nvlink=8,rail=64", "x=1",
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
      "bandwidth_bytes_per_us": 720000,
      "latency_ns": 1000
    },
    {
      "name": "net",
      "domain_size": 0,
      "bandwidth_bytes_per_us": 48000,
      "latency_ns": 5000
    }
  ],
  "constants": {
    "collective_latency_ns": 10000,
    "message_latency_ns": 500,
    "copy_latency_ns": 2000,
    "copy_bandwidth_bytes_per_us": 3600000,
    "group_setup_ns": 100000000
  }
})";
  EXPECT_EQ(Parsed("gb200").ToJson(), json);
  EXPECT_EQ(Parsed(json).ToString(), "gb200");
}

TEST(TopologyTest, TextRefuses) {
  const auto refusal = [](const std::string& text) {
    const std::string message = Refusal(Topology::Parse(text));
    const std::string prefix = "topology '" + text + "': ";
    EXPECT_THAT(message, StartsWith(prefix));
    return message.substr(prefix.size());
  };
  const std::string unknown = " is neither a preset (flat, a100, h100, h200, gb200) nor name=size";
  EXPECT_EQ(refusal(""), "''" + unknown);
  EXPECT_EQ(refusal("b200"), "'b200'" + unknown);
  EXPECT_EQ(refusal("nvlink=8,"), "''" + unknown);
  EXPECT_EQ(refusal("h100 "), "'h100 '" + unknown);
  EXPECT_EQ(refusal("nvlink=8x"), "domain size '8x' of level 'nvlink' is not a 64-bit number");
  EXPECT_EQ(refusal("nvlink="), "domain size '' of level 'nvlink' is not a 64-bit number");
  EXPECT_EQ(refusal("nvlink=9223372036854775808"),
            "domain size '9223372036854775808' of level 'nvlink' is not a 64-bit number");
  EXPECT_EQ(refusal("nvlink=0"),
            "level 'nvlink' has domain size 0; all but the last have 1 or more");
  EXPECT_EQ(refusal("nvlink=-8"),
            "level 'nvlink' has domain size -8; all but the last have 1 or more");
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
            "the last level 'net' has domain size 8; it holds all ranks, size 0");
  EXPECT_EQ(Refusal(Topology::Create({{"a", 0, 1, 1}, net})),
            "level 'a' has domain size 0; all but the last have 1 or more");
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
  // What would not add up in 64 bits.
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
            "topology: key 'levels' stands twice in one object");
  EXPECT_EQ(json("[1]"), "topology: the JSON value is [1]; it must be an object");
  EXPECT_EQ(json("{}"), "topology: the JSON value has no 'levels'");
  EXPECT_EQ(json(R"({"levels":8})"), "topology: 'levels' is 8; it must be an array");
  EXPECT_EQ(json(R"({"levels":[8]})"), "topology: level is 8; it must be an object");
  EXPECT_EQ(json(R"({"levels":[]})"), "topology: a topology needs at least one level");
  EXPECT_EQ(json(R"({"levels":[],"level":[]})"),
            "topology: the JSON value has an unknown key 'level'");
  EXPECT_EQ(json(R"({"levels":[],"constants":[]})"),
            "topology: 'constants' is []; it must be an object");
  EXPECT_EQ(json(R"({"levels":[],"constants":{"x":1}})"),
            "topology: 'constants' has an unknown key 'x'");
  EXPECT_EQ(json(R"({"levels":[],"constants":{"copy_latency_ns":0.5}})"),
            "topology: 'copy_latency_ns' of 'constants' is 0.5; it must be a 64-bit integer");

  EXPECT_EQ(level(""), "topology: level has no 'name'");
  EXPECT_EQ(level(R"("name":8)"), "topology: 'name' of level is 8; it must be a string");
  EXPECT_EQ(level(R"("name":"a","domain_size":0,"bandwidth_bytes_per_us":1)"),
            "topology: level has no 'latency_ns'");
  EXPECT_EQ(level(R"("name":"a","domain_size":"8")"),
            "topology: 'domain_size' of level is \"8\"; it must be a 64-bit integer");
  EXPECT_EQ(level(R"("name":"a","domain_size":18446744073709551615)"),
            "topology: 'domain_size' of level is 18446744073709551615; "
            "it must be a 64-bit integer");
  EXPECT_EQ(level(R"("name":"a","domain_size":0,"bandwidth_bytes_per_us":0,"latency_ns":1)"),
            "topology: bandwidth_bytes_per_us of level 'a' is 0; it must be 1 or more");
  EXPECT_EQ(level(R"("name":"a","domain_size":0,"bandwidth_bytes_per_us":1,"latency_ns":1,"x":2)"),
            "topology: level has an unknown key 'x'");
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
  TopologyConstants constants;
  constants.group_setup_ns = *rc::gen::element<int64_t>(0, 1000000);
  const Topology topology = *Topology::Create(levels, constants);
  RC_ASSERT(Parsed(topology.ToString()) == topology);
  RC_ASSERT(*Topology::FromJson(topology.ToJson()) == topology);
}

}  // namespace
}  // namespace meshift

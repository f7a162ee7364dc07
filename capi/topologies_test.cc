// The functions of meshift/c.h on topologies: results, and errors for bad arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "meshift/c.h"
#include "testing/internal/c_calls.h"

namespace meshift::capi_testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(C, DescribesTopologies) {
  Text text, json, again;
  EXPECT_FINE(meshift_topology_text("h100-ndr", text.out(), error));
  EXPECT_STREQ(text, "h100");
  EXPECT_FINE(meshift_topology_json("h100", json.out(), error));
  EXPECT_THAT(std::string(json), HasSubstr("\"nvlink\""));
  EXPECT_FINE(meshift_topology_text(json, again.out(), error));
  EXPECT_STREQ(again, "h100");
}

TEST(C, ListsPresets) {
  std::vector<std::string> names;
  for (size_t i = 0; i < meshift_topology_preset_count(); ++i) {
    Text name, text;
    EXPECT_FINE(meshift_topology_preset(i, name.out(), error));
    EXPECT_FINE(meshift_topology_text(name, text.out(), error));
    names.emplace_back(name);
  }
  EXPECT_THAT(names, Contains("h100-efa"));
}

TEST(C, RefusesBadTopologies) {
  Text text;
  Error error;
  EXPECT_EQ(meshift_topology_text("h90", text.out(), error), MESHIFT_INVALID_ARGUMENT);
  EXPECT_THAT(error.text(), HasSubstr("h90"));
  EXPECT_EQ(meshift_topology_json("{", text.out(), nullptr), MESHIFT_INVALID_ARGUMENT);
  EXPECT_EQ(static_cast<char*>(text), nullptr);
  EXPECT_INVALID(meshift_topology_text(nullptr, text.out(), error), "topology is NULL");
  EXPECT_INVALID(meshift_topology_text("h100", nullptr, error), "text is NULL");
  EXPECT_INVALID(meshift_topology_json(nullptr, text.out(), error), "topology is NULL");
  EXPECT_INVALID(meshift_topology_json("h100", nullptr, error), "json is NULL");
  EXPECT_INVALID(meshift_topology_preset(0, nullptr, error), "name is NULL");
  const size_t count = meshift_topology_preset_count();
  EXPECT_INVALID(meshift_topology_preset(count, text.out(), error),
                 "index is " + std::to_string(count) + "; it must be at least 0 and below " +
                     std::to_string(count));
}

}  // namespace
}  // namespace meshift::capi_testing

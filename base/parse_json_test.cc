#include "base/parse_json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace meshift {
namespace {

std::string ErrorOf(const std::string& text) { return Message(ParseJsonText(text).status()); }

TEST(ParseJsonText, GivesTheValue) {
  EXPECT_EQ((*ParseJsonText(R"({"a": [1, {"b": "x: {"}], "c": {"a": 2, "b": null}})")).dump(),
            R"({"a":[1,{"b":"x: {"}],"c":{"a":2,"b":null}})");
  EXPECT_EQ(ParseJsonText(R"("\":")")->dump(), R"("\":")");
}

TEST(ParseJsonText, WhatIsNotOneValueIsDiscarded) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{} {}"), std::string("\"\xff\""),
        std::string("{\"a\" 1}"), std::string("{}\0", 3), std::string("{}\0{", 4)}) {
    const auto json = ParseJsonText(text);
    ASSERT_TRUE(json.ok()) << json.status();
    EXPECT_TRUE(json->is_discarded()) << text;
  }
}

TEST(ParseJsonText, AKeyStandsOnce) {
  EXPECT_EQ(ErrorOf(R"({"a": 1, "b": {"a": 1}, "a": 2})"), "key 'a' appears twice in one object");
  EXPECT_EQ(ErrorOf(R"([{"x": [{"k": 1, "k": 1}]}])"), "key 'k' appears twice in one object");
  // However it is written.
  EXPECT_EQ(ErrorOf(R"({"from": 1, "fro\u006d": 2})"), "key 'from' appears twice in one object");
}

TEST(ParseJsonText, AnObjectHasSoManyMembers) {
  const auto object = [](int members) {
    std::string text = "{";
    for (int i = 0; i < members; ++i) {
      text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":[{\"a\":0}]";
    }
    return text + "}";
  };
  EXPECT_TRUE(ParseJsonText(object(10'000)).ok());
  EXPECT_EQ(ErrorOf(object(10'001)), "a JSON object has 10001 members; at most 10000 are read");
  EXPECT_EQ(ErrorOf("]]]" + object(10)), "");  // not JSON; the rest is not examined
}

TEST(ParseJsonText, DeepNestingIsRefused) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJsonText(nested(100)).ok());
  EXPECT_EQ(ErrorOf(nested(101)), "JSON is nested deeper than 100");
  EXPECT_EQ(ErrorOf(nested(2'000'000)), "JSON is nested deeper than 100");
  EXPECT_EQ(ErrorOf(std::string(2'000'000, '[')), "JSON is nested deeper than 100");
}

}  // namespace
}  // namespace meshift

#include "cli/rules.h"

#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace meshift::cli {
namespace {

std::string ErrorOf(const std::string& json) { return Message(ParseRules(json).status()); }

TEST(Rules, TheFirstMatchWins) {
  const auto rules = ParseRules(R"_({"comment": "c", "rules": [
      {"match": "*.experts.*", "from": "EP", "to": "EP"},
      {"match": "a.?", "from": "S(0)", "to": "TP", "comment": "one letter"},
      {"match": "a.*", "from": "R", "to": "R"}]})_");
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(*FindRule(*rules, "a.experts.w"), 0);
  EXPECT_EQ(*FindRule(*rules, "a.w"), 1);
  EXPECT_EQ(*FindRule(*rules, "a.ww"), 2);
  EXPECT_EQ((*rules)[1].to, "TP");
  EXPECT_EQ(Message(FindRule(*rules, "b.w").status()), "none of the 3 rules matches 'b.w'");
  // Patterns match whole names.
  EXPECT_FALSE(FindRule(*rules, "xa.w").ok());
}

TEST(Rules, ErrorsNameTheRuleAndTheKey) {
  EXPECT_EQ(ErrorOf("[]"), "rules are an object, not []");
  EXPECT_EQ(ErrorOf("{}"), "key 'rules' is missing");
  EXPECT_EQ(ErrorOf(R"({"rules": []})"), "rules is []; it must be a list of at least one rule");
  EXPECT_EQ(ErrorOf(R"({"rules": [7]})"), "rule 0: 7 is not an object");
  EXPECT_EQ(ErrorOf(R"({"rules": [{"match": "*", "from": "R"}]})"), "rule 0: key 'to' is missing");
  EXPECT_EQ(ErrorOf(R"({"rules": [{"match": "*", "from": "R", "to": 1}]})"),
            "rule 0: to is 1; it must be a string");
  EXPECT_EQ(ErrorOf(R"({"rules": [{"match": "*", "from": "R", "to": "R", "mesh": "a=2"}]})"),
            "rule 0: unknown key 'mesh'; expected match, from, to, from_owners, to_owners");
  EXPECT_EQ(ErrorOf(R"({"rule": []})"), "unknown key 'rule'; expected rules");
  const auto with_owners = [](const std::string& owners) {
    return R"({"rules": [{"match": "*", "from": "EP", "to": "R", "from_owners": )" + owners + "}]}";
  };
  EXPECT_EQ(ErrorOf(with_owners("[0]")),
            "rule 0: from_owners has 0; it must be a list of lists of coordinates, one per expert");
  EXPECT_EQ(
      ErrorOf(with_owners("[[0], []]")),
      "rule 0: from_owners has []; it must be a list of lists of coordinates, one per expert");
  EXPECT_EQ(ErrorOf(with_owners("[[0.5]]")),
            "rule 0: a coordinate in from_owners is 0.5; it must be an integer below 2^63");
  const auto rules = ParseRules(with_owners("[[0], [1, 3]]"));
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ((*rules)[0].from_owners, (ExpertOwners{{0}, {1, 3}}));
  EXPECT_TRUE((*rules)[0].to_owners.empty());
}

}  // namespace
}  // namespace meshift::cli

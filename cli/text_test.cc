#include "cli/text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace meshift::cli {
namespace {

TEST(Text, BytesAreExactOrHaveOneDecimal) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1 KiB");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(1048575), "1.0 MiB");
  EXPECT_EQ(BytesText(int64_t{4} << 20), "4 MiB");
  EXPECT_EQ(BytesText(8178893), "7.8 MiB");
  EXPECT_EQ(BytesText(INT64_MAX), "8.0 EiB");
}

TEST(Text, TimesChangeUnitAtAThousand) {
  EXPECT_EQ(TimeText(0), "0 ns");
  EXPECT_EQ(TimeText(999), "999 ns");
  EXPECT_EQ(TimeText(12345), "12.3 us");
  EXPECT_EQ(TimeText(999'949), "999.9 us");
  EXPECT_EQ(TimeText(999'950), "1.0 ms");
  EXPECT_EQ(TimeText(2'500'000'000), "2.5 s");
}

TEST(Text, CountsHaveAPlural) {
  EXPECT_EQ(CountText(0, "rank"), "0 ranks");
  EXPECT_EQ(CountText(1, "rank"), "1 rank");
}

TEST(Text, WhatIsShownIsOneLineOfUtf8) {
  EXPECT_EQ(Printable("plain, \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "plain, \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(Printable("a\nb\tc\x7f"), R"(a\nb\x09c\x7f)");
  EXPECT_EQ(Printable("\xff"), R"(\xff)");
  EXPECT_EQ(Printable("a\xc3"), R"(a\xc3)");          // cut short
  EXPECT_EQ(Printable("\xc3(\x80"), R"(\xc3(\x80)");  // not continued, not begun
  EXPECT_EQ(Printable("\xc0\x80"), R"(\xc0\x80)");    // too long for their value
  EXPECT_EQ(Printable("\xe0\x9f\xbf"), R"(\xe0\x9f\xbf)");
  EXPECT_EQ(Printable("\xed\xa0\x80"), R"(\xed\xa0\x80)");          // half of a pair
  EXPECT_EQ(Printable("\xf4\x80\x80\x80"), R"(\xf4\x80\x80\x80)");  // private use
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), R"(\xf4\x90\x80\x80)");  // beyond the last
}

TEST(Text, WhatIsNotSeenIsShownAsBytes) {
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "b"),
            R"(a\xc2\x9bb)");                                       // U+009B, a terminal's CSI
  EXPECT_EQ(Printable("\xe2\x80\xae"), R"(\xe2\x80\xae)");          // right to left
  EXPECT_EQ(Printable("\xd8\x9c"), R"(\xd8\x9c)");                  // an Arabic letter mark
  EXPECT_EQ(Printable("\xe2\x80\xa8"), R"(\xe2\x80\xa8)");          // a line's end
  EXPECT_EQ(Printable("\xef\xbb\xbf"), R"(\xef\xbb\xbf)");          // a byte order mark
  EXPECT_EQ(Printable("\xf3\xa0\x80\x81"), R"(\xf3\xa0\x80\x81)");  // a tag
}

TEST(Text, WhatIsShownHasABound) {
  const std::string fits(kMaxShown, 'a');
  EXPECT_EQ(Shown(fits), fits);
  const std::string longer = "begin" + std::string(1000, 'a') + "end";
  const std::string shown = Shown(longer);
  EXPECT_EQ(shown.size(), kMaxShown);
  EXPECT_EQ(shown.substr(0, 5), "begin");
  EXPECT_EQ(shown.substr(97, 6), "aaa...");
  EXPECT_EQ(shown.substr(shown.size() - 3), "end");
  EXPECT_EQ(ShownMessage(longer).size(), kMaxMessage);
  // Values in quotes are cut, the words around them are not.
  const std::string value(300, 'a');
  EXPECT_EQ(ShownMessage("NCCL's value '" + value + "' is none"),
            "NCCL's value '" + Shown(value) + "' is none");
  EXPECT_EQ(ShownMessage("NCCL's " + value + "'s"), "NCCL's " + value + "'s");
  // The limit is on the printable form: each of these bytes takes four.
  EXPECT_LE(Shown(std::string(60, '\x01')).size(), kMaxShown);
  EXPECT_EQ(Shown(std::string(50, '\x01')).size(), kMaxShown);
  // Cut between characters, at any offset.
  for (size_t before = 0; before < 4; ++before) {
    std::string text(before, 'a');
    for (int i = 0; i < 200; ++i) text += "\xe2\x82\xac";
    const std::string cut = Shown(text);
    EXPECT_LE(cut.size(), kMaxShown);
    EXPECT_EQ(cut, Printable(cut)) << before;
    EXPECT_EQ(cut.find("\\x"), std::string::npos) << cut;
  }
}

TEST(Text, AQuoteIsShort) {
  EXPECT_EQ(Quoted("a b"), "\"a b\"");
  EXPECT_EQ(Quoted("\x1b"), "\"\\x1b\"");
  EXPECT_EQ(Quoted(std::string(80, 'x')), '"' + std::string(80, 'x') + '"');
  EXPECT_EQ(Quoted(std::string(81, 'x')), '"' + std::string(77, 'x') + "...\"");
}

}  // namespace
}  // namespace meshift::cli

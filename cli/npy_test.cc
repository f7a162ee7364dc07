#include "cli/npy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift::cli {
namespace {

// A file of `version` with this dict, without padding and data.
std::string File(const std::string& dict, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    bytes += static_cast<char>(dict.size() >> 8 * i & 0xff);
  }
  return bytes + dict;
}

std::string Dict(const std::string& descr, const std::string& shape,
                 const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

// The header's text, or the error.
std::string Parsed(const std::string& bytes) {
  const absl::StatusOr<NpyHeader> header = ParseNpyHeader(bytes);
  return header.ok() ? header->ToString() : Message(header.status());
}

TEST(Npy, HeadersAreReadInAllVersions) {
  for (const char version : {1, 2, 3}) {
    const std::string bytes = File(Dict("<f4", "(3, 4)"), version);
    const absl::StatusOr<NpyHeader> header = ParseNpyHeader(bytes + "data");
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->ToString(), "<f4[3,4]");
    EXPECT_EQ(header->data_offset, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(header->data_bytes, 48);
    EXPECT_FALSE(header->fortran_order);
    EXPECT_FALSE(header->big_endian);
  }
}

TEST(Npy, HeadersMayBeWrittenAsPythonAllows) {
  EXPECT_EQ(Parsed(File("{\"shape\":(3,),\"fortran_order\":True,\"descr\":\">i8\"}")), ">i8[3]");
  EXPECT_EQ(Parsed(File("  { 'descr' : '|b1' , 'fortran_order' : False , 'shape' : ( ) }  \n \n")),
            "|b1[]");
  EXPECT_EQ(Parsed(File(Dict("<u2", "(1,0,2,)"))), "<u2[1,0,2]");
}

TEST(Npy, AnEmptyArrayHasNoData) {
  EXPECT_EQ(ParseNpyHeader(File(Dict("<f8", "(3, 0)")))->data_bytes, 0);
  EXPECT_EQ(ParseNpyHeader(File(Dict("<f8", "()")))->data_bytes, 8);
}

TEST(Npy, BadHeadersAreRefused) {
  const std::string known =
      "; expected one of |b1 |i1 <i2 <i4 <i8 |u1 <u2 <u4 <u8 |f1 <f2 <f4 <f8 <c8 <c16 |V1 |V2, "
      "also "
      "with > for <";
  const struct {
    std::string bytes;
    std::string message;
  } cases[] = {
      {"", "not a .npy file: it begins with \"\" instead of \\x93NUMPY"},
      {"PK\x03\x04 and more", "not a .npy file: it begins with \"PK?? a\" instead of \\x93NUMPY"},
      {"\x93NUMPY", "cut short: 6 bytes, no header"},
      {std::string("\x93NUMPY\x02\0\0\0\0", 11), "cut short: 11 bytes, no header"},
      {std::string("\x93NUMPY\x04\0\0\0", 10),
       "unknown .npy version 4.0; expected 1.0, 2.0 or 3.0"},
      {std::string("\x93NUMPY\x01\x01\0\0", 10),
       "unknown .npy version 1.1; expected 1.0, 2.0 or 3.0"},
      {std::string("\x93NUMPY\x01\0\x10\0{'", 12),
       "cut short: the header has 16 bytes, and the file only 2 of them"},
      {std::string("\x93NUMPY\x02\0\0\0\0\x80", 12),
       "the header has 2147483648 bytes; at most 65524 are read"},
      {File(""), "the header has \"\" where it should have a dict, which begins with '{'"},
      {File("[1, 2]"),
       "the header has \"[1, 2]\" where it should have a dict, which begins with '{'"},
      {File("{}"), "the header has no key \"descr\""},
      {File("{'descr': '<f4', 'shape': ()}"), "the header has no key \"fortran_order\""},
      {File("{'descr': '<f4', 'fortran_order': True}"), "the header has no key \"shape\""},
      {File("{'descr': '<f4', 'descr': '<f4'}"), "the header has the key \"descr\" twice"},
      {File("{'dtype': '<f4'}"),
       "the header has the unknown key \"dtype\"; expected only descr, fortran_order and shape"},
      {File("{'descr': '<f4'"), "the header has \"\" where it should have ',' or '}'"},
      {File("{'descr"),
       "the header has \"'descr\" where it should have a string with a closing quote"},
      {File("{'descr' '<f4'}"), "the header has \"'<f4'}\" where it should have ':'"},
      {File("{1: 2}"), "the header has \"1: 2}\" where it should have a string in quotes"},
      {File(Dict("<f4", "()") + "x"),
       "the header has \"x\" where it should have spaces up to the end of the header"},
      {File(Dict("<f4", "()", "Maybe")),
       "the header has \"Maybe, 'shape': (), }?\" where it should have True or False"},
      {File("{'descr': [('a', '<f4')]}"),
       "the items are structures, \"[('a', '<f4')]}\"; only plain numbers are read"},
      {File(Dict("|O8", "()")), "descr is \"|O8\"" + known},
      {File(Dict("<f3", "()")), "descr is \"<f3\"" + known},
      {File(Dict("<c4", "()")), "descr is \"<c4\"" + known},
      {File(Dict("|f4", "()")), "descr is \"|f4\"" + known},
      {File(Dict("=f4", "()")), "descr is \"=f4\"" + known},
      {File(Dict(">V2", "()")), "descr is \">V2\"" + known},
      {File(Dict("<f04", "()")), "descr is \"<f04\"" + known},
      {File(Dict("<f99999999999", "()")), "descr is \"<f99999999999\"" + known},
      {File(Dict("<f4", "[3]")),
       "the header has \"[3], }?\" where it should have a shape, which begins with '('"},
      {File(Dict("<f4", "(3)")), "the header has \"), }?\" where it should have ','"},
      {File(Dict("<f4", "(3 4)")), "the header has \"4), }?\" where it should have ','"},
      {File(Dict("<f4", "(-1,)")),
       "the header has \"-1,), }?\" where it should have a size, which is a number"},
      {File(Dict("<f4", "(03,)")),
       "the header has \"03,), }?\" where it should have a size without leading zeros"},
      {File(Dict("<f4", "(99999999999999999999,)")),
       "the header has the size \"99999999999999999999,), }?\", which does not fit 64 bits"},
      {File(Dict("<f4", "(4294967296, 4294967296)")),
       "<f4[4294967296,4294967296] has more than 2^63 - 1 bytes"},
      // A size of 0 does not hide an overflow.
      {File(Dict("<f4", "(4294967296, 4294967296, 0)")),
       "<f4[4294967296,4294967296,0] has more than 2^63 - 1 bytes"},
  };
  for (const auto& [bytes, message] : cases) EXPECT_EQ(Parsed(bytes), message);
  std::string dims = "(";
  for (int i = 0; i < 65; ++i) dims += "1,";
  EXPECT_EQ(Parsed(File(Dict("<f4", dims + ")"))), "the shape has more than 64 dims");
}

std::vector<DType> AllDTypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i < kNumDTypes; ++i) dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  for (const DType dtype : AllDTypes()) {
    for (const Shape& shape :
         {Shape{4}, Shape{0, 2}, Shape{3, 5, 2}, Shape{1 << 30, 2}, Shape(16, 2)}) {
      const std::string bytes = NpyHeaderBytes(dtype, shape);
      EXPECT_EQ(bytes.size() % 64, 0U);
      EXPECT_EQ(bytes.back(), '\n');
      const absl::StatusOr<NpyHeader> header = ParseNpyHeader(bytes);
      ASSERT_TRUE(header.ok()) << header.status();
      EXPECT_EQ(header->data_offset, static_cast<int64_t>(bytes.size()));
      EXPECT_EQ(header->data_bytes, Bytes(dtype, NumElements(shape)));
      EXPECT_FALSE(header->fortran_order);
      EXPECT_FALSE(header->big_endian);
      EXPECT_TRUE(CheckNpy(*header, dtype, shape).ok()) << header->ToString();
    }
  }
  EXPECT_EQ(NpyHeaderBytes(DType::kF32, {3, 4}),
            std::string("\x93NUMPY\x01\0v\0", 10) +
                "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }" +
                std::string(58, ' ') + "\n");
  EXPECT_NE(NpyHeaderBytes(DType::kC128, {7}).find("'<c16', 'fortran_order': False, 'shape': (7,)"),
            std::string::npos);
  EXPECT_NE(NpyHeaderBytes(DType::kBool, {}).find("'shape': (), }"), std::string::npos);
}

// Whether items of `descr` may be the dtype.
bool CanHold(const std::string& descr, DType dtype) {
  const NpyHeader header = ParseNpyHeader(File(Dict(descr, "(4,)"))).value();
  return CheckNpy(header, dtype, {BitWidth(dtype) == 4 ? 8 : 4}).ok();
}

TEST(Npy, RawItemsMayHaveSeveralNames) {
  for (const char* descr : {"|V2", "<V2", "<u2", ">u2"}) EXPECT_TRUE(CanHold(descr, DType::kBF16));
  for (const char* descr : {"<f2", "<i2", "|V1"}) EXPECT_FALSE(CanHold(descr, DType::kBF16));
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2, DType::kF4E2M1}) {
    for (const char* descr : {"|V1", "<V1", "|u1", "|f1"}) EXPECT_TRUE(CanHold(descr, dtype));
    for (const char* descr : {"|i1", "|b1", "|V2"}) EXPECT_FALSE(CanHold(descr, dtype));
  }
  // A dtype that NumPy has is not read from raw items.
  EXPECT_FALSE(CanHold("|V2", DType::kF16));
  EXPECT_FALSE(CanHold("|V1", DType::kU8));
  EXPECT_FALSE(CanHold("|u1", DType::kBool));
}

TEST(Npy, AnotherShapeOrDTypeIsNamed) {
  const NpyHeader header = ParseNpyHeader(File(Dict("<f4", "(4, 3)"))).value();
  EXPECT_EQ(Message(CheckNpy(header, DType::kF32, {4})),
            "holds <f4[4,3]; a tensor f32[4] needs <f4[4]");
  EXPECT_EQ(Message(CheckNpy(header, DType::kBF16, {4, 3})),
            "holds <f4[4,3]; a tensor bf16[4,3] needs |V2[4,3]");
  EXPECT_EQ(Message(CheckNpy(header, DType::kF4E2M1, {4, 6})),
            "holds <f4[4,3]; a tensor f4e2m1[4,6] needs |V1[4,3]");
}

template <typename T>
std::vector<T> Finished(const std::string& dict, DType dtype, std::vector<T> values) {
  const NpyHeader header = ParseNpyHeader(File(dict)).value();
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  const absl::Span<std::byte> data(bytes, values.size() * sizeof(T));
  EXPECT_EQ(header.data_bytes, static_cast<int64_t>(data.size()));
  const absl::Status status = FinishNpy(header, dtype, data);
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

TEST(Npy, FortranOrderIsReadRight) {
  EXPECT_EQ(Finished<uint16_t>(Dict("<u2", "(2, 3)", "True"), DType::kU16, {0, 3, 1, 4, 2, 5}),
            (std::vector<uint16_t>{0, 1, 2, 3, 4, 5}));
  // The element [i,j,k] is 100 i + 10 j + k.
  EXPECT_EQ(Finished<uint8_t>(Dict("|u1", "(2, 2, 2)", "True"), DType::kU8,
                              {0, 100, 10, 110, 1, 101, 11, 111}),
            (std::vector<uint8_t>{0, 1, 10, 11, 100, 101, 110, 111}));
  EXPECT_EQ(Finished<uint8_t>(Dict("|u1", "(3,)", "True"), DType::kU8, {1, 2, 3}),
            (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(Finished<uint8_t>(Dict("|u1", "(0, 4)", "True"), DType::kU8, {}),
            std::vector<uint8_t>());
}

TEST(Npy, BigEndianIsReadRight) {
  EXPECT_EQ(Finished<uint32_t>(Dict(">u4", "(2,)"), DType::kU32, {0x01020304, 0x05060708}),
            (std::vector<uint32_t>{0x04030201, 0x08070605}));
  // Both parts of a complex number are swapped separately.
  EXPECT_EQ(Finished<uint32_t>(Dict(">c8", "(1,)"), DType::kC64, {0x01020304, 0x05060708}),
            (std::vector<uint32_t>{0x04030201, 0x08070605}));
  EXPECT_EQ(Finished<uint16_t>(Dict(">u2", "(2, 2)", "True"), DType::kBF16,
                               {0x0001, 0x0002, 0x0003, 0x0004}),
            (std::vector<uint16_t>{0x0100, 0x0300, 0x0200, 0x0400}));
}

TEST(Npy, ABoolIsZeroOrOne) {
  const NpyHeader header = ParseNpyHeader(File(Dict("|b1", "(3,)"))).value();
  std::vector<std::byte> data = {std::byte{1}, std::byte{0}, std::byte{2}};
  EXPECT_EQ(Message(FinishNpy(header, DType::kBool, absl::MakeSpan(data))),
            "element 2 is 2; a bool is 0 or 1");
}

}  // namespace
}  // namespace meshift::cli

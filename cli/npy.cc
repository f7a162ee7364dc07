#include "cli/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

// Elements are copied without a change of byte order.
static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxDims = 64;     // NumPy's own limit, since its version 2
constexpr size_t kQuoteLimit = 40;  // characters of a file that a message shows

// `text` in quotes, cut short, with '?' for each byte that is not printable ASCII.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kQuoteLimit)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte > 0x7e ? '?' : c;
  }
  return out + (text.size() > kQuoteLimit ? "...\"" : "\"");
}

// Parses the dict literal of a header. NumPy writes one form; spaces, quotes and order may differ,
// as in Python.
class DictReader {
 public:
  explicit DictReader(std::string_view text) : rest_(text) {}

  absl::Status Read(NpyHeader* header) {
    if (!Take('{')) return Unexpected("a dict, which begins with '{'");
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    while (!Take('}')) {
      MESHIFT_ASSIGN_OR_RETURN(const std::string_view key, String());
      bool* const seen = key == "descr"           ? &has_descr
                         : key == "fortran_order" ? &has_order
                         : key == "shape"         ? &has_shape
                                                  : nullptr;
      if (seen == nullptr) {
        return InvalidArgument(
            "the header has the unknown key {}; expected only descr, fortran_order and shape",
            Quoted(key));
      }
      if (*seen) return InvalidArgument("the header has the key {} twice", Quoted(key));
      *seen = true;
      if (!Take(':')) return Unexpected("':'");
      MESHIFT_RETURN_IF_ERROR(seen == &has_descr   ? Descr(header)
                              : seen == &has_order ? Order(&header->fortran_order)
                                                   : ReadShape(&header->shape));
      if (!Take(',') && !Next('}')) return Unexpected("',' or '}'");
    }
    if (!has_descr) return InvalidArgument("the header has no key \"descr\"");
    if (!has_order) return InvalidArgument("the header has no key \"fortran_order\"");
    if (!has_shape) return InvalidArgument("the header has no key \"shape\"");
    SkipSpace();
    return rest_.empty() ? absl::OkStatus() : Unexpected("spaces up to the end of the header");
  }

 private:
  void SkipSpace() {
    const size_t space = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(space == std::string_view::npos ? rest_.size() : space);
  }
  bool Next(char c) {
    SkipSpace();
    return !rest_.empty() && rest_[0] == c;
  }
  bool Take(char c) {
    if (!Next(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  absl::Status Unexpected(const char* expected) const {
    return InvalidArgument("the header has {} where it should have {}", Quoted(rest_), expected);
  }

  absl::StatusOr<std::string_view> String() {
    SkipSpace();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    if (quote != '\'' && quote != '"') return Unexpected("a string in quotes");
    const size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) return Unexpected("a string with a closing quote");
    const std::string_view string = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return string;
  }

  absl::Status Descr(NpyHeader* header) {
    if (Next('[')) {
      return InvalidArgument("the items are structures, {}; only plain numbers are read",
                             Quoted(rest_));
    }
    MESHIFT_ASSIGN_OR_RETURN(const std::string_view descr, String());
    absl::Status unknown = InvalidArgument(
        "descr is {}; expected one of |b1 |i1 <i2 <i4 <i8 |u1 <u2 <u4 <u8 |f1 <f2 <f4 "
        "<f8 <c8 <c16 |V1 |V2, also with > for <",
        Quoted(descr));
    if (descr.size() < 3 || descr.size() > 4) return unknown;
    const char order = descr[0];
    header->kind = descr[1];
    header->item_bytes = 0;
    for (const char c : descr.substr(2)) {
      if (c < '0' || c > '9') return unknown;
      header->item_bytes = header->item_bytes * 10 + (c - '0');
    }
    if (descr[2] == '0') return unknown;
    const auto one_of = [&](std::initializer_list<int> sizes) {
      return std::find(sizes.begin(), sizes.end(), header->item_bytes) != sizes.end();
    };
    const bool known = header->kind == 'b'                          ? one_of({1})
                       : header->kind == 'i' || header->kind == 'u' ? one_of({1, 2, 4, 8})
                       : header->kind == 'f'                        ? one_of({1, 2, 4, 8})
                       : header->kind == 'c'                        ? one_of({8, 16})
                                             : header->kind == 'V' && one_of({1, 2});
    // A raw item has no byte order, so it cannot be big-endian.
    const bool ordered = header->item_bytes > 1 && header->kind != 'V';
    const bool fits =
        order == '<' || (order == '|' && !ordered) || (order == '>' && header->kind != 'V');
    if (!known || !fits) return unknown;
    header->big_endian = order == '>' && ordered;
    return absl::OkStatus();
  }

  absl::Status Order(bool* fortran) {
    *fortran = TakeWord("True");
    return *fortran || TakeWord("False") ? absl::OkStatus() : Unexpected("True or False");
  }

  absl::Status ReadShape(Shape* shape) {
    if (!Take('(')) return Unexpected("a shape, which begins with '('");
    while (!Take(')')) {
      SkipSpace();
      size_t digits = 0;
      int64_t size = 0;
      while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') {
        if (!CheckedMul(size, 10, &size) || !CheckedAdd(size, rest_[digits] - '0', &size)) {
          return InvalidArgument("the header has the size {}, which does not fit 64 bits",
                                 Quoted(rest_));
        }
        ++digits;
      }
      if (digits == 0) return Unexpected("a size, which is a number");
      // Python refuses leading zeros, too.
      if (digits > 1 && rest_[0] == '0') return Unexpected("a size without leading zeros");
      rest_.remove_prefix(digits);
      shape->push_back(size);
      if (shape->size() > kMaxDims) {
        return InvalidArgument("the shape has more than {} dims", kMaxDims);
      }
      const bool comma = Take(',');
      // In Python "(3)" is a number, and "(3,)" a shape.
      if (!comma && (shape->size() == 1 || !Next(')'))) return Unexpected("','");
    }
    return absl::OkStatus();
  }

  std::string_view rest_;
};

// The descr that is written for `dtype`.
std::string_view DescrOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "|b1";
    case DType::kI8:
      return "|i1";
    case DType::kI16:
      return "<i2";
    case DType::kI32:
      return "<i4";
    case DType::kI64:
      return "<i8";
    case DType::kU8:
      return "|u1";
    case DType::kU16:
      return "<u2";
    case DType::kU32:
      return "<u4";
    case DType::kU64:
      return "<u8";
    case DType::kF16:
      return "<f2";
    case DType::kF32:
      return "<f4";
    case DType::kF64:
      return "<f8";
    case DType::kC64:
      return "<c8";
    case DType::kC128:
      return "<c16";
    case DType::kBF16:
      return "|V2";
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF4E2M1:
      break;
  }
  return "|V1";
}

// The bytes of one item, which is two elements if the dtype has 4 bits.
int ItemBytes(DType dtype) { return std::max(1, BitWidth(dtype) / 8); }

// The shape of a local tensor, in items.
Shape ItemShape(DType dtype, absl::Span<const int64_t> shape) {
  Shape items(shape.begin(), shape.end());
  if (BitWidth(dtype) == 4 && !items.empty()) items.back() /= 2;
  return items;
}

// Whether the header's items can be elements of `dtype`.
bool CanHold(const NpyHeader& header, DType dtype) {
  if (header.item_bytes != ItemBytes(dtype)) return false;
  const std::string_view descr = DescrOf(dtype);
  if (header.kind == descr[1]) return true;
  if (descr[1] != 'V') return false;
  return header.kind == 'u' || (header.kind == 'f' && header.item_bytes == 1);
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Reverses the bytes of each number.
void SwapBytes(int number_bytes, absl::Span<std::byte> data) {
  for (size_t i = 0; i + number_bytes <= data.size(); i += number_bytes) {
    std::reverse(data.begin() + i, data.begin() + i + number_bytes);
  }
}

// Converts Fortran order (the first index varies fastest) to C order.
void Transpose(absl::Span<const int64_t> shape, int item_bytes, absl::Span<std::byte> data) {
  const std::vector<std::byte> columns(data.begin(), data.end());
  const size_t rank = shape.size();
  std::vector<int64_t> strides(rank, item_bytes);
  for (size_t d = 1; d < rank; ++d) strides[d] = strides[d - 1] * shape[d - 1];
  std::vector<int64_t> index(rank, 0);
  int64_t from = 0;
  for (size_t to = 0; to < data.size(); to += item_bytes) {
    std::memcpy(&data[to], &columns[from], item_bytes);
    for (size_t d = rank; d-- > 0;) {
      from += strides[d];
      if (++index[d] < shape[d]) break;
      from -= index[d] * strides[d];
      index[d] = 0;
    }
  }
}

}  // namespace

std::string NpyHeader::ToString() const {
  const bool unordered = item_bytes == 1 || kind == 'V';
  const char order = unordered ? '|' : big_endian ? '>' : '<';
  return fmt::format("{}{}{}{}", order, kind, item_bytes, ShapeText(shape));
}

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return InvalidArgument("not a .npy file: it begins with {} instead of \\x93NUMPY",
                           Quoted(bytes.substr(0, kMagic.size())));
  }
  if (bytes.size() < 10) return InvalidArgument("cut short: {} bytes, no header", bytes.size());
  const int major = byte(6);
  const int minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    return InvalidArgument("unknown .npy version {}.{}; expected 1.0, 2.0 or 3.0", major, minor);
  }
  const size_t begin = major == 1 ? 10 : 12;
  if (bytes.size() < begin) return InvalidArgument("cut short: {} bytes, no header", bytes.size());
  size_t length = 0;
  for (size_t i = begin; i-- > 8;) length = length << 8 | byte(i);
  if (begin + length > static_cast<size_t>(kMaxNpyHeaderBytes)) {
    return InvalidArgument("the header has {} bytes; at most {} are read", length,
                           kMaxNpyHeaderBytes - static_cast<int64_t>(begin));
  }
  if (bytes.size() - begin < length) {
    return InvalidArgument("cut short: the header has {} bytes, and the file only {} of them",
                           length, bytes.size() - begin);
  }
  NpyHeader header;
  MESHIFT_RETURN_IF_ERROR(DictReader(bytes.substr(begin, length)).Read(&header));
  header.data_offset = static_cast<int64_t>(begin + length);
  // Leave out sizes of 0: the product would be 0, and hide that the other sizes overflow.
  int64_t product = header.item_bytes;
  for (const int64_t size : header.shape) {
    if (size != 0 && !CheckedMul(product, size, &product)) {
      return InvalidArgument("{} has more than 2^63 - 1 bytes", header.ToString());
    }
  }
  header.data_bytes = NumElements(header.shape) == 0 ? 0 : product;
  return header;
}

absl::Status CheckNpy(const NpyHeader& header, DType dtype, absl::Span<const int64_t> shape) {
  const Shape items = ItemShape(dtype, shape);
  if (CanHold(header, dtype) && header.shape == items) return absl::OkStatus();
  return InvalidArgument("holds {}; a tensor {}{} needs {}{}", header.ToString(), Name(dtype),
                         ShapeText(shape), DescrOf(dtype), ShapeText(items));
}

absl::Status FinishNpy(const NpyHeader& header, DType dtype, absl::Span<std::byte> data) {
  if (header.big_endian) {
    SwapBytes(header.kind == 'c' ? header.item_bytes / 2 : header.item_bytes, data);
  }
  const bool has_order = header.shape.size() > 1;
  if (header.fortran_order && has_order) Transpose(header.shape, header.item_bytes, data);
  if (dtype != DType::kBool) return absl::OkStatus();
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i] > std::byte{1}) {
      return InvalidArgument("element {} is {}; a bool is 0 or 1", i,
                             std::to_integer<int>(data[i]));
    }
  }
  return absl::OkStatus();
}

std::string NpyHeaderBytes(DType dtype, absl::Span<const int64_t> shape) {
  const Shape items = ItemShape(dtype, shape);
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", DescrOf(dtype),
                  fmt::join(items, ", "), items.size() == 1 ? "," : "");
  constexpr size_t kBegin = 10;
  constexpr size_t kAlignment = 64;
  const size_t unpadded = kBegin + dict.size() + 1;
  dict.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string bytes(kMagic);
  bytes += '\x01';
  bytes += '\0';
  // Two bytes hold the length: 64 dims of 19 digits take about 1,400 characters.
  bytes += static_cast<char>(dict.size() & 0xff);
  bytes += static_cast<char>(dict.size() >> 8 & 0xff);
  return bytes + dict;
}

}  // namespace meshift::cli

// Reads and writes headers of NumPy's .npy format, and converts the elements of such files.
//
//   MESHIFT_ASSIGN_OR_RETURN(NpyHeader header, ParseNpyHeader(bytes));
//   header.data_offset;                             // where the elements begin
//   MESHIFT_RETURN_IF_ERROR(CheckNpy(header, DType::kF32, {3, 4}));
//   MESHIFT_RETURN_IF_ERROR(FinishNpy(header, DType::kF32, data));   // data: the elements, as read
//   file << NpyHeaderBytes(DType::kF32, {3, 4});    // then the elements
//
// Opens no files. Versions 1.0, 2.0 and 3.0 are read, 1.0 is written. Fortran order and big-endian
// files are supported. Structures, Python objects, text, dates and numbers of other sizes are
// refused. Dtypes that NumPy does not have are raw items:
//
//   bf16             "|V2"; also read: "<V2", "<u2" and ">u2"
//   f8e4m3, f8e5m2   "|V1"; also read: "<V1", "|u1" and "|f1"
//   f4e2m1           as f8; an item is a byte of two elements, so the last dim is half as long
//
// A '<' or '>' before a number of one byte reads as '|'.
//
// Errors are INVALID_ARGUMENT and name the value and the rule; the caller adds the file. The
// code compiles only for little-endian machines.
#ifndef MESHIFT_CLI_NPY_H_
#define MESHIFT_CLI_NPY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift::cli {

// The longest header that is read, magic string included; NumPy's own have about 128 bytes.
inline constexpr int64_t kMaxNpyHeaderBytes = int64_t{1} << 16;

struct NpyHeader {
  // NumPy's kind: b bool, i signed, u unsigned, f float, c complex, V raw.
  char kind = 'V';
  int item_bytes = 1;  // 1, 2, 4, 8 or 16
  bool big_endian = false;
  bool fortran_order = false;  // the first index varies fastest
  Shape shape;                 // of items
  int64_t data_offset = 0;     // bytes before the elements: the header's own length
  int64_t data_bytes = 0;      // bytes of all items; the caller compares the file's size with them

  // "<f4[3,4]", for messages.
  std::string ToString() const;
  friend bool operator==(const NpyHeader&, const NpyHeader&) = default;
};

// Parses the header at the start of `bytes`, which are a whole file or its first
// kMaxNpyHeaderBytes. INVALID_ARGUMENT for a header that is longer or cut short. O(header):
// allocates nothing of the sizes that the header names.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes);

// Checks that the items are `shape` elements of `dtype`.
absl::Status CheckNpy(const NpyHeader& header, DType dtype, absl::Span<const int64_t> shape);

// Converts the elements, as read from the file, to C order and this machine's byte order, in place
// (Fortran order takes a copy). INVALID_ARGUMENT if a bool is neither 0 nor 1.
// REQUIRES: CheckNpy, and `data` has header.data_bytes.
absl::Status FinishNpy(const NpyHeader& header, DType dtype, absl::Span<std::byte> data);

// The header of a file whose elements follow in C order, little endian. Its size is a multiple of
// 64. REQUIRES: for f4e2m1 the last dim is even; at most 64 dims.
std::string NpyHeaderBytes(DType dtype, absl::Span<const int64_t> shape);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_NPY_H_

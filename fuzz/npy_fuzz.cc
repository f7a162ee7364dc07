// .npy files: an accepted header gives the size of the data, in bounds; the header that the writer
// makes for it is read as the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "cli/npy.h"
#include "fuzz/fuzz.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using meshift::DType;
  namespace cli = meshift::cli;
  namespace fuzz = meshift::fuzz;
  const std::string_view bytes = fuzz::Text(data, size);
  const auto header = cli::ParseNpyHeader(bytes);
  if (!header.ok()) {
    fuzz::Require(!header.status().message().empty(), "an error has a message");
    return 0;
  }
  fuzz::Require(header->data_offset >= 0 && header->data_offset <= static_cast<int64_t>(size),
                "the header ends within the file");
  const std::string_view rest = bytes.substr(header->data_offset);
  for (int i = 0; i < meshift::kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    meshift::Shape shape = header->shape;
    if (meshift::BitWidth(dtype) == 4) {
      if (shape.empty() || shape.back() > INT64_MAX / 2) continue;
      shape.back() *= 2;
    }
    if (!CheckNpy(*header, dtype, shape).ok()) continue;
    const std::string written = cli::NpyHeaderBytes(dtype, shape);
    fuzz::Require(written.size() % 64 == 0, "a header is a multiple of 64 bytes");
    const auto again = cli::ParseNpyHeader(written);
    fuzz::Require(
        again.ok() && again->shape == header->shape && again->data_bytes == header->data_bytes &&
            again->item_bytes == header->item_bytes && CheckNpy(*again, dtype, shape).ok(),
        "a written header is read as the same");
    if (header->data_bytes > static_cast<int64_t>(rest.size())) continue;
    std::vector<std::byte> elements(header->data_bytes);
    std::transform(rest.begin(), rest.begin() + header->data_bytes, elements.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    std::vector<std::byte> finished = elements;
    const bool fine = FinishNpy(*header, dtype, absl::MakeSpan(finished)).ok();
    fuzz::Require(fine || dtype == DType::kBool, "only bools may have bad bits");
    // Elements are moved and their bytes reversed, but none is lost.
    std::sort(elements.begin(), elements.end());
    std::sort(finished.begin(), finished.end());
    fuzz::Require(elements == finished, "no byte is lost");
  }
  return 0;
}

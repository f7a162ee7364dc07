// What the fuzz targets share. A target is a file with one function, LLVMFuzzerTestOneInput, which
// feeds a parser and demands a law of what it accepts; see docs/fuzzing.md.
//
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
//     const auto mesh = DeviceMesh::Parse(fuzz::Text(data, size));
//     if (mesh.ok()) fuzz::Require(...);
//     return 0;
//   }
#ifndef MESHIFT_FUZZ_FUZZ_H_
#define MESHIFT_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

// The fuzzer and replay_main.cc call it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace meshift::fuzz {

inline std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process, which is a finding, where the law does not hold; `what` says which.
inline void Require(bool law, const char* what, const std::string& detail = "") {
  if (law) return;
  std::fprintf(stderr, "fuzz: the law does not hold: %s\n%s\n", what, detail.c_str());
  std::abort();
}

// What prints parses, to the same. T: what Parse gives.
template <typename T, typename Parse>
void RequireRoundTrip(const T& value, const std::string& text, Parse parse) {
  const auto again = parse(text);
  Require(again.ok(), "what prints parses", again.ok() ? "" : again.status().ToString());
  Require(*again == value, "what prints parses to the same", text);
}

}  // namespace meshift::fuzz

#endif  // MESHIFT_FUZZ_FUZZ_H_

// Shared by the fuzz targets. A target is a file with one function, LLVMFuzzerTestOneInput, which
// feeds a parser and requires a law of accepted input; see docs/fuzzing.md.
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

// Called by the fuzzer and by replay_main.cc.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace meshift::fuzz {

inline std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process, which is a finding, if the law does not hold; `what` names the law.
inline void Require(bool law, const char* what, const std::string& detail = "") {
  if (law) return;
  std::fprintf(stderr, "fuzz: the law does not hold: %s\n%s\n", what, detail.c_str());
  std::abort();
}

// Requires that a printed value parses to an equal one. T: the type that Parse returns.
template <typename T, typename Parse>
void RequireRoundTrip(const T& value, const std::string& text, Parse parse) {
  const auto again = parse(text);
  Require(again.ok(), "what prints parses", again.ok() ? "" : again.status().ToString());
  Require(*again == value, "what prints parses to the same", text);
}

}  // namespace meshift::fuzz

#endif  // MESHIFT_FUZZ_FUZZ_H_

// Defines fmt's functions for static binaries (--config=static), which cannot link the shared
// library. In header-only mode they are inline; taking their addresses makes this file define the
// symbols that other files need. The list is for fmt 9.1; the linker reports a missing function.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace {

using Print = void (*)(fmt::string_view, fmt::format_args);
using PrintTo = void (*)(std::FILE*, fmt::string_view, fmt::format_args);
using Format = std::string (*)(fmt::string_view, fmt::format_args);

[[gnu::used]] const Print kPrint = &fmt::vprint;
[[gnu::used]] const PrintTo kPrintTo = &fmt::vprint;
[[gnu::used]] const Format kFormat = &fmt::vformat;
[[gnu::used]] bool (*const kIsPrintable)(uint32_t) = &fmt::detail::is_printable;
[[gnu::used]] void (*const kThrow)(const char*) = &fmt::detail::throw_format_error;

// Makes the compiler emit the destructor and the vtable.
[[gnu::used]] void Throw() { throw fmt::format_error("never thrown"); }

}  // namespace

template auto fmt::detail::dragonbox::to_decimal<float>(float x)
    -> fmt::detail::dragonbox::decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal<double>(double x)
    -> fmt::detail::dragonbox::decimal_fp<double>;
template auto fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref) -> char;
template auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref)
    -> fmt::detail::thousands_sep_result<char>;

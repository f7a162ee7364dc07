// Debian's Abseil is not instrumented for ThreadSanitizer, which therefore does not see the atomic
// reference count of absl::Status and reports a race when the last copy of one dies on another
// thread. In other builds nobody calls this function.
extern "C" const char* __tsan_default_suppressions();  // NOLINT: the sanitizer's name

extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "race:absl::*::Status::Unref\n";
}

// Suppresses a false report: Debian's Abseil is not instrumented, so ThreadSanitizer does not see
// the atomic reference count of absl::Status and reports a race when its last copy is destroyed on
// another thread. A true race in that function is hidden, too. Only ThreadSanitizer calls this
// function; other builds ignore it.
extern "C" const char* __tsan_default_suppressions();  // NOLINT: the sanitizer's name

extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "race:absl::*::Status::Unref\n";
}

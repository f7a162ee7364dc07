// The version of Meshift. CHANGELOG.md says what a version may change.
//
//   #if MESHIFT_VERSION_NUMBER >= 200     // 0.2.0 or later
//
// Macros only: they give the version of the headers, not that of a library linked at run time.
#ifndef MESHIFT_VERSION_H_
#define MESHIFT_VERSION_H_

#define MESHIFT_VERSION "0.2.0"
#define MESHIFT_VERSION_NUMBER 200  // 10000 * major + 100 * minor + patch

// Attribute of the namespaces of public headers: a shared library exports their names.
#define MESHIFT_API [[gnu::visibility("default")]]

#endif  // MESHIFT_VERSION_H_

// A dynamic_cast to a final class, for hot paths: it compares two type_info objects instead of
// walking the class hierarchy.
//
//   auto* mpi = FinalCast<MpiStream>(&stream);    // null: it has another class
//
// Compiles only for a final class with a virtual function.
#ifndef MESHIFT_BASE_FINAL_CAST_H_
#define MESHIFT_BASE_FINAL_CAST_H_

#include <type_traits>
#include <typeinfo>

namespace meshift {

// Null if `from` is null or not a Final. `Final` may be const, and must be if From is.
template <typename Final, typename From>
Final* FinalCast(From* from) {
  static_assert(std::is_final_v<Final> && std::is_polymorphic_v<From>);
  if (from == nullptr) return nullptr;
  // Equal addresses decide at once. A class may have a type_info per shared library, so different
  // addresses need the slower comparison.
  const std::type_info& type = typeid(*from);
  if (&type != &typeid(Final) && type != typeid(Final)) return nullptr;
  return static_cast<Final*>(from);
}

}  // namespace meshift

#endif  // MESHIFT_BASE_FINAL_CAST_H_

// A dynamic_cast to a final class, for hot paths: it compares two pointers instead of walking the
// class hierarchy.
//
//   auto* mpi = FinalCast<MpiStream>(&stream);    // null: it has another class
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
  // Usually a class has one type_info, so comparing addresses suffices; otherwise names are
  // compared.
  const std::type_info& type = typeid(*from);
  if (&type != &typeid(Final) && type != typeid(Final)) return nullptr;
  return static_cast<Final*>(from);
}

}  // namespace meshift

#endif  // MESHIFT_BASE_FINAL_CAST_H_

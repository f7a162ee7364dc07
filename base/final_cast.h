// dynamic_cast to a final class, for hot paths: compares two pointers instead of walking the
// classes' descriptions.
//
//   auto* mpi = FinalCast<MpiStream>(&stream);    // null: it is another class's
#ifndef MESHIFT_BASE_FINAL_CAST_H_
#define MESHIFT_BASE_FINAL_CAST_H_

#include <type_traits>
#include <typeinfo>

namespace meshift {

// Null where `from` is null or no Final. `Final` may be const, and must be where From is.
template <typename Final, typename From>
Final* FinalCast(From* from) {
  static_assert(std::is_final_v<Final> && std::is_polymorphic_v<From>);
  if (from == nullptr) return nullptr;
  // One description is nearly always all there is; what it says need not be read then.
  const std::type_info& type = typeid(*from);
  if (&type != &typeid(Final) && type != typeid(Final)) return nullptr;
  return static_cast<Final*>(from);
}

}  // namespace meshift

#endif  // MESHIFT_BASE_FINAL_CAST_H_

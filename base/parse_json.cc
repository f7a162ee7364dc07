#include "base/parse_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 100;
constexpr int64_t kMaxMembers = 10'000;  // a lookup in ordered_json is linear
constexpr size_t kShownKey = 100;        // bytes of a key in a message

// The nesting depth of the brackets. Computed before parsing, since to free a deeper value could
// overflow the stack.
int DepthOf(std::string_view text) {
  int deepest = 0;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// Builds the value in linear time and memory. (The library's own builder searches an object for
// each key that it adds.)
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(Json* root) : root_(root) {}

  // The reason why an object is refused; OK if none is.
  const absl::Status& refusal() const { return refusal_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*size*/) override { return Open(Json::object()); }
  bool start_array(size_t /*size*/) override { return Open(Json::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override;
  bool parse_error(size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  // Stores the value, and returns its address.
  Json* Place(Json value) {
    if (open_.empty()) {
      *root_ = std::move(value);
      return root_;
    }
    if (open_.back()->is_array()) {
      auto& items = open_.back()->get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    auto& members = MembersOf(*open_.back());
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }
  template <typename Value>
  bool Add(Value&& value) {
    Place(Json(std::forward<Value>(value)));
    return true;
  }
  // Keeps the address of an open value. It stays valid: nothing is added next to an open value
  // before it is closed.
  bool Open(Json value) {
    open_.push_back(Place(std::move(value)));
    return true;
  }
  // The members of an object, as a list.
  static Json::object_t::Container& MembersOf(Json& object) {
    return object.get_ref<Json::object_t&>();
  }

  Json* const root_;
  std::vector<Json*> open_;  // the arrays and objects not yet closed, outermost first
  std::string key_;
  absl::Status refusal_;
};

bool Builder::end_object() {
  const auto& members = MembersOf(*open_.back());
  open_.pop_back();
  const auto size = static_cast<int64_t>(members.size());
  if (size > kMaxMembers) {
    refusal_ =
        InvalidArgument("a JSON object has {} members; at most {} are read", size, kMaxMembers);
    return false;
  }
  if (size < 2) return true;
  absl::flat_hash_set<std::string_view> keys;
  keys.reserve(members.size());
  for (const auto& [key, value] : members) {
    if (keys.insert(key).second) continue;
    refusal_ = InvalidArgument("key '{}{}' appears twice in one object", key.substr(0, kShownKey),
                               key.size() > kShownKey ? "..." : "");
    return false;
  }
  return true;
}

void Empty(Json& json) {
  if (json.is_array()) {
    auto& items = json.get_ref<Json::array_t&>();
    for (; !items.empty(); items.pop_back()) Empty(items.back());
  } else if (json.is_object()) {
    Json::object_t::Container& members = json.get_ref<Json::object_t&>();
    for (; !members.empty(); members.pop_back()) Empty(members.back().second);
  }
}

}  // namespace

JsonEmptier::~JsonEmptier() {
  if (json_ != nullptr) Empty(*json_);
}

absl::StatusOr<nlohmann::ordered_json> ParseJsonText(std::string_view text) {
  if (DepthOf(text) > kMaxDepth) return InvalidArgument("JSON is nested deeper than {}", kMaxDepth);
  // The parser would stop at a NUL byte.
  if (text.find('\0') != std::string_view::npos) return Json(Json::value_t::discarded);
  Json json;
  JsonEmptier emptier(json);
  Builder builder(&json);
  const bool read = Json::sax_parse(text, &builder);
  if (!builder.refusal().ok()) return builder.refusal();
  if (!read) return Json(Json::value_t::discarded);
  emptier.Release();
  return json;
}

}  // namespace meshift

// Environment variables and libraries for tests, instead of the process's own.
//
//   FakeEnvironment environment(FakeEnvironment::Variables{{"NCCL_ALGO", "Ring"}});
//   environment.libraries["libnccl-tuner.so"] = {"ncclTunerPlugin_v5"};   // its symbols
//   options.environment = &environment;
#ifndef MESHIFT_TESTING_INTERNAL_NCCL_FAKE_ENVIRONMENT_H_
#define MESHIFT_TESTING_INTERNAL_NCCL_FAKE_ENVIRONMENT_H_

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "comm/nccl/environment.h"

namespace meshift {

class FakeEnvironment final : public Environment {
 public:
  using Variables = std::map<std::string, std::string>;

  explicit FakeEnvironment(Variables variables) : variables(std::move(variables)) {}
  std::optional<std::string> Get(const std::string& name) const override {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  }
  void Set(const std::string& name, const std::optional<std::string>& value) override {
    variables.erase(name);
    if (value) variables[name] = *value;
  }
  std::optional<std::string> FindLibrary(const std::string& name,
                                         absl::Span<const std::string> one_of) const override {
    const auto it = libraries.find(name);
    if (it == libraries.end()) return std::nullopt;
    const bool has =
        one_of.empty() || std::any_of(one_of.begin(), one_of.end(), [&](const std::string& symbol) {
          return it->second.count(symbol) > 0;
        });
    return has ? std::optional<std::string>("/fake/" + name) : std::nullopt;
  }

  Variables variables;
  std::map<std::string, std::set<std::string>> libraries;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_NCCL_FAKE_ENVIRONMENT_H_

// Variables of no process, for tests.
//
//   FakeEnvironment environment(FakeEnvironment::Variables{{"NCCL_ALGO", "Ring"}});
//   options.environment = &environment;
#ifndef MESHIFT_COMM_NCCL_FAKE_ENVIRONMENT_H_
#define MESHIFT_COMM_NCCL_FAKE_ENVIRONMENT_H_

#include <map>
#include <optional>
#include <string>
#include <utility>

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

  Variables variables;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_FAKE_ENVIRONMENT_H_

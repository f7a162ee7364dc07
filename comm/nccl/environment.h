// Sets the variables that NCCL reads from the process's environment to a named profile, restores
// them, and checks whether the environment gives what the profile promises.
//
//   auto applied =
//       ApplyNcclProfile(NcclProfile::kBatchInvariant, version, {}, environment).value();
//   if (!applied.complete()) ...          // conflicts: applied.changes() names them
//   applied.Undo();
//
// NCCL reads some variables when it makes a communicator, others once per process, so apply a
// profile before the first communicator. Only FindLoadedNccl() needs NCCL to be installed. Not
// thread-safe, since variables belong to the whole process. The parsers return INVALID_ARGUMENT.
//
// The effects of the variables are from the source of NCCL 2.28.9, and from the change of NCCL_ALGO
// in 2.31 (vllm-project/vllm #58179). Other versions are assumed to behave the same, except that
// from 2.31 on no reduction by NCCL is assumed to be batch-invariant.
#ifndef MESHIFT_COMM_NCCL_ENVIRONMENT_H_
#define MESHIFT_COMM_NCCL_ENVIRONMENT_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace meshift {

enum class NcclProfile : uint8_t {
  // The variables that NCCL's all-reduce needs to be batch-invariant (docs/reproducibility.md), and
  // no others. Promises batch invariance. It does not set the number of channels: each communicator
  // gets that from its own configuration.
  kBatchInvariant,
  // The variables that torchtitan sets (pull request 2994, after vLLM). Promises results with the
  // bits of a trainer or generator that sets them too.
  kTorchtitanVllm,
};
// "batch-invariant", "torchtitan-vllm"
std::string_view Name(NcclProfile profile);
absl::StatusOr<NcclProfile> ParseNcclProfile(std::string_view name);

struct NcclVersion {
  int major = 2;
  int minor = 28;
  int patch = 9;

  static NcclVersion FromCode(int code);  // ncclGetVersion's: 22809 is 2.28.9
  static absl::StatusOr<NcclVersion> Parse(std::string_view text);  // "2.31", "2.28.9"
  std::string ToString() const;                                     // "2.28.9"
  // clang-tidy takes the comparison with 0 for one with a pointer.
  friend auto operator<=>(const NcclVersion&,
                          const NcclVersion&) = default;  // NOLINT(modernize-use-nullptr)
};

struct LoadedNccl {
  NcclVersion version;
  std::string path;  // of its file, as the dynamic linker found it
};
// Loads the library that MESHIFT_NCCL_LIBRARY names, else libnccl.so.2; it stays loaded. Does not
// load the CUDA driver. UNAVAILABLE if the library is not found or does not give its version,
// FAILED_PRECONDITION if it is not NCCL. Does not refuse old versions.
absl::StatusOr<LoadedNccl> FindLoadedNccl();

struct NcclSetting {
  std::string name;
  std::string value;
  bool effective = false;  // it has an effect in this version of NCCL
  bool bits = false;       // the bits of results depend on it
  std::string effect;      // what it does, or why it has no effect
};
std::vector<NcclSetting> NcclProfileSettings(NcclProfile profile, const NcclVersion& version);

// A process as NCCL sees it: its variables, and the libraries that dlopen finds.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual std::optional<std::string> Get(const std::string& name) const = 0;
  virtual void Set(const std::string& name, const std::optional<std::string>& value) = 0;
  // The file of the library that dlopen loads by this name, if it has one of the symbols `one_of`
  // (empty: any library). Process() loads the library and closes it again.
  virtual std::optional<std::string> FindLibrary(const std::string& name,
                                                 absl::Span<const std::string> one_of) const = 0;
  // This process's own environment. Do not use it while other threads read or write variables.
  static Environment& Process();
};

// The settings that NCCL finds. A variable of the process has precedence. Otherwise the lines
// NAME=value of NCCL's configuration files count, in this order: the file that NCCL_CONF_FILE
// names, or else .nccl.conf in the user's home (of the user database, not $HOME); then
// /etc/nccl.conf. The constructor reads the files once. It does not read a FIFO, a device (except
// /dev/null, which is empty) or a file larger than a MiB: variables that are not set then read
// "unknown: FILE is ...", which breaks each promise that depends on one of them. `process` must
// outlive this.
class NcclEnvironment final : public Environment {
 public:
  explicit NcclEnvironment(Environment& process);
  NcclEnvironment(Environment& process, const std::string& home, const std::string& system_file);
  std::optional<std::string> Get(const std::string& name) const override;
  void Set(const std::string& name, const std::optional<std::string>& value) override {
    process_.Set(name, value);
  }
  std::optional<std::string> FindLibrary(const std::string& name,
                                         absl::Span<const std::string> one_of) const override {
    return process_.FindLibrary(name, one_of);
  }

 private:
  void Read(const std::string& path);

  Environment& process_;
  std::map<std::string, std::string> lines_;  // by name
  std::optional<std::string> unread_;         // the value of unset variables if a file is not read
};

// The result for one variable. kConflict: it has another value, and keeps it.
struct NcclChange {
  enum class Outcome : uint8_t { kSet, kEqual, kConflict, kOverwritten };
  std::string name;
  std::string value;                    // the profile's
  std::optional<std::string> previous;  // nullopt: it was not set
  Outcome outcome = Outcome::kSet;
  std::string ToString() const;  // "NCCL_ALGO is 'ring', not 'allreduce:tree'"
};

class AppliedProfile {
 public:
  absl::Span<const NcclChange> changes() const { return changes_; }  // one per setting
  // Whether all variables had, or were given, the profile's values. It does not show whether the
  // profile's promise holds: see WhyUnfit() and CheckNcclEnvironment().
  bool complete() const;
  // Restores the previous value of each variable that the profile changed, unless it no longer has
  // the profile's value. The destructor does not. May be called twice.
  void Undo();

 private:
  friend struct ProfileApplier;
  explicit AppliedProfile(Environment* environment) : environment_(environment) {}
  Environment* environment_;
  std::vector<NcclChange> changes_;
};

struct ApplyProfileOptions {
  bool overwrite = false;     // also set variables that have another value
  int64_t communicators = 0;  // that this process has made; must be 0
};

// Sets the profile's variables that are not set. A conflict is not an error: see complete().
// FAILED_PRECONDITION if options.communicators is above 0; then nothing is changed. It cannot
// detect communicators itself. `environment` must outlive the result.
absl::StatusOr<AppliedProfile> ApplyNcclProfile(NcclProfile profile, const NcclVersion& version,
                                                const ApplyProfileOptions& options,
                                                Environment& environment);

struct NcclFinding {
  std::string name;
  std::optional<std::string> value;  // nullopt: it is not set
  bool breaks = false;               // whether it breaks the profile's promise
  std::string why;                   // also if it does not
};
// Checks the variables that are known to affect the profile's promise. Loads the plugins that NCCL
// would load (Environment::FindLibrary). kBatchInvariant judges the effects of values, and also
// these plugins, and versions whose bits have not been measured. kTorchtitanVllm compares values,
// since a peer must have the same, and also checks kernels and plugins that would override them.
std::vector<NcclFinding> CheckNcclEnvironment(NcclProfile profile, const NcclVersion& version,
                                              const Environment& environment);

// Why this version cannot keep the profile's promise with any variables; empty if it can.
std::string WhyUnfit(NcclProfile profile, const NcclVersion& version);

// The first finding that breaks the promise: "NCCL_ALGO is 'ring': all-reduce may take ..."; empty
// if there is none.
std::string WhatBreaks(const std::vector<NcclFinding>& findings);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_ENVIRONMENT_H_

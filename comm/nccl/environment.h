// Settings that NCCL reads from the process's environment, as named profiles.
//
//   auto applied =
//       ApplyNcclProfile(NcclProfile::kBatchInvariant, version, {}, environment).value();
//   if (!applied.complete()) ...          // conflicts: applied.changes() names them
//   applied.Undo();
//
// NCCL reads some variables when it makes a communicator, others once per process: a profile comes
// before the first communicator. Nothing here needs NCCL to be there.
//
// What a variable does in a version is known for 2.28.9, whose source was read, and for the change
// of NCCL_ALGO in 2.31 (vllm-project/vllm #58179); other versions are taken to be like these, and
// from 2.31 on no sum of NCCL's own is taken to be batch-invariant.
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
  // What makes NCCL's all-reduce batch-invariant (docs/reproducibility.md), and no more. Channels
  // are a matter of each communicator.
  kBatchInvariant,
  // What torchtitan (pull request 2994, after vLLM) sets, for bits that equal those of a trainer or
  // generator that uses it.
  kTorchtitanVllm,
};
// "batch-invariant", "torchtitan-vllm"
std::string_view Name(NcclProfile profile);
absl::StatusOr<NcclProfile> ParseNcclProfile(std::string_view name);

struct NcclVersion {
  int major = 2;
  int minor = 28;
  int patch = 9;

  // As ncclGetVersion gives it: 22809 is 2.28.9.
  static NcclVersion FromCode(int code);
  static absl::StatusOr<NcclVersion> Parse(std::string_view text);  // "2.31", "2.28.9"
  std::string ToString() const;                                     // "2.28.9"
  // The check takes the comparison with 0 for one with a pointer.
  friend auto operator<=>(const NcclVersion&,
                          const NcclVersion&) = default;  // NOLINT(modernize-use-nullptr)
};

struct LoadedNccl {
  NcclVersion version;
  std::string path;  // of its file, as the linker found it
};
// The library that MESHIFT_NCCL_LIBRARY names, else libnccl.so.2; UNAVAILABLE where there is none,
// FAILED_PRECONDITION where that is no NCCL. Loads it, and no driver; it stays loaded.
absl::StatusOr<LoadedNccl> FindLoadedNccl();

struct NcclSetting {
  std::string name;
  std::string value;
  bool effective = false;  // in this version
  bool bits = false;       // results depend on it
  std::string effect;      // what it does, or why nothing
};
std::vector<NcclSetting> NcclProfileSettings(NcclProfile profile, const NcclVersion& version);

// What a library finds in a process: variables, and the libraries that it may load.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual std::optional<std::string> Get(const std::string& name) const = 0;
  virtual void Set(const std::string& name, const std::optional<std::string>& value) = 0;
  // The file of the library that dlopen loads by this name, if that has one of the symbols
  // (`one_of` empty: whatever it has). The process's own environment loads it and lets go of it.
  virtual std::optional<std::string> FindLibrary(const std::string& name,
                                                 absl::Span<const std::string> one_of) const = 0;
  // This process's own; not to be used while other threads read or write variables.
  static Environment& Process();
};

// What NCCL finds: a process's variables and, where these say nothing, the lines NAME=value of the
// files that it reads before its first communicator: the one that NCCL_CONF_FILE names, else
// .nccl.conf in the user's home; then, in any case, /etc/nccl.conf. Files are read once, here. One
// that is a FIFO or a device, or larger than a MiB, is not read: what variables do not say is then
// "unknown: FILE is ...", which no profile takes.
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
  std::optional<std::string> unread_;         // what a file that is not read would say
};

struct NcclChange {
  enum class Outcome : uint8_t { kSet, kEqual, kConflict, kOverwritten };
  std::string name;
  std::string value;                    // the profile's
  std::optional<std::string> previous;  // nothing: it was not set
  Outcome outcome = Outcome::kSet;
  std::string ToString() const;  // "NCCL_ALGO is 'ring', not 'allreduce:tree'"
};

class AppliedProfile {
 public:
  absl::Span<const NcclChange> changes() const { return changes_; }  // one per setting
  // Whether all variables are now as the profile says.
  bool complete() const;
  // Gives back what was there before, where it was changed and nobody has changed it since. May be
  // called twice.
  void Undo();

 private:
  friend struct ProfileApplier;
  explicit AppliedProfile(Environment* environment) : environment_(environment) {}
  Environment* environment_;
  std::vector<NcclChange> changes_;
};

struct ApplyProfileOptions {
  bool overwrite = false;     // settings that are other than the profile's; else left alone
  int64_t communicators = 0;  // that this process has made; with any, it is too late
};

// Sets what is not set. FAILED_PRECONDITION, and nothing is changed, where communicators exist.
// `environment` must outlive the result.
absl::StatusOr<AppliedProfile> ApplyNcclProfile(NcclProfile profile, const NcclVersion& version,
                                                const ApplyProfileOptions& options,
                                                Environment& environment);

struct NcclFinding {
  std::string name;
  std::optional<std::string> value;  // nothing: it is not set
  bool breaks = false;               // the promise of the profile
  std::string why;                   // also where it does not
};
// Judges each variable that the profile's promise depends on, by its meaning where that is what
// counts (batch-invariant; also plugins that NCCL would load, and a version whose bits nobody has
// measured), by its value where a peer must have the same (torchtitan-vllm;
// also kernels and plugins that would go before it).
std::vector<NcclFinding> CheckNcclEnvironment(NcclProfile profile, const NcclVersion& version,
                                              const Environment& environment);

// Why no variables make this version keep the profile's promise; empty where some do.
std::string WhyUnfit(NcclProfile profile, const NcclVersion& version);

// The first finding that breaks the promise: "NCCL_ALGO is 'ring': all-reduce may take ..."; empty
// where there is none.
std::string WhatBreaks(const std::vector<NcclFinding>& findings);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_ENVIRONMENT_H_

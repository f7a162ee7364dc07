#include "comm/nccl/environment.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/engine/shared_library.h"
#include "comm/nccl/library_source.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// From this version on, if the list names only all-reduce, the other collectives have no algorithm.
constexpr NcclVersion kNamedCollectivesOnly{2, 31, 0};

std::string TreeForAllReduce(const NcclVersion& version) {
  return version < kNamedCollectivesOnly ? "allreduce:tree" : "ring,tree;allreduce:tree";
}

// Whether it is /dev/null, which users name to have no file.
bool IsNull(const struct stat& info) {
  return S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
}

NcclSetting Effective(std::string name, std::string value, std::string effect) {
  return {std::move(name), std::move(value), true, true, std::move(effect)};
}

NcclSetting WithoutEffect(std::string name, std::string value, const std::string& why) {
  return {std::move(name), std::move(value), false, false, "no effect in this version: " + why};
}

std::vector<std::string_view> Split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(by);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int> ParseInt(std::string_view text) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// The home in the system's user database, not $HOME; empty if unknown.
std::string HomeOfUser() {
  passwd entry = {};
  passwd* found = nullptr;
  std::vector<char> text(16 << 10);
  if (getpwuid_r(getuid(), &entry, text.data(), text.size(), &found) != 0 || found == nullptr) {
    return "";
  }
  return found->pw_dir;
}

// The file of a loaded library; `name` if the dynamic linker does not know it.
std::string PathOf(void* handle, const std::string& name) {
  link_map* map = nullptr;
  const bool found = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
  return found ? map->l_name : name;
}

class ProcessEnvironment final : public Environment {
 public:
  std::optional<std::string> Get(const std::string& name) const override {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  void Set(const std::string& name, const std::optional<std::string>& value) override {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }
  std::optional<std::string> FindLibrary(const std::string& name,
                                         absl::Span<const std::string> one_of) const override {
    // NCCL uses the same flags.
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return std::nullopt;
    const bool has =
        one_of.empty() || std::any_of(one_of.begin(), one_of.end(), [&](const std::string& symbol) {
          return dlsym(handle, symbol.c_str()) != nullptr;
        });
    std::string path = PathOf(handle, name);
    dlclose(handle);
    return has ? std::optional<std::string>(std::move(path)) : std::nullopt;
  }
};

}  // namespace

std::string_view Name(NcclProfile profile) {
  return profile == NcclProfile::kBatchInvariant ? "batch-invariant" : "torchtitan-vllm";
}

absl::StatusOr<NcclProfile> ParseNcclProfile(std::string_view name) {
  for (const NcclProfile profile : {NcclProfile::kBatchInvariant, NcclProfile::kTorchtitanVllm}) {
    if (name == Name(profile)) return profile;
  }
  return InvalidArgument("unknown profile '{}'; expected batch-invariant or torchtitan-vllm", name);
}

NcclVersion NcclVersion::FromCode(int code) {
  // Versions before 2.9 have one digit for the minor version.
  if (code < 10000) return {code / 1000, code % 1000 / 100, code % 100};
  return {code / 10000, code % 10000 / 100, code % 100};
}

absl::StatusOr<NcclVersion> NcclVersion::Parse(std::string_view text) {
  const std::vector<std::string_view> parts = Split(text, '.');
  std::vector<int> numbers;
  for (const std::string_view part : parts) {
    const std::optional<int> number = ParseInt(part);
    if (number && *number >= 0 && *number < 100) numbers.push_back(*number);
  }
  if (numbers.size() != parts.size() || numbers.size() < 2 || numbers.size() > 3) {
    return InvalidArgument("invalid NCCL version '{}'; expected the form 2.28 or 2.28.9", text);
  }
  return NcclVersion{numbers[0], numbers[1], numbers.size() == 3 ? numbers[2] : 0};
}

std::string NcclVersion::ToString() const { return fmt::format("{}.{}.{}", major, minor, patch); }

absl::StatusOr<LoadedNccl> FindLoadedNccl() {
  MESHIFT_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(kNcclLibrarySource));
  int (*get_version)(int*) = nullptr;
  MESHIFT_RETURN_IF_ERROR(library.Find("ncclGetVersion", &get_version));
  int code = 0;
  if (const int result = get_version(&code); result != 0) {
    return absl::UnavailableError(
        fmt::format("ncclGetVersion of the NCCL library {}: error {}", library.path(), result));
  }
  LoadedNccl loaded{.version = NcclVersion::FromCode(code), .path = library.path()};
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(get_version), &info) != 0 && info.dli_fname != nullptr) {
    loaded.path = info.dli_fname;
  }
  return loaded;
}

std::vector<NcclSetting> NcclProfileSettings(NcclProfile profile, const NcclVersion& version) {
  const std::string algorithm = TreeForAllReduce(version);
  const NcclSetting algo =
      Effective("NCCL_ALGO", algorithm,
                version < kNamedCollectivesOnly
                    ? "all-reduce by tree: one order of sums, whatever the size"
                    : "all-reduce by tree; since 2.31 a collective that is not named has no "
                      "algorithm");
  const NcclSetting proto = Effective("NCCL_PROTO", "Simple", "one protocol, whatever the size");
  const NcclSetting nvls = Effective("NCCL_NVLS_ENABLE", "0", "no sums in NVSwitch");
  const NcclSetting collnet = Effective("NCCL_COLLNET_ENABLE", "0", "no sums in network switches");
  if (profile == NcclProfile::kBatchInvariant) return {algo, proto, nvls, collnet};
  return {
      WithoutEffect("NCCL_LAUNCH_MODE", "GROUP", "deprecated, and for several GPUs per process"),
      collnet,
      nvls,
      WithoutEffect("NCCL_P2P_NET_DISABLE", "1", "NCCL reads no such variable"),
      Effective("NCCL_MIN_NCHANNELS", "1", "one channel, of every communicator"),
      Effective("NCCL_MAX_NCHANNELS", "1", "one channel, of every communicator"),
      proto,
      algo,
      WithoutEffect("NCCL_NTHREADS", "1", "not a multiple of 32, so NCCL takes its maximum"),
      {"NCCL_SOCKET_NTHREADS", "1", true, false,
       "one thread per socket connection; no result depends on it"},
  };
}

Environment& Environment::Process() {
  static ProcessEnvironment environment;  // without state
  return environment;
}

NcclEnvironment::NcclEnvironment(Environment& process)
    : NcclEnvironment(process, HomeOfUser(), "/etc/nccl.conf") {}

NcclEnvironment::NcclEnvironment(Environment& process, const std::string& home,
                                 const std::string& system_file)
    : process_(process) {
  const std::string named = process.Get("NCCL_CONF_FILE").value_or("");
  if (!named.empty()) {
    Read(named);
  } else if (!home.empty()) {
    Read(home + "/.nccl.conf");
  }
  Read(system_file);
}

// The first line of a name counts. Unlike NCCL, this does not wait for the writer of a FIFO.
void NcclEnvironment::Read(const std::string& path) {
  constexpr size_t kMost = 1023;  // characters that NCCL keeps of a name, and of a value
  constexpr int64_t kMaxBytes = int64_t{1} << 20;
  if (unread_) return;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return;  // NCCL ignores it too
  struct stat info = {};
  const bool is_known = fstat(fd, &info) == 0;
  std::string text;
  if (is_known && S_ISREG(info.st_mode) && info.st_size <= kMaxBytes) {
    std::array<char, 4096> some = {};
    ssize_t got = 0;
    while (static_cast<int64_t>(text.size()) <= kMaxBytes &&
           (got = read(fd, some.data(), some.size())) > 0) {
      text.append(some.data(), static_cast<size_t>(got));
    }
  } else if (!is_known || !(S_ISDIR(info.st_mode) || IsNull(info))) {
    unread_ =
        fmt::format("unknown: {} is {}", path.substr(0, kMost),
                    is_known && S_ISREG(info.st_mode) ? "larger than a MiB" : "not a regular file");
  }
  close(fd);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string::npos) continue;
    lines_.emplace(line.substr(0, std::min(equals, kMost)), line.substr(equals + 1, kMost));
  }
}

std::optional<std::string> NcclEnvironment::Get(const std::string& name) const {
  if (std::optional<std::string> value = process_.Get(name)) return value;
  const auto line = lines_.find(name);
  return line == lines_.end() ? unread_ : line->second;
}

std::string NcclChange::ToString() const {
  switch (outcome) {
    case Outcome::kSet:
      return fmt::format("{} was not set, is now '{}'", name, value);
    case Outcome::kEqual:
      return fmt::format("{} is '{}' already", name, value);
    case Outcome::kConflict:
      return fmt::format("{} is '{}', not '{}'", name, *previous, value);
    case Outcome::kOverwritten:
      return fmt::format("{} was '{}', is now '{}'", name, *previous, value);
  }
  return name;
}

bool AppliedProfile::complete() const {
  return std::none_of(changes_.begin(), changes_.end(), [](const NcclChange& change) {
    return change.outcome == NcclChange::Outcome::kConflict;
  });
}

void AppliedProfile::Undo() {
  using Outcome = NcclChange::Outcome;
  for (NcclChange& change : changes_) {
    const bool changed = change.outcome == Outcome::kSet || change.outcome == Outcome::kOverwritten;
    if (changed && environment_->Get(change.name) == change.value) {
      environment_->Set(change.name, change.previous);
    }
  }
}

struct ProfileApplier {
  static AppliedProfile Apply(NcclProfile profile, const NcclVersion& version, bool overwrite,
                              Environment& environment) {
    using Outcome = NcclChange::Outcome;
    AppliedProfile applied(&environment);
    for (const NcclSetting& setting : NcclProfileSettings(profile, version)) {
      NcclChange change{
          .name = setting.name, .value = setting.value, .previous = environment.Get(setting.name)};
      change.outcome = !change.previous                   ? Outcome::kSet
                       : *change.previous == change.value ? Outcome::kEqual
                       : overwrite                        ? Outcome::kOverwritten
                                                          : Outcome::kConflict;
      if (change.outcome == Outcome::kSet || change.outcome == Outcome::kOverwritten) {
        environment.Set(change.name, change.value);
      }
      applied.changes_.push_back(std::move(change));
    }
    return applied;
  }
};

absl::StatusOr<AppliedProfile> ApplyNcclProfile(NcclProfile profile, const NcclVersion& version,
                                                const ApplyProfileOptions& options,
                                                Environment& environment) {
  if (options.communicators > 0) {
    return FailedPrecondition(
        "profile {} comes too late: this process has made {} communicators, and NCCL reads its "
        "environment before the first",
        Name(profile), options.communicators);
  }
  return ProfileApplier::Apply(profile, version, options.overwrite, environment);
}

}  // namespace meshift

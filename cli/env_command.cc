#include "cli/env_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/text_table.h"
#include "cli/io.h"
#include "cli/text.h"
#include "comm/nccl/environment.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

// The version from the flag, or that of the library that is found, with its path. Assumes the
// default version, with a note, if no library is found.
absl::StatusOr<LoadedNccl> Library(const EnvFlags& flags, Io& io) {
  LoadedNccl library;
  if (flags.nccl_version) {
    MESHIFT_ASSIGN_OR_RETURN(library.version, NcclVersion::Parse(*flags.nccl_version));
    return library;
  }
  absl::StatusOr<LoadedNccl> loaded = FindLoadedNccl();
  if (loaded.ok()) return loaded;
  io.err << fmt::format("meshift: {}; assuming {} (set another by --nccl-version)\n",
                        Message(loaded.status()), library.version.ToString());
  return library;
}

absl::StatusOr<int> Env(const EnvFlags& flags, const Environment& environment, Io& io) {
  MESHIFT_ASSIGN_OR_RETURN(const NcclProfile profile, ParseNcclProfile(flags.profile));
  MESHIFT_ASSIGN_OR_RETURN(const LoadedNccl library, Library(flags, io));
  const NcclVersion& version = library.version;
  io.out << fmt::format("# {} for NCCL {}\n", Name(profile), version.ToString());
  if (!library.path.empty()) io.out << fmt::format("# library {}\n", Printable(library.path));
  if (!flags.check) {
    if (const std::string why = WhyUnfit(profile, version); !why.empty()) {
      io.err << fmt::format("meshift: NCCL {} cannot keep the promise with any variables: {}\n",
                            version.ToString(), why);
    }
    for (const NcclSetting& setting : NcclProfileSettings(profile, version)) {
      io.out << fmt::format("export {}='{}'  # {}\n", setting.name, setting.value, setting.effect);
    }
    return kExitOk;
  }
  const std::vector<NcclFinding> findings = CheckNcclEnvironment(profile, version, environment);
  TextTable table({{"variable"}, {"value"}, {"verdict"}, {"why"}});
  for (const NcclFinding& finding : findings) {
    table.AddRow({finding.name,
                  finding.value ? fmt::format("'{}'", Printable(*finding.value)) : "-",
                  finding.breaks ? "breaks" : "ok", Printable(finding.why)});
  }
  io.out << table.ToString();
  const auto breaks = std::count_if(findings.begin(), findings.end(),
                                    [](const NcclFinding& finding) { return finding.breaks; });
  if (breaks == 0) {
    io.out << "the environment keeps the promise\n";
    return kExitOk;
  }
  io.out << fmt::format("the environment breaks the promise in {} variable{}\n", breaks,
                        breaks == 1 ? "" : "s");
  return kExitCheckFailed;
}

}  // namespace

int EnvCommand(const EnvFlags& flags, const Environment& environment, Io& io) {
  const absl::StatusOr<int> code = Env(flags, environment, io);
  return code.ok() ? *code : Fail(io, code.status());
}

}  // namespace meshift::cli

// Makes the Site (cli/site.h) of a process that is one rank of a job, on any engine but `local`.
//
//   RankExchange meeting(job.bootstrap.get());
//   MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Site> site, MakeRankSite(&job, &meeting));
//
// The site has one runner at a time, and ignores NewRunner's reduction order: the engine has its
// own. Not thread-safe.
#ifndef MESHIFT_CLI_RANK_SITE_H_
#define MESHIFT_CLI_RANK_SITE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cli/engines.h"
#include "cli/rank_exchange.h"
#include "cli/site.h"

namespace meshift::cli {

// Collective. Both arguments must outlive the site. REQUIRES: StartEngine() was OK. UNAVAILABLE if
// a rank has gone.
absl::StatusOr<std::unique_ptr<Site>> MakeRankSite(RankJob* job, RankExchange* meeting);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RANK_SITE_H_

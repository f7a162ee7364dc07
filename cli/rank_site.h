// The Site (cli/site.h) of one rank of a job of many processes, on any engine.
//
//   RankExchange meeting(job.bootstrap.get());
//   MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Site> site, MakeRankSite(&job, &meeting));
#ifndef MESHIFT_CLI_RANK_SITE_H_
#define MESHIFT_CLI_RANK_SITE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cli/engines.h"
#include "cli/rank_exchange.h"
#include "cli/site.h"

namespace meshift::cli {

// Collective. Both arguments must outlive the site. UNAVAILABLE if a rank has gone.
absl::StatusOr<std::unique_ptr<Site>> MakeRankSite(RankJob* job, RankExchange* meeting);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RANK_SITE_H_

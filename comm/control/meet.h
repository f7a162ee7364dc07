// How a rank comes to the hub of its job, through whatever else may answer on the way.
//
//   auto client = MeetHub(job, [&] { return ParseHubAddress(text); }, deadline);
#ifndef MESHIFT_COMM_CONTROL_MEET_H_
#define MESHIFT_COMM_CONTROL_MEET_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/control/client.h"
#include "comm/control/secret.h"
#include "meshift/bootstrap.h"

namespace meshift {

// Where a hub is, and whose.
struct HubAddress {
  JobKey key;
  std::vector<std::string> hosts;  // names or addresses, in the order in which they are tried
  int port = 0;
};

// "name.secret@host,host:port", or without ".secret"; a name has no "@" and no ".".
std::string ToText(const HubAddress& hub);
// INVALID_ARGUMENT: it is something else.
absl::StatusOr<HubAddress> ParseHubAddress(std::string_view text);

// Tries all hosts again and again, asking `where` each time (it may learn more), until one is the
// job's hub. FAILED_PRECONDITION: that hub refuses this rank; DEADLINE_EXCEEDED names what came of
// the last try: nobody there, or somebody else.
absl::StatusOr<std::unique_ptr<Client>> MeetHub(
    const JobRank& job, const std::function<absl::StatusOr<HubAddress>()>& where,
    std::chrono::steady_clock::time_point deadline);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_MEET_H_

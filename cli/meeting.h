// What the ranks of a job tell each other beside tensors: what each was asked for, what it has, and
// why it cannot go on.
//
//   RankMeeting meeting(job.bootstrap.get());
//   MESHIFT_RETURN_IF_ERROR(meeting.Compare(status, "run", asked));
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<std::string> all, meeting.Meet(status, mine));
//
// All ranks make the same calls in the same order. A rank that cannot go on makes the next one with
// its error, which all then return.
#ifndef MESHIFT_CLI_MEETING_H_
#define MESHIFT_CLI_MEETING_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"

namespace meshift::cli {

// Parts of a command line, as "--repeat 3", in an order that is equal on all ranks.
using AskedFor = std::vector<std::string>;

// Who has the last error that a meeting has returned.
enum class ErrorOf : uint8_t {
  kHere,  // this rank alone knows of it, or others know of it in their own way
  kOne,   // one rank, which the message names; all ranks return it
  kAll,   // all ranks had it by themselves, with the same text
};

// Whether a message begins with a rank: "rank 3: ", "rank 3 has failed: ".
bool BeginsWithRank(std::string_view message);

class RankMeeting {
 public:
  // A way out for a rank that cannot return since its work still runs: prints the error, and ends
  // the process.
  using LeaveFn = std::function<void(const absl::Status& error)>;

  // `bootstrap` must outlive this. `period`: how often a rank that works says so; below the
  // time-out of exchanges. Without `leave`, errors wait for work to end.
  explicit RankMeeting(Bootstrap* bootstrap,
                       std::chrono::nanoseconds period = std::chrono::seconds(1),
                       LeaveFn leave = nullptr)
      : bootstrap_(*bootstrap), period_(period), leave_(std::move(leave)) {}

  // What each rank passes, by rank. Where `status` of any rank is an error, all return the first of
  // them. Where the ranks do not get together, `status` if it is an error, else why.
  absl::StatusOr<std::vector<std::string>> Meet(const absl::Status& status, std::string_view mine);
  // As Meet, of what `work` returns. It may take longer than the time-out: a rank that works does
  // not count as missing. It runs in a thread of its own; what it throws is thrown here.
  using Work = std::function<absl::StatusOr<std::string>()>;
  absl::StatusOr<std::vector<std::string>> MeetAfter(const Work& work);
  // As MeetAfter; also INVALID_ARGUMENT where two ranks have different texts: "rank 0 has plan 3..,
  // and rank 2 has plan 4..".
  absl::Status Agree(const Work& work);
  // As Meet of what was asked for; the message has only what differs.
  absl::Status Compare(const absl::Status& status, std::string_view verb, const AskedFor& asked);

  ErrorOf error_of() const { return error_of_; }

 private:
  using Result = absl::StatusOr<std::string>;
  // Says `*result`, or, while `work` still makes it, that it does.
  absl::StatusOr<std::vector<std::string>> Rounds(Result* result, std::future<Result>* work);
  // What all ranks have said: the first error, or what they have.
  absl::StatusOr<std::vector<std::string>> Judge(std::vector<std::string> all);

  Bootstrap& bootstrap_;
  const std::chrono::nanoseconds period_;
  const LeaveFn leave_;
  ErrorOf error_of_ = ErrorOf::kHere;
};

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MEETING_H_

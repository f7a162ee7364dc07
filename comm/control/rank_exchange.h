// Exchanges messages between the ranks of a job, besides tensors: the arguments and plan of each,
// and the error of a rank that cannot continue.
//
//   RankExchange meeting(job.bootstrap.get());
//   MESHIFT_RETURN_IF_ERROR(meeting.Compare(status, "run", arguments));
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<std::string> all, meeting.Meet(status, mine));
//
// All ranks make the same calls in the same order, one at a time. A rank that cannot continue
// passes its error to its next call. Then all ranks return that error, or that of a lower rank. A
// text may have one byte less than Bootstrap::Exchange() takes. The errors and the time-out of
// Exchange() hold here too. INTERNAL: a rank has sent bytes that do not begin as those of this
// class. A rank at another call of this class is not detected.
#ifndef MESHIFT_COMM_CONTROL_RANK_EXCHANGE_H_
#define MESHIFT_COMM_CONTROL_RANK_EXCHANGE_H_

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

namespace meshift {

// Parts of a command line, such as "--repeat 3", in the same order on all ranks.
using ArgumentTexts = std::vector<std::string>;

// The ranks that have the last error that a call returned.
enum class FailedRanks : uint8_t {
  kHere,  // other ranks may have another or none: the exchange itself has failed
  kOne,   // not all ranks had it, or two ranks differ; the message names a rank; all return it
  kAll,   // every rank has it, with the same text
};

// Whether a message begins with a rank: "rank 3: ", "rank 3 has failed: ".
bool BeginsWithRank(std::string_view message);

class RankExchange {
 public:
  // Called on a rank that cannot return because its work still runs: prints the error and ends the
  // process.
  using LeaveFn = std::function<void(const absl::Status& error)>;

  // `bootstrap` must outlive this. `period`: how often a rank whose work still runs tells the
  // others so; it must be shorter than the time-out of exchanges. Without `leave`, a call returns
  // an error only when this rank's work has ended.
  explicit RankExchange(Bootstrap* bootstrap,
                        std::chrono::nanoseconds period = std::chrono::seconds(1),
                        LeaveFn leave = nullptr)
      : bootstrap_(*bootstrap), period_(period), leave_(std::move(leave)) {}

  // Returns the texts `mine` of all ranks, by rank. If any rank's `status` is an error, all ranks
  // return that of the lowest such rank, with "rank N: " in front unless all ranks have it, or it
  // begins with a rank already (BeginsWithRank).
  // If the exchange fails, returns `status` if it is an error, else the exchange's error.
  absl::StatusOr<std::vector<std::string>> Meet(const absl::Status& status, std::string_view mine);
  // As Meet, for the result of `work`, which may take longer than the time-out: a rank whose work
  // runs does not count as missing. It runs in its own thread; its exceptions are thrown here,
  // unless the exchange ends first. A rank that throws has sent no result, so the others wait.
  using Work = std::function<absl::StatusOr<std::string>()>;
  absl::StatusOr<std::vector<std::string>> MeetAfter(const Work& work);
  // As MeetAfter; also INVALID_ARGUMENT if two ranks have different texts: "rank 0 has plan 3..,
  // and rank 2 has plan 4..".
  absl::Status Agree(const Work& work);
  // As Meet, for the ranks' arguments. INVALID_ARGUMENT if verbs, arguments or their order differ.
  // The message contains the verbs, and the arguments that only rank 0 or only the first other rank
  // has, cut short.
  absl::Status Compare(const absl::Status& status, std::string_view verb,
                       const ArgumentTexts& arguments);

  // For the last call; kHere if it returned no error.
  FailedRanks failed_ranks() const { return failed_ranks_; }

 private:
  using Result = absl::StatusOr<std::string>;
  // Exchanges `*result`, or a notice that `work` still runs, until all ranks have a result or one
  // has failed.
  absl::StatusOr<std::vector<std::string>> Rounds(Result* result, std::future<Result>* work);
  // Returns the first error of any rank, else all texts.
  absl::StatusOr<std::vector<std::string>> FirstErrorOrTexts(std::vector<std::string> all);

  Bootstrap& bootstrap_;
  const std::chrono::nanoseconds period_;
  const LeaveFn leave_;
  FailedRanks failed_ranks_ = FailedRanks::kHere;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_RANK_EXCHANGE_H_

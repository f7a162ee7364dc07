#include "comm/control/rank_exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clipped.h"
#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// The most bytes of each rank's text in a message about a difference.
constexpr size_t kMaxText = 150;

constexpr char kEnd = '\n';  // ends an argument; arguments do not contain it

std::string Joined(std::string_view verb, const ArgumentTexts& arguments) {
  std::string text = std::string(verb) + kEnd;
  for (const std::string& part : arguments) {
    text += part;
    std::replace(text.end() - static_cast<std::ptrdiff_t>(part.size()), text.end(), kEnd, ' ');
    text += kEnd;
  }
  return text;
}

std::vector<std::string> Parts(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    parts.emplace_back(text.substr(0, text.find(kEnd)));
    text.remove_prefix(std::min(text.size(), parts.back().size() + 1));
  }
  return parts;
}

// The verb of one rank (the first text of `all`), and its arguments that `others` does not have.
std::string Beside(const std::vector<std::string>& all, const std::vector<std::string>& others) {
  std::vector<std::string> left;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || std::find(others.begin(), others.end(), all[i]) == others.end()) {
      left.push_back(all[i]);
    }
  }
  return Clipped(fmt::format("{}", fmt::join(left, " ")), kMaxText);
}

// The first rank whose text differs from rank 0's; 0 if none does.
size_t FirstOther(const std::vector<std::string>& all) {
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) return rank;
  }
  return 0;
}

// A rank sends a status code and its text, or this byte while it still works.
constexpr char kWorks = '~';

std::string EncodeResult(const absl::StatusOr<std::string>& result) {
  std::string encoded(1, static_cast<char>(result.status().code()));
  return encoded + (result.ok() ? *result : Message(result.status()));
}

bool Works(const std::string& encoded) { return !encoded.empty() && encoded[0] == kWorks; }
bool Fails(const std::string& encoded) {
  return !Works(encoded) &&
         (encoded.empty() || encoded[0] != static_cast<char>(absl::StatusCode::kOk));
}

}  // namespace

bool BeginsWithRank(std::string_view message) {
  constexpr std::string_view kRank = "rank ";
  if (message.substr(0, kRank.size()) != kRank) return false;
  const size_t end = message.find_first_not_of("0123456789", kRank.size());
  return end != kRank.size() && end != std::string_view::npos &&
         (message[end] == ' ' || message[end] == ':');
}

absl::StatusOr<std::vector<std::string>> RankExchange::Meet(const absl::Status& status,
                                                            std::string_view mine) {
  Result result = status.ok() ? Result(std::string(mine)) : Result(status);
  return Rounds(&result, nullptr);
}

absl::StatusOr<std::vector<std::string>> RankExchange::MeetAfter(const Work& work) {
  Result result = std::string();
  std::future<Result> made = std::async(std::launch::async, work);
  return Rounds(&result, &made);
}

absl::StatusOr<std::vector<std::string>> RankExchange::Rounds(Result* result,
                                                              std::future<Result>* work) {
  failed_ranks_ = FailedRanks::kHere;
  while (true) {
    if (work != nullptr && work->wait_for(period_) == std::future_status::ready) {
      *result = work->get();
      work = nullptr;
    }
    absl::StatusOr<std::vector<std::string>> met =
        bootstrap_.Exchange(work != nullptr ? std::string(1, kWorks) : EncodeResult(*result));
    if (met.ok()) {
      const bool some_work = std::any_of(met->begin(), met->end(), Works);
      const bool some_fail = std::any_of(met->begin(), met->end(), Fails);
      if (some_work && !some_fail) continue;
      met = FirstErrorOrTexts(*std::move(met));
    } else if (work == nullptr && !result->ok()) {
      met = result->status();
    }
    if (work != nullptr) {
      if (leave_ != nullptr) leave_(met.status());
      work->wait();
    }
    return met;
  }
}

absl::StatusOr<std::vector<std::string>> RankExchange::FirstErrorOrTexts(
    std::vector<std::string> all) {
  const bool all_equal = FirstOther(all) == 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (Works(all[rank])) continue;
    const auto its = static_cast<absl::StatusCode>(all[rank].empty() ? -1 : all[rank][0]);
    if (its < absl::StatusCode::kOk || its > absl::StatusCode::kUnauthenticated) {
      return Internal("rank {} is executing another call", rank);
    }
    all[rank].erase(0, 1);
    if (its == absl::StatusCode::kOk) continue;
    failed_ranks_ = all_equal ? FailedRanks::kAll : FailedRanks::kOne;
    const absl::Status error(its, all[rank]);
    const bool is_named = all_equal || BeginsWithRank(all[rank]);
    return is_named ? error : Annotate(error, fmt::format("rank {}", rank));
  }
  return all;
}

absl::Status RankExchange::Agree(const Work& work) {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, MeetAfter(work));
  const size_t other = FirstOther(all);
  if (other == 0) return absl::OkStatus();
  failed_ranks_ = FailedRanks::kOne;
  return InvalidArgument("rank 0 has {}, and rank {} has {}", Clipped(all[0], kMaxText), other,
                         Clipped(all[other], kMaxText));
}

absl::Status RankExchange::Compare(const absl::Status& status, std::string_view verb,
                                   const ArgumentTexts& arguments) {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           Meet(status, Joined(verb, arguments)));
  const size_t other = FirstOther(all);
  if (other == 0) return absl::OkStatus();
  failed_ranks_ = FailedRanks::kOne;
  const std::vector<std::string> first = Parts(all[0]);
  const std::vector<std::string> its = Parts(all[other]);
  return InvalidArgument("rank 0 was asked to {}, and rank {} to {}", Beside(first, its), other,
                         Beside(its, first));
}

}  // namespace meshift

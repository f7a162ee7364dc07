// Records of a job of many ranks in which one rank has stopped. For tests and benchmarks.
//
//   const Dump dump = MakeTestDump({.num_ranks = 512, .calls = 2000, .late = 7}, /*rank=*/3);
#ifndef MESHIFT_TESTING_INTERNAL_TEST_DUMPS_H_
#define MESHIFT_TESTING_INTERNAL_TEST_DUMPS_H_

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ranges_text.h"
#include "comm/record/call_ring.h"
#include "comm/record/call_text.h"
#include "comm/record/dump_writer.h"
#include "meshift/dtype.h"

namespace meshift {

struct TestDumps {
  int64_t num_ranks = 4;
  int64_t calls = 10;  // recorded calls; the last one is in flight
  int64_t first = 0;   // the number of the first of them
  int64_t late = -1;   // a rank that has not made the last call; -1: none
};

inline Dump MakeTestDump(const TestDumps& job, int64_t rank) {
  constexpr int64_t kMs = 1'000'000;
  Dump dump;
  dump.engine = "local";
  dump.host = "node" + std::to_string(rank / 8);
  dump.rank = rank;
  dump.world_size = job.num_ranks;
  dump.written_unix_ns = 1'790'000'000'000'000'000 + rank;
  dump.now_ns = 100'000'000'000;
  std::vector<int64_t> ranks(static_cast<size_t>(job.num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::string all = RangesText(ranks);
  if (rank != job.late) {
    dump.failure = absl::DeadlineExceededError("call " + std::to_string(job.first + job.calls - 1) +
                                               " has not ended for 1000 ms");
  }
  dump.sources.push_back({.name = "ranks " + all + " #0", .ranks = ranks, .failure = dump.failure});
  std::vector<std::shared_ptr<const CallText>> texts;
  for (const char* const op : {"all_reduce", "all_gather", "reduce_scatter"}) {
    auto text = std::make_shared<CallText>();
    text->plan = std::string("plan of ") + op;
    text->groups = {all};
    const int64_t all_elements = 8 * job.num_ranks;
    text->steps = {{.op = op,
                    .dtype = DType::kF32,
                    .count_in = op[0] == 'r' ? all_elements : 8,
                    .count_out = std::string(op) == "all_gather" ? all_elements : 8,
                    .bytes = 32,
                    .group = 0}};
    text->num_steps = 1;
    texts.push_back(std::move(text));
  }
  const int64_t made = job.calls - (rank == job.late ? 1 : 0);
  for (int64_t i = 0; i < made; ++i) {
    const int64_t begin_ns = dump.now_ns - (job.calls - i) * 10 * kMs + rank;
    const bool in_flight = i == job.calls - 1;
    dump.calls.push_back({.number = job.first + i,
                          .source = 0,
                          .call = job.first + i,
                          .state = in_flight ? CallState::kInFlight : CallState::kEnded,
                          .issued_ns = begin_ns,
                          .started_ns = begin_ns + kMs,
                          .ended_ns = in_flight ? -1 : begin_ns + 2 * kMs,
                          .thread = 4242,
                          .is_first = i < 3,
                          .text = texts[static_cast<size_t>(job.first + i) % texts.size()]});
  }
  return dump;
}

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_TEST_DUMPS_H_

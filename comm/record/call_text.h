// The readable description of a call in records and logs. All calls of a program share one.
// comm/redistribution/redistributor_record.cc makes it and keeps to the limits below.
//
//   auto text = std::make_shared<CallText>();
//   text->plan = "plan 6f..: f32[8] on dp=4 as P -> R";
//   text->groups = {"0-3"};
//   text->steps = {{.op = "all_reduce", .count_in = 8, .count_out = 8, .bytes = 32}};
#ifndef MESHIFT_COMM_RECORD_CALL_TEXT_H_
#define MESHIFT_COMM_RECORD_CALL_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "meshift/dtype.h"

namespace meshift {

struct CallText {
  static constexpr size_t kMaxSteps = 64;       // later steps are omitted
  static constexpr size_t kMaxGroups = 64;      // later groups are omitted
  static constexpr size_t kMaxPlanBytes = 512;  // of the plan's text

  // One collective of a group.
  struct Step {
    int step = 0;         // of the plan
    std::string_view op;  // "all_reduce"; static
    DType dtype = DType::kF32;
    int64_t count_in = 0;   // elements that this rank contributes
    int64_t count_out = 0;  // elements that this rank receives
    int64_t bytes = 0;      // sent by this rank
    int group = 0;          // index into `groups`; -1: omitted
  };

  std::string plan;                 // the fingerprint, the tensor, source and target placements
  std::vector<std::string> groups;  // of `steps`; the ranks of each: "0-3"
  std::vector<Step> steps;          // at most kMaxSteps
  int64_t num_steps = 0;            // with omitted ones
  int64_t bytes = 0;                // sent by this rank, in all steps
  std::string all_groups;           // `groups` as one text: "{0-3} {0,4}"
};

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_CALL_TEXT_H_

// Handwritten plans for tests of the verifier.
//
//   Case c = {"a=2", "f32[4]", "P", "R", {{kAllReduce, "a", "R", 16, 16, 16}}, 0};
//   Judge(c);              // "": the verifier accepts it
//   Judge(MakeFields(c));  // the same for a plan that may have been changed
//
//   Judge(Cross("a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {Exchange("S(0)", 8, 8, 8)}));
#ifndef MESHIFT_TESTING_INTERNAL_PLAN_CASES_H_
#define MESHIFT_TESTING_INTERNAL_PLAN_CASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "meshift/plan.h"

namespace meshift {

// A step of a table. Fields that are missing here follow from the shardings.
struct Row {
  StepOp op;
  std::string dims;  // "a,b"; kOnto: none, the step leads to the other mesh
  std::string after;
  int64_t bytes_in;
  int64_t bytes_out;
  int64_t bytes_sent;
  StepSizes sizes = StepSizes::kEven;
  ReduceOp reduce_op = ReduceOp::kSum;
  int64_t divisor = 0;                        // 0: null
  std::optional<DType> dtype = std::nullopt;  // after a cast
  bool adds = false;                          // kOnto: contributions, in ascending order
};
// A cast to `dtype`.
inline Row Cast(DType dtype, std::string placements, int64_t bytes_in, int64_t bytes_out) {
  Row row = {StepOp::kCast, "", std::move(placements), bytes_in, bytes_out, 0};
  row.dtype = dtype;
  return row;
}

struct Case {
  std::string mesh;
  std::string tensor;
  std::string from;
  std::string to;
  std::vector<Row> rows;
  int64_t workspace;
  std::optional<DType> to_dtype = std::nullopt;      // nullopt: the source's
  std::optional<DType> reduce_dtype = std::nullopt;  // the option
  std::string to_mesh = {};                          // "": the source's
  std::string topology = "flat";
};

inline constexpr auto kAllReduce = StepOp::kAllReduce;
inline constexpr auto kReduceScatter = StepOp::kReduceScatter;
inline constexpr auto kAllGather = StepOp::kAllGather;
inline constexpr auto kAllToAll = StepOp::kAllToAll;
inline constexpr auto kPermute = StepOp::kPermute;
inline constexpr auto kExchange = StepOp::kExchange;
inline constexpr auto kSlice = StepOp::kSlice;
inline constexpr auto kMask = StepOp::kMask;
inline constexpr auto kRelabel = StepOp::kRelabel;
inline constexpr auto kPadded = StepSizes::kPadded;
inline constexpr auto kExact = StepSizes::kExact;
inline constexpr const char* kOnto = "->";

// A slice over tp, a sum over dp, and a gather over tp.
inline Case ThreeSteps() {
  return {"dp=2,tp=2",
          "f32[4,2]",
          "P,R",
          "R,R",
          {{kSlice, "tp", "P,S(0)", 32, 16, 0},
           {kAllReduce, "dp", "R,S(0)", 16, 16, 16},
           {kAllGather, "tp", "R,R", 16, 32, 16}},
          32};
}

// A plan from one mesh to another.
struct Cross : Case {
  Cross(std::string mesh, std::string to_mesh, std::string tensor, std::string from, std::string to,
        std::vector<Row> rows, int64_t workspace = 0, std::string topology = "flat")
      : Case{std::move(mesh),
             std::move(tensor),
             std::move(from),
             std::move(to),
             std::move(rows),
             workspace,
             {},
             {},
             std::move(to_mesh),
             std::move(topology)} {}
};

// The step that crosses to the other mesh.
inline Row Exchange(std::string after, int64_t in, int64_t out, int64_t sent) {
  return {kExchange, kOnto, std::move(after), in, out, sent, kExact};
}
inline Row Relabel(std::string after, int64_t bytes) {
  return {kRelabel, kOnto, std::move(after), bytes, bytes, 0};
}

// The plan of `c`, with group, tensor dims, dtypes and totals filled in.
PlanFields MakeFields(const Case& c);

// The verifier's verdict, without the fingerprint: "" if the plan is right, else "0 data: ..." or
// "- total: ...".
std::string Judge(const PlanFields& plan);
inline std::string Judge(const Case& c) { return Judge(MakeFields(c)); }

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_PLAN_CASES_H_

// Implements the functions of meshift/c.h on explanations. An explanation never changes, so any
// threads may read it. Texts in the structs that are filled stay valid as long as it exists. Times
// are in ns.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "capi/call.h"
#include "capi/handles.h"
#include "meshift/explain.h"
#include "meshift/topology.h"

struct meshift_explanation {
  std::vector<meshift::Alternative> alternatives;  // the best first
};

namespace meshift::capi {
namespace {

constexpr int32_t kMost = 8;  // alternatives, if `most` is 0

absl::Status CheckAlternative(const meshift_explanation* explanation, size_t index) {
  MESHIFT_RETURN_IF_ERROR(NotNull({{"explanation", explanation}}));
  return CheckIndex(index, explanation->alternatives.size());
}

}  // namespace
}  // namespace meshift::capi

using meshift::capi::Call;
using meshift::capi::CheckAlternative;
using meshift::capi::CheckStruct;
using meshift::capi::Clear;
using meshift::capi::Give;
using meshift::capi::NotNull;

meshift_code meshift_explanation_create(const meshift_sharding* from, const meshift_sharding* to,
                                        const meshift_options* options, int32_t most,
                                        meshift_explanation** explanation, char** error) {
  Clear(explanation);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"from", from}, {"to", to}, {"explanation", explanation}}));
    if (most < 0) return meshift::InvalidArgument("most is {}; it must be 0 or more", most);
    MESHIFT_ASSIGN_OR_RETURN(const meshift::PlannerOptions planning,
                             meshift::capi::PlanningOptions(options, from->value, to->value));
    return meshift::capi::GiveOr(
        explanation, meshift::ListAlternatives(from->value, to->value, planning,
                                               most == 0 ? meshift::capi::kMost : most));
  });
}

void meshift_explanation_destroy(meshift_explanation* explanation) { delete explanation; }

size_t meshift_explanation_count(const meshift_explanation* explanation) {
  return explanation == nullptr ? 0 : explanation->alternatives.size();
}

meshift_code meshift_explanation_get(const meshift_explanation* explanation, size_t index,
                                     meshift_alternative* alternative, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckAlternative(explanation, index));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("alternative", alternative));
    const meshift::Alternative& from = explanation->alternatives[index];
    alternative->verdict = Name(from.verdict).data();  // a literal
    alternative->reason = from.reason.c_str();
    alternative->num_steps = static_cast<int32_t>(from.parts.size());
    return absl::OkStatus();
  });
}

meshift_code meshift_explanation_plan(const meshift_explanation* explanation, size_t index,
                                      meshift_plan** plan, char** error) {
  Clear(plan);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckAlternative(explanation, index));
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}}));
    return Give(plan, explanation->alternatives[index].plan);
  });
}

meshift_code meshift_explanation_step_time(const meshift_explanation* explanation, size_t index,
                                           int32_t step, meshift_step_time* time, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckAlternative(explanation, index));
    const meshift::Alternative& of = explanation->alternatives[index];
    MESHIFT_RETURN_IF_ERROR(
        meshift::capi::CheckIndex("step", step, static_cast<int64_t>(of.parts.size())));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("time", time));
    const meshift::TimeParts& from = of.parts[step];
    const meshift::Topology& topology = of.plan.options().topology;
    const bool calls = from.Sum() > from.copies_ns;
    time->starts_ns = from.starts_ns;
    time->hops_ns = from.hops_ns;
    time->messages_ns = from.messages_ns;
    time->links_ns = from.links_ns;
    time->copies_ns = from.copies_ns;
    time->algorithm = calls ? Name(from.algorithm).data() : nullptr;  // a literal
    // The topology belongs to the plan, which exists as long as the explanation.
    time->protocol = from.protocol < 0 ? nullptr : topology.protocols()[from.protocol].name.c_str();
    time->slowest_links = from.level < 0 ? nullptr : topology.level(from.level).name.c_str();
    time->links_per_domain = from.sharing;
    return absl::OkStatus();
  });
}

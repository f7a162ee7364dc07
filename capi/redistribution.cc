// Implements the functions of meshift/c.h on redistributors and runs. They refuse a stream or an
// earlier run of another engine with INVALID_ARGUMENT. Workspaces are in bytes, strides in
// elements, time-outs in ns. meshift/c.h says which calls are collective, and which threads may
// call.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "capi/numbers.h"

namespace meshift::capi {
namespace {

absl::StatusOr<RedistributorOptions> OptionsOf(const DeviceMesh& mesh,
                                               const meshift_redistributor_options& from) {
  RedistributorOptions options;
  if (from.planning != nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(options.planning, from.planning->On({mesh}));
  }
  switch (from.agreement) {
    case MESHIFT_AGREEMENT_FIRST_CALLS:
      options.agreement = Agreement::kFirstCalls;
      break;
    case MESHIFT_AGREEMENT_OFF:
      options.agreement = Agreement::kOff;
      break;
    case MESHIFT_AGREEMENT_ALWAYS:
      options.agreement = Agreement::kAlways;
      break;
    default:
      return InvalidArgument("options.agreement is {}; it must be 0, 1 or 2", from.agreement);
  }
  if (from.timeout_ns < 0) {
    return InvalidArgument("options.timeout_ns is {}; it must be 0 or more", from.timeout_ns);
  }
  if (from.max_cached_bytes < 0) {
    return InvalidArgument("options.max_cached_bytes is {}; it must be 0 or more",
                           from.max_cached_bytes);
  }
  if (from.timeout_ns > 0) options.timeout = std::chrono::nanoseconds(from.timeout_ns);
  if (from.max_cached_bytes > 0) options.expert.max_cached_bytes = from.max_cached_bytes;
  if (from.single_stream != 0) options.expert.streams = StreamMode::kSingleStream;
  return options;
}

// Casts `data` to non-const: the library writes to a source only where meshift/c.h says so.
TensorView ViewOf(const Sharding& sharding, int64_t rank, const void* data,
                  const int64_t* strides) {
  TensorView view = TensorView::Contiguous(const_cast<void*>(data), sharding.dtype(),
                                           sharding.LocalBox(rank).size);
  if (strides != nullptr) view.strides.assign(strides, strides + view.shape.size());
  return view;
}

absl::Status CheckEngine(const SharedEngine& mine, const SharedEngine& other,
                         std::string_view name) {
  if (mine.engine == other.engine) return absl::OkStatus();
  return InvalidArgument("{} belongs to another engine", name);
}

// The options that meshift_redistribute and meshift_redistribute_plan share.
absl::StatusOr<PlanRunOptions> RunOptionsOf(const meshift_redistributor& redistributor,
                                            const meshift_redistribution& what) {
  PlanRunOptions options;
  options.workspace = {.data = what.workspace, .bytes = what.workspace_bytes};
  options.consume_source = what.consume_source != 0;
  if (what.after != nullptr) {
    MESHIFT_RETURN_IF_ERROR(CheckEngine(redistributor.engine, what.after->engine, "what.after"));
    options.after = what.after->value.get();
  }
  if (what.after_run != nullptr) {
    MESHIFT_RETURN_IF_ERROR(
        CheckEngine(redistributor.engine, what.after_run->engine, "what.after_run"));
    options.after_run = what.after_run->value;
  }
  if (what.has_ticket != 0) options.ticket = what.ticket;
  return options;
}

absl::StatusOr<Redistribution> RedistributionOf(const meshift_redistributor& redistributor,
                                                const meshift_redistribution* what) {
  MESHIFT_RETURN_IF_ERROR(CheckStruct("what", what));
  MESHIFT_RETURN_IF_ERROR(NotNull({{"what.from", what->from}, {"what.to", what->to}}));
  MESHIFT_ASSIGN_OR_RETURN(PlanRunOptions options, RunOptionsOf(redistributor, *what));
  MESHIFT_ASSIGN_OR_RETURN(const std::optional<DType> reduce_dtype,
                           OptionalDTypeOf("what.reduce_dtype", what->reduce_dtype));
  const Sharding& from = what->from->value;
  const Sharding& to = what->to->value;
  const int64_t rank = redistributor.value.rank();
  return Redistribution{.from = from,
                        .to = to,
                        .source = ViewOf(from, rank, what->source, what->source_strides),
                        .target = ViewOf(to, rank, what->target, what->target_strides),
                        .workspace = options.workspace,
                        .consume_source = options.consume_source,
                        .reduce_dtype = reduce_dtype,
                        .after = options.after,
                        .after_run = std::move(options.after_run),
                        .ticket = options.ticket};
}

absl::StatusOr<std::vector<Redistribution>> ListOf(const meshift_redistributor& redistributor,
                                                   const meshift_redistribution* const* list,
                                                   size_t count) {
  std::vector<Redistribution> made;
  if (count > 0) MESHIFT_RETURN_IF_ERROR(NotNull({{"list", list}}));
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<Redistribution> one = RedistributionOf(redistributor, list[i]);
    if (!one.ok()) return Annotate(one.status(), fmt::format("list[{}]", i));
    made.push_back(*std::move(one));
  }
  return made;
}

absl::Status GiveRun(const meshift_redistributor& redistributor, absl::StatusOr<RunHandle> made,
                     meshift_run** run) {
  if (!made.ok()) return made.status();
  return Give(run, redistributor.engine, *std::move(made));
}

}  // namespace
}  // namespace meshift::capi

using meshift::capi::Call;
using meshift::capi::CheckStruct;
using meshift::capi::Clear;
using meshift::capi::Give;
using meshift::capi::NotNull;

meshift_code meshift_redistributor_create(const meshift_mesh* mesh, const meshift_engine* engine,
                                          const meshift_redistributor_options* options,
                                          meshift_redistributor** redistributor, char** error) {
  Clear(redistributor);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(
        NotNull({{"mesh", mesh}, {"engine", engine}, {"redistributor", redistributor}}));
    meshift::RedistributorOptions made;
    if (options != nullptr) {
      MESHIFT_RETURN_IF_ERROR(CheckStruct("options", options));
      MESHIFT_ASSIGN_OR_RETURN(made, meshift::capi::OptionsOf(mesh->value, *options));
    }
    MESHIFT_ASSIGN_OR_RETURN(
        meshift::Redistributor value,
        meshift::Redistributor::Create(mesh->value, engine->shared.engine, made));
    return Give(redistributor, engine->shared, std::move(value));
  });
}

void meshift_redistributor_destroy(meshift_redistributor* redistributor) { delete redistributor; }

meshift_code meshift_redistribute(meshift_redistributor* redistributor,
                                  const meshift_redistribution* what, meshift_run** run,
                                  char** error) {
  Clear(run);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"redistributor", redistributor}, {"run", run}}));
    MESHIFT_ASSIGN_OR_RETURN(const meshift::Redistribution made,
                             meshift::capi::RedistributionOf(*redistributor, what));
    return meshift::capi::GiveRun(*redistributor, redistributor->value(made), run);
  });
}

meshift_code meshift_redistribute_list(meshift_redistributor* redistributor,
                                       const meshift_redistribution* const* list, size_t count,
                                       void* workspace, int64_t workspace_bytes, meshift_run** run,
                                       char** error) {
  Clear(run);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"redistributor", redistributor}, {"run", run}}));
    MESHIFT_ASSIGN_OR_RETURN(std::vector<meshift::Redistribution> made,
                             meshift::capi::ListOf(*redistributor, list, count));
    std::optional<int64_t> ticket;
    if (!made.empty()) ticket = std::exchange(made[0].ticket, std::nullopt);
    return meshift::capi::GiveRun(
        *redistributor,
        redistributor->value(made, {.data = workspace, .bytes = workspace_bytes}, ticket), run);
  });
}

meshift_code meshift_redistribute_plan(meshift_redistributor* redistributor,
                                       const meshift_plan* plan, const meshift_redistribution* what,
                                       meshift_run** run, char** error) {
  Clear(run);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(
        NotNull({{"redistributor", redistributor}, {"plan", plan}, {"run", run}}));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("what", what));
    if (what->from != nullptr || what->to != nullptr || what->reduce_dtype != MESHIFT_DTYPE_NONE) {
      return meshift::InvalidArgument(
          "what.from, what.to and what.reduce_dtype must not be set: the plan has them");
    }
    MESHIFT_ASSIGN_OR_RETURN(const meshift::PlanRunOptions options,
                             meshift::capi::RunOptionsOf(*redistributor, *what));
    using meshift::capi::ViewOf;
    const int64_t rank = redistributor->value.rank();
    return meshift::capi::GiveRun(
        *redistributor,
        redistributor->value.Run(
            plan->value, ViewOf(plan->value.from(), rank, what->source, what->source_strides),
            ViewOf(plan->value.to(), rank, what->target, what->target_strides), options),
        run);
  });
}

meshift_code meshift_redistributor_prepare(meshift_redistributor* redistributor,
                                           const meshift_sharding* from, const meshift_sharding* to,
                                           meshift_dtype reduce_dtype, meshift_plan** plan,
                                           char** error) {
  Clear(plan);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(
        NotNull({{"redistributor", redistributor}, {"from", from}, {"to", to}}));
    MESHIFT_ASSIGN_OR_RETURN(const std::optional<meshift::DType> dtype,
                             meshift::capi::OptionalDTypeOf("reduce_dtype", reduce_dtype));
    MESHIFT_ASSIGN_OR_RETURN(meshift::Plan made,
                             redistributor->value.Prepare(from->value, to->value, dtype));
    return plan == nullptr ? absl::OkStatus() : Give(plan, std::move(made));
  });
}

meshift_code meshift_redistributor_workspace_bytes(const meshift_redistributor* redistributor,
                                                   const meshift_redistribution* const* list,
                                                   size_t count, int64_t* bytes, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"redistributor", redistributor}, {"bytes", bytes}}));
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<meshift::Redistribution> made,
                             meshift::capi::ListOf(*redistributor, list, count));
    MESHIFT_ASSIGN_OR_RETURN(*bytes, redistributor->value.WorkspaceBytes(made));
    return absl::OkStatus();
  });
}

meshift_code meshift_redistributor_abort(meshift_redistributor* redistributor, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"redistributor", redistributor}}));
    redistributor->value.Abort();
    return absl::OkStatus();
  });
}

meshift_code meshift_redistributor_get_stats(const meshift_redistributor* redistributor,
                                             meshift_stats* stats, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"redistributor", redistributor}}));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("stats", stats));
    const meshift::RedistributorStats from = redistributor->value.stats();
    stats->calls = from.calls;
    stats->plans_made = from.plans_made;
    stats->plans_reused = from.plans_reused;
    stats->plans_cached = from.plans_cached;
    stats->programs_made = from.programs_made;
    stats->groups_created = from.groups.created;
    stats->groups_reused = from.groups.reused;
    stats->groups = from.groups.size;
    return absl::OkStatus();
  });
}

void meshift_run_destroy(meshift_run* run) { delete run; }

meshift_code meshift_run_wait(const meshift_run* run, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"run", run}}));
    return run->value.Wait();
  });
}

meshift_code meshift_run_is_done(const meshift_run* run, int32_t* done, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"run", run}, {"done", done}}));
    *done = run->value.IsDone() ? 1 : 0;
    return absl::OkStatus();
  });
}

meshift_code meshift_run_wait_on(const meshift_run* run, meshift_stream* stream, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"run", run}, {"stream", stream}}));
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckEngine(run->engine, stream->engine, "stream"));
    return run->value.Wait(*stream->value);
  });
}

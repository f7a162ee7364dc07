// RedistributorImpl's calls with a list of tensors (redistributor_impl.h). The tensors are moved in
// any order, so none may write memory that another one uses. Redistribute() checks that by byte
// ranges, so it refuses strided tensors that interleave. Prepare() and WorkspaceBytes() skip this
// check. A list never uses symmetric memory. Tensors that go onto another mesh are planned together
// (PlanCache::FindTogether).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "comm/redistribution/redistributor_impl.h"
#include "comm/redistribution/view_check.h"
#include "meshift/status.h"

namespace meshift::run_internal {
namespace {

// INVALID_ARGUMENT if the range of a written tensor overlaps another one. Sorts the ranges.
absl::Status CheckApart(std::vector<WrittenRange>* ranges) {
  std::sort(ranges->begin(), ranges->end(), [](const WrittenRange& a, const WrittenRange& b) {
    return a.range.begin < b.range.begin;
  });
  // The ranges before the current one with the highest end: among all, and among written ones.
  const WrittenRange* any = nullptr;
  const WrittenRange* written = nullptr;
  for (const WrittenRange& r : *ranges) {
    const WrittenRange* const last = r.written ? any : written;
    if (last != nullptr && r.range.Overlaps(last->range)) {
      return InvalidArgument(
          "the byte ranges of the {} of tensor {} and the {} of tensor {} overlap; the tensors of "
          "a "
          "list are moved in any order",
          last->is_source ? "source" : "target", last->tensor, r.is_source ? "source" : "target",
          r.tensor);
    }
    if (any == nullptr || r.range.end > any->range.end) any = &r;
    if (r.written && (written == nullptr || r.range.end > written->range.end)) written = &r;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunHandle> RedistributorImpl::Redistribute(absl::Span<const Redistribution> list,
                                                          const Workspace& workspace,
                                                          std::optional<int64_t> ticket) {
  return InTurn(ticket, [&]() MESHIFT_REQUIRES(issuing_) -> absl::StatusOr<RunHandle> {
    if (list.empty()) return RunHandle();
    MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<Call> call,
                             CheckList(list, /*may_be_null=*/false));
    if (workspace.data != nullptr) {
      MESHIFT_ASSIGN_OR_RETURN(
          const MemoryRange range,
          CheckWorkspace(workspace.data, workspace.bytes, call->workspace_bytes));
      for (const WrittenRange& used : list_ranges_) {
        const absl::Status status =
            CheckDisjoint(used.is_source ? "source" : "target", used.range, range);
        if (!status.ok()) return Annotate(status, fmt::format("tensor {}", used.tensor));
      }
    }
    RunHandle handle = NewHandle();
    Run* const run = handle.run_;
    for (size_t i = 0; i < list.size(); ++i) {
      const absl::Status status =
          BeginAfter({.stream = list[i].after, .run = &list[i].after_run}, run);
      if (!status.ok()) return Annotate(status, fmt::format("tensor {}", i));
    }
    MESHIFT_ASSIGN_OR_RETURN(const Issued issued,
                             BeginIssue(*call, call->fingerprint, call->text, run));
    MESHIFT_RETURN_IF_ERROR(EndIssue(issued, EnqueueList(*call, list, workspace, run), run));
    call->num_done = static_cast<uint32_t>(run->num_done);
    return handle;
  });
}

absl::StatusOr<std::shared_ptr<Call>> RedistributorImpl::CheckList(
    absl::Span<const Redistribution> list, bool may_be_null) {
  list_plans_.clear();
  list_calls_.clear();
  list_ranges_.clear();
  MESHIFT_ASSIGN_OR_RETURN(const PlanEntries* const together, plans_.FindTogether(list));
  for (size_t i = 0; i < list.size(); ++i) {
    const Redistribution& what = list[i];
    const auto refused = [&](const absl::Status& status) {
      return Annotate(status, fmt::format("tensor {}", i));
    };
    if (what.workspace.data != nullptr || what.ticket) {
      return refused(
          InvalidArgument("a {} is an argument of the whole call, not of one tensor of a list",
                          what.ticket ? "ticket" : "workspace"));
    }
    if (what.symmetric != nullptr) {
      if (const absl::Status status = CheckPool(*what.symmetric); !status.ok()) {
        return refused(status);
      }
    }
    if (const absl::Status status = CheckAfter(&what.after_run); !status.ok()) {
      return refused(status);
    }
    const absl::StatusOr<const std::shared_ptr<PlanEntry>*> found =
        together != nullptr ? &(*together)[i]
                            : plans_.Find(PlanKey{&what.from, &what.to, what.reduce_dtype});
    if (!found.ok()) return refused(found.status());
    const std::shared_ptr<PlanEntry>& plan = list_plans_.emplace_back(**found);
    auto call = CallFor(
        *plan,
        {.source = what.source, .target = what.target, .consume_source = what.consume_source},
        may_be_null);
    if (!call.ok()) return refused(call.status());
    const auto tensor = static_cast<int>(i);
    const MemoryRange source = RangeOf(what.source);
    MemoryRange target = RangeOf(what.target);
    if (source.Overlaps(target)) {
      // Source and target are one buffer.
      target.end = std::max(target.end, source.end);
    } else if (source.begin < source.end) {
      list_ranges_.push_back({.range = source,
                              .tensor = tensor,
                              .is_source = true,
                              .written = (*call)->parts[0].program->program.consumes_source});
    }
    if (target.begin < target.end) {
      list_ranges_.push_back({.range = target, .tensor = tensor, .written = true});
    }
    list_calls_.push_back((*call)->shared_from_this());
  }
  if (!may_be_null) MESHIFT_RETURN_IF_ERROR(CheckApart(&list_ranges_));
  return plans_.Merge(list_plans_, list_calls_);
}

absl::Status RedistributorImpl::EnqueueList(const Call& call, absl::Span<const Redistribution> list,
                                            const Workspace& workspace, Run* run) {
  for (const Redistribution& what : list) {
    if (what.symmetric != nullptr) CountMiss(*what.symmetric, SymmetricMiss::kList);
  }
  NewRecord(call.record);
  char* const scratch = static_cast<char*>(workspace.data);
  for (const Call::Part& part : call.parts) {
    list_buffers_.clear();
    for (const int i : part.tensors) {
      list_buffers_.push_back({.source = list[i].source.data, .target = list[i].target.data});
    }
    MESHIFT_RETURN_IF_ERROR(
        Enqueue(call, *part.program,
                {.workspace = scratch == nullptr ? nullptr : scratch + part.workspace_offset,
                 .tensors = list_buffers_},
                run));
  }
  return absl::OkStatus();
}

absl::Status RedistributorImpl::Prepare(absl::Span<const Redistribution> list) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  if (!IsInMesh() || list.empty()) return absl::OkStatus();
  const MutexLock lock(issuing_);
  MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<Call> call, CheckList(list, /*may_be_null=*/true));
  return Prepare(*call);
}

absl::StatusOr<int64_t> RedistributorImpl::WorkspaceBytes(absl::Span<const Redistribution> list) {
  MESHIFT_RETURN_IF_ERROR(Health());
  if (!IsInMesh() || list.empty()) return 0;
  const MutexLock lock(issuing_);
  MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<Call> call, CheckList(list, /*may_be_null=*/true));
  return call->workspace_bytes;
}

}  // namespace meshift::run_internal

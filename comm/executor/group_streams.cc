#include "comm/executor/group_streams.h"

#include <algorithm>
#include <utility>

#include "meshift/status.h"

namespace meshift::run_internal {

absl::StatusOr<std::unique_ptr<GroupStream>> GroupStream::Create(Engine* engine) {
  auto group_stream = std::unique_ptr<GroupStream>(new GroupStream(engine));
  MESHIFT_ASSIGN_OR_RETURN(group_stream->stream_, engine->CreateStream());
  return group_stream;
}

absl::Status GroupStream::Grow(int64_t bytes) {
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, engine_->Allocate(bytes));
  if (std::exchange(is_kept_, false)) {
    kept_.push_back(std::move(workspace_));
  } else if (workspace_ != nullptr) {
    {
      const MutexLock lock(mutex_);
      outgrown_.emplace_back(uses_, std::move(workspace_));
      has_outgrown_ = true;
    }
    NoteDone(0);
  }
  workspace_ = std::move(buffer);
  data_ = workspace_->data();
  bytes_ = workspace_->size_bytes();
  return absl::OkStatus();
}

absl::Status GroupStream::BeginUse() {
  if (!ended_elsewhere_ || done_ == uses_) return absl::OkStatus();
  return engine_->WaitFor(*stream_, ended_);
}

absl::StatusOr<int64_t> GroupStream::EndUse(Stream& end) {
  ended_elsewhere_ = &end != stream_.get();
  if (ended_elsewhere_) MESHIFT_RETURN_IF_ERROR(engine_->RecordInto(end, &ended_));
  return ++uses_;
}

void GroupStream::KeepUse(int64_t use) {
  is_kept_ = workspace_ != nullptr;
  // In a call with a list of tensors, a later tensor may have replaced the workspace of an earlier
  // one.
  const MutexLock lock(mutex_);
  std::erase_if(outgrown_, [&](auto& entry) {
    if (entry.first < use) return false;
    kept_.push_back(std::move(entry.second));
    return true;
  });
}

void GroupStream::NoteDone(int64_t use) {
  int64_t done = done_;
  while (done < use && !done_.compare_exchange_weak(done, use)) {
  }
  if (!has_outgrown_) return;
  std::vector<std::unique_ptr<Buffer>> unused;
  const MutexLock lock(mutex_);
  std::erase_if(outgrown_, [&](auto& entry) {
    if (entry.first > done_) return false;
    unused.push_back(std::move(entry.second));
    return true;
  });
  has_outgrown_ = !outgrown_.empty();
}

GroupStreams::~GroupStreams() {
  // End all streams before any workspace is freed: a program that uses one stream's workspace may
  // end on another stream.
  for (const auto& [communicator, group_stream] : group_streams_) group_stream->EndStream();
}

absl::StatusOr<GroupStream*> GroupStreams::Of(Communicator* communicator) {
  std::unique_ptr<GroupStream>& group_stream = group_streams_[single_ ? nullptr : communicator];
  if (group_stream == nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(group_stream, GroupStream::Create(engine_));
  }
  return group_stream.get();
}

}  // namespace meshift::run_internal

#include "comm/mpi/requests.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "meshift/status.h"

namespace meshift {

absl::Status MpiError(int code, const char* call) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  std::array<char, MPI_MAX_ERROR_STRING + 1> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return Internal("{}: {}", call, text.data());
}

absl::Status Requests::SendPiece(const void* data, int bytes, int peer, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  const MpiWatchdog::Call call(watch_);
  const int code = MPI_Isend(data, bytes, MPI_BYTE, peer, tag, comm_, &request);
  if (code != MPI_SUCCESS) return MpiError(code, "MPI_Isend");
  requests_.push_back(request);
  expected_.push_back({-1, bytes});
  return absl::OkStatus();
}

absl::Status Requests::ReceivePiece(void* data, int bytes, int peer, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  const MpiWatchdog::Call call(watch_);
  const int code = MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, comm_, &request);
  if (code != MPI_SUCCESS) return MpiError(code, "MPI_Irecv");
  requests_.push_back(request);
  expected_.push_back({peer, bytes});
  receives_ = true;
  return absl::OkStatus();
}

absl::Status Requests::Send(const void* data, int64_t bytes, int peer, int tag) {
  for (int64_t done = 0; done < bytes; done += max_piece_) {
    MESHIFT_RETURN_IF_ERROR(SendPiece(static_cast<const char*>(data) + done,
                                      static_cast<int>(std::min(max_piece_, bytes - done)), peer,
                                      tag));
  }
  return absl::OkStatus();
}

absl::Status Requests::Receive(void* data, int64_t bytes, int peer, int tag) {
  for (int64_t done = 0; done < bytes; done += max_piece_) {
    MESHIFT_RETURN_IF_ERROR(ReceivePiece(static_cast<char*>(data) + done,
                                         static_cast<int>(std::min(max_piece_, bytes - done)), peer,
                                         tag));
  }
  return absl::OkStatus();
}

absl::Status Requests::Test(bool* done) {
  *done = requests_.empty();
  if (*done) return absl::OkStatus();
  if (statuses_.size() < requests_.size()) statuses_.resize(requests_.size());
  int all = 0;
  const int count = static_cast<int>(requests_.size());
  int code = MPI_SUCCESS;
  {
    const MpiWatchdog::Call call(watch_);
    code = MPI_Testall(count, requests_.data(), &all, statuses_.data());
  }
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return MpiError(code, "MPI_Testall");
  if (code == MPI_SUCCESS && all == 0) return absl::OkStatus();
  absl::Status result;
  for (int i = 0; i < count && result.ok(); ++i) {
    const auto [peer, bytes] = expected_[i];
    const int error = code == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : MPI_SUCCESS;
    int error_class = MPI_SUCCESS;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &error_class);
    if (error_class == MPI_ERR_PENDING) continue;
    if (error_class == MPI_ERR_TRUNCATE) {
      result = FailedPrecondition(
          "rank {} sent more than the expected {} bytes: it made another call", peer, bytes);
    } else if (error_class != MPI_SUCCESS) {
      result = Annotate(MpiError(error, "MPI_Testall"),
                        peer < 0 ? "a message to send" : fmt::format("a message of rank {}", peer));
    } else if (peer >= 0) {
      int arrived = 0;
      MPI_Get_count(&statuses_[i], MPI_BYTE, &arrived);
      if (arrived == bytes) continue;
      result = FailedPrecondition("rank {} sent {} bytes instead of {}: it made another call", peer,
                                  arrived, bytes);
    }
  }
  MESHIFT_RETURN_IF_ERROR(result);
  *done = true;
  requests_.clear();
  expected_.clear();
  receives_ = false;
  return absl::OkStatus();
}

std::vector<int> Requests::Missing() {
  std::vector<int> missing;
  const MpiWatchdog::Call call(watch_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (expected_[i].peer < 0 || requests_[i] == MPI_REQUEST_NULL) continue;
    int arrived = 0;
    MPI_Request_get_status(requests_[i], &arrived, MPI_STATUS_IGNORE);
    if (arrived == 0) missing.push_back(expected_[i].peer);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

void Requests::Cancel() {
  const MpiWatchdog::Call call(watch_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    // Open MPI never cancels sends.
    if (expected_[i].peer >= 0) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
  requests_.clear();
  expected_.clear();
  receives_ = false;
}

}  // namespace meshift

#include "cli/local_tensors.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "cli/file_set.h"
#include "cli/io.h"
#include "cli/npy.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

constexpr int kPoison = 0xa5;

Shape LocalShape(const Sharding& sharding, int64_t position) {
  return sharding.BoxAt(sharding.mesh().CoordinateAt(position)).size;
}

// Reads up to data.size() bytes; fewer only at the end of the file or after an error.
size_t ReadSome(std::istream& file, absl::Span<char> data) {
  file.read(data.data(), static_cast<std::streamsize>(data.size()));
  return static_cast<size_t>(file.gcount());
}

// INVALID_ARGUMENT, or BadFile if the file cannot be opened.
absl::Status ReadNpy(const std::string& path, DType dtype, absl::Span<const int64_t> shape,
                     absl::Span<std::byte> data) {
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<std::istream> opened, OpenFile(path));
  std::istream& file = *opened;
  std::string start(kMaxNpyHeaderBytes, '\0');
  start.resize(ReadSome(file, absl::MakeSpan(start.data(), start.size())));
  MESHIFT_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(start));
  MESHIFT_RETURN_IF_ERROR(CheckNpy(header, dtype, shape));
  // From here on, header.data_bytes is data.size().
  const std::string_view read = std::string_view{start}.substr(header.data_offset);
  size_t have = std::min(read.size(), data.size());
  if (have > 0) std::memcpy(data.data(), read.data(), have);
  if (have < data.size()) {
    auto* const rest = reinterpret_cast<char*>(data.data() + have);
    have += ReadSome(file, absl::MakeSpan(rest, data.size() - have));
  }
  if (file.bad()) return InvalidArgument("cannot be read: an error while reading");
  if (have < data.size()) {
    return InvalidArgument("cut short: {} of its {} bytes of data are there", have, data.size());
  }
  if (read.size() > data.size() || (file.good() && file.get() != std::istream::traits_type::eof()))
    return InvalidArgument("has more than its {} bytes of data", data.size());
  return FinishNpy(header, dtype, data);
}

}  // namespace

LocalTensors::LocalTensors(const Sharding& sharding)
    : LocalTensors(sharding, [](int64_t) { return true; }) {}

LocalTensors::LocalTensors(const Sharding& sharding,
                           const std::function<bool(int64_t rank)>& holds) {
  for (int64_t p = 0; p < sharding.mesh().NumRanks(); ++p) {
    const int64_t elements = NumElements(LocalShape(sharding, p));
    sizes_.push_back(static_cast<size_t>(Bytes(sharding.dtype(), elements)));
    held_.push_back(holds(sharding.mesh().RankAt(p)));
    memory_.push_back(sizes_[p] == 0 || !held_[p]
                          ? nullptr
                          : std::make_unique_for_overwrite<std::byte[]>(sizes_[p]));
    data_.push_back(memory_.back().get());
  }
}

void LocalTensors::Poison() {
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (data_[i] != nullptr) std::memset(data_[i], kPoison, sizes_[i]);
  }
}

std::vector<absl::Span<const std::byte>> LocalTensors::Views() const {
  std::vector<absl::Span<const std::byte>> views;
  for (size_t i = 0; i < sizes_.size(); ++i) views.push_back(at(static_cast<int64_t>(i)));
  return views;
}

std::string TensorFileName(std::string_view stem, int64_t rank) {
  return fmt::format("{}.rank{:05}.npy", stem, rank);
}

absl::Status LoadTensors(const std::string& folder, std::string_view stem, const Sharding& sharding,
                         LocalTensors* tensors) {
  const DeviceMesh& mesh = sharding.mesh();
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    if (!tensors->HoldsAt(p)) continue;
    const std::string path = folder + "/" + TensorFileName(stem, mesh.RankAt(p));
    absl::Status status = ReadNpy(path, sharding.dtype(), LocalShape(sharding, p), tensors->at(p));
    if (absl::IsDataLoss(status)) return status;
    if (!status.ok()) return BadFile(path, status);
  }
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& folder) {
  const std::string resolved = ResolvePath(folder);
  if (mkdir(resolved.c_str(), 0777) == 0) return absl::OkStatus();
  const int error = errno;
  struct stat info = {};
  if (stat(resolved.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
  return FailedPrecondition("{}: cannot be made: {}", folder, std::strerror(error));
}

absl::Status SaveTensors(const std::string& folder, std::string_view stem, const Sharding& sharding,
                         const LocalTensors& tensors, FileSet* files) {
  const DeviceMesh& mesh = sharding.mesh();
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    if (!tensors.HoldsAt(p)) continue;
    const std::string path = folder + "/" + TensorFileName(stem, mesh.RankAt(p));
    const std::string header = NpyHeaderBytes(sharding.dtype(), LocalShape(sharding, p));
    const absl::Span<const std::byte> parts[] = {
        {reinterpret_cast<const std::byte*>(header.data()), header.size()}, tensors.at(p)};
    MESHIFT_RETURN_IF_ERROR(files->Add(path, parts));
  }
  return absl::OkStatus();
}

}  // namespace meshift::cli

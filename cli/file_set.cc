#include "cli/file_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "cli/io.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

absl::Status Unwritable(const std::string& path, std::string_view why) {
  return FailedPrecondition("{}: cannot be written: {}", path, why);
}

absl::Status Unwritable(const std::string& path) { return Unwritable(path, std::strerror(errno)); }

// Returns 0, or errno.
int WriteAll(int fd, absl::Span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    data.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

std::string FolderOf(const std::string& place) {
  const size_t slash = place.rfind('/');
  return slash == std::string::npos ? "." : place.substr(0, slash + 1);
}

// Waits until all writes to the file system of `folder` are on its disk.
absl::Status Sync(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Unwritable(folder);
  const int error = syncfs(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : Unwritable(folder, std::strerror(error));
}

}  // namespace

FileSet::~FileSet() {
  for (const File& file : files_) unlink(file.part.c_str());
}

absl::Status FileSet::Add(const std::string& path,
                          absl::Span<const absl::Span<const std::byte>> parts) {
  File file{path, ResolvePath(path), {}};
  file.part = fmt::format("{}.{}.part", file.place, getpid());
  struct stat info = {};
  file.replaces = lstat(file.place.c_str(), &info) == 0;
  if (file.replaces && !S_ISREG(info.st_mode)) {
    return Unwritable(path, S_ISLNK(info.st_mode)   ? "a symbolic link is there"
                            : S_ISDIR(info.st_mode) ? "a folder is there"
                                                    : "another kind of file is there");
  }
  // Never write through a name that a stranger has taken; O_EXCL would then fail. A killed process
  // with this number may have left the name, so free it first.
  unlink(file.part.c_str());
  const int fd =
      open(file.part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return Unwritable(path);
  files_.push_back(file);
  int error = 0;
  for (const absl::Span<const std::byte> part : parts) {
    if (error == 0) error = WriteAll(fd, part);
  }
  if (close(fd) != 0 && error == 0) error = errno;
  return error == 0 ? absl::OkStatus() : Unwritable(path, std::strerror(error));
}

// Exchanges the two names, so that the old file can be put back.
absl::Status FileSet::Put(File* file) {
  const char* const part = file->part.c_str();
  const char* const place = file->place.c_str();
  if (renameat2(AT_FDCWD, part, AT_FDCWD, place, RENAME_EXCHANGE) == 0) {
    file->exchanged = true;
    return absl::OkStatus();
  }
  // No file exists there, or the file system cannot exchange names.
  if (errno != ENOENT && errno != EINVAL && errno != ENOSYS) return Unwritable(file->path);
  return rename(part, place) == 0 ? absl::OkStatus() : Unwritable(file->path);
}

// Without an exchange the old file is gone: the new one then stays.
void FileSet::TakeBack(File* file) {
  if (file->exchanged) {
    // Otherwise the part is the old file's only copy, and stays.
    if (std::rename(file->part.c_str(), file->place.c_str()) != 0) file->part.clear();
  } else if (!file->replaces) {
    unlink(file->place.c_str());
  }
}

absl::Status FileSet::Commit() {
  std::set<std::string> folders;
  for (const File& file : files_) folders.insert(FolderOf(file.place));
  for (const std::string& folder : folders) MESHIFT_RETURN_IF_ERROR(Sync(folder));
  for (size_t i = 0; i < files_.size(); ++i) {
    absl::Status status = Put(&files_[i]);
    if (status.ok()) continue;
    while (i-- > 0) TakeBack(&files_[i]);
    return status;
  }
  for (const File& file : files_) {
    if (file.exchanged) unlink(file.part.c_str());
  }
  files_.clear();
  // All files are in their places, even if the folders' entries are not on the disk yet.
  for (const std::string& folder : folders) Sync(folder).IgnoreError();
  return absl::OkStatus();
}

}  // namespace meshift::cli

#include "cli/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ios>
#include <streambuf>
#include <utility>
#include <vector>

#include "base/status.h"

namespace meshift::cli {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

absl::Status Unreadable(const char* why) { return InvalidArgument("cannot be read: {}", why); }

// Reads from a file descriptor, which it owns.
class FdBuffer final : public std::streambuf {
 public:
  explicit FdBuffer(int fd) : fd_(fd), bytes_(kBufferBytes) {}
  FdBuffer(const FdBuffer&) = delete;
  FdBuffer& operator=(const FdBuffer&) = delete;
  ~FdBuffer() override { close(fd_); }

 private:
  int_type underflow() override {
    const size_t size = Read(bytes_.data(), bytes_.size());
    if (size == 0) return traits_type::eof();
    setg(bytes_.data(), bytes_.data(), bytes_.data() + size);
    return traits_type::to_int_type(bytes_[0]);
  }
  // Long reads go directly to the caller's memory.
  std::streamsize xsgetn(char* data, std::streamsize size) override {
    std::streamsize have = std::min<std::streamsize>(egptr() - gptr(), size);
    if (have > 0) {
      std::memcpy(data, gptr(), static_cast<size_t>(have));
      gbump(static_cast<int>(have));
    }
    while (have < size) {
      const size_t more = Read(data + have, static_cast<size_t>(size - have));
      if (more == 0) break;
      have += static_cast<std::streamsize>(more);
    }
    return have;
  }
  // The stream turns the exception into badbit.
  size_t Read(char* data, size_t size) const {
    ssize_t got = 0;
    do {
      got = read(fd_, data, size);
    } while (got < 0 && errno == EINTR);
    if (got < 0) throw std::ios_base::failure(std::strerror(errno));
    return static_cast<size_t>(got);
  }

  const int fd_;
  std::vector<char> bytes_;
};

class FdStream final : public std::istream {
 public:
  explicit FdStream(int fd) : std::istream(nullptr), buffer_(fd) { rdbuf(&buffer_); }

 private:
  FdBuffer buffer_;
};

// Null for a regular file.
const char* WhyNotRegular(const struct stat& info) {
  switch (info.st_mode & S_IFMT) {
    case S_IFREG:
      return nullptr;
    case S_IFDIR:
      return "it is a folder";
    case S_IFIFO:
      return "it is a FIFO; only regular files are read";
    case S_IFSOCK:
      return "it is a socket; only regular files are read";
    case S_IFLNK:
      return "it is a symbolic link; name the file itself";
    default:
      return "it is a device; only regular files are read";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<std::istream>> OpenRegularFile(const std::string& path) {
  // Check before opening, since opening may have effects.
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return Unreadable(std::strerror(errno));
  if (const char* const why = WhyNotRegular(info)) return Unreadable(why);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Unreadable(errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
  auto stream = std::make_unique<FdStream>(fd);
  // Check again: another file may have taken the name since lstat().
  if (fstat(fd, &info) != 0) return Unreadable(std::strerror(errno));
  if (const char* const why = WhyNotRegular(info)) return Unreadable(why);
  return stream;
}

absl::StatusOr<std::string> ReadUpTo(std::istream& in, int64_t limit) {
  std::string text;
  std::vector<char> some(kBufferBytes);
  while (in.good()) {
    in.read(some.data(), static_cast<std::streamsize>(some.size()));
    text.append(some.data(), static_cast<size_t>(in.gcount()));
    if (static_cast<int64_t>(text.size()) > limit) {
      return InvalidArgument("has more than {} bytes, the most that are read", limit);
    }
  }
  if (in.bad()) return Unreadable("an error while reading");
  return text;
}

absl::Status ReadLines(std::istream& in, int64_t limit,
                       const std::function<void(const std::string&)>& line,
                       const std::function<void()>& skipped) {
  std::vector<char> some(kBufferBytes);
  std::string text;
  bool too_long = false;
  while (in.good()) {
    in.getline(some.data(), static_cast<std::streamsize>(some.size()));
    if (in.bad()) break;
    const auto got = static_cast<size_t>(in.gcount());
    // The buffer is full, and the line continues.
    const bool more = in.fail() && !in.eof() && got + 1 == some.size();
    if (in.eof() && got == 0 && text.empty() && !too_long) break;  // after the last line's end
    const size_t size = more || in.eof() ? got : got - 1;          // without the end
    too_long = too_long || static_cast<int64_t>(text.size() + size) > limit;
    if (too_long) {
      std::string().swap(text);
    } else {
      text.append(some.data(), size);
    }
    if (more) {
      in.clear();
      continue;
    }
    too_long ? skipped() : line(text);
    text.clear();
    too_long = false;
  }
  if (in.bad()) return Unreadable("an error while reading");
  return absl::OkStatus();
}

}  // namespace meshift::cli

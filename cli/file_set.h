// Files that are written as a set: all of them, or none.
//
//   FileSet files;
//   MESHIFT_RETURN_IF_ERROR(files.Add("out/source.rank00000.npy", {header, data}));
//   MESHIFT_RETURN_IF_ERROR(files.Add("out/target.rank00000.npy", ...));
//   MESHIFT_RETURN_IF_ERROR(files.Commit());
//
// Each is written beside its place, under a name of its own, and nothing is replaced before all are
// on the disk. Where one cannot be written or put in its place, what was there before stays, and
// what was written is removed. A process that is killed leaves files that end in ".part", and in
// the short time in which they are put in their places, some of the set.
#ifndef MESHIFT_CLI_FILE_SET_H_
#define MESHIFT_CLI_FILE_SET_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace meshift::cli {

class FileSet {
 public:
  FileSet() = default;
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;
  // Removes what was written, unless Commit() returned OK.
  ~FileSet();

  // Writes `parts`, one after the other. `path` starts where the caller means it (ResolvePath). It
  // may name a regular file, or nothing: links, folders, FIFOs and devices are not replaced.
  // FAILED_PRECONDITION names the path.
  absl::Status Add(const std::string& path, absl::Span<const absl::Span<const std::byte>> parts);
  // Puts all in their places. FAILED_PRECONDITION: none is.
  absl::Status Commit();

 private:
  struct File {
    std::string path;  // as the caller says
    std::string place;
    std::string part;
    bool replaces = false;   // something is there
    bool exchanged = false;  // and has the part's name now
  };
  absl::Status Put(File* file);
  void TakeBack(const File& file);

  std::vector<File> files_;
};

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_FILE_SET_H_

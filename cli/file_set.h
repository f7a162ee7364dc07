// Writes several files as a set: all of them, or none.
//
//   FileSet files;
//   MESHIFT_RETURN_IF_ERROR(files.Add("out/source.rank00000.npy", {header, data}));
//   MESHIFT_RETURN_IF_ERROR(files.Add("out/target.rank00000.npy", ...));
//   MESHIFT_RETURN_IF_ERROR(files.Commit());
//
// Each file is written beside its place, under a temporary name, and Commit() moves all of them
// once they are on the disk. If one cannot be written or moved, the old files stay and the new ones
// are removed. Exception: on a file system that cannot exchange two names, a new file that has
// replaced an old one stays. A killed process leaves files that end in ".part"; if it is killed
// while Commit() moves files, some of the set are in place, and a ".part" file may be an old file.
// A new file does not keep the permissions of the old one. Not thread-safe.
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
  // Removes the files written, unless Commit() returned OK.
  ~FileSet();

  // Writes `parts` in sequence. `path` is relative to the caller's folder (ResolvePath). It may
  // name a regular file, or nothing: links, folders, FIFOs and devices are not replaced.
  // FAILED_PRECONDITION names the path. REQUIRES: no file of this set, or of another one that
  // exists in this process, has this path.
  absl::Status Add(const std::string& path, absl::Span<const absl::Span<const std::byte>> parts);
  // Moves all files to their places. FAILED_PRECONDITION: none is moved, with the exception above.
  // REQUIRES: every Add() returned OK.
  absl::Status Commit();

 private:
  struct File {
    std::string path;        // as the caller gives it
    std::string place;       // the resolved path
    std::string part;        // the temporary name
    bool replaces = false;   // a file exists at the place
    bool exchanged = false;  // the old file has the part's name now
  };
  absl::Status Put(File* file);
  void TakeBack(File* file);

  std::vector<File> files_;
};

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_FILE_SET_H_

// The local tensors of all ranks of a mesh, in memory and as .npy files in a folder.
//
//   LocalTensors sources(plan.from());                     // not filled
//   MESHIFT_RETURN_IF_ERROR(LoadTensors("in", "source", plan.from(), &sources));
//   LocalTensors targets(plan.to());
//   ... runner->Run(plan, sources.data(), targets.data()) ...   // comm/local_run.h
//   FileSet files;
//   MESHIFT_RETURN_IF_ERROR(SaveTensors("out", "target", plan.to(), targets, &files));
//   MESHIFT_RETURN_IF_ERROR(files.Commit());               // all of them, or none
//
// Tensors are indexed by the rank's position in the mesh, files by the rank: rank 7 of the source
// is "source.rank00007.npy". A rank with an empty part has a file too, with a 0 in its shape. Each
// tensor is contiguous, row-major and in host memory. Not thread-safe.
#ifndef MESHIFT_CLI_LOCAL_TENSORS_H_
#define MESHIFT_CLI_LOCAL_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cli/file_set.h"
#include "meshift/sharding.h"

namespace meshift::cli {

class LocalTensors {
 public:
  // Owns uninitialized memory for every rank of the sharding's mesh.
  explicit LocalTensors(const Sharding& sharding);
  // Owns memory only for the ranks for which `holds` returns true. at() of the others is empty.
  LocalTensors(const Sharding& sharding, const std::function<bool(int64_t rank)>& holds);

  // Fills all memory with the byte 0xa5. So elements that a run does not write have a wrong value,
  // unless their right value consists of that byte.
  void Poison();
  // By position; null for a rank that has no elements or is not held.
  absl::Span<void* const> data() const { return data_; }
  absl::Span<std::byte> at(int64_t position) const {
    return absl::MakeSpan(memory_[position].get(), held_[position] ? sizes_[position] : 0);
  }
  bool HoldsAt(int64_t position) const { return held_[position]; }
  size_t SizeAt(int64_t position) const { return sizes_[position]; }  // bytes, held or not
  std::vector<absl::Span<const std::byte>> Views() const;

 private:
  std::vector<size_t> sizes_;
  std::vector<bool> held_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<void*> data_;
};

// "source.rank00007.npy"; a rank of 100,000 or more has more digits.
std::string TensorFileName(std::string_view stem, int64_t rank);

// Reads one file per rank that is held; ResolvePath resolves a relative folder. An error of BadFile
// (cli/io.h) names a file that cannot be read, is not a .npy file, is cut short or too long, has
// another shape or dtype than the rank's part of the tensor, or has a bool other than 0 and 1.
// The tensors of earlier files are then filled. That of the wrong file may be filled in part.
// REQUIRES: `tensors` was made for this sharding.
absl::Status LoadTensors(const std::string& folder, std::string_view stem, const Sharding& sharding,
                         LocalTensors* tensors);

// Makes the folder if it is missing; its parent must exist. FAILED_PRECONDITION if it cannot be
// made.
absl::Status MakeFolder(const std::string& folder);
// Adds one file per rank that is held to `files`, in the form that LoadTensors reads.
// FAILED_PRECONDITION names a file that cannot be written.
absl::Status SaveTensors(const std::string& folder, std::string_view stem, const Sharding& sharding,
                         const LocalTensors& tensors, FileSet* files);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_LOCAL_TENSORS_H_

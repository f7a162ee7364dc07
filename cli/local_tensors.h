// The local tensors of all ranks of a mesh, in memory, and as .npy files of a folder.
//
//   LocalTensors sources(plan.from());                     // not filled
//   MESHIFT_RETURN_IF_ERROR(LoadTensors("in", "source", plan.from(), &sources));
//   ... runner->Run(plan, sources.data(), targets.data()) ...
//   MESHIFT_RETURN_IF_ERROR(SaveTensors("out", "target", plan.to(), targets, &files));
//   MESHIFT_RETURN_IF_ERROR(files.Commit());               // all of them, or none
//
// Tensors are found by their rank's position in the mesh, files by the rank: rank 7 of the source
// is "source.rank00007.npy". A rank whose part is empty has a file too, with a 0 in its shape.
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
  // Owns memory for every rank of the sharding's mesh; what it holds is unspecified.
  explicit LocalTensors(const Sharding& sharding);
  // For the ranks that `holds` names; the others' are empty.
  LocalTensors(const Sharding& sharding, const std::function<bool(int64_t rank)>& holds);

  // Fills all with bytes that are no right value in no dtype, so that what is not written is seen.
  void Poison();
  // By position; null where a rank has no elements.
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

// "source.rank00007.npy"; more digits where the rank has more.
std::string TensorFileName(std::string_view stem, int64_t rank);

// Reads one file per rank that is held; a relative folder is the caller's (ResolvePath).
// BadFile names the file that is missing, no .npy, cut short or too long, or that holds other
// elements than the rank's part of the tensor.
absl::Status LoadTensors(const std::string& folder, std::string_view stem, const Sharding& sharding,
                         LocalTensors* tensors);

// Makes the folder where it is missing; its parent must be there. FAILED_PRECONDITION where that
// cannot be.
absl::Status MakeFolder(const std::string& folder);
// Adds what LoadTensors reads to `files`, of the ranks that are held. FAILED_PRECONDITION names the
// file that cannot be written.
absl::Status SaveTensors(const std::string& folder, std::string_view stem, const Sharding& sharding,
                         const LocalTensors& tensors, FileSet* files);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_LOCAL_TENSORS_H_

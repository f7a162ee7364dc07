#include "meshift/ragged.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/executor/group_cache.h"
#include "comm/program/program.h"
#include "meshift/dtype.h"
#include "meshift/status.h"

namespace meshift {

SizeExchange::SizeExchange(DeviceMesh mesh, Engine* engine)
    : mesh_(std::move(mesh)), engine_(engine) {}

SizeExchange::~SizeExchange() = default;

absl::StatusOr<std::unique_ptr<SizeExchange>> SizeExchange::Create(const DeviceMesh& mesh,
                                                                   Engine* engine) {
  auto exchange = std::unique_ptr<SizeExchange>(new SizeExchange(mesh, engine));
  MESHIFT_ASSIGN_OR_RETURN(exchange->groups_, GroupCache::Create(engine, mesh));
  exchange->ranks_ = mesh.Ranks();
  std::sort(exchange->ranks_.begin(), exchange->ranks_.end());
  if (mesh.NumRanks() == 1) return exchange;
  ProgramGroup all{.mesh_dims = {}, .ranks = RankList(exchange->ranks_)};
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (mesh.dim(d).size > 1) all.mesh_dims.push_back(d);
  }
  MESHIFT_ASSIGN_OR_RETURN(exchange->root_, exchange->groups_->Get(mesh, all));
  MESHIFT_ASSIGN_OR_RETURN(exchange->stream_, engine->CreateStream());
  MESHIFT_ASSIGN_OR_RETURN(exchange->own_, engine->Allocate(sizeof(Word)));
  MESHIFT_ASSIGN_OR_RETURN(exchange->all_, engine->Allocate(mesh.NumRanks() * sizeof(Word)));
  return exchange;
}

absl::StatusOr<Placement::Sizes> SizeExchange::Gather(int mesh_dim, int64_t rows) {
  const Word own = {mesh_dim, rows};
  if (root_ == nullptr) return SizesOf({own});
  std::vector<Word> by_member(ranks_.size());
  const absl::Status queued = Queue(own, &by_member);
  // Queued work uses `own` and `by_member`, so wait for it even if queueing has failed.
  const absl::Status done = engine_->Synchronize(*stream_);
  MESHIFT_RETURN_IF_ERROR(queued);
  MESHIFT_RETURN_IF_ERROR(done);
  std::vector<Word> words(by_member.size());
  for (size_t i = 0; i < by_member.size(); ++i) {
    words[*mesh_.PositionOf(ranks_[i])] = by_member[i];
  }
  return SizesOf(words);
}

absl::Status SizeExchange::Queue(const Word& own, std::vector<Word>* by_member) {
  const auto bytes = static_cast<int64_t>(by_member->size() * sizeof(Word));
  MESHIFT_RETURN_IF_ERROR(engine_->CopyIn(&own, own_->data(), sizeof(Word), *stream_));
  MESHIFT_RETURN_IF_ERROR(
      root_->AllGather(own_->data(), all_->data(), sizeof(Word), DType::kU8, *stream_));
  return engine_->CopyOut(all_->data(), by_member->data(), bytes, *stream_);
}

absl::StatusOr<Placement::Sizes> SizeExchange::SizesOf(const std::vector<Word>& words) const {
  const auto rank_at = [&](size_t position) {
    return mesh_.RankAt(static_cast<int64_t>(position));
  };
  const int64_t mesh_dim = words[0].mesh_dim;
  for (size_t p = 1; p < words.size(); ++p) {
    if (words[p].mesh_dim == mesh_dim) continue;
    return InvalidArgument(
        "rank {} gathers sizes of mesh dim {}, rank {} of mesh dim {}; it must be the same",
        rank_at(0), mesh_dim, rank_at(p), words[p].mesh_dim);
  }
  if (mesh_dim < 0 || mesh_dim >= mesh_.NumDims()) {
    return InvalidArgument("mesh {} has no mesh dim {}", mesh_.ToString(), mesh_dim);
  }
  const DeviceMesh::Dim& dim = mesh_.dim(static_cast<int>(mesh_dim));
  Placement::Sizes sizes(dim.size, -1);
  std::vector<size_t> from(dim.size, 0);  // the first position with each coordinate
  int64_t total = 0;
  for (size_t p = 0; p < words.size(); ++p) {
    const int64_t rows = words[p].rows;
    if (rows < 0)
      return InvalidArgument("rank {} has {} rows; expected at least 0", rank_at(p), rows);
    const int64_t i = mesh_.CoordinateAt(static_cast<int64_t>(p))[mesh_dim];
    if (sizes[i] < 0) {
      sizes[i] = rows;
      from[i] = p;
      if (rows > INT64_MAX - total) {
        return InvalidArgument("the rows of mesh dim {} add up to 2^63 or more", dim.name);
      }
      total += rows;
    } else if (sizes[i] != rows) {
      return InvalidArgument(
          "ranks {} and {}, both with {}={}, have {} and {} rows; they must have the same number",
          rank_at(from[i]), rank_at(p), dim.name, i, sizes[i], rows);
    }
  }
  return sizes;
}

}  // namespace meshift

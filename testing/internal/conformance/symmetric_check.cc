#include "testing/internal/conformance/symmetric_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/kernels/cast.h"
#include "meshift/dtype.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/symmetric.h"
#include "meshift/tensor_view.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

constexpr int64_t kBufferBytes = 1 << 20;

class Check {
 public:
  Check(Engine* engine, const DeviceMesh& mesh, const SymmetricCheckOptions& options)
      : engine_(engine), mesh_(mesh), options_(options), random_(options.seed) {}

  absl::Status Run() {
    MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh_, engine_));
    redistribute_ = &redistribute;
    MESHIFT_ASSIGN_OR_RETURN(stream_, engine_->CreateStream());
    const SymmetricPoolOptions pool_options{
        .buffer_bytes = kBufferBytes, .buffers = 1, .max_buffers = 3};
    MESHIFT_ASSIGN_OR_RETURN(first_, redistribute.MakeSymmetricPool({0}, pool_options));
    MESHIFT_ASSIGN_OR_RETURN(both_, redistribute.MakeSymmetricPool({0, 1}, pool_options));
    MESHIFT_RETURN_IF_ERROR(both_->Reserve(2));
    for (int i = 0; i < options_.cases; ++i) {
      const absl::Status status = RunCase();
      if (!status.ok()) return Annotate(status, fmt::format("case {}", i));
    }
    MESHIFT_RETURN_IF_ERROR(Misses());
    const SymmetricCounts all = redistribute.stats().symmetric;
    if (all.hits < options_.cases / 3) {
      return Internal("{} of {} calls went by symmetric memory", all.hits, options_.cases);
    }
    if (all.hits != first_->stats().calls.hits + both_->stats().calls.hits) {
      return Internal("the pools count other hits than the redistributor");
    }
    return absl::OkStatus();
  }

 private:
  struct Block {
    SymmetricBlock block;
    int64_t offset = 0;
    SymmetricTensor tensor() const { return {block.number, offset}; }
    void* data() const { return static_cast<char*>(block.data) + offset; }
  };
  // A random number, the same on all ranks.
  int64_t Draw(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  // Bytes of the largest rank's part of the tensor.
  static int64_t LargestBytes(const Sharding& sharding) {
    int64_t bytes = 1;
    for (const int64_t rank : sharding.mesh().Ranks()) {
      bytes = std::max(bytes, Bytes(sharding.dtype(), sharding.LocalBox(rank).NumElements()));
    }
    return bytes;
  }
  int64_t LocalBytes(const Sharding& sharding) const {
    return Bytes(sharding.dtype(), sharding.LocalBox(engine_->rank()).NumElements());
  }
  TensorView View(const Sharding& sharding, void* data) const {
    return TensorView::Contiguous(data, sharding.dtype(), sharding.LocalBox(engine_->rank()).size);
  }

  absl::StatusOr<Block> Allocate(SymmetricPool& pool, int64_t bytes) {
    Block block;
    block.offset = 16 * Draw(3);
    MESHIFT_ASSIGN_OR_RETURN(block.block, pool.Allocate(bytes + block.offset));
    return block;
  }

  // This rank's values: 1 and 2 for reductions, otherwise arbitrary bytes.
  std::vector<uint8_t> Values(const Sharding& from, bool reduces) {
    std::mt19937_64 own(random_() + static_cast<uint64_t>(engine_->rank()));
    std::vector<uint8_t> bytes(LocalBytes(from));
    const DType dtype = from.dtype();
    if (!reduces || (options_.rounds && dtype != DType::kBool)) {
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(own());
      return bytes;
    }
    const int64_t n = from.LocalBox(engine_->rank()).NumElements();
    std::vector<uint8_t> small(n);
    for (uint8_t& v : small) v = static_cast<uint8_t>(own() % 2 + (dtype == DType::kBool ? 0 : 1));
    if (dtype == DType::kBool || dtype == DType::kU8) return small;
    (*CastFunctionOf(DType::kU8, dtype))(small.data(), bytes.data(), n);
    return bytes;
  }

  absl::StatusOr<std::vector<uint8_t>> Get(const void* data, int64_t bytes) {
    std::vector<uint8_t> out(bytes);
    MESHIFT_RETURN_IF_ERROR(engine_->CopyOut(data, out.data(), bytes, *stream_));
    MESHIFT_RETURN_IF_ERROR(engine_->Synchronize(*stream_));
    return out;
  }
  absl::Status Put(const std::vector<uint8_t>& bytes, void* data) {
    MESHIFT_RETURN_IF_ERROR(
        engine_->CopyIn(bytes.data(), data, static_cast<int64_t>(bytes.size()), *stream_));
    return engine_->Synchronize(*stream_);
  }

  absl::Status RunCase() {
    constexpr DType kDTypes[] = {DType::kBF16,   DType::kF16, DType::kF8E4M3, DType::kF8E5M2,
                                 DType::kF4E2M1, DType::kF32, DType::kF64,    DType::kI32,
                                 DType::kI8,     DType::kU64, DType::kBool,   DType::kC64};
    constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kAvg,
                                 ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct};
    const DType dtype = kDTypes[Draw(std::size(kDTypes))];
    const ReduceOp op = kOps[Draw(std::size(kOps))];
    const bool reduces = Draw(2) == 0 && CheckReduce(op, dtype).ok();
    const bool over_both = Draw(2) == 0;
    const bool even = Draw(3) > 0;
    const int64_t n = mesh_.NumRanks();
    const int64_t rows = even ? n * (1 + Draw(6)) : 1 + Draw(5 * n);
    // Sometimes larger than one piece of a collective's work.
    const int64_t columns = 4 * mesh_.dim(1).size * (Draw(12) == 0 ? 64 : 1 + Draw(4));
    const std::string tensor = fmt::format("{}[{},{}]", Name(dtype), rows, columns);
    const std::string partial = fmt::format("P({})", Name(op));
    const std::string cut = over_both ? "S(0),S(0)" : "S(0),S(1)";
    const std::string whole = over_both ? (reduces ? partial + "," + partial : "R,R")
                                        : (reduces ? partial : "R") + ",S(1)";
    MESHIFT_ASSIGN_OR_RETURN(const Sharding from,
                             Sharding::Parse(tensor, mesh_, reduces ? whole : cut));
    MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements(reduces ? cut : whole));
    const absl::Status status = Compare(over_both ? *both_ : *first_, from, to, reduces);
    return Annotate(status, fmt::format("{} -> {}", from.ToString(), to.PlacementsText()));
  }

  // Redistributes both ways. A miss is right if the plan has more than one step, or if the engine
  // does not support the call.
  absl::Status Compare(SymmetricPool& pool, const Sharding& from, const Sharding& to,
                       bool reduces) {
    MESHIFT_ASSIGN_OR_RETURN(const Block source, Allocate(pool, LargestBytes(from)));
    MESHIFT_ASSIGN_OR_RETURN(const Block target, Allocate(pool, LargestBytes(to)));
    const int64_t bytes = LocalBytes(to);
    MESHIFT_ASSIGN_OR_RETURN(const auto other, engine_->Allocate(std::max<int64_t>(bytes, 1)));
    const std::vector<uint8_t> values = Values(from, reduces);
    MESHIFT_RETURN_IF_ERROR(Put(values, source.data()));
    MESHIFT_RETURN_IF_ERROR(Put(std::vector<uint8_t>(bytes, 0xA5), target.data()));
    const SymmetricUse use{.pool = &pool, .source = source.tensor(), .target = target.tensor()};
    if (LocalBytes(from) > 0 && !(pool.TensorAt(source.data()) == use.source)) {
      return Internal("the source is not found by its address");
    }
    const SymmetricCounts before = redistribute_->stats().symmetric;
    {
      MESHIFT_ASSIGN_OR_RETURN(const RunHandle run,
                               (*redistribute_)({.from = from,
                                                 .to = to,
                                                 .source = View(from, source.data()),
                                                 .target = View(to, target.data()),
                                                 .symmetric = &use}));
      MESHIFT_RETURN_IF_ERROR(run.Wait());
    }
    const RunRecord record = redistribute_->last_run();
    const SymmetricCounts after = redistribute_->stats().symmetric;
    {
      MESHIFT_ASSIGN_OR_RETURN(const RunHandle run,
                               (*redistribute_)({.from = from,
                                                 .to = to,
                                                 .source = View(from, source.data()),
                                                 .target = View(to, other->data())}));
      MESHIFT_RETURN_IF_ERROR(run.Wait());
    }
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<uint8_t> got, Get(target.data(), bytes));
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<uint8_t> wanted, Get(other->data(), bytes));
    if (got != wanted) return Internal("symmetric memory gives other bits");
    MESHIFT_ASSIGN_OR_RETURN(const Plan plan, redistribute_->Prepare(from, to));
    const bool one = plan.steps().size() == 1;
    const bool even = from.shape()[0] % pool.communicator()->size() == 0;
    const bool can = !reduces || options_.reduces == nullptr ||
                     options_.reduces(from.dtype(), *plan.steps()[0].reduce_op);
    const bool hits = one && can && (even || options_.uneven);
    const SymmetricMiss reason = one ? SymmetricMiss::kEngine : SymmetricMiss::kOperation;
    if (after.hits - before.hits != (hits ? 1 : 0) ||
        after.Missed(reason) - before.Missed(reason) != (hits ? 0 : 1)) {
      return Internal("{} steps: {} hits, {} misses by {}", plan.steps().size(),
                      after.hits - before.hits, after.Missed(reason) - before.Missed(reason),
                      Name(reason));
    }
    // No rank reads more of this rank than it has, or less than others need.
    const int64_t whole = LocalBytes(reduces ? from : to);
    const int64_t own = LocalBytes(reduces ? to : from);
    const int64_t sent = reduces ? whole - own : own * (pool.communicator()->size() - 1);
    if (hits && (record.calls != std::vector<int64_t>{1} ||
                 record.bytes_sent != std::vector<int64_t>{sent})) {
      return Internal("{} bytes sent, {} expected", record.bytes_sent[0], sent);
    }
    MESHIFT_RETURN_IF_ERROR(pool.Free(source.block.number));
    return pool.Free(target.block.number);
  }

  // The call must miss for this reason, and its result must be right.
  absl::Status ExpectMiss(SymmetricMiss reason, const Sharding& from, const Sharding& to,
                          const SymmetricUse& use, void* source, void* target, bool list = false) {
    const int64_t before = redistribute_->stats().symmetric.Missed(reason);
    const int64_t pool_before = use.pool->stats().calls.Missed(reason);
    const Redistribution what{.from = from,
                              .to = to,
                              .source = View(from, source),
                              .target = View(to, target),
                              .symmetric = &use};
    MESHIFT_ASSIGN_OR_RETURN(
        const RunHandle run,
        list ? (*redistribute_)(absl::MakeConstSpan(&what, 1)) : (*redistribute_)(what));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
    if (redistribute_->stats().symmetric.Missed(reason) == before + 1 &&
        use.pool->stats().calls.Missed(reason) == pool_before + 1) {
      return absl::OkStatus();
    }
    return Internal("no miss by {}", Name(reason));
  }

  absl::Status Misses() {
    using M = SymmetricMiss;
    const int64_t n = mesh_.NumRanks();
    MESHIFT_ASSIGN_OR_RETURN(const Sharding from,
                             Sharding::Parse(fmt::format("f32[{},8]", 4 * n), mesh_, "S(0),S(1)"));
    MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R,S(1)"));
    MESHIFT_ASSIGN_OR_RETURN(const Sharding columns, from.WithPlacements("S(1),S(0)"));
    MESHIFT_ASSIGN_OR_RETURN(const Sharding rows, from.WithPlacements("R,S(0)"));
    MESHIFT_ASSIGN_OR_RETURN(const SymmetricBlock a, first_->Allocate(LargestBytes(to)));
    MESHIFT_ASSIGN_OR_RETURN(const SymmetricBlock b, first_->Allocate(LargestBytes(to)));
    MESHIFT_ASSIGN_OR_RETURN(const SymmetricBlock c, both_->Allocate(LargestBytes(to)));
    MESHIFT_ASSIGN_OR_RETURN(const SymmetricBlock d, both_->Allocate(LargestBytes(to)));
    MESHIFT_RETURN_IF_ERROR(Put(std::vector<uint8_t>(LocalBytes(from), 1), a.data));
    MESHIFT_RETURN_IF_ERROR(Put(std::vector<uint8_t>(LocalBytes(from), 1), c.data));
    SymmetricPool* const pool = first_.get();
    const SymmetricTensor in{a.number, 0};
    const SymmetricTensor out{b.number, 0};
    MESHIFT_RETURN_IF_ERROR(ExpectMiss(M::kSource, from, to, {pool, {}, out}, a.data, b.data));
    MESHIFT_RETURN_IF_ERROR(ExpectMiss(M::kTarget, from, to, {pool, in, {}}, a.data, b.data));
    // Gathered columns are not contiguous.
    MESHIFT_RETURN_IF_ERROR(
        ExpectMiss(M::kOperation, columns, rows, {pool, in, out}, a.data, b.data));
    MESHIFT_RETURN_IF_ERROR(ExpectMiss(
        M::kGroup, from, to, {both_.get(), {c.number, 0}, {d.number, 0}}, c.data, d.data));
    MESHIFT_RETURN_IF_ERROR(ExpectMiss(M::kOverlap, from, to, {pool, in, in}, a.data, a.data));
    MESHIFT_RETURN_IF_ERROR(
        ExpectMiss(M::kList, from, to, {pool, in, out}, a.data, b.data, /*list=*/true));
    // The block has no room for a part after this offset.
    MESHIFT_ASSIGN_OR_RETURN(const SymmetricBlock e, first_->Allocate(256));
    const int64_t late = e.bytes - 16;
    const SymmetricTensor beyond{e.number, late};
    // The block is followed by memory of the pool, so the ordinary call may write it.
    MESHIFT_ASSIGN_OR_RETURN(const SymmetricBlock behind, first_->Allocate(LargestBytes(to)));
    MESHIFT_RETURN_IF_ERROR(ExpectMiss(M::kSize, from, to, {pool, in, beyond}, a.data,
                                       static_cast<char*>(e.data) + late));
    // The call's tensors must match its symmetric use.
    const SymmetricUse wrong{pool, in, out};
    const absl::Status refused = (*redistribute_)({.from = from,
                                                   .to = to,
                                                   .source = View(from, b.data),
                                                   .target = View(to, a.data),
                                                   .symmetric = &wrong})
                                     .status();
    if (refused.code() != absl::StatusCode::kInvalidArgument) {
      return Internal("a tensor that is elsewhere: {}", refused.ToString());
    }
    for (const SymmetricBlock& block : {a, b, e, behind}) {
      MESHIFT_RETURN_IF_ERROR(pool->Free(block.number));
    }
    const absl::Status freed = (*redistribute_)({.from = from,
                                                 .to = to,
                                                 .source = View(from, a.data),
                                                 .target = View(to, b.data),
                                                 .symmetric = &wrong})
                                   .status();
    if (freed.code() != absl::StatusCode::kInvalidArgument) {
      return Internal("a block that was freed: {}", freed.ToString());
    }
    return absl::OkStatus();
  }

  Engine* const engine_;
  const DeviceMesh mesh_;
  const SymmetricCheckOptions options_;
  std::mt19937_64 random_;
  Redistributor* redistribute_ = nullptr;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<SymmetricPool> first_;  // for the groups over mesh dim 0
  std::unique_ptr<SymmetricPool> both_;   // for all ranks
};

}  // namespace

absl::Status CheckSymmetric(Engine* engine, const DeviceMesh& mesh,
                            const SymmetricCheckOptions& options) {
  return Check(engine, mesh, options).Run();
}

}  // namespace meshift

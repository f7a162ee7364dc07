#include "testing/payload_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/planner.h"
#include "meshift/ragged.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "meshift/testing.h"
#include "testing/random.h"

namespace meshift::testkit {
namespace {

using Bytes8 = std::vector<std::byte>;

constexpr int64_t kColumnsPerRank = 128;

struct Format {
  DType payload;
  DType scales;
  int64_t block;  // elements of a row that share a scale
};
constexpr Format kFormats[] = {{DType::kF8E4M3, DType::kF32, 128},
                               {DType::kF8E5M2, DType::kF32, 128},
                               {DType::kF4E2M1, DType::kF8E4M3, 16},
                               {DType::kF4E2M1, DType::kF32, 32}};

struct Tensor {
  Sharding from;
  Sharding to;
};

struct Totals {
  int64_t collectives = 0;
  int64_t bytes_sent = 0;
  void Add(const RunRecord& record) {
    for (const int64_t calls : record.calls) collectives += calls;
    for (const int64_t bytes : record.bytes_sent) bytes_sent += bytes;
  }
};

// Random numbers of rows per rank; none on some ranks, or all on one.
Placement::Sizes RandomRows(int64_t ranks, Random& random) {
  Placement::Sizes sizes(ranks, 0);
  const int64_t kind = random.Below(4);
  if (kind == 0) sizes[random.Below(ranks)] = 1 + random.Below(40);
  for (int64_t& size : sizes) {
    if (kind > 0) size = random.OneIn(3) ? 0 : random.Below(12);
  }
  return sizes;
}

// Distributes `total` rows differently.
Placement::Sizes OtherRows(int64_t ranks, int64_t total, Random& random) {
  Placement::Sizes sizes(ranks, 0);
  for (int64_t row = 0; row < total; ++row) ++sizes[random.Below(1 + random.Below(ranks))];
  return sizes;
}

class PayloadCheck {
 public:
  PayloadCheck(Engine* engine, DeviceMesh mesh) : engine_(engine), mesh_(std::move(mesh)) {}

  absl::Status Start() {
    MESHIFT_ASSIGN_OR_RETURN(sizes_, SizeExchange::Create(mesh_, engine_));
    MESHIFT_ASSIGN_OR_RETURN(stream_, engine_->CreateStream());
    for (int s = 0; s < 3; ++s) {
      MESHIFT_ASSIGN_OR_RETURN(
          Redistributor redistribute,
          Redistributor::Create(mesh_, engine_,
                                {.planning = {.ragged_sizes = static_cast<RaggedSizes>(s)},
                                 .expert = {.coalesce_bytes = int64_t{1} << 40}}));
      redistributors_.push_back(std::move(redistribute));
    }
    return absl::OkStatus();
  }

  absl::Status RunCase(uint64_t seed) {
    Random random(seed);
    const int64_t ranks = mesh_.NumRanks();
    // Each rank passes only its own number of rows.
    const Placement::Sizes known = RandomRows(ranks, random);
    MESHIFT_ASSIGN_OR_RETURN(const Placement::Sizes rows,
                             sizes_->Gather(0, known[engine_->rank()]));
    const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    const Placement from = Placement::RaggedShard(0, rows);
    const int64_t kind = random.Below(3);
    const Placement to = kind == 0   ? Placement::Replicate()
                         : kind == 1 ? Placement::RaggedShard(0, OtherRows(ranks, total, random))
                                     : Placement::Shard(1);
    const Format& format = kFormats[random.Below(4)];
    const auto sizes = static_cast<RaggedSizes>(random.Below(3));
    std::vector<Tensor> tensors;
    int64_t row_bytes = 0;
    const int64_t columns = ranks * kColumnsPerRank;
    for (const TensorType& type : {TensorType{format.payload, {total, columns}},
                                   TensorType{format.scales, {total, columns / format.block}}}) {
      row_bytes += Bytes(type.dtype, type.shape[1]);
      MESHIFT_ASSIGN_OR_RETURN(Sharding source, Sharding::Create(mesh_, type, {from}));
      MESHIFT_ASSIGN_OR_RETURN(Sharding target, Sharding::Create(mesh_, type, {to}));
      tensors.push_back({std::move(source), std::move(target)});
    }
    MESHIFT_ASSIGN_OR_RETURN(const Totals together, RunCalls(tensors, sizes, /*apart=*/false));
    MESHIFT_ASSIGN_OR_RETURN(const Totals apart, RunCalls(tensors, sizes, /*apart=*/true));
    const std::string text = fmt::format("{} -> {}, {}", tensors[0].from.ToString(),
                                         tensors[0].to.PlacementsText(), Name(sizes));
    if (apart.collectives != 2 * together.collectives || apart.bytes_sent != together.bytes_sent) {
      return Internal("{}: {} collectives of {} bytes together, {} of {} apart", text,
                      together.collectives, together.bytes_sent, apart.collectives,
                      apart.bytes_sent);
    }
    const bool is_ragged = tensors[0].from.placement(0).IsRagged();
    if (kind != 0 || sizes == RaggedSizes::kCost || !is_ragged) return absl::OkStatus();
    // All rows of the other ranks, or as if each had the rows of the largest. The rows of one owner
    // are never padded.
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    const bool pads = sizes == RaggedSizes::kMax && most < total;
    const int64_t sent_rows = pads ? (ranks - 1) * most : total - rows[engine_->rank()];
    if (together.bytes_sent != sent_rows * row_bytes || together.collectives != 1) {
      return Internal("{}: {} collectives send {} bytes, not {}", text, together.collectives,
                      together.bytes_sent, sent_rows * row_bytes);
    }
    return absl::OkStatus();
  }

 private:
  // Redistributes the tensors, in a call each or in one, and checks this rank's targets.
  absl::StatusOr<Totals> RunCalls(const std::vector<Tensor>& tensors, RaggedSizes sizes,
                                  bool apart) {
    Redistributor& redistribute = redistributors_[static_cast<size_t>(sizes)];
    std::vector<Bytes8> host(tensors.size());  // must live until the copies from it are done
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<Redistribution> list;
    std::vector<Oracle> oracles;
    const int64_t rank = engine_->rank();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [from, to] = tensors[i];
      MESHIFT_ASSIGN_OR_RETURN(const Oracle oracle, Oracle::Create(from, to));
      oracles.push_back(oracle);
      host[i].resize(oracle.SourceBytes(rank));
      MESHIFT_RETURN_IF_ERROR(oracle.FillSource(FillOf(i), rank, absl::MakeSpan(host[i])));
      for (const int64_t bytes : {oracle.SourceBytes(rank), oracle.TargetBytes(rank)}) {
        MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, engine_->Allocate(bytes + 1));
        buffers.push_back(std::move(buffer));
      }
      void* const in = buffers[2 * i]->data();
      MESHIFT_RETURN_IF_ERROR(engine_->CopyIn(host[i].data(), in, std::ssize(host[i]), *stream_));
      list.push_back({.from = from,
                      .to = to,
                      .source = TensorView::Contiguous(in, from.dtype(), from.LocalBox(rank).size),
                      .target = TensorView::Contiguous(buffers[2 * i + 1]->data(), to.dtype(),
                                                       to.LocalBox(rank).size)});
    }
    MESHIFT_RETURN_IF_ERROR(engine_->Synchronize(*stream_));
    Totals totals;
    const size_t at_once = apart ? 1 : list.size();
    for (size_t i = 0; i < list.size(); i += at_once) {
      MESHIFT_ASSIGN_OR_RETURN(const RunHandle run,
                               redistribute(absl::MakeConstSpan(list).subspan(i, at_once)));
      totals.Add(redistribute.last_run());
      MESHIFT_RETURN_IF_ERROR(run.Wait());
    }
    for (size_t i = 0; i < list.size(); ++i) {
      Bytes8 right(oracles[i].TargetBytes(rank));
      Bytes8 held(right.size());
      MESHIFT_RETURN_IF_ERROR(oracles[i].MakeTarget(FillOf(i), rank, absl::MakeSpan(right)));
      MESHIFT_RETURN_IF_ERROR(
          engine_->CopyOut(list[i].target.data, held.data(), std::ssize(held), *stream_));
      MESHIFT_RETURN_IF_ERROR(engine_->Synchronize(*stream_));
      if (held != right) {
        return Internal("{} -> {}, {}: rank {} holds other bytes", tensors[i].from.ToString(),
                        tensors[i].to.PlacementsText(), Name(sizes), rank);
      }
    }
    return totals;
  }

  static Fill FillOf(size_t tensor) { return {.seed = tensor + 1}; }

  Engine* const engine_;
  const DeviceMesh mesh_;
  std::unique_ptr<SizeExchange> sizes_;
  std::unique_ptr<Stream> stream_;
  std::vector<Redistributor> redistributors_;  // by RaggedSizes
};

}  // namespace

absl::Status CheckPayloads(Engine* engine, const PayloadCheckOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh,
                           DeviceMesh::Create({{.name = "ep", .size = engine->world_size()}}));
  PayloadCheck check(engine, std::move(mesh));
  MESHIFT_RETURN_IF_ERROR(check.Start());
  for (int64_t i = 0; i < options.cases; ++i) {
    const absl::Status status = check.RunCase(options.seed * 1000003 + i);
    if (!status.ok()) return Annotate(status, fmt::format("case {}", i));
  }
  return absl::OkStatus();
}

}  // namespace meshift::testkit

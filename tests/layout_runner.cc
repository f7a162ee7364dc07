#include "tests/layout_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/status.h"
#include "meshift/testing.h"

namespace meshift {
namespace {

constexpr std::byte kPoison{0xa5};
constexpr int64_t kGuard = 64;  // bytes before and after every buffer

// Strides in items; for f4e2m1 an item is a byte (and the last dim stays innermost).
Shape RandomStrides(const Shape& shape, bool packed, testkit::Random& random) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  random.Shuffle(order);
  if (packed) {
    std::erase(order, shape.size() - 1);
    order.push_back(shape.size() - 1);
  }
  Shape strides(shape.size());
  int64_t stride = 1;
  const bool holes = !random.OneIn(4);
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    const bool innermost = packed && d + 1 == shape.size();
    if (!innermost && holes) stride += random.Below(3);
    strides[d] = !innermost && random.OneIn(4) ? -stride : stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

Shape Contiguous(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

// Positions of the elements in row-major order; the smallest is 0.
std::vector<int64_t> Positions(const Shape& shape, const Shape& strides) {
  std::vector<int64_t> positions;
  if (NumElements(shape) == 0) return positions;
  Shape index(shape.size(), 0);
  while (true) {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) at += index[d] * strides[d];
    positions.push_back(at);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) break;
  }
  const int64_t least = *std::min_element(positions.begin(), positions.end());
  for (int64_t& position : positions) position -= least;
  return positions;
}

}  // namespace

LayoutRunner::LayoutRunner(const DeviceMesh& mesh) : mesh_(mesh), ranks_(mesh.NumRanks()) {
  int64_t last = 0;
  for (const int64_t rank : mesh.Ranks()) last = std::max(last, rank);
  world_ = LocalWorld::Create(
               {.num_ranks = last + 1, .num_workers = 0, .timeout = std::chrono::seconds(2)})
               .value();
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    redistributors_.push_back(
        Redistributor::Create(mesh, world_->engine(mesh.RankAt(position)),
                              {.expert = {.verify_plans = false, .max_cached_bytes = 0}})
            .value());
  }
}

absl::Status LayoutRunner::Lay(const Plan& plan, const testkit::Oracle& oracle,
                               const testkit::Fill& fill, Memory memory, int64_t position,
                               testkit::Random& random) {
  Rank& rank = ranks_[position];
  const bool one_buffer = memory == Memory::kOneBuffer || memory == Memory::kStridedOneBuffer;
  const bool strided = memory == Memory::kStrided || memory == Memory::kStridedOneBuffer;
  int64_t size[2] = {0, 0};
  for (const bool is_target : {false, true}) {
    const Sharding& sharding = is_target ? plan.to() : plan.from();
    const bool packed = sharding.dtype() == DType::kF4E2M1;
    Tensor& tensor = is_target ? rank.target : rank.source;
    tensor.view = TensorView::Contiguous(nullptr, sharding.dtype(),
                                         sharding.BoxAt(mesh_.CoordinateAt(position)).size);
    tensor.item = packed ? 1 : Bytes(sharding.dtype(), 1);
    Shape shape = tensor.view.shape;
    if (packed) shape.back() /= 2;
    const bool plain = !strided || random.OneIn(4);
    const Shape strides = plain ? Contiguous(shape) : RandomStrides(shape, packed, random);
    tensor.view.strides = strides;
    for (size_t d = 0; packed && d + 1 < shape.size(); ++d) tensor.view.strides[d] *= 2;
    tensor.offsets = Positions(shape, strides);
    for (int64_t& offset : tensor.offsets) {
      offset = kGuard + offset * tensor.item;
      size[is_target] = std::max(size[is_target], offset + tensor.item);
    }
  }
  // At a boundary of 16 bytes, so that a source can be consumed.
  const auto place = [](std::vector<std::byte>& bytes, int64_t content) {
    bytes.assign(content + 2 * kGuard + 16, kPoison);
    return static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(bytes.data()) % 16) % 16);
  };
  const auto move = [](Tensor& tensor, std::vector<std::byte>& bytes, int64_t shift) {
    for (int64_t& offset : tensor.offsets) offset += shift;
    if (!tensor.offsets.empty()) tensor.view.data = bytes.data() + tensor.offsets[0];
  };
  const int64_t shift = place(rank.bytes, one_buffer ? std::max(size[0], size[1]) : size[0]);
  move(rank.source, rank.bytes, shift);
  if (one_buffer) {
    move(rank.target, rank.bytes, shift);
    rank.target_bytes.clear();
  } else {
    move(rank.target, rank.target_bytes, place(rank.target_bytes, size[1]));
  }
  std::vector<std::byte> dense(oracle.SourceBytes(position));
  MESHIFT_RETURN_IF_ERROR(oracle.FillSource(fill, position, absl::MakeSpan(dense)));
  for (size_t i = 0; i < rank.source.offsets.size(); ++i) {
    std::memcpy(rank.bytes.data() + rank.source.offsets[i], dense.data() + i * rank.source.item,
                rank.source.item);
  }
  rank.before = rank.bytes;
  return absl::OkStatus();
}

absl::Status LayoutRunner::LayWorkspace(const Plan& plan, Memory memory, int64_t position) {
  Rank& rank = ranks_[position];
  MESHIFT_ASSIGN_OR_RETURN(rank.workspace_bytes, redistributors_[position].WorkspaceBytes(
                                                     plan, rank.source.view, rank.target.view,
                                                     memory == Memory::kConsumedSource));
  rank.workspace.assign(rank.workspace_bytes + 2 * kGuard + 16, kPoison);
  const auto begin = reinterpret_cast<uintptr_t>(rank.workspace.data());
  rank.workspace_begin = kGuard + static_cast<int64_t>((16 - begin % 16) % 16);
  return absl::OkStatus();
}

int64_t LayoutRunner::CountSpoiled(const Rank& rank, Memory memory) const {
  const bool one_buffer = rank.target_bytes.empty();
  const auto count = [](const std::vector<std::byte>& bytes, const std::vector<std::byte>& before,
                        const std::vector<bool>& may_change) {
    int64_t spoiled = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      spoiled += bytes[i] != before[i] && !may_change[i] ? 1 : 0;
    }
    return spoiled;
  };
  const auto mark = [](const Tensor& tensor, std::vector<bool>* marks) {
    for (const int64_t offset : tensor.offsets) {
      std::fill_n(marks->begin() + offset, tensor.item, true);
    }
  };
  std::vector<bool> may_change(rank.bytes.size(), false);
  if (one_buffer) mark(rank.target, &may_change);
  if (memory == Memory::kConsumedSource) mark(rank.source, &may_change);
  int64_t spoiled = count(rank.bytes, rank.before, may_change);
  if (!one_buffer) {
    may_change.assign(rank.target_bytes.size(), false);
    mark(rank.target, &may_change);
    spoiled += count(rank.target_bytes, std::vector<std::byte>(rank.target_bytes.size(), kPoison),
                     may_change);
  }
  may_change.assign(rank.workspace.size(), false);
  std::fill_n(may_change.begin() + rank.workspace_begin, rank.workspace_bytes, true);
  spoiled +=
      count(rank.workspace, std::vector<std::byte>(rank.workspace.size(), kPoison), may_change);
  return spoiled;
}

absl::StatusOr<LayoutOutcome> LayoutRunner::Run(const Plan& plan, Memory memory, uint64_t seed) {
  const testkit::Fill fill{.values = testkit::Values::kExact, .seed = seed};
  MESHIFT_ASSIGN_OR_RETURN(
      const testkit::Oracle oracle,
      testkit::Oracle::Create(plan.from(), plan.to(), plan.options().reduce_dtype));
  testkit::Random random(seed);
  const auto ranks = static_cast<int64_t>(ranks_.size());
  for (int64_t p = 0; p < ranks; ++p) {
    MESHIFT_RETURN_IF_ERROR(Lay(plan, oracle, fill, memory, p, random));
    MESHIFT_RETURN_IF_ERROR(LayWorkspace(plan, memory, p));
  }
  std::vector<RunHandle> handles;
  for (int64_t p = 0; p < ranks; ++p) {
    Rank& rank = ranks_[p];
    const Workspace workspace{rank.workspace.data() + rank.workspace_begin, rank.workspace_bytes};
    MESHIFT_ASSIGN_OR_RETURN(
        RunHandle handle,
        redistributors_[p].Run(
            plan, rank.source.view, rank.target.view,
            {.workspace = workspace, .consume_source = memory == Memory::kConsumedSource}));
    handles.push_back(std::move(handle));
  }
  for (const RunHandle& handle : handles) MESHIFT_RETURN_IF_ERROR(handle.Wait());

  LayoutOutcome outcome;
  std::vector<absl::Span<const std::byte>> targets;
  for (int64_t p = 0; p < ranks; ++p) {
    Rank& rank = ranks_[p];
    const std::vector<std::byte>& bytes =
        rank.target_bytes.empty() ? rank.bytes : rank.target_bytes;
    rank.dense.resize(oracle.TargetBytes(p));
    for (size_t i = 0; i < rank.target.offsets.size(); ++i) {
      std::memcpy(rank.dense.data() + i * rank.target.item, bytes.data() + rank.target.offsets[i],
                  rank.target.item);
    }
    targets.emplace_back(rank.dense);
    outcome.spoiled += CountSpoiled(rank, memory);
    outcome.workspace_bytes = std::max(outcome.workspace_bytes, rank.workspace_bytes);
  }
  MESHIFT_ASSIGN_OR_RETURN(const testkit::CheckResult result, oracle.Check(fill, targets));
  outcome.wrong = result.wrong + result.replicas_differ;
  if (!result.ok()) {
    outcome.message = result.ToString();
  } else if (outcome.spoiled > 0) {
    outcome.message = fmt::format("{} bytes were written and must not be", outcome.spoiled);
  }
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    int64_t sent = 0;
    for (const Redistributor& redistributor : redistributors_) {
      sent = std::max(sent, redistributor.last_run().bytes_sent[i]);
    }
    if (sent == plan.steps()[i].bytes_sent) continue;
    ++outcome.bytes_differ;
    if (!outcome.message.empty()) continue;
    outcome.message =
        fmt::format("step {} sends {} bytes, planned {}", i, sent, plan.steps()[i].bytes_sent);
  }
  return outcome;
}

}  // namespace meshift

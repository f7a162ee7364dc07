#include "testing/internal/conformance/list_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

using Pair = std::pair<Sharding, Sharding>;

class Check {
 public:
  Check(Engine* engine, const DeviceMesh& mesh, const ListCheckOptions& options)
      : engine_(engine), mesh_(mesh), options_(options), random_(options.seed) {}

  absl::Status Run() {
    MESHIFT_ASSIGN_OR_RETURN(
        Redistributor redistribute,
        Redistributor::Create(mesh_, engine_,
                              {.planning = {.ragged_sizes = options_.ragged_sizes},
                               .expert = {.coalesce_bytes = options_.coalesce_bytes}}));
    MESHIFT_ASSIGN_OR_RETURN(stream_, engine_->CreateStream());
    for (int list = 0; list < options_.lists; ++list) {
      const absl::Status status = RunList(redistribute);
      if (!status.ok()) return Annotate(status, fmt::format("list {}", list));
    }
    if (together_.calls >= apart_.calls) {
      return Internal("{} collectives instead of {}", together_.calls, apart_.calls);
    }
    return absl::OkStatus();
  }

 private:
  struct Totals {
    int64_t bytes = 0;
    int64_t calls = 0;
    void Add(const RunRecord& record) {
      bytes = std::accumulate(record.bytes_sent.begin(), record.bytes_sent.end(), bytes);
      calls = std::accumulate(record.calls.begin(), record.calls.end(), calls);
    }
  };
  struct Local {
    std::unique_ptr<Buffer> source;
    std::unique_ptr<Buffer> target;
    TensorView in;
    TensorView out;
  };

  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  // "{3,0,2}": the sizes of a ragged shard.
  std::string RandomSizes(int rows, int64_t parts) {
    std::vector<int> sizes(parts, 0);
    for (int row = 0; row < rows; ++row) ++sizes[Below(static_cast<int>(sizes.size()))];
    return fmt::format("{{{}}}", fmt::join(sizes, ","));
  }

  // Within the mesh, or from all of its ranks but the last to all but the first.
  std::vector<Pair> RandomList(bool crosses) {
    const int64_t ranks = mesh_.NumRanks();
    const DeviceMesh from_mesh =
        crosses ? DeviceMesh::Parse(fmt::format("x={}", ranks - 1)).value() : mesh_;
    const DeviceMesh to_mesh =
        crosses ? DeviceMesh::Parse(fmt::format("y={}@1-{}", ranks - 1, ranks - 1)).value() : mesh_;
    constexpr const char* kDTypes[] = {"f32", "bf16", "i32", "u8", "f64"};
    constexpr const char* kPlacements[] = {"R", "S(0)", "S(1)", "P", "P(max)", "P(avg)"};
    std::vector<Pair> list;
    while (list.size() < 10) {
      const int rows = Below(9);
      const std::string tensor = fmt::format("{}[{},{}]", kDTypes[Below(5)], rows, 1 + Below(8));
      std::string from;
      std::string to;
      for (int d = 0; d < from_mesh.NumDims(); ++d) {
        for (std::string* text : {&from, &to}) {
          *text += std::string(d > 0 ? "," : "") + kPlacements[Below(6)];
          if (text->ends_with("S(0)") && Below(2) == 0) {
            *text += RandomSizes(rows, from_mesh.dim(d).size);
          }
        }
      }
      auto source = Sharding::Parse(tensor, from_mesh, from);
      if (!source.ok()) continue;
      auto target = Sharding::Parse(tensor, to_mesh, to);
      if (!target.ok() || !MakePlan(*source, *target).ok()) continue;
      // Often adds the same pair several times, so that calls can be merged.
      list.insert(list.end(), 1 + Below(3), Pair(*source, *target));
    }
    return list;
  }

  // 0, 1 or 2, equal on replicas: sums of these are exact in any order.
  std::vector<char> Contribution(const Sharding& from, size_t tensor) const {
    const DType dtype = from.dtype();
    const Box box = from.LocalBox(engine_->rank());
    int64_t seed = static_cast<int64_t>(tensor);
    for (const int64_t offset : box.offset) seed = seed * 5 + offset;
    const auto at = from.mesh().CoordinateOf(engine_->rank());
    for (int d = 0; at && d < from.mesh().NumDims(); ++d) {
      if (from.placement(d).IsPartial()) seed = seed * 3 + (*at)[d];
    }
    const int64_t item = Bytes(dtype, 1);
    std::vector<char> bytes(box.NumElements() * item);
    for (int64_t i = 0; i < box.NumElements(); ++i) {
      const int64_t value = (i * 7 + seed * 3) % 3;
      const auto f32 = static_cast<float>(value);
      const auto f64 = static_cast<double>(value);
      char* const at = bytes.data() + i * item;
      if (dtype == DType::kF32) {
        std::memcpy(at, &f32, 4);
      } else if (dtype == DType::kF64) {
        std::memcpy(at, &f64, 8);
      } else if (dtype == DType::kBF16) {
        std::memcpy(at, reinterpret_cast<const char*>(&f32) + 2, 2);  // its upper half
      } else {
        *at = static_cast<char>(value);
      }
    }
    return bytes;
  }

  absl::StatusOr<std::vector<Local>> LayAll(const std::vector<Pair>& list) {
    std::vector<Local> locals;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto& [from, to] = list[i];
      Local& local = locals.emplace_back();
      local.in = TensorView::Contiguous(nullptr, from.dtype(), from.LocalBox(engine_->rank()).size);
      local.out = TensorView::Contiguous(nullptr, to.dtype(), to.LocalBox(engine_->rank()).size);
      MESHIFT_ASSIGN_OR_RETURN(local.source, engine_->Allocate(local.in.NumBytes() + 1));
      MESHIFT_ASSIGN_OR_RETURN(local.target, engine_->Allocate(local.out.NumBytes() + 1));
      local.in.data = local.source->data();
      local.out.data = local.target->data();
      const std::vector<char> bytes = Contribution(from, i);
      MESHIFT_RETURN_IF_ERROR(engine_->CopyIn(bytes.data(), local.in.data,
                                              static_cast<int64_t>(bytes.size()), *stream_));
      MESHIFT_RETURN_IF_ERROR(engine_->Synchronize(*stream_));
    }
    return locals;
  }

  absl::StatusOr<std::vector<char>> TargetOf(const Local& local) {
    std::vector<char> bytes(local.out.NumBytes());
    MESHIFT_RETURN_IF_ERROR(engine_->CopyOut(local.out.data, bytes.data(),
                                             static_cast<int64_t>(bytes.size()), *stream_));
    MESHIFT_RETURN_IF_ERROR(engine_->Synchronize(*stream_));
    return bytes;
  }

  absl::Status RunList(Redistributor& redistribute) {
    const bool crosses = mesh_.NumRanks() > 1 && Below(3) == 0;
    const std::vector<Pair> list = RandomList(crosses);
    MESHIFT_ASSIGN_OR_RETURN(std::vector<Local> apart, LayAll(list));
    MESHIFT_ASSIGN_OR_RETURN(std::vector<Local> together, LayAll(list));
    std::vector<RunHandle> runs;
    Totals each;
    std::vector<Redistribution> all;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto& [from, to] = list[i];
      MESHIFT_ASSIGN_OR_RETURN(
          RunHandle run,
          redistribute({.from = from, .to = to, .source = apart[i].in, .target = apart[i].out}));
      runs.push_back(std::move(run));
      each.Add(redistribute.last_run());
      all.push_back({.from = from, .to = to, .source = together[i].in, .target = together[i].out});
    }
    MESHIFT_ASSIGN_OR_RETURN(const RunHandle last, redistribute(all));
    Totals one;
    one.Add(redistribute.last_run());
    MESHIFT_RETURN_IF_ERROR(last.Wait());
    for (const RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());
    for (size_t i = 0; i < list.size(); ++i) {
      MESHIFT_ASSIGN_OR_RETURN(const std::vector<char> a, TargetOf(apart[i]));
      MESHIFT_ASSIGN_OR_RETURN(const std::vector<char> b, TargetOf(together[i]));
      if (a != b) {
        return Internal("tensor {}, {} -> {}, differs on rank {}", i, list[i].first.ToString(),
                        list[i].second.ToString(), engine_->rank());
      }
    }
    // Onto another mesh, a list has other plans.
    if (!crosses && (one.bytes > each.bytes || each.bytes - one.bytes > each.calls - one.calls)) {
      return Internal("{} bytes in {} calls instead of {} in {}", one.bytes, one.calls, each.bytes,
                      each.calls);
    }
    apart_.bytes += each.bytes;
    apart_.calls += each.calls;
    together_.calls += one.calls;
    return absl::OkStatus();
  }

  Engine* const engine_;
  const DeviceMesh mesh_;
  const ListCheckOptions options_;
  std::mt19937_64 random_;
  std::unique_ptr<Stream> stream_;
  Totals apart_;
  Totals together_;
};

}  // namespace

absl::Status CheckLists(Engine* engine, const DeviceMesh& mesh, const ListCheckOptions& options) {
  return Check(engine, mesh, options).Run();
}

}  // namespace meshift

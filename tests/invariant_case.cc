#include "tests/invariant_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>

#include "base/status.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "tests/ordered_case.h"

namespace meshift {
namespace {

using testkit::Random;

constexpr int kElements = 12;  // tracked elements

// The tracked elements in random order, at random places between others.
std::vector<int64_t> Embed(int64_t size, Random& random) {
  std::vector<int64_t> ids(size);
  for (int64_t i = 0; i < size; ++i) ids[i] = i < kElements ? i : kElements + random.Below(1000);
  random.Shuffle(ids);
  return ids;
}

// A value with a random fraction and an exponent near that of 1.
uint32_t Contribution(DType dtype, int64_t coordinate, int64_t id) {
  Random random(static_cast<uint64_t>(coordinate * 7919 + id * 104729 + 1));
  const auto any = static_cast<uint32_t>(random.Next());
  const auto exponent = static_cast<uint32_t>(random.Below(6));
  switch (dtype) {
    case DType::kF32:
      return (any & 0x807fffff) | (124 + exponent) << 23;
    case DType::kBF16:
      return (any & 0x807f) | (124 + exponent) << 7;
    default:
      return (any & 0x83ff) | (12 + exponent) << 10;
  }
}

// A random mesh of `ranks` ranks with two or more dims.
std::string AnyMesh(int64_t ranks, Random& random) {
  std::vector<std::string> meshes;
  for (const std::vector<int64_t>& sizes : Factorings(ranks)) {
    if (sizes.size() < 2) continue;
    std::vector<std::string> dims;
    for (const int64_t size : sizes) {
      dims.push_back(fmt::format("{}={}", static_cast<char>('a' + dims.size()), size));
    }
    meshes.push_back(fmt::format("{}", fmt::join(dims, ",")));
  }
  return meshes[random.Below(static_cast<int64_t>(meshes.size()))];
}

}  // namespace

InvariantCase::InvariantCase(uint64_t seed, int64_t ranks) : random_(seed * 31 + 5) {
  constexpr std::array kMeshes = {"a=4,b=5",     "a=5,b=4", "a=8,b=5",     "a=3,b=7",
                                  "a=2,b=3,c=2", "a=6,b=2", "a=2,b=5,c=3", "a=4,b=4"};
  constexpr std::array kDTypes = {DType::kF32, DType::kBF16, DType::kF16};
  averages_ = random_.OneIn(4);
  mesh_.emplace(DeviceMesh::Parse(ranks > 0 ? AnyMesh(ranks, random_)
                                            : kMeshes[random_.Below(kMeshes.size())])
                    .value());
  dtype_ = kDTypes[random_.Below(kDTypes.size())];
  domain_ = 2 + random_.Below(ranks > 0 ? ranks - 1 : 7);
  // At least one mesh dim is partial, and another one makes groups.
  std::vector<std::string> source(mesh_->NumDims());
  std::vector<std::string> target(mesh_->NumDims());
  const int64_t partial = random_.Below(mesh_->NumDims());
  const int64_t grouping = (partial + 1) % mesh_->NumDims();
  for (int d = 0; d < mesh_->NumDims(); ++d) {
    const bool is_partial = d == partial || (d != grouping && random_.OneIn(2));
    source[d] = is_partial ? averages_ ? "P(avg)" : "P" : random_.OneIn(4) ? "R" : "S(0)";
    target[d] = random_.OneIn(3) ? "S(0)" : "R";
  }
  from_ = fmt::format("{}", fmt::join(source, ","));
  to_ = fmt::format("{}", fmt::join(target, ","));
}

Topology InvariantCase::topology() const {
  return Topology::Parse(fmt::format("nvlink={}", domain_)).value();
}

std::string InvariantCase::ToString() const {
  return fmt::format("{} on {}, domains of {}, {} -> {}", Name(dtype_), mesh_->ToString(), domain_,
                     from_, to_);
}

InvariantTensor InvariantCase::Make(std::vector<int64_t> ids) const {
  const TensorType type = TensorType::Create(dtype_, {static_cast<int64_t>(ids.size())}).value();
  return {Sharding::Parse(type, *mesh_, from_).value(), Sharding::Parse(type, *mesh_, to_).value(),
          std::move(ids)};
}

InvariantBatch InvariantCase::First() const {
  std::vector<int64_t> all(kElements);
  for (int i = 0; i < kElements; ++i) all[i] = i;
  return {Make(std::move(all))};
}

std::vector<InvariantBatch> InvariantCase::Batches() const {
  Random random = random_;
  std::vector<InvariantBatch> batches = {First()};
  std::vector<int64_t> all = batches[0][0].ids;
  random.Shuffle(all);
  batches.push_back({Make(all)});                                          // moved
  batches.push_back({Make(Embed(kElements + random.Below(40), random))});  // embedded
  batches.push_back({Make(Embed(300 + random.Below(3000), random))});
  const auto cut = 1 + random.Below(kElements - 1);
  const std::vector<int64_t> low(all.begin(), all.begin() + cut);
  const std::vector<int64_t> high(all.begin() + cut, all.end());
  batches.push_back({Make(low), Make(high)});  // split, and sent together
  batches.push_back({Make(low)});
  batches.push_back({Make(high)});
  batches.push_back({Make(Embed(50, random)), Make(all), Make(Embed(500, random))});  // with others
  return batches;
}

absl::Status InvariantBits::Add(int64_t id, uint32_t bits) {
  const auto [it, is_new] = bits_.try_emplace(id, bits);
  if (it->second == bits) return absl::OkStatus();
  return absl::DataLossError(fmt::format("element {} is {:#x} and {:#x}", id, it->second, bits));
}

std::string InvariantBits::Pack() const {
  std::string packed;
  for (const auto& [id, bits] : bits_) {
    packed.append(reinterpret_cast<const char*>(&id), sizeof(id));
    packed.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return packed;
}

absl::Status InvariantBits::Merge(std::string_view packed) {
  int64_t id = 0;
  uint32_t bits = 0;
  for (; packed.size() >= sizeof(id) + sizeof(bits);
       packed.remove_prefix(sizeof(id) + sizeof(bits))) {
    std::memcpy(&id, packed.data(), sizeof(id));
    std::memcpy(&bits, packed.data() + sizeof(id), sizeof(bits));
    MESHIFT_RETURN_IF_ERROR(Add(id, bits));
  }
  return absl::OkStatus();
}

absl::StatusOr<InvariantRun> InvariantRun::Start(const InvariantCase& c,
                                                 const InvariantBatch& batch, Engine* engine,
                                                 Redistributor& redistribute) {
  InvariantRun run;
  run.engine_ = engine;
  run.item_ = Bytes(c.dtype(), 1);
  MESHIFT_ASSIGN_OR_RETURN(run.stream_, engine->CreateStream());
  const Coordinate at = c.mesh().CoordinateAt(engine->rank());
  std::vector<Redistribution> list;
  for (const InvariantTensor& tensor : batch) {
    int64_t coordinate = 0;
    for (int d = 0; d < c.mesh().NumDims(); ++d) {
      if (tensor.from.placement(d).IsPartial()) {
        coordinate = coordinate * c.mesh().dim(d).size + at[d];
      }
    }
    const Box in = tensor.from.BoxAt(at);
    const Box out = tensor.to.BoxAt(at);
    std::vector<char> source(in.NumElements() * run.item_ + 1);
    for (int64_t i = 0; i < in.NumElements(); ++i) {
      const uint32_t bits = Contribution(c.dtype(), coordinate, tensor.ids[in.offset[0] + i]);
      std::memcpy(source.data() + i * run.item_, &bits, run.item_);
    }
    Part& part = run.parts_.emplace_back();
    part.ids.assign(tensor.ids.begin() + out.offset[0],
                    tensor.ids.begin() + out.offset[0] + out.NumElements());
    const auto bytes = static_cast<int64_t>(source.size());
    MESHIFT_ASSIGN_OR_RETURN(part.source, engine->Allocate(bytes));
    MESHIFT_ASSIGN_OR_RETURN(part.target, engine->Allocate(out.NumElements() * run.item_ + 1));
    MESHIFT_RETURN_IF_ERROR(
        engine->CopyIn(source.data(), part.source->data(), bytes, *run.stream_));
    MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*run.stream_));
    list.push_back({.from = tensor.from,
                    .to = tensor.to,
                    .source = TensorView::Contiguous(part.source->data(), c.dtype(), in.size),
                    .target = TensorView::Contiguous(part.target->data(), c.dtype(), out.size)});
  }
  MESHIFT_ASSIGN_OR_RETURN(run.run_, list.size() == 1 ? redistribute(list[0]) : redistribute(list));
  return run;
}

absl::Status InvariantRun::Finish(InvariantBits* bits) {
  MESHIFT_RETURN_IF_ERROR(run_.Wait());
  for (const Part& part : parts_) {
    std::vector<char> target(part.ids.size() * item_ + 1);
    MESHIFT_RETURN_IF_ERROR(engine_->CopyOut(part.target->data(), target.data(),
                                             static_cast<int64_t>(target.size()) - 1, *stream_));
    MESHIFT_RETURN_IF_ERROR(engine_->Synchronize(*stream_));
    for (size_t i = 0; i < part.ids.size(); ++i) {
      uint32_t value = 0;
      std::memcpy(&value, target.data() + i * item_, item_);
      MESHIFT_RETURN_IF_ERROR(bits->Add(part.ids[i], value));
    }
  }
  return absl::OkStatus();
}

}  // namespace meshift

#include "tests/ordered_check.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "tests/ordered_case.h"

namespace meshift {
namespace {

// A topology on which blocks go in stages.
Topology TopologyOf(const OrderedCase& c) {
  if (c.reduce_block() == 0) return Topology::Flat();
  return static_cast<int>(c.dtype()) % 2 == 0 ? DearCrossings(c.reduce_block()) : DearMessages(4);
}

absl::Status CheckProblem(Engine* engine, const OrderedCase& c, const OrderedProblem& problem,
                          Reproducibility promise) {
  const int64_t rank = engine->rank();
  const Box in = problem.from.LocalBox(rank);
  const Box out = problem.to.LocalBox(rank);
  std::vector<std::byte> source(Bytes(c.dtype(), in.NumElements()));
  std::vector<std::byte> target(Bytes(c.dtype(), out.NumElements()), std::byte{0x5a});
  const int64_t position = *problem.from.mesh().PositionOf(rank);
  c.Fill(problem.from, position, absl::MakeSpan(source));
  const auto bytes_of = [](const std::vector<std::byte>& local) {
    return static_cast<int64_t>(local.size());
  };
  MESHIFT_ASSIGN_OR_RETURN(const auto source_memory, engine->Allocate(bytes_of(source) + 1));
  MESHIFT_ASSIGN_OR_RETURN(const auto target_memory, engine->Allocate(bytes_of(target) + 1));
  MESHIFT_ASSIGN_OR_RETURN(const auto stream, engine->CreateStream());
  MESHIFT_RETURN_IF_ERROR(
      engine->CopyIn(source.data(), source_memory->data(), bytes_of(source), *stream));
  MESHIFT_RETURN_IF_ERROR(
      engine->CopyIn(target.data(), target_memory->data(), bytes_of(target), *stream));
  MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                           Redistributor::Create(problem.from.mesh(), engine,
                                                 {.planning = {.reproducibility = promise,
                                                               .topology = TopologyOf(c),
                                                               .reduce_block = c.reduce_block()},
                                                  .agreement = Agreement::kOff}));
  MESHIFT_ASSIGN_OR_RETURN(
      const RunHandle run,
      redistribute({.from = problem.from,
                    .to = problem.to,
                    .source = TensorView::Contiguous(source_memory->data(), c.dtype(), in.size),
                    .target = TensorView::Contiguous(target_memory->data(), c.dtype(), out.size)}));
  MESHIFT_RETURN_IF_ERROR(run.Wait());
  MESHIFT_RETURN_IF_ERROR(
      engine->CopyOut(target_memory->data(), target.data(), bytes_of(target), *stream));
  MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
  const std::string wrong = c.FindWrong(problem.to, position, target);
  return wrong.empty() ? absl::OkStatus() : absl::DataLossError(wrong);
}

}  // namespace

absl::Status CheckOrdered(Engine* engine, const OrderedCheckOptions& options) {
  for (int64_t i = 0; i < options.cases; ++i) {
    const OrderedCase c(options.seed + static_cast<uint64_t>(i),
                        {.ranks = engine->world_size(),
                         .blocks = options.blocks,
                         .shuffle = options.promise == Reproducibility::kOrdered});
    for (const OrderedProblem& problem : c.Problems()) {
      MESHIFT_RETURN_IF_ERROR(CheckProblem(engine, c, problem, options.promise));
    }
  }
  return absl::OkStatus();
}

}  // namespace meshift

// A shared library that Python loads after PyTorch, as an application's extension would be: it
// calls the engine on a communicator that PyTorch lends. Used by torch_probe.cc.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

// Sums ones over all ranks `calls` times, in rounds that wait for their last call.
absl::Status CallEngine(const NcclLent& lent, int calls) {
  constexpr int kRound = 50;
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, NcclEngine::FromLent(lent));
  const int64_t ranks = engine->world_size();
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Create({{"x", ranks}}));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[2]", mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  MESHIFT_ASSIGN_OR_RETURN(
      Redistributor redistribute,
      Redistributor::Create(mesh, engine.get(), {.agreement = Agreement::kOff}));
  MESHIFT_ASSIGN_OR_RETURN(const auto source, engine->Allocate(8));
  MESHIFT_ASSIGN_OR_RETURN(const auto target, engine->Allocate(8));
  MESHIFT_ASSIGN_OR_RETURN(const auto stream, engine->CreateStream());
  const float ones[2] = {1, 1};
  MESHIFT_RETURN_IF_ERROR(engine->CopyIn(ones, source->data(), sizeof(ones), *stream));
  MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
  const TensorView in = TensorView::Contiguous(source->data(), from.dtype(), Shape{2});
  const TensorView out = TensorView::Contiguous(target->data(), from.dtype(), Shape{2});
  for (int call = 0; call < calls; call += kRound) {
    RunHandle last;
    for (int i = 0; i < kRound; ++i) {
      MESHIFT_ASSIGN_OR_RETURN(last,
                               redistribute({.from = from, .to = to, .source = in, .target = out}));
    }
    MESHIFT_RETURN_IF_ERROR(last.Wait());
  }
  float got[2] = {};
  MESHIFT_RETURN_IF_ERROR(engine->CopyOut(target->data(), got, sizeof(got), *stream));
  MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
  const auto want = static_cast<float>(ranks);
  if (got[0] != want || got[1] != want) {
    return Internal("{} and {} instead of {}", got[0], got[1], want);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

// Returns 0, or 1 after writing an error of at most `size` bytes, with a 0 at the end, to `error`.
// `function`: as NcclLent::function. `calls`: a multiple of 50.
extern "C" __attribute__((visibility("default"))) int meshift_call_on_lent(
    void* communicator, void* stream, const void* function, int may_split, int calls, char* error,
    size_t size) {
  const absl::Status status = meshift::CallEngine({.communicator = communicator,
                                                   .stream = stream,
                                                   .may_split = may_split != 0,
                                                   .function = function},
                                                  calls);
  if (status.ok()) return 0;
  *fmt::format_to_n(error, size - 1, "{}", status.ToString()).out = '\0';
  return 1;
}

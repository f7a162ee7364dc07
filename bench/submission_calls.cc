// Makes a number of calls of a cached redistribution over MPI, each on an idle stream with cold
// caches. submission_lines.sh counts the cost of submitting them.
//
//   mpirun -n 4 submission_calls reduce|gather|rows|pack|unpack 1000
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/mpi_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

// Larger than the last cache that submission_lines.sh simulates.
constexpr int64_t kSweepBytes = int64_t{2} << 20;

absl::Status Run(std::string_view kind, int64_t calls) {
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine());
  const int64_t ranks = engine->world_size();
  const int64_t rank = engine->rank();
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Create({{"d", ranks}}));
  MESHIFT_ASSIGN_OR_RETURN(
      Redistributor redistribute,
      Redistributor::Create(mesh, engine.get(), {.agreement = Agreement::kOff}));
  struct Case {
    const char* name;
    int64_t rows_per_rank;
    int64_t columns;
    const char* from;
    const char* to;
  };
  // Large enough that the threads that wait run the work.
  constexpr Case kCases[] = {{"reduce", 16, 1024, "P", "R"},
                             {"gather", 16, 1024, "S(0)", "R"},
                             {"rows", 1, 65536, "S(0)", "S(1)"},
                             {"pack", 16, 1024, "S(0)", "S(1)"},
                             {"unpack", 16, 1024, "S(1)", "S(0)"}};
  const auto* const what = std::find_if(std::begin(kCases), std::end(kCases),
                                        [&](const Case& c) { return c.name == kind; });
  if (what == std::end(kCases)) return InvalidArgument("unknown case '{}'", kind);
  MESHIFT_ASSIGN_OR_RETURN(
      const Sharding from,
      Sharding::Parse(fmt::format("f32[{},{}]", what->rows_per_rank * ranks, what->columns), mesh,
                      what->from));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements(what->to));
  std::vector<float> in(from.MaxLocalElements());
  std::vector<float> out(to.MaxLocalElements());
  const TensorView source =
      TensorView::Contiguous(in.data(), DType::kF32, from.LocalBox(rank).size);
  const TensorView target = TensorView::Contiguous(out.data(), DType::kF32, to.LocalBox(rank).size);
  std::vector<char> sweep(kSweepBytes);
  for (int64_t i = 0; i < calls; ++i) {
    std::fill(sweep.begin(), sweep.end(), static_cast<char>(i));
    MESHIFT_ASSIGN_OR_RETURN(
        const RunHandle run,
        redistribute({.from = from, .to = to, .source = source, .target = target}));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto session = meshift::MpiSession::Start();
  const absl::Status status =
      session.ok() ? meshift::Run(argv[1], std::atoll(argv[2])) : session.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  meshift::MpiSession::Leave(1);
}

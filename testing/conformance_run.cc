#include "testing/conformance_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/control/rank_exchange.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "meshift/testing.h"
#include "meshift/union_mesh.h"
#include "placement/local_box.h"
#include "planner/plan/rank_bytes.h"

namespace meshift::testkit {
namespace {

constexpr std::array<Values, 3> kValues = {Values::kExact, Values::kRounding, Values::kSpecial};
constexpr std::byte kPoison{0xa5};
// The number of cases that are checked together: ranks exchange results once per batch.
constexpr size_t kBatch = 25;

using Bytes = std::vector<std::byte>;

Fill FillOf(int pass, int64_t number) {
  return {.values = kValues[pass], .seed = static_cast<uint64_t>(number * 8 + pass)};
}

// Serializes a rank's results: byte counts, and tensors of known sizes, back to back.
class Writer {
 public:
  void Put(int64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Put(const Bytes& bytes) {
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string Take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  int64_t Number() {
    int64_t value = 0;
    const absl::Span<const std::byte> bytes = Take(sizeof(value));
    if (bytes.size() == sizeof(value)) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  absl::Span<const std::byte> Take(size_t bytes) {
    const std::string_view taken = text_.substr(0, bytes);
    text_.remove_prefix(taken.size());
    return {reinterpret_cast<const std::byte*>(taken.data()), taken.size()};
  }

 private:
  std::string_view text_;
};

// One case on this rank.
class CaseRun {
 public:
  static absl::StatusOr<CaseRun> Create(const ConformanceCase& c, PlannerOptions planning) {
    planning.reduce_dtype = c.reduce_dtype;
    MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(c.from, c.to, planning));
    MESHIFT_ASSIGN_OR_RETURN(Oracle oracle,
                             Oracle::Create(c.from, c.to, plan.options().reduce_dtype));
    return CaseRun(c, std::move(plan), std::move(oracle));
  }

  // Writes, for each pass, the bytes sent by step and the target.
  absl::Status Run(int64_t number, Engine& engine, Writer* writer) {
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             UnionMesh(plan_.from().mesh(), plan_.to().mesh()));
    MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh, &engine));
    if (!mesh.PositionOf(engine.rank())) return absl::OkStatus();
    // This rank's positions in the meshes of source and target.
    const std::optional<int64_t> from = plan_.from().mesh().PositionOf(engine.rank());
    const std::optional<int64_t> to = plan_.to().mesh().PositionOf(engine.rank());
    Bytes source(from ? oracle_.SourceBytes(*from) : 0);
    Bytes target(to ? oracle_.TargetBytes(*to) : 0);
    MESHIFT_ASSIGN_OR_RETURN(const auto stream, engine.CreateStream());
    MESHIFT_ASSIGN_OR_RETURN(const auto in, engine.Allocate(std::ssize(source)));
    MESHIFT_ASSIGN_OR_RETURN(const auto out, engine.Allocate(std::ssize(target)));
    const auto view = [&](const Sharding& sharding, const Buffer& buffer) {
      return TensorView::Contiguous(buffer.data(), sharding.dtype(),
                                    LocalBoxOf(sharding, engine.rank()).size);
    };
    for (size_t pass = 0; pass < kValues.size(); ++pass) {
      if (from) {
        MESHIFT_RETURN_IF_ERROR(
            oracle_.FillSource(FillOf(pass, number), *from, absl::MakeSpan(source)));
      }
      std::fill(target.begin(), target.end(), kPoison);
      MESHIFT_RETURN_IF_ERROR(
          engine.CopyIn(source.data(), in->data(), std::ssize(source), *stream));
      MESHIFT_RETURN_IF_ERROR(
          engine.CopyIn(target.data(), out->data(), std::ssize(target), *stream));
      MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream));
      MESHIFT_ASSIGN_OR_RETURN(const RunHandle run, redistribute.Run(plan_, view(plan_.from(), *in),
                                                                     view(plan_.to(), *out)));
      MESHIFT_RETURN_IF_ERROR(run.Wait());
      MESHIFT_RETURN_IF_ERROR(
          engine.CopyOut(out->data(), target.data(), std::ssize(target), *stream));
      MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream));
      for (size_t step = 0; step < plan_.steps().size(); ++step) {
        writer->Put(redistribute.last_run().bytes_sent[step]);
      }
      writer->Put(target);
    }
    return absl::OkStatus();
  }

  // Reads the results that Run has written on each rank, and checks them.
  absl::Status Judge(int64_t number, std::vector<Reader>* ranks, ConformanceReport* report) const {
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             UnionMesh(plan_.from().mesh(), plan_.to().mesh()));
    ++report->cases;
    if (mesh.NumRanks() == static_cast<int64_t>(ranks->size())) ++report->whole;
    CheckResult result;
    std::string miscounted;
    std::vector<std::vector<absl::Span<const std::byte>>> targets(
        kValues.size(), std::vector<absl::Span<const std::byte>>(plan_.to().mesh().NumRanks()));
    std::vector<int64_t> most(plan_.steps().size(), 0);
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      const int64_t rank = mesh.RankAt(p);
      const std::optional<int64_t> to = plan_.to().mesh().PositionOf(rank);
      for (auto& of_pass : targets) {
        for (size_t step = 0; step < most.size(); ++step) {
          const int64_t counted = (*ranks)[rank].Number();
          const int64_t planned = BytesSent(plan_, static_cast<int>(step), rank);
          most[step] = std::max(most[step], counted);
          if (counted == planned || !miscounted.empty()) continue;
          miscounted = fmt::format("rank {} sends {} bytes in step {}, planned {}", rank, counted,
                                   step, planned);
        }
        if (to) of_pass[*to] = (*ranks)[rank].Take(oracle_.TargetBytes(*to));
      }
    }
    for (size_t step = 0; step < most.size(); ++step) {
      if (most[step] == plan_.steps()[step].bytes_sent || !miscounted.empty()) continue;
      miscounted = fmt::format("step {} sends at most {} bytes, planned {}", step, most[step],
                               plan_.steps()[step].bytes_sent);
    }
    for (size_t pass = 0; pass < kValues.size(); ++pass) {
      MESHIFT_ASSIGN_OR_RETURN(const CheckResult one,
                               oracle_.Check(FillOf(pass, number), targets[pass]));
      result.Add(one);
      ++report->runs;
    }
    if (result.wrong > 0) ++report->wrong;
    if (result.replicas_differ > 0) ++report->replicas_differ;
    if (!miscounted.empty()) ++report->miscounted;
    if (report->first.empty() && (!result.ok() || !miscounted.empty())) {
      report->first = fmt::format("case {}, {}: {}", number, case_.ToString(),
                                  result.ok() ? miscounted : result.ToString());
    }
    return absl::OkStatus();
  }

 private:
  CaseRun(const ConformanceCase& c, Plan plan, Oracle oracle)
      : case_(c), plan_(std::move(plan)), oracle_(std::move(oracle)) {}
  const ConformanceCase& case_;
  Plan plan_;
  Oracle oracle_;
};

}  // namespace

std::string ConformanceReport::ToString() const {
  return fmt::format("{} cases, {} runs, {} wrong, {} with differing replicas, {} miscounted",
                     cases, runs, wrong, replicas_differ, miscounted);
}

absl::StatusOr<ConformanceReport> RunConformance(absl::Span<const ConformanceCase> cases,
                                                 Engine& engine, Bootstrap& bootstrap,
                                                 const PlannerOptions& planning) {
  RankExchange exchange(&bootstrap);
  ConformanceReport report;
  Writer writer;
  for (size_t first = 0; first < cases.size(); first += kBatch) {
    const size_t end = std::min(first + kBatch, cases.size());
    std::vector<CaseRun> batch;
    absl::Status status;
    for (size_t i = first; i < end && status.ok(); ++i) {
      absl::StatusOr<CaseRun> run = CaseRun::Create(cases[i], planning);
      status = run.ok() ? run->Run(static_cast<int64_t>(i), engine, &writer) : run.status();
      if (run.ok()) batch.push_back(*std::move(run));
      status = Annotate(status, fmt::format("case {}, {}", i, cases[i].ToString()));
    }
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                             exchange.Meet(status, writer.Take()));
    if (engine.rank() != 0) continue;
    std::vector<Reader> readers;
    for (const std::string& text : all) readers.emplace_back(text);
    for (size_t i = 0; i < batch.size() && status.ok(); ++i) {
      status = batch[i].Judge(static_cast<int64_t>(first + i), &readers, &report);
    }
    if (!status.ok()) return status;  // a bug: the others learn it by their time-outs
  }
  // Only rank 0 has checked results; it tells the others.
  Writer verdict;
  for (const int64_t count : {report.cases, report.whole, report.runs, report.wrong,
                              report.replicas_differ, report.miscounted}) {
    verdict.Put(count);
  }
  MESHIFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      exchange.Meet(absl::OkStatus(), engine.rank() == 0 ? verdict.Take() + report.first : ""));
  Reader reader(all[0]);
  for (int64_t* count : {&report.cases, &report.whole, &report.runs, &report.wrong,
                         &report.replicas_differ, &report.miscounted}) {
    *count = reader.Number();
  }
  report.first = all[0].substr(6 * sizeof(int64_t));
  return report;
}

}  // namespace meshift::testkit

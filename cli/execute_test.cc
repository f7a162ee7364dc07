// Judging runs: the distortion of an adversarial engine is not an error, and real errors are found
// in spite of it.
#include "cli/execute.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/execution_context.h"
#include "cli/local_tensors.h"
#include "comm/local/reduction_order.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/testing.h"
#include "testing/small_world.h"

namespace meshift::cli {
namespace {

constexpr ReductionOrder kAdversarial = ReductionOrder::kAdversarial;

absl::StatusOr<Plan> PlanOf(const std::string& mesh_text, const std::string& tensor,
                            const std::string& source, const std::string& target,
                            const PlannerOptions& options = {}) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse(mesh_text));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse(tensor, mesh, source));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements(target));
  return MakePlan(from, to, options);
}

RunReport ExecuteOrFail(const Plan& plan, const ExecuteOptions& options,
                        ExecutionContext* context) {
  absl::StatusOr<RunTensors> tensors = MakeTensors(plan, *context);
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  absl::StatusOr<RunReport> report = Execute(plan, options, context, &*tensors);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : RunReport();
}

// The local context, whose targets `spoil` changes after each run.
class SpoiltContext final : public ExecutionContext {
 public:
  // `pass`: the number of earlier runners; `run`: the number of earlier runs of this one.
  using Spoil = std::function<void(int pass, int run, LocalTensors* targets)>;
  explicit SpoiltContext(Spoil spoil) : spoil_(std::move(spoil)), context_(MakeLocalContext()) {}

  const std::string& engine() const override { return context_->engine(); }
  int64_t num_ranks() const override { return context_->num_ranks(); }
  bool is_leader() const override { return context_->is_leader(); }
  absl::Status CheckFits(const Plan& plan) const override { return context_->CheckFits(plan); }
  LocalTensors MakeTensors(const Sharding& sharding) const override {
    return context_->MakeTensors(sharding);
  }
  absl::StatusOr<std::unique_ptr<RedistributionRunner>> NewRunner(const Plan& plan,
                                                                  ReductionOrder order) override {
    MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<RedistributionRunner> runner,
                             context_->NewRunner(plan, order));
    return std::make_unique<Runner>(spoil_, passes_++, std::move(runner));
  }
  absl::Status Gather(const Sharding& sharding, LocalTensors* tensors) override {
    return context_->Gather(sharding, tensors);
  }
  absl::Status Agree(const absl::Status& status) override { return context_->Agree(status); }
  absl::Status AgreeAfter(const std::function<absl::Status()>& work) override {
    return context_->AgreeAfter(work);
  }
  absl::Status AgreeOn(const std::function<absl::StatusOr<std::string>()>& work) override {
    return context_->AgreeOn(work);
  }
  bool AllFailed() const override { return context_->AllFailed(); }
  absl::StatusOr<testkit::CheckResult> Share(
      const std::function<absl::StatusOr<testkit::CheckResult>()>& check) override {
    return context_->Share(check);
  }

 private:
  class Runner final : public RedistributionRunner {
   public:
    Runner(Spoil spoil, int pass, std::unique_ptr<RedistributionRunner> runner)
        : spoil_(std::move(spoil)), pass_(pass), runner_(std::move(runner)) {}
    absl::StatusOr<RunStats> Run(const LocalTensors& sources, LocalTensors* targets) override {
      absl::StatusOr<RunStats> run = runner_->Run(sources, targets);
      spoil_(pass_, runs_++, targets);
      return run;
    }
    absl::StatusOr<int64_t> GroupsCreated() override { return runner_->GroupsCreated(); }

   private:
    const Spoil spoil_;
    const int pass_;
    const std::unique_ptr<RedistributionRunner> runner_;
    int runs_ = 0;
  };

  const Spoil spoil_;
  const std::unique_ptr<ExecutionContext> context_;
  int passes_ = 0;
};

// Sums of two contributions by up to 64 groups, in every dtype and op, of tensors with one element
// or several per rank. A right plan has no wrong elements.
TEST(Execute, NothingIsWrongHoweverManyGroupsDistort) {
  const std::unique_ptr<ExecutionContext> context = MakeLocalContext();
  int64_t number = 0;
  int64_t runs = 0;
  for (const auto& [mesh, source, target] : std::vector<std::array<const char*, 3>>{
           {"a=2,b=2,c=5", "S(0),{},S(0)", "S(0),R,S(0)"},
           {"a=64,b=2", "S(0),{}", "S(0),R"},
           {"a=64,b=2", "S(0),{}", "S(0),S(1)"},
           {"a=32,b=3", "R,{}", "S(0),R"},
           {"a=4,b=2,c=2,d=2", "S(0),{0},{0},{0}", "S(0),R,S(1),R"}}) {
    for (const char* dtype :
         {"f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64", "c64", "c128", "i8", "i32", "u64"}) {
      for (const char* op : {"P", "P(avg)", "P(product)", "P(max)"}) {
        for (const char* shape : {"[64,2]", "[130,3]", "[24,1]"}) {
          if (++number % testkit::TestFraction() != 0) continue;
          const std::string from = fmt::format(fmt::runtime(source), op);
          const absl::StatusOr<Plan> plan = PlanOf(mesh, std::string(dtype) + shape, from, target);
          if (!plan.ok()) continue;  // complex numbers have no order
          const RunReport report =
              ExecuteOrFail(*plan, {.reduction_order = kAdversarial}, context.get());
          EXPECT_EQ(report.wrong, 0) << mesh << " " << dtype << shape << " " << from << " -> "
                                     << target << ": " << report.first_wrong;
          EXPECT_EQ(report.replicas_differ, 0) << report.first_difference;
          ++runs;
        }
      }
    }
  }
  EXPECT_GT(runs, 500 / testkit::TestFraction());
}

// The same value reduced by several groups is detected in every dtype and for every tensor size.
TEST(Execute, GroupsAreToldApartInEveryDType) {
  PlannerOptions per_dim;
  per_dim.planner = PlannerKind::kPerDim;
  const std::unique_ptr<ExecutionContext> context = MakeLocalContext();
  for (const char* dtype : {"f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64", "c64", "c128"}) {
    for (const char* mesh : {"a=2,b=2", "a=2,b=32", "a=64,b=2"}) {
      const Plan plan = PlanOf(mesh, std::string(dtype) + "[1]", "P,P", "R,R", per_dim).value();
      const RunReport report =
          ExecuteOrFail(plan, {.reduction_order = kAdversarial}, context.get());
      EXPECT_GT(report.replicas_differ, 0) << dtype << " " << mesh;
      EXPECT_EQ(report.wrong, 0) << dtype << " " << mesh << " " << report.first_wrong;
    }
  }
}

// Changes values by 2^-12 of 2, while two contributions round by 2^-23. Changes all replicas
// equally, and no pass with exact sums.
void Move(LocalTensors* targets) {
  for (int64_t p = 0; p < 4; ++p) {
    float value = 0;
    std::memcpy(&value, targets->at(p).data(), sizeof(value));
    value += 1.0F / 2048;
    std::memcpy(targets->at(p).data(), &value, sizeof(value));
  }
}

TEST(Execute, WrongValuesCountUnderDistortion) {
  const Plan plan = PlanOf("a=4", "f32[16]", "P", "R").value();
  for (const int64_t repeat : {1, 3}) {
    SpoiltContext always([](int pass, int, LocalTensors* targets) {
      if (pass > 0) Move(targets);
    });
    SpoiltContext last([&](int pass, int run, LocalTensors* targets) {
      if (pass > 0 && run == repeat - 1) Move(targets);
    });
    for (ExecutionContext* context :
         {static_cast<ExecutionContext*>(&always), static_cast<ExecutionContext*>(&last)}) {
      const RunReport report =
          ExecuteOrFail(plan, {.reduction_order = kAdversarial, .repeat = repeat}, context);
      EXPECT_EQ(report.wrong, 4) << repeat;
      EXPECT_NE(report.first_wrong.find("rank 0 holds "), std::string::npos) << report.first_wrong;
      EXPECT_EQ(report.replicas_differ, 0);
    }
  }
}

TEST(Execute, WrongValuesOfLoadedTensorsCountUnderDistortion) {
  const Plan plan = PlanOf("a=2,b=2", "f32[4]", "S(0),P", "S(0),R").value();
  const auto execute_loaded = [&](ExecutionContext* context) {
    RunTensors tensors = MakeTensors(plan, *context).value();
    for (int64_t p = 0; p < 4; ++p) {
      const std::vector<float> values = {0.1F, 0.7F};
      std::memcpy(tensors.sources.at(p).data(), values.data(), 2 * sizeof(float));
    }
    return ExecuteLoaded(plan, {.reduction_order = kAdversarial}, context, &tensors).value();
  };
  EXPECT_EQ(execute_loaded(MakeLocalContext().get()).wrong, 0);
  SpoiltContext spoilt([](int, int, LocalTensors* targets) { Move(targets); });
  EXPECT_EQ(execute_loaded(&spoilt).wrong, 4);
}

}  // namespace
}  // namespace meshift::cli

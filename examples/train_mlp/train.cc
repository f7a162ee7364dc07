#include "examples/train_mlp/train.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "examples/train_mlp/data.h"
#include "meshift/device_mesh.h"
#include "meshift/gradient.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// Local tensors have 1 or 2 dims, and are in host memory.
int64_t Rows(const ShardedTensor& t) { return t.shape()[0]; }
int64_t Columns(const ShardedTensor& t) { return t.shape().size() < 2 ? 1 : t.shape()[1]; }
float& At(const ShardedTensor& t, int64_t i, int64_t j = 0) {
  return static_cast<float*>(t.data())[i * Columns(t) + j];
}
absl::Span<float> Elements(const ShardedTensor& t) {
  return {static_cast<float*>(t.data()), static_cast<size_t>(NumElements(t.shape()))};
}
void Clear(const ShardedTensor& t) {
  for (float& element : Elements(t)) element = 0;
}

// A parameter: the shard that this rank owns, the gathered tensor that a step uses, and their
// gradients.
struct Parameter {
  ShardedTensor owned;
  ShardedTensor used;
  ShardedTensor gradient;        // of `used`: this rank's contribution
  ShardedTensor owned_gradient;  // of `owned`
};

class Worker {
 public:
  static absl::StatusOr<Worker> Create(Engine* engine, const TrainOptions& options) {
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse(options.mesh));
    if (mesh.NumDims() != 2 || mesh.dim(0).name != "data" || mesh.dim(1).name != "tensor") {
      return absl::InvalidArgumentError(
          fmt::format("mesh '{}' is not of the form data=N,tensor=N", options.mesh));
    }
    MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                             Redistributor::Create(mesh, engine, options.redistribute));
    Worker w(options, std::move(redistribute));
    const auto parameter = [&](std::vector<int64_t> shape, const char* owned_as,
                               const char* used_as) -> absl::Status {
      const std::string tensor = fmt::format("f32[{}]", fmt::join(shape, ","));
      MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse(tensor, mesh, owned_as));
      MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements(used_as));
      // Ranks with different data coordinates see different samples.
      MESHIFT_ASSIGN_OR_RETURN(const RedistributionPair gradient,
                               GradientOf(from, to, {.summed_over = {"data"}}));
      MESHIFT_ASSIGN_OR_RETURN(ShardedTensor owned, w.redistribute_.Empty(from));
      MESHIFT_ASSIGN_OR_RETURN(ShardedTensor used, w.redistribute_.Empty(to));
      MESHIFT_ASSIGN_OR_RETURN(ShardedTensor gradient_here, w.redistribute_.Empty(gradient.from));
      MESHIFT_ASSIGN_OR_RETURN(ShardedTensor sum, w.redistribute_.Empty(gradient.to));
      Clear(owned);
      w.parameters_.push_back(
          {std::move(owned), std::move(used), std::move(gradient_here), std::move(sum)});
      return absl::OkStatus();
    };
    MESHIFT_RETURN_IF_ERROR(
        parameter({options.hidden, options.inputs}, "S(0)[1],S(0)[0]", "R,S(0)"));
    MESHIFT_RETURN_IF_ERROR(parameter({options.hidden}, "S(0)[1],S(0)[0]", "R,S(0)"));
    MESHIFT_RETURN_IF_ERROR(parameter({options.outputs, options.hidden}, "S(0),S(1)", "R,S(1)"));
    MESHIFT_RETURN_IF_ERROR(parameter({options.outputs}, "S(0),R", "R,R"));
    const auto activation = [&](int64_t columns, const char* placements) -> absl::Status {
      MESHIFT_ASSIGN_OR_RETURN(
          const Sharding sharding,
          Sharding::Parse(fmt::format("f32[{},{}]", options.batch, columns), mesh, placements));
      MESHIFT_ASSIGN_OR_RETURN(ShardedTensor tensor, w.redistribute_.Empty(sharding));
      w.activations_.push_back(std::move(tensor));
      return absl::OkStatus();
    };
    MESHIFT_RETURN_IF_ERROR(activation(options.inputs, "S(0),R"));
    MESHIFT_RETURN_IF_ERROR(activation(options.hidden, "S(0),S(1)"));
    MESHIFT_RETURN_IF_ERROR(activation(options.outputs, "S(0),P"));
    MESHIFT_RETURN_IF_ERROR(activation(options.outputs, "S(0),R"));
    for (const char* const placements : {"P,R", "R,R"}) {
      MESHIFT_ASSIGN_OR_RETURN(const Sharding sharding,
                               Sharding::Parse("f32[1]", mesh, placements));
      MESHIFT_ASSIGN_OR_RETURN(ShardedTensor tensor, w.redistribute_.Empty(sharding));
      w.losses_.push_back(std::move(tensor));
    }
    w.FillWeights();
    return w;
  }

  // One step; returns the loss before it.
  absl::StatusOr<float> Step(int64_t step) {
    // All gathers start before the first is needed, and run while this rank computes.
    std::vector<RunHandle> gathers;
    for (const Parameter& p : parameters_) {
      MESHIFT_ASSIGN_OR_RETURN(RunHandle run, Start(p.owned, p.used));
      gathers.push_back(std::move(run));
    }
    FillInputs(step);
    MESHIFT_RETURN_IF_ERROR(gathers[0].Wait());
    MESHIFT_RETURN_IF_ERROR(gathers[1].Wait());
    ForwardHidden();
    MESHIFT_RETURN_IF_ERROR(gathers[2].Wait());
    ForwardOutput();
    MESHIFT_RETURN_IF_ERROR(Run(partial_output(), output()));
    MESHIFT_RETURN_IF_ERROR(gathers[3].Wait());

    BackwardOutput();
    std::vector<RunHandle> runs;
    for (const int i : {2, 3}) {
      MESHIFT_ASSIGN_OR_RETURN(RunHandle run,
                               Start(parameters_[i].gradient, parameters_[i].owned_gradient));
      runs.push_back(std::move(run));
    }
    BackwardHidden();
    for (const int i : {0, 1}) {
      MESHIFT_ASSIGN_OR_RETURN(RunHandle run,
                               Start(parameters_[i].gradient, parameters_[i].owned_gradient));
      runs.push_back(std::move(run));
    }
    MESHIFT_RETURN_IF_ERROR(Run(losses_[0], losses_[1]));
    for (const RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());
    for (const Parameter& p : parameters_) {
      const absl::Span<float> owned = Elements(p.owned);
      const absl::Span<float> gradient = Elements(p.owned_gradient);
      for (size_t k = 0; k < owned.size(); ++k) owned[k] -= options_.rate * gradient[k];
    }
    return At(losses_[1], 0);
  }

 private:
  Worker(const TrainOptions& options, Redistributor redistribute)
      : options_(options), redistribute_(std::move(redistribute)) {}

  const ShardedTensor& input() const { return activations_[0]; }
  const ShardedTensor& hidden() const { return activations_[1]; }
  const ShardedTensor& partial_output() const { return activations_[2]; }
  const ShardedTensor& output() const { return activations_[3]; }

  absl::StatusOr<RunHandle> Start(const ShardedTensor& from, const ShardedTensor& to) {
    return redistribute_(
        {.from = from.sharding(), .to = to.sharding(), .source = from.view(), .target = to.view()});
  }
  absl::Status Run(const ShardedTensor& from, const ShardedTensor& to) {
    MESHIFT_ASSIGN_OR_RETURN(const RunHandle run, Start(from, to));
    return run.Wait();
  }

  void FillWeights() {
    for (const int layer : {1, 2}) {
      const ShardedTensor& owned = parameters_[layer == 1 ? 0 : 2].owned;
      const Box box = owned.sharding().LocalBox(redistribute_.rank());
      for (int64_t i = 0; i < Rows(owned); ++i) {
        for (int64_t j = 0; j < Columns(owned); ++j) {
          At(owned, i, j) =
              FirstWeight(layer, box.offset[0] + i, box.offset[1] + j, owned.sharding().shape()[1]);
        }
      }
    }
  }

  void FillInputs(int64_t step) {
    const int64_t first = input().sharding().LocalBox(redistribute_.rank()).offset[0];
    for (int64_t i = 0; i < Rows(input()); ++i) {
      for (int64_t j = 0; j < Columns(input()); ++j) {
        At(input(), i, j) = Input(step * options_.batch + first + i, j);
      }
    }
  }

  void ForwardHidden() {
    const ShardedTensor& weight = parameters_[0].used;
    const ShardedTensor& bias = parameters_[1].used;
    for (int64_t s = 0; s < Rows(hidden()); ++s) {
      for (int64_t i = 0; i < Columns(hidden()); ++i) {
        float sum = At(bias, i);
        for (int64_t j = 0; j < Columns(input()); ++j) sum += At(weight, i, j) * At(input(), s, j);
        At(hidden(), s, i) = std::max(sum, 0.0F);
      }
    }
  }

  // The contribution of this rank's hidden units to the output.
  void ForwardOutput() {
    const ShardedTensor& weight = parameters_[2].used;
    for (int64_t s = 0; s < Rows(hidden()); ++s) {
      for (int64_t k = 0; k < Columns(partial_output()); ++k) {
        float sum = 0;
        for (int64_t i = 0; i < Columns(hidden()); ++i)
          sum += At(weight, k, i) * At(hidden(), s, i);
        At(partial_output(), s, k) = sum;
      }
    }
  }

  // Replaces the output by the gradient of the loss.
  void BackwardOutput() {
    const Parameter& weight = parameters_[2];
    const Parameter& bias = parameters_[3];
    Clear(weight.gradient);
    Clear(bias.gradient);
    Clear(losses_[0]);
    const float scale = 1.0F / static_cast<float>(options_.batch * options_.outputs);
    for (int64_t s = 0; s < Rows(output()); ++s) {
      for (int64_t k = 0; k < Columns(output()); ++k) {
        const float target = Target(&At(input(), s, 0), options_.inputs, k);
        const float error = At(output(), s, k) + At(bias.used, k) - target;
        At(losses_[0], 0) += error * error * scale;
        const float dy = At(output(), s, k) = 2 * error * scale;
        At(bias.gradient, k) += dy;
        for (int64_t i = 0; i < Columns(hidden()); ++i) {
          At(weight.gradient, k, i) += dy * At(hidden(), s, i);
        }
      }
    }
  }

  void BackwardHidden() {
    const Parameter& weight = parameters_[0];
    const Parameter& bias = parameters_[1];
    Clear(weight.gradient);
    Clear(bias.gradient);
    for (int64_t s = 0; s < Rows(hidden()); ++s) {
      for (int64_t i = 0; i < Columns(hidden()); ++i) {
        if (At(hidden(), s, i) <= 0) continue;
        float dh = 0;
        for (int64_t k = 0; k < Columns(output()); ++k) {
          dh += At(output(), s, k) * At(parameters_[2].used, k, i);
        }
        At(bias.gradient, i) += dh;
        for (int64_t j = 0; j < Columns(input()); ++j) {
          At(weight.gradient, i, j) += dh * At(input(), s, j);
        }
      }
    }
  }

  TrainOptions options_;
  Redistributor redistribute_;
  std::vector<Parameter> parameters_;  // W1, b1, W2, b2
  std::vector<ShardedTensor> activations_;
  std::vector<ShardedTensor> losses_;  // this rank's contribution, and the sum
};

}  // namespace

absl::StatusOr<std::vector<float>> Train(Engine* engine, const TrainOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(Worker worker, Worker::Create(engine, options));
  std::vector<float> losses;
  for (int64_t step = 0; step < options.steps; ++step) {
    MESHIFT_ASSIGN_OR_RETURN(const float loss, worker.Step(step));
    losses.push_back(loss);
  }
  return losses;
}

}  // namespace meshift

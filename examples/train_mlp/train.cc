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
#include "base/status.h"
#include "examples/train_mlp/data.h"
#include "meshift/device_mesh.h"
#include "meshift/gradient.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

// This rank's part of a tensor of rank 1 or 2.
struct Local {
  Local(Sharding s, int64_t rank) : sharding(std::move(s)), box(sharding.LocalBox(rank)) {
    data.resize(static_cast<size_t>(box.NumElements()));
  }
  int64_t rows() const { return box.size[0]; }
  int64_t columns() const { return box.size.size() < 2 ? 1 : box.size[1]; }
  float& at(int64_t i, int64_t j = 0) { return data[static_cast<size_t>(i * columns() + j)]; }
  float at(int64_t i, int64_t j = 0) const { return data[static_cast<size_t>(i * columns() + j)]; }
  TensorView view() { return TensorView::Contiguous(data.data(), DType::kF32, box.size); }
  void Clear() { std::fill(data.begin(), data.end(), 0.0F); }

  Sharding sharding;
  Box box;
  std::vector<float> data;
};

// A parameter: the shard that this rank owns, what it uses in a step, and their gradients.
struct Parameter {
  Local owned;
  Local used;
  Local gradient;        // of `used`: this rank's contribution
  Local owned_gradient;  // of `owned`
};

class Worker {
 public:
  static absl::StatusOr<Worker> Create(Engine* engine, const TrainOptions& options) {
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse(options.mesh));
    if (mesh.NumDims() != 2 || mesh.dim(0).name != "data" || mesh.dim(1).name != "tensor") {
      return InvalidArgument("mesh '{}' is not of the form data=N,tensor=N", options.mesh);
    }
    MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                             Redistributor::Create(mesh, engine, options.redistribute));
    Worker w(options, std::move(redistribute));
    const int64_t rank = engine->rank();
    const auto parameter = [&](std::vector<int64_t> shape, const char* owned,
                               const char* used) -> absl::Status {
      const std::string tensor = fmt::format("f32[{}]", fmt::join(shape, ","));
      MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse(tensor, mesh, owned));
      MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements(used));
      // Ranks of one data coordinate see other samples than the next.
      MESHIFT_ASSIGN_OR_RETURN(const RedistributionPair gradient,
                               GradientOf(from, to, {.summed_over = {"data"}}));
      w.parameters_.push_back({.owned = Local(from, rank),
                               .used = Local(to, rank),
                               .gradient = Local(gradient.from, rank),
                               .owned_gradient = Local(gradient.to, rank)});
      return absl::OkStatus();
    };
    MESHIFT_RETURN_IF_ERROR(
        parameter({options.hidden, options.inputs}, "S(0)[1],S(0)[0]", "R,S(0)"));
    MESHIFT_RETURN_IF_ERROR(parameter({options.hidden}, "S(0)[1],S(0)[0]", "R,S(0)"));
    MESHIFT_RETURN_IF_ERROR(parameter({options.outputs, options.hidden}, "S(0),S(1)", "R,S(1)"));
    MESHIFT_RETURN_IF_ERROR(parameter({options.outputs}, "S(0),R", "R,R"));
    const auto activation = [&](int64_t columns, const char* placements) -> absl::Status {
      MESHIFT_ASSIGN_OR_RETURN(
          Sharding sharding,
          Sharding::Parse(fmt::format("f32[{},{}]", options.batch, columns), mesh, placements));
      w.activations_.emplace_back(std::move(sharding), rank);
      return absl::OkStatus();
    };
    MESHIFT_RETURN_IF_ERROR(activation(options.inputs, "S(0),R"));
    MESHIFT_RETURN_IF_ERROR(activation(options.hidden, "S(0),S(1)"));
    MESHIFT_RETURN_IF_ERROR(activation(options.outputs, "S(0),P"));
    MESHIFT_RETURN_IF_ERROR(activation(options.outputs, "S(0),R"));
    for (const char* const placements : {"P,R", "R,R"}) {
      MESHIFT_ASSIGN_OR_RETURN(Sharding sharding, Sharding::Parse("f32[1]", mesh, placements));
      w.losses_.emplace_back(std::move(sharding), rank);
    }
    w.FillWeights();
    return w;
  }

  // One step; returns the loss before it.
  absl::StatusOr<float> Step(int64_t step) {
    // All gathers start before the first is needed, and run while this rank computes.
    std::vector<RunHandle> gathers;
    for (Parameter& p : parameters_) {
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
    for (Parameter& p : parameters_) {
      for (size_t k = 0; k < p.owned.data.size(); ++k) {
        p.owned.data[k] -= options_.rate * p.owned_gradient.data[k];
      }
    }
    return losses_[1].data[0];
  }

 private:
  Worker(const TrainOptions& options, Redistributor redistribute)
      : options_(options), redistribute_(std::move(redistribute)) {}

  Local& input() { return activations_[0]; }
  Local& hidden() { return activations_[1]; }
  Local& partial_output() { return activations_[2]; }
  Local& output() { return activations_[3]; }

  absl::StatusOr<RunHandle> Start(Local& from, Local& to) {
    return redistribute_(
        {.from = from.sharding, .to = to.sharding, .source = from.view(), .target = to.view()});
  }
  absl::Status Run(Local& from, Local& to) {
    MESHIFT_ASSIGN_OR_RETURN(const RunHandle run, Start(from, to));
    return run.Wait();
  }

  void FillWeights() {
    for (const int layer : {1, 2}) {
      Local& owned = parameters_[layer == 1 ? 0 : 2].owned;
      for (int64_t i = 0; i < owned.rows(); ++i) {
        for (int64_t j = 0; j < owned.columns(); ++j) {
          owned.at(i, j) = FirstWeight(layer, owned.box.offset[0] + i, owned.box.offset[1] + j,
                                       owned.sharding.shape()[1]);
        }
      }
    }
  }

  void FillInputs(int64_t step) {
    for (int64_t i = 0; i < input().rows(); ++i) {
      for (int64_t j = 0; j < input().columns(); ++j) {
        input().at(i, j) = Input(step * options_.batch + input().box.offset[0] + i, j);
      }
    }
  }

  void ForwardHidden() {
    const Local& weight = parameters_[0].used;
    const Local& bias = parameters_[1].used;
    for (int64_t s = 0; s < hidden().rows(); ++s) {
      for (int64_t i = 0; i < hidden().columns(); ++i) {
        float sum = bias.at(i);
        for (int64_t j = 0; j < input().columns(); ++j) sum += weight.at(i, j) * input().at(s, j);
        hidden().at(s, i) = std::max(sum, 0.0F);
      }
    }
  }

  // What this rank's hidden units add to the output.
  void ForwardOutput() {
    const Local& weight = parameters_[2].used;
    for (int64_t s = 0; s < hidden().rows(); ++s) {
      for (int64_t k = 0; k < partial_output().columns(); ++k) {
        float sum = 0;
        for (int64_t i = 0; i < hidden().columns(); ++i) sum += weight.at(k, i) * hidden().at(s, i);
        partial_output().at(s, k) = sum;
      }
    }
  }

  // Turns the output into the gradient of the loss by it.
  void BackwardOutput() {
    Parameter& weight = parameters_[2];
    Parameter& bias = parameters_[3];
    weight.gradient.Clear();
    bias.gradient.Clear();
    losses_[0].Clear();
    const float scale = 1.0F / static_cast<float>(options_.batch * options_.outputs);
    for (int64_t s = 0; s < output().rows(); ++s) {
      for (int64_t k = 0; k < output().columns(); ++k) {
        const float target = Target(&input().at(s, 0), options_.inputs, k);
        const float error = output().at(s, k) + bias.used.at(k) - target;
        losses_[0].data[0] += error * error * scale;
        const float dy = output().at(s, k) = 2 * error * scale;
        bias.gradient.at(k) += dy;
        for (int64_t i = 0; i < hidden().columns(); ++i) {
          weight.gradient.at(k, i) += dy * hidden().at(s, i);
        }
      }
    }
  }

  void BackwardHidden() {
    Parameter& weight = parameters_[0];
    Parameter& bias = parameters_[1];
    weight.gradient.Clear();
    bias.gradient.Clear();
    for (int64_t s = 0; s < hidden().rows(); ++s) {
      for (int64_t i = 0; i < hidden().columns(); ++i) {
        if (hidden().at(s, i) <= 0) continue;
        float dh = 0;
        for (int64_t k = 0; k < output().columns(); ++k) {
          dh += output().at(s, k) * parameters_[2].used.at(k, i);
        }
        bias.gradient.at(i) += dh;
        for (int64_t j = 0; j < input().columns(); ++j) {
          weight.gradient.at(i, j) += dh * input().at(s, j);
        }
      }
    }
  }

  TrainOptions options_;
  Redistributor redistribute_;
  std::vector<Parameter> parameters_;  // W1, b1, W2, b2
  std::vector<Local> activations_;
  std::vector<Local> losses_;  // this rank's contribution, and the sum
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

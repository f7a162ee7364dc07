// Trains a two-layer network, y = W2 relu(W1 x + b1) + b2, on a synthetic regression, with data and
// tensor parallelism. Every rank runs this; all communication goes through a Redistributor.
//
//   const TrainOptions options = {.mesh = "data=3,tensor=2"};
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<float> losses, Train(engine, options));
//
//               owned, between steps     in use         gradient
//   W1 [H,I]    S(0)[1],S(0)[0]          R,S(0)         P,S(0)
//   b1 [H]      S(0)[1],S(0)[0]          R,S(0)         P,S(0)
//   W2 [O,H]    S(0),S(1)                R,S(1)         P,S(1)
//   b2 [O]      S(0),R                   R,R            P,R
//
// Weights are sharded over the data-parallel ranks as in FSDP and gathered for use; gradients are
// summed and scattered back to the owners. Activations: x is S(0),R; the hidden layer S(0),S(1);
// the output S(0),P until it is reduced to S(0),R.
#ifndef MESHIFT_EXAMPLES_TRAIN_MLP_TRAIN_H_
#define MESHIFT_EXAMPLES_TRAIN_MLP_TRAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/engine.h"
#include "meshift/redistributor.h"

namespace meshift {

struct TrainOptions {
  std::string mesh = "data=3,tensor=2";  // two dims, with these names
  int64_t steps = 60;
  // Sizes that no mesh divides evenly.
  int64_t batch = 50;  // samples of a step, over all ranks
  int64_t inputs = 7;
  int64_t hidden = 33;
  int64_t outputs = 3;
  float rate = 0.3F;
  RedistributorOptions redistribute;
};

// The mean squared error of each step, before its update; the same on every rank.
absl::StatusOr<std::vector<float>> Train(Engine* engine, const TrainOptions& options = {});

// The same training without ranks, placements or Meshift, to compare Train() with.
std::vector<float> TrainAlone(const TrainOptions& options = {});

}  // namespace meshift

#endif  // MESHIFT_EXAMPLES_TRAIN_MLP_TRAIN_H_

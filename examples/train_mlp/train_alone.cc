#include <algorithm>
#include <cstdint>
#include <vector>

#include "examples/train_mlp/data.h"
#include "examples/train_mlp/train.h"

namespace meshift {

std::vector<float> TrainAlone(const TrainOptions& o) {
  const auto fill = [](int layer, int64_t rows, int64_t columns) {
    std::vector<std::vector<float>> w(rows, std::vector<float>(columns));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) w[i][j] = FirstWeight(layer, i, j, columns);
    }
    return w;
  };
  auto w1 = fill(1, o.hidden, o.inputs);
  auto w2 = fill(2, o.outputs, o.hidden);
  std::vector<float> b1(o.hidden), b2(o.outputs), losses;
  for (int64_t step = 0; step < o.steps; ++step) {
    auto g1 = std::vector(o.hidden, std::vector<float>(o.inputs));
    auto g2 = std::vector(o.outputs, std::vector<float>(o.hidden));
    std::vector<float> c1(o.hidden), c2(o.outputs);
    float loss = 0;
    const float scale = 1.0F / static_cast<float>(o.batch * o.outputs);
    for (int64_t s = 0; s < o.batch; ++s) {
      std::vector<float> x(o.inputs), h(o.hidden), back(o.hidden);
      for (int64_t j = 0; j < o.inputs; ++j) x[j] = Input(step * o.batch + s, j);
      for (int64_t i = 0; i < o.hidden; ++i) {
        h[i] = b1[i];
        for (int64_t j = 0; j < o.inputs; ++j) h[i] += w1[i][j] * x[j];
        h[i] = std::max(h[i], 0.0F);
      }
      for (int64_t k = 0; k < o.outputs; ++k) {
        float y = b2[k];
        for (int64_t i = 0; i < o.hidden; ++i) y += w2[k][i] * h[i];
        const float error = y - Target(x.data(), o.inputs, k);
        loss += error * error * scale;
        const float dy = 2 * error * scale;
        c2[k] += dy;
        for (int64_t i = 0; i < o.hidden; ++i) {
          g2[k][i] += dy * h[i];
          back[i] += dy * w2[k][i];
        }
      }
      for (int64_t i = 0; i < o.hidden; ++i) {
        if (h[i] <= 0) continue;
        c1[i] += back[i];
        for (int64_t j = 0; j < o.inputs; ++j) g1[i][j] += back[i] * x[j];
      }
    }
    losses.push_back(loss);
    for (int64_t i = 0; i < o.hidden; ++i) {
      b1[i] -= o.rate * c1[i];
      for (int64_t j = 0; j < o.inputs; ++j) w1[i][j] -= o.rate * g1[i][j];
    }
    for (int64_t k = 0; k < o.outputs; ++k) {
      b2[k] -= o.rate * c2[k];
      for (int64_t i = 0; i < o.hidden; ++i) w2[k][i] -= o.rate * g2[k][i];
    }
  }
  return losses;
}

}  // namespace meshift

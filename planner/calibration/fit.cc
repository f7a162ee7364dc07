#include "planner/calibration/fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using ObservationKind = Observation::Kind;

constexpr double kScale = 0.2;  // s of FitObservations: smaller errors count by their squares
// Weights of the structure's numbers: the cost of a number is weight * Moved()^2.
// Times of one group alone cannot tell a latency per hop from one per collective; the weights
// decide.
constexpr double kKeepProtocols = 0.0003;
constexpr double kKeepLatencies = 0.003;
constexpr double kKeepBandwidths = 0.0001;
constexpr int kMaxRounds = 40;       // from one start
constexpr int kMaxSteps = 30;        // Gauss-Newton steps in a round
constexpr double kLeastGain = 1e-4;  // steps and rounds end when the cost falls by a smaller part
// The work after which no further steps begin, some seconds. One unit is the time of one
// observation; the shape and the times of a group are kGroupWork units.
constexpr int64_t kMaxWork = 100'000'000;
constexpr int64_t kGroupWork = 400;
constexpr int64_t kMaxNs = 1'000'000'000;         // the largest latency: see meshift/topology.h
constexpr int64_t kMaxBandwidth = 1'000'000'000;  // bytes per us
constexpr int64_t kMaxLatencyPercent = 10'000;

// A topology whose numbers can be set one at a time.
struct Numbers {
  std::vector<TopologyLevel> levels;
  TopologyConstants constants;
  std::vector<TopologyProtocol> protocols;

  explicit Numbers(const Topology& topology)
      : constants(topology.constants()),
        protocols(topology.protocols().begin(), topology.protocols().end()) {
    for (int i = 0; i < topology.NumLevels(); ++i) levels.push_back(topology.level(i));
  }
  absl::StatusOr<Topology> ToTopology() const {
    return Topology::Create(levels, constants, protocols);
  }
};

// A number to fit. Times are piecewise linear in its coordinate: the number, or its inverse.
struct Parameter {
  int64_t* value;  // in a Numbers
  bool inverse;
  bool of_protocol;
  double keep;  // the weight of the structure's value
  int64_t least;
  int64_t most;

  double Get() const { return To(*value); }
  double To(int64_t number) const {
    return inverse ? 1.0 / static_cast<double>(number) : static_cast<double>(number);
  }
  int64_t From(double coordinate) const {
    const double number = inverse ? 1.0 / std::max(coordinate, 1e-18) : coordinate;
    return std::llround(std::clamp(number, static_cast<double>(least), static_cast<double>(most)));
  }
};

// The numbers to fit. A bandwidth, entry or start that is 0 is left out: the machine does not have
// it.
std::vector<Parameter> ParametersOf(Numbers* numbers) {
  std::vector<Parameter> parameters;
  // A structure without protocols gives only the domains; its numbers have no weight.
  const double keep = numbers->protocols.empty() ? 0 : 1;
  const auto latency = [&](int64_t* value) {
    parameters.push_back({value, false, false, keep * kKeepLatencies, 0, kMaxNs});
  };
  const auto bandwidth = [&](int64_t* value) {
    if (*value > 0)
      parameters.push_back({value, true, false, keep * kKeepBandwidths, 1, kMaxBandwidth});
  };
  TopologyConstants& constants = numbers->constants;
  latency(&constants.collective_latency_ns);
  latency(&constants.message_latency_ns);
  latency(&constants.copy_latency_ns);
  bandwidth(&constants.copy_bandwidth_bytes_per_us);
  for (TopologyLevel& level : numbers->levels) {
    latency(&level.latency_ns);
    if (level.entry_ns > 0) latency(&level.entry_ns);
    bandwidth(&level.bandwidth_bytes_per_us);
    bandwidth(&level.direct_bandwidth_bytes_per_us);
    bandwidth(&level.domain_bandwidth_bytes_per_us);
    bandwidth(&level.in_switch_bandwidth_bytes_per_us);
  }
  // The percents of protocols are relative, so the first protocol's latency_percent and the last
  // one's other percents are fixed.
  const size_t count = numbers->protocols.size();
  for (size_t i = 0; i < count; ++i) {
    TopologyProtocol& protocol = numbers->protocols[i];
    const auto of_protocol = [&](int64_t* value, bool inverse, int64_t least, int64_t most) {
      parameters.push_back({value, inverse, true, kKeepProtocols, least, most});
    };
    if (protocol.start_ns > 0) of_protocol(&protocol.start_ns, false, 1, kMaxNs);
    if (i > 0) of_protocol(&protocol.latency_percent, false, 1, kMaxLatencyPercent);
    if (i + 1 < count) {
      of_protocol(&protocol.bandwidth_percent, true, 1, 100);
      of_protocol(&protocol.domain_percent, true, 1, 100);
    }
  }
  return parameters;
}

bool IsSame(const RankGroups& a, const RankGroups& b) {
  return a.size == b.size && a.ranks == b.ranks && a.modes == b.modes;
}

CollectiveTime TimeOf(const Observation& observation, const GroupTimes* times,
                      const Topology& topology) {
  const TopologyConstants& constants = topology.constants();
  CollectiveTime time;
  switch (observation.kind) {
    case ObservationKind::kCopy:
      break;
    case ObservationKind::kAllReduce:
      time = times->AllReduce(observation.bytes);
      break;
    case ObservationKind::kBlocks:
      time = times->Blocks(observation.bytes);
      break;
    case ObservationKind::kToAll:
      time = times->Direct(observation.bytes, observation.groups.size - 1);
      time.start_ns = SaturatingAdd(
          time.start_ns, SaturatingMul(constants.message_latency_ns, observation.groups.size - 1));
      break;
  }
  const int64_t copies_ns = SaturatingAdd(
      SaturatingMul(observation.copies, constants.copy_latency_ns),
      MulDivCeil(observation.copied_bytes, 1000, constants.copy_bandwidth_bytes_per_us));
  time.start_ns = SaturatingAdd(time.start_ns, copies_ns);
  return time;
}

// The times of the fitted observations under a topology. Observations of equal groups share a group
// shape.
class Observations {
 public:
  explicit Observations(absl::Span<const Observation> all) {
    const size_t stride = (all.size() + kMaxFitted - 1) / kMaxFitted;
    for (size_t i = 0; i < all.size(); i += stride) {
      const Observation& one = all[i];
      list_.push_back(&one);
      if (one.kind == ObservationKind::kCopy) {
        group_.push_back(kNone);
        continue;
      }
      size_t at = 0;
      while (at < groups_.size() && !(groups_[at]->num_ranks == one.num_ranks &&
                                      IsSame(groups_[at]->groups, one.groups))) {
        ++at;
      }
      if (at == groups_.size()) groups_.push_back(&one);
      group_.push_back(at);
    }
  }

  // The work of one call of Times().
  int64_t Work() const { return static_cast<int64_t>(list_.size() + kGroupWork * groups_.size()); }
  double Measured(size_t i) const { return static_cast<double>(list_[i]->ns); }
  std::vector<double> Times(const Topology& topology) const {
    std::vector<GroupTimes> times;
    times.reserve(groups_.size());
    for (const Observation* group : groups_) {
      times.emplace_back(topology, ShapeOf(topology, group->num_ranks, group->groups));
    }
    std::vector<double> result;
    result.reserve(list_.size());
    for (size_t i = 0; i < list_.size(); ++i) {
      const GroupTimes* const group = group_[i] == kNone ? nullptr : &times[group_[i]];
      result.push_back(
          static_cast<double>(std::max<int64_t>(TimeOf(*list_[i], group, topology).Ns(), 1)));
    }
    return result;
  }
  // The loss, without the weights of the structure.
  double Cost(const std::vector<double>& times) const {
    double cost = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      const double error = std::log(times[i] / Measured(i));
      cost += std::sqrt(error * error + kScale * kScale) - kScale;
    }
    return cost;
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  std::vector<const Observation*> list_;
  std::vector<size_t> group_;  // by observation: index in groups_
  std::vector<const Observation*> groups_;
};

// The quadratic function x H x / 2 + g x.
struct Quadratic {
  size_t size;
  std::vector<double> h;
  std::vector<double> g;

  explicit Quadratic(size_t n) : size(n), h(n * n), g(n) {}

  // Minimizes it within these bounds by coordinate descent. Adds `damping` times the diagonal to H
  // (Levenberg-Marquardt).
  std::vector<double> Least(const std::vector<double>& low, const std::vector<double>& high,
                            double damping) const {
    constexpr int kSweeps = 2000;
    std::vector<double> x(size, 0.0);
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      double moved = 0;
      for (size_t i = 0; i < size; ++i) {
        const double diagonal = h[i * size + i] * (1 + damping);
        if (diagonal <= 0) continue;
        double slope = g[i] + h[i * size + i] * damping * x[i];
        for (size_t j = 0; j < size; ++j) slope += h[i * size + j] * x[j];
        const double to = std::clamp(x[i] - slope / diagonal, low[i], high[i]);
        moved = std::max(moved, std::abs(to - x[i]));
        x[i] = to;
      }
      if (moved < 1e-9) break;
    }
    return x;
  }
};

class Fitter {
 public:
  Fitter(const Topology& structure, absl::Span<const Observation> observations)
      : observations_(observations),
        numbers_(structure),
        parameters_(ParametersOf(&numbers_)),
        first_(Values()) {}

  // Descends from several starts; returns the best result.
  absl::StatusOr<Topology> Run() {
    std::vector<int64_t> best;
    double best_cost = 0;
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::vector<int64_t>> starts, Starts());
    for (const std::vector<int64_t>& start : starts) {
      Set(start);
      MESHIFT_RETURN_IF_ERROR(Descend());
      if (!best.empty() && cost_ >= best_cost) continue;
      best = Values();
      best_cost = cost_;
    }
    Set(best);
    MESHIFT_RETURN_IF_ERROR(Restore());
    return numbers_.ToTopology();
  }

 private:
  // The structure's values, with those of protocols (or all others) multiplied by these factors.
  std::vector<int64_t> Scaled(bool protocols, double latency, double bandwidth) const {
    std::vector<int64_t> values = first_;
    for (size_t i = 0; i < values.size(); ++i) {
      const Parameter& parameter = parameters_[i];
      if (parameter.of_protocol != protocols) continue;
      const double to = static_cast<double>(values[i]) * (parameter.inverse ? bandwidth : latency);
      values[i] = std::clamp<int64_t>(std::llround(to), parameter.least, parameter.most);
    }
    return values;
  }
  // The structure's own values; some with smaller latencies or larger bandwidths of protocols; and
  // the best of those where all other numbers are multiplied by powers of 4.
  absl::StatusOr<std::vector<std::vector<int64_t>>> Starts() {
    std::vector<std::vector<int64_t>> starts = {first_};
    const auto add = [&](std::vector<int64_t> values) {
      if (std::find(starts.begin(), starts.end(), values) == starts.end()) {
        starts.push_back(std::move(values));
      }
    };
    for (const double latency : {1.0, 0.3, 0.05}) {
      for (const double bandwidth : {1.0, 3.0}) add(Scaled(true, latency, bandwidth));
    }
    constexpr int kMostPowers = 6;
    std::vector<int64_t> nearest = first_;
    MESHIFT_RETURN_IF_ERROR(Evaluate());
    for (int latency = -kMostPowers; latency <= kMostPowers; ++latency) {
      for (int bandwidth = -kMostPowers; bandwidth <= kMostPowers; ++bandwidth) {
        std::vector<int64_t> values =
            Scaled(false, std::pow(4.0, latency), std::pow(4.0, bandwidth));
        MESHIFT_ASSIGN_OR_RETURN(const bool nearer, Try(values));
        if (nearer) nearest = std::move(values);
      }
    }
    add(std::move(nearest));
    return starts;
  }
  // Descends until no step helps much, or a limit is reached.
  absl::Status Descend() {
    MESHIFT_RETURN_IF_ERROR(Evaluate());
    for (int round = 0; round < kMaxRounds && work_ < kMaxWork; ++round) {
      const double before = cost_;
      for (int step = 0; step < kMaxSteps && work_ < kMaxWork; ++step) {
        const double cost = cost_;
        MESHIFT_RETURN_IF_ERROR(Step());
        if (cost_ >= cost * (1 - kLeastGain)) break;
      }
      MESHIFT_RETURN_IF_ERROR(TryEach());
      if (cost_ >= before * (1 - kLeastGain)) break;
    }
    return absl::OkStatus();
  }
  std::vector<double> TimesUnder(const Topology& topology) {
    work_ += observations_.Work();
    return observations_.Times(topology);
  }
  absl::Status Evaluate() {
    MESHIFT_ASSIGN_OR_RETURN(const Topology topology, numbers_.ToTopology());
    times_ = TimesUnder(topology);
    cost_ = observations_.Cost(times_) + KeepCost();
    return absl::OkStatus();
  }
  // ln((value + 1) / (structure's value + 1)).
  double Moved(size_t i) const {
    return std::log((static_cast<double>(*parameters_[i].value) + 1) /
                    (static_cast<double>(first_[i]) + 1));
  }
  double KeepCost() const {
    double cost = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      cost += parameters_[i].keep * Moved(i) * Moved(i);
    }
    return cost;
  }
  std::vector<int64_t> Values() const {
    std::vector<int64_t> values;
    for (const Parameter& parameter : parameters_) values.push_back(*parameter.value);
    return values;
  }
  void Set(const std::vector<int64_t>& values) {
    for (size_t i = 0; i < values.size(); ++i) *parameters_[i].value = values[i];
  }
  // Sets `values` if they cost less.
  absl::StatusOr<bool> Try(const std::vector<int64_t>& values) {
    const std::vector<int64_t> old = Values();
    if (values == old) return false;
    Set(values);
    MESHIFT_ASSIGN_OR_RETURN(const Topology topology, numbers_.ToTopology());
    std::vector<double> times = TimesUnder(topology);
    const double cost = observations_.Cost(times) + KeepCost();
    if (cost < cost_) {
      cost_ = cost;
      times_ = std::move(times);
      return true;
    }
    Set(old);
    return false;
  }

  // The derivatives of all times by a parameter's coordinate, times Unit(parameter).
  absl::StatusOr<std::vector<double>> Slope(const Parameter& parameter) {
    const int64_t old = *parameter.value;
    const double from = parameter.Get();
    const int64_t move = std::max<int64_t>(old / 64, 1);
    const bool down = parameter.inverse && old - move >= parameter.least;
    *parameter.value = down ? old - move : old + move;
    if (*parameter.value > parameter.most) *parameter.value = old - move;
    const double moved = parameter.Get() - from;
    const absl::StatusOr<Topology> topology = numbers_.ToTopology();
    *parameter.value = old;
    MESHIFT_RETURN_IF_ERROR(topology.status());
    std::vector<double> slope = TimesUnder(*topology);
    const double unit = Unit(parameter);
    for (size_t i = 0; i < slope.size(); ++i) slope[i] = (slope[i] - times_[i]) / moved * unit;
    return slope;
  }
  static double Unit(const Parameter& parameter) {
    return parameter.inverse ? parameter.Get() : std::max(parameter.Get(), 1.0);
  }

  // One Gauss-Newton step, damped until the cost falls.
  absl::Status Step() {
    const size_t count = parameters_.size();
    std::vector<std::vector<double>> slopes;
    std::vector<double> low;
    std::vector<double> high;
    for (const Parameter& parameter : parameters_) {
      MESHIFT_ASSIGN_OR_RETURN(std::vector<double> slope, Slope(parameter));
      slopes.push_back(std::move(slope));
      const double unit = Unit(parameter);
      const double a = parameter.To(parameter.inverse ? parameter.most : parameter.least);
      const double b = parameter.To(parameter.inverse ? parameter.least : parameter.most);
      low.push_back((a - parameter.Get()) / unit);
      high.push_back((b - parameter.Get()) / unit);
    }
    Quadratic quadratic(count);
    for (size_t row = 0; row < times_.size(); ++row) {
      const double measured = observations_.Measured(row);
      const double size = std::max(measured, times_[row]);
      const double error = (times_[row] - measured) / size;
      const double weight = 1 / std::max(std::abs(error), kScale) / (size * size);
      for (size_t i = 0; i < count; ++i) {
        if (slopes[i][row] == 0) continue;
        quadratic.g[i] += weight * slopes[i][row] * (times_[row] - measured);
        for (size_t j = 0; j < count; ++j) {
          quadratic.h[i * count + j] += weight * slopes[i][row] * slopes[j][row];
        }
      }
    }
    for (size_t i = 0; i < count; ++i) {
      const double keep = 2 * parameters_[i].keep;
      quadratic.h[i * count + i] += keep;
      quadratic.g[i] += keep * Moved(i) * (parameters_[i].inverse ? -1 : 1);
    }
    const std::vector<int64_t> old = Values();
    for (double damping = 1e-6; damping < 1e4; damping *= 30) {
      const std::vector<double> step = quadratic.Least(low, high, damping);
      for (double part = 1; part > 0.1; part /= 2) {
        std::vector<int64_t> values = old;
        for (size_t i = 0; i < count; ++i) {
          const Parameter& parameter = parameters_[i];
          if (step[i] == 0) continue;
          values[i] = parameter.From(parameter.Get() + part * step[i] * Unit(parameter));
        }
        MESHIFT_ASSIGN_OR_RETURN(const bool better, Try(values));
        if (better) return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  // Tries other values of one number at a time. A Gauss-Newton step cannot see beyond the point
  // where another algorithm or protocol becomes the fastest.
  absl::Status TryEach() {
    constexpr double kFactors[] = {4, 2, 1.4, 1.15, 1.05, 1.015};
    for (const Parameter& parameter : parameters_) {
      const auto at = static_cast<size_t>(&parameter - parameters_.data());
      for (const double factor : kFactors) {
        for (const double by : {factor, 1 / factor}) {
          std::vector<int64_t> values = Values();
          const double now = static_cast<double>(values[at]);
          values[at] = std::clamp(std::llround(now * by), static_cast<long long>(parameter.least),
                                  static_cast<long long>(parameter.most));
          MESHIFT_RETURN_IF_ERROR(Try(values).status());
        }
      }
    }
    return absl::OkStatus();
  }

  // Gives numbers on which no time depends the structure's values again.
  absl::Status Restore() {
    MESHIFT_RETURN_IF_ERROR(Evaluate());
    for (size_t i = 0; i < first_.size(); ++i) {
      const int64_t found = std::exchange(*parameters_[i].value, first_[i]);
      MESHIFT_ASSIGN_OR_RETURN(const Topology topology, numbers_.ToTopology());
      if (TimesUnder(topology) != times_) *parameters_[i].value = found;
    }
    return absl::OkStatus();
  }

  const Observations observations_;
  Numbers numbers_;
  const std::vector<Parameter> parameters_;  // pointers into numbers_
  const std::vector<int64_t> first_;         // the structure's values
  std::vector<double> times_;                // the model's times under numbers_
  double cost_ = 0;
  int64_t work_ = 0;
};

}  // namespace

CollectiveTime TimeOf(const Observation& observation, const Topology& topology) {
  if (observation.kind == ObservationKind::kCopy) return TimeOf(observation, nullptr, topology);
  const GroupTimes times(topology, ShapeOf(topology, observation.num_ranks, observation.groups));
  return TimeOf(observation, &times, topology);
}

FitError ErrorOf(std::vector<double> ratios) {
  if (ratios.empty()) return {};
  for (double& ratio : ratios) ratio = std::abs(ratio - 1);
  std::sort(ratios.begin(), ratios.end());
  const size_t half = ratios.size() / 2;
  const double median =
      ratios.size() % 2 == 1 ? ratios[half] : (ratios[half - 1] + ratios[half]) / 2;
  return {.count = ratios.size(), .median = median, .worst = ratios.back()};
}

absl::StatusOr<Topology> FitObservations(const Topology& structure,
                                         absl::Span<const Observation> observations) {
  if (observations.empty()) return InvalidArgument("the list of times to fit is empty");
  for (size_t i = 0; i < observations.size(); ++i) {
    if (observations[i].ns < 1) {
      return InvalidArgument("observation {} takes {} ns", i, observations[i].ns);
    }
  }
  return Fitter(structure, observations).Run();
}

}  // namespace meshift

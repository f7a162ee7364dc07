// Tests bad input to meshift/torch.h, its errors, and how long pending runs keep their tensors. In
// one process, with two ranks of a LocalWorld.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "meshift/meshift.h"
#include "meshift/torch.h"

namespace {

using meshift::DeviceMesh;
using meshift::DType;
using meshift::LocalWorld;
using meshift::Sharding;
using meshift::TensorView;
using meshift::libtorch::Check;
using meshift::libtorch::DTensor;
using meshift::libtorch::Pending;
using meshift::libtorch::TensorRedistributor;
using meshift::libtorch::ToDType;
using meshift::libtorch::ToScalarType;
using meshift::libtorch::View;

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
using BackendError = c10::DistBackendError;
#else
using BackendError = c10::Error;
#endif

int throws = 0;

at::Tensor Full(at::IntArrayRef sizes, int64_t value) { return at::full(sizes, value, at::kFloat); }

// Checks that exactly `Error` is thrown, not a derived class, with `text` in its message.
template <typename Error>
void Throws(const std::string& text, const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    TORCH_CHECK(typeid(error) == typeid(Error), "another class of error: ", what);
    TORCH_CHECK(what.find(text) != std::string::npos, "'", what, "' does not say '", text, "'");
    ++throws;
    return;
  }
  TORCH_CHECK(false, "nothing was thrown; expected: ", text);
}

void CheckStatuses() {
  Check(absl::OkStatus());
  TORCH_CHECK(Check(absl::StatusOr<int>(3)) == 3);
  Throws<c10::ValueError>("INVALID_ARGUMENT: a", [] { Check(absl::InvalidArgumentError("a")); });
  Throws<c10::ValueError>("a", [] { Check(absl::StatusOr<int>(absl::InvalidArgumentError("a"))); });
  Throws<c10::NotImplementedError>("UNIMPLEMENTED: b",
                                   [] { Check(absl::UnimplementedError("b")); });
  Throws<c10::Error>("FAILED_PRECONDITION: c", [] { Check(absl::FailedPreconditionError("c")); });
  Throws<c10::Error>("RESOURCE_EXHAUSTED: d", [] { Check(absl::ResourceExhaustedError("d")); });
  Throws<c10::Error>("INTERNAL: e", [] { Check(absl::InternalError("e")); });
  Throws<BackendError>("ABORTED: f", [] { Check(absl::AbortedError("f")); });
  Throws<BackendError>("DEADLINE_EXCEEDED: g", [] { Check(absl::DeadlineExceededError("g")); });
  Throws<BackendError>("UNAVAILABLE: h", [] { Check(absl::UnavailableError("h")); });
}

void CheckDTypes() {
  int known = 0;
  int unknown = 0;
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    std::optional<DType> dtype;
    try {
      dtype = ToDType(type);
    } catch (const c10::NotImplementedError& error) {
      const std::string what = error.what_without_backtrace();
      TORCH_CHECK(what.find(c10::toString(type)) != std::string::npos, what);
      ++unknown;
      continue;
    }
    ++known;
    TORCH_CHECK(ToScalarType(*dtype) == type, c10::toString(type));
    TORCH_CHECK(meshift::BitWidth(*dtype) * (*dtype == DType::kF4E2M1 ? 2 : 1) ==
                    8 * static_cast<int>(c10::elementSize(type)),
                c10::toString(type));
  }
  // The twelve types of every PyTorch; quantized types and ComplexHalf are unknown.
  TORCH_CHECK(known >= 12 && unknown >= 6, known, " known, ", unknown, " unknown");
  Throws<c10::NotImplementedError>("ComplexHalf", [] { ToDType(at::ScalarType::ComplexHalf); });
  Throws<c10::NotImplementedError>("QInt8", [] { ToDType(at::ScalarType::QInt8); });
  if (TORCH_VERSION_MAJOR < 2) {
    Throws<c10::NotImplementedError>("has no ScalarType for u16 (UInt16)",
                                     [] { ToScalarType(DType::kU16); });
  }
  std::printf("%d of %d dtypes of Meshift are in PyTorch %s\n", known, meshift::kNumDTypes,
              TORCH_VERSION);
}

void CheckViews() {
  const at::Tensor tensor = at::zeros({4, 6}, at::kBFloat16);
  const TensorView columns = View(tensor.t().narrow(0, 2, 3));
  TORCH_CHECK(columns.ToString() == "bf16[3,4]" && columns.strides == meshift::Shape({1, 6}) &&
              columns.data == static_cast<char*>(tensor.data_ptr()) + 4);
  TORCH_CHECK(View(at::zeros({0, 3})).data == nullptr);
  TORCH_CHECK(View(at::zeros({0, 3})).ToString() == "f32[0,3]");
  TORCH_CHECK(View(at::zeros({})).ToString() == "f32[]" && View(at::zeros({})).data != nullptr);
  TORCH_CHECK(View(at::zeros({1, 3}).expand({5, 3})).strides == meshift::Shape({0, 1}));
  TORCH_CHECK(View(at::Tensor()).data == nullptr);
  const auto refuse = [](const std::string& why, const at::Tensor& bad) {
    Throws<c10::NotImplementedError>(why, [&] { View(bad); });
  };
  refuse("is not strided", at::eye(3).to_sparse());
  refuse("is conjugated lazily", at::zeros({2}, at::kComplexFloat).conj());
  refuse("is negated lazily", at::imag(at::zeros({2}, at::kComplexFloat).conj()));
  refuse("is on meta", at::empty({2}, at::TensorOptions(at::kMeta)));
  refuse("QInt8", at::quantize_per_tensor(at::zeros({2}), 0.5, 0, at::kQInt8));
}

// A rank's redistributor, and its half of a tensor.
struct Rank {
  TensorRedistributor redistribute;
  DTensor rows;
};

Rank MakeRank(LocalWorld* world, int64_t rank) {
  TensorRedistributor redistribute(Check(DeviceMesh::Parse("tp=2")), world->engine(rank));
  DTensor rows = redistribute.Wrap(Full({2, 3}, rank + 1), {4, 3}, "S(0)");
  return {std::move(redistribute), std::move(rows)};
}

// Both ranks sum: a refused call has had no effect.
void CheckWorks(Rank* a, Rank* b) {
  const DTensor mine = a->redistribute.Wrap(Full({3}, 1), {3}, "P");
  const DTensor other = b->redistribute.Wrap(Full({3}, 2), {3}, "P");
  Pending<DTensor> first = a->redistribute.Start(mine, "R");
  Pending<DTensor> second = b->redistribute.Start(other, "R");
  TORCH_CHECK(at::equal(first.Wait().local, Full({3}, 3)));
  TORCH_CHECK(at::equal(second.Wait().local, Full({3}, 3)));
  TORCH_CHECK(first.IsDone() && at::equal(first.Wait().local, Full({3}, 3)));
}

void CheckArguments() {
  const auto world =
      Check(LocalWorld::Create({.num_ranks = 2, .timeout = std::chrono::seconds(20)}));
  Rank a = MakeRank(world.get(), 0);
  Rank b = MakeRank(world.get(), 1);
  TensorRedistributor& redistribute = a.redistribute;
  const DTensor& rows = a.rows;
  const Sharding sharding = rows.sharding;

  Throws<c10::ValueError>("the tensor is f32[3,3]; rank 0 holds f32[2,3] of f32[4,3] on tp=2", [&] {
    redistribute.Wrap(at::zeros({3, 3}), {4, 3}, "S(0)");
  });
  Throws<c10::ValueError>("the tensor is f64[2,3]; rank 0 holds f32[2,3]", [&] {
    redistribute.Wrap(at::zeros({2, 3}, at::kDouble), sharding);
  });
  Throws<c10::ValueError>("Shard(2)", [&] {
    redistribute.Wrap(at::zeros({2, 3}), {4, 3}, "S(2)");
  });
  Throws<c10::ValueError>("-1", [&] { redistribute.Wrap(at::zeros({2, 3}), {-1, 3}, "S(0)"); });
  Throws<c10::ValueError>("Shard(7)", [&] { redistribute(rows, "S(7)"); });
  Throws<c10::ValueError>("the number of placements is 2; expected 1",
                          [&] { redistribute(rows, "R,R"); });
  Throws<c10::ValueError>("source is f32[1,3]; rank 0 holds f32[2,3]", [&] {
    redistribute({rows.local.narrow(0, 0, 1), sharding}, "R");
  });
  Throws<c10::ValueError>("source is i32[2,3]; rank 0 holds f32[2,3]", [&] {
    redistribute({rows.local.to(at::kInt), sharding}, "R");
  });
  Throws<c10::ValueError>("the source is undefined; rank 0 holds a part of f32[4,3]", [&] {
    redistribute({at::Tensor(), sharding}, "R");
  });
  Throws<c10::NotImplementedError>("is not strided", [&] {
    redistribute({rows.local.to_sparse(), sharding}, "R");
  });
  Throws<c10::NotImplementedError>("is on meta", [&] {
    redistribute({at::empty({2, 3}, at::TensorOptions(at::kMeta)), sharding}, "R");
  });
  Throws<c10::NotImplementedError>(
      "ComplexHalf", [&] { redistribute(rows, "R", {.dtype = at::ScalarType::ComplexHalf}); });
  Throws<c10::NotImplementedError>("QInt8",
                                   [&] { redistribute(rows, "R", {.reduce_dtype = at::kQInt8}); });
  const DTensor sums = redistribute.Wrap(at::zeros({4, 3}), {4, 3}, "P");
  Throws<c10::ValueError>("max", [&] { redistribute(sums, "P(max)"); });
  Throws<c10::ValueError>("bool", [&] {
    redistribute.Wrap(at::zeros({4, 3}, at::kBool), {4, 3}, "P");
  });
  const DTensor complex = redistribute.Wrap(at::zeros({2}, at::kComplexFloat), {4}, "S(0)");
  Throws<c10::ValueError>("c64", [&] { redistribute(complex, "R", {.dtype = at::kFloat}); });
  Throws<c10::ValueError>("mesh", [&] {
    redistribute(rows, Check(Sharding::Parse("f32[4,3]", Check(DeviceMesh::Parse("x=3")), "R")));
  });
  // Targets.
  Throws<c10::ValueError>("target is f32[3,4]; rank 0 holds f32[4,3]", [&] {
    redistribute(rows, "R", {.out = at::zeros({3, 4})});
  });
  Throws<c10::ValueError>("target is f64[4,3]", [&] {
    redistribute(rows, "R", {.out = at::zeros({4, 3}, at::kDouble)});
  });
  Throws<c10::ValueError>("overlap", [&] {
    redistribute(rows, "R", {.out = at::zeros({1, 3}).expand({4, 3})});
  });
  Throws<c10::NotImplementedError>("is conjugated lazily", [&] {
    redistribute(complex, "R", {.out = at::zeros({4}, at::kComplexFloat).conj()});
  });
  const at::Tensor memory = at::zeros({5, 3});
  Throws<c10::ValueError>("overlap", [&] {
    redistribute(redistribute.Wrap(memory.narrow(0, 1, 2), sharding), "R",
                 {.out = memory.narrow(0, 0, 4)});
  });
  Throws<c10::ValueError>("one `out` was given for a list", [&] {
    redistribute(std::vector<DTensor>{rows, rows}, "R", {.out = memory});
  });
  Throws<c10::ValueError>("", [&] {
    const Sharding whole = Check(sharding.WithPlacements("R"));
    const at::Tensor out = at::zeros({4, 3});
    redistribute(
        {{.source = rows, .to = whole, .out = out}, {.source = rows, .to = whole, .out = out}});
  });
  // Gradients are not recorded, and autograd knows which tensors are written.
  const at::Tensor leaf = at::zeros({2, 3}).set_requires_grad(true);
  Throws<c10::ValueError>("the source requires grad", [&] { redistribute({leaf, sharding}, "R"); });
  Throws<c10::ValueError>("the target requires grad", [&] {
    redistribute(rows, "R", {.out = at::zeros({4, 3}).set_requires_grad(true)});
  });
  CheckWorks(&a, &b);
  {
    const c10::NoGradGuard guard;
    const at::Tensor out = at::zeros({4, 3});
    const auto version = out._version();
    auto first = redistribute.Start({leaf, sharding}, "R", {.out = out});
    auto second = b.redistribute.Start(b.rows, "R");
    TORCH_CHECK(first.Wait().local.is_same(out) && out._version() == version + 1);
    TORCH_CHECK(at::equal(out, at::cat({at::zeros({2, 3}), b.rows.local})));
    second.Wait();
  }
  {
    // In place: source and target are one tensor.
    const at::Tensor mine = Full({3}, 5);
    auto first = redistribute.Start(redistribute.Wrap(mine, {3}, "P"), "R", {.out = mine});
    auto second = b.redistribute.Start(b.redistribute.Wrap(Full({3}, 2), {3}, "P"), "R");
    first.Wait();
    second.Wait();
    TORCH_CHECK(at::equal(mine, Full({3}, 7)));
  }
}

// Detects whether another object still keeps a tensor alive.
class Watch {
 public:
  explicit Watch(const at::Tensor& tensor) : tensor_(tensor.getIntrusivePtr()) {}
  bool IsAlive() const { return tensor_.use_count() > 0; }

 private:
  c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor_;
};

void CheckLifetimes() {
  const auto world =
      Check(LocalWorld::Create({.num_ranks = 2, .timeout = std::chrono::seconds(20)}));
  std::optional<Rank> a = MakeRank(world.get(), 0);
  std::optional<Rank> b = MakeRank(world.get(), 1);
  const Sharding sharding = a->rows.sharding;
  const Watch rows(a->rows.local);
  const auto forget = [&a, &sharding] { a->rows = {at::Tensor(), sharding}; };

  // The pending run keeps its tensors until Wait().
  Pending<DTensor> pending = a->redistribute.Start(a->rows, "R");
  forget();
  TORCH_CHECK(rows.IsAlive() && !pending.IsDone());
  Pending<DTensor> other = b->redistribute.Start(b->rows, "R");
  pending.Wait();
  other.Wait();
  TORCH_CHECK(!rows.IsAlive() && pending.IsDone());

  // A dropped run gives its tensors to the redistributor, which frees them once the work is done.
  const auto drop = [&] {
    at::Tensor tensor = Full({2, 3}, 8);
    Watch watch(tensor);
    static_cast<void>(a->redistribute.Start({std::move(tensor), sharding}, "R"));
    return watch;
  };
  const auto answer = [&] { return b->redistribute.Start(b->rows, "R"); };
  const Watch dropped = drop();
  const Watch dropped_too = drop();  // at this call the first run is not done
  TORCH_CHECK(dropped.IsAlive() && dropped_too.IsAlive());
  answer().Wait();
  answer().Wait();
  CheckWorks(&*a, &*b);  // after both on the stream
  CheckWorks(&*a, &*b);
  TORCH_CHECK(!dropped.IsAlive() && !dropped_too.IsAlive());

  // Assignment drops the old run.
  pending = a->redistribute.Start({Full({2, 3}, 9), sharding}, "R");
  at::Tensor last = Full({2, 3}, 10);
  const Watch second(last);
  other = answer();
  pending = a->redistribute.Start({std::move(last), sharding}, "R");
  other = answer();
  TORCH_CHECK(at::equal(pending.Wait().local.narrow(0, 0, 2), Full({2, 3}, 10)));
  TORCH_CHECK(!second.IsAlive());

  // A pending run may outlive its redistributor, whose destructor waits for dropped runs.
  const Watch at_end = drop();
  other = answer();
  pending = a->redistribute.Start({Full({2, 3}, 11), sharding}, "R");
  other = answer();
  TORCH_CHECK(at::equal(pending.Wait().local.narrow(0, 0, 2), Full({2, 3}, 11)));
  b.reset();
  TORCH_CHECK(at::equal(other.Wait().local.narrow(0, 0, 2), Full({2, 3}, 11)));
  a.reset();
  TORCH_CHECK(!at_end.IsAlive());
}

// Memory of failed work is never freed: an engine may still write to it.
void CheckFailure() {
  const auto world =
      Check(LocalWorld::Create({.num_ranks = 2, .timeout = std::chrono::seconds(20)}));
  std::optional<Rank> a = MakeRank(world.get(), 0);
  const Sharding sharding = a->rows.sharding;
  const Watch rows(a->rows.local);
  {
    Pending<DTensor> pending = a->redistribute.Start(a->rows, "R");
    a->rows = {at::Tensor(), sharding};
    a->redistribute.redistributor().Abort();
    Throws<BackendError>("ABORTED", [&] { pending.Wait(); });
    Throws<BackendError>("ABORTED", [&] { pending.Wait(); });
    TORCH_CHECK(pending.IsDone());
  }
  TORCH_CHECK(rows.IsAlive());
  at::Tensor late = at::zeros({2, 3});
  const Watch kept(late);
  Throws<BackendError>("ABORTED", [&] { a->redistribute({std::move(late), sharding}, "R"); });
  TORCH_CHECK(kept.IsAlive());
  a.reset();
  TORCH_CHECK(rows.IsAlive());
}

}  // namespace

int main() {
  try {
    CheckStatuses();
    CheckDTypes();
    CheckViews();
    CheckArguments();
    CheckLifetimes();
    CheckFailure();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("%d errors are as they should be\n", throws);
  return 0;
}

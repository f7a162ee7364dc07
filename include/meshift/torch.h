// TensorRedistributor: redistributes PyTorch tensors from C++. Header-only; needs libtorch. The
// CMake target is meshift::torch, defined if Torch was found. Not included by meshift/meshift.h.
//
//   using namespace meshift::libtorch;
//   const auto job = Check(meshift::MpiJob::Start());  // Check throws c10::Error
//   const auto mesh = Check(meshift::DeviceMesh::Parse("dp=4"));
//   TensorRedistributor redistribute(mesh, job->engine());
//
//   const DTensor w = redistribute.Wrap(rows, {10, 6}, "S(0)");  // this rank's rows
//   at::Tensor all = redistribute(w, "R", {.dtype = at::kBFloat16}).local;
//
// Errors are thrown: c10::ValueError for INVALID_ARGUMENT, c10::NotImplementedError for
// UNIMPLEMENTED, c10::DistBackendError (since PyTorch 2.1) for ABORTED, DEADLINE_EXCEEDED and
// UNAVAILABLE, c10::Error itself for all others. The message begins with the code. PyTorch's own
// errors, such as out of memory, pass through. A call with refused arguments has no effect, except
// that its ticket may be used up.
//
// On CUDA (an NcclEngine) calls follow PyTorch's stream rules: they run after the work on the
// current stream, and the current stream waits for them. The host waits only where calls of a
// Redistributor do.
//
// Autograd does not record redistributions: a tensor that requires grad is refused while grad mode
// is on.
#ifndef MESHIFT_TORCH_H_
#define MESHIFT_TORCH_H_

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/run_handle.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "meshift/version.h"

#if !_GLIBCXX_USE_CXX11_ABI
#error "meshift needs a libtorch of the C++11 ABI: pip's wheels since 2.6, or libtorch-cxx11-abi"
#endif

// Whether this libtorch was built with CUDA and the toolkit's headers are there.
#ifndef MESHIFT_TORCH_CUDA
#if __has_include(<c10/cuda/impl/cuda_cmake_macros.h>) && __has_include(<cuda_runtime_api.h>)
#define MESHIFT_TORCH_CUDA 1
#else
#define MESHIFT_TORCH_CUDA 0
#endif
#endif

#if MESHIFT_TORCH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

// Not `meshift::torch`, which would hide ::torch.
namespace meshift::libtorch {

// Errors.

// Throws the error of the status; returns if it is OK.
inline void Check(const absl::Status& status) {
  if (status.ok()) return;
  const std::string text = status.ToString();
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      C10_THROW_ERROR(ValueError, text);
    case absl::StatusCode::kUnimplemented:
      C10_THROW_ERROR(NotImplementedError, text);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
      C10_THROW_ERROR(DistBackendError, text);
#endif
    default:
      C10_THROW_ERROR(Error, text);
  }
}

// The value, or throws the status.
template <typename T>
T Check(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// Dtypes by PyTorch's names, because older versions do not have all of them. Float8_e4m3fn is
// f8e4m3 (with NaN, without infinity). A Float4_e2m1fn_x2 is two elements of f4e2m1.

struct DTypeName {
  DType dtype;
  std::string_view name;
};
inline constexpr DTypeName kDTypeNames[] = {
    {DType::kBool, "Bool"},          {DType::kI8, "Char"},
    {DType::kI16, "Short"},          {DType::kI32, "Int"},
    {DType::kI64, "Long"},           {DType::kU8, "Byte"},
    {DType::kU16, "UInt16"},         {DType::kU32, "UInt32"},
    {DType::kU64, "UInt64"},         {DType::kF16, "Half"},
    {DType::kBF16, "BFloat16"},      {DType::kF32, "Float"},
    {DType::kF64, "Double"},         {DType::kF8E4M3, "Float8_e4m3fn"},
    {DType::kF8E5M2, "Float8_e5m2"}, {DType::kF4E2M1, "Float4_e2m1fn_x2"},
    {DType::kC64, "ComplexFloat"},   {DType::kC128, "ComplexDouble"},
};
static_assert(std::size(kDTypeNames) == kNumDTypes);

// Throws c10::NotImplementedError, which names the type, for types that Meshift does not have:
// quantized types, ComplexHalf, bits, the other kinds of Float8.
inline DType ToDType(at::ScalarType type) {
  const std::string_view name = c10::toString(type);
  for (const DTypeName& known : kDTypeNames) {
    if (known.name == name) return known.dtype;
  }
  Check(absl::UnimplementedError("Meshift has no dtype for PyTorch's " + std::string(name)));
  return {};
}

// Throws c10::NotImplementedError if this version of PyTorch does not have the dtype.
inline at::ScalarType ToScalarType(DType dtype) {
  const std::string_view name = kDTypeNames[static_cast<int>(dtype)].name;
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (name == c10::toString(type)) return type;
  }
  Check(absl::UnimplementedError("PyTorch " TORCH_VERSION " has no ScalarType for " +
                                 std::string(Name(dtype)) + " (" + std::string(name) + ")"));
  return {};
}

// Views.

// The tensor's dtype and sizes, in Meshift's elements. Throws c10::NotImplementedError as ToDType,
// and for a pair of f4e2m1 without dims.
inline TensorType TypeOf(const at::Tensor& tensor) {
  TensorType type = {ToDType(tensor.scalar_type()),
                     Shape(tensor.sizes().begin(), tensor.sizes().end())};
  if (type.dtype == DType::kF4E2M1) {
    if (type.shape.empty()) Check(absl::UnimplementedError("a pair of f4e2m1 without dims"));
    type.shape.back() *= 2;
  }
  return type;
}

// A view of the tensor's memory; the tensor must outlive it. An undefined tensor gives
// TensorView(). Throws c10::NotImplementedError as TypeOf, and for tensors that are not plain
// strided memory: sparse, nested, lazily conjugated or negated (use resolve_conj, resolve_neg),
// without memory, strided between pairs of f4e2m1 in a row, or on a device other than CPU and CUDA.
inline TensorView View(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const auto refuse = [](const std::string& why) {
    Check(absl::UnimplementedError("a tensor that " + why + " has no view"));
  };
  if (tensor.layout() != at::kStrided) refuse("is not strided");
  if (tensor.is_nested()) refuse("is nested");
  if (tensor.is_conj()) refuse("is conjugated lazily");
  if (tensor.is_neg()) refuse("is negated lazily");
  if (!tensor.is_cpu() && !tensor.is_cuda()) refuse("is on " + tensor.device().str());
  if (!tensor.has_storage()) refuse("has no storage");
  TensorType type = TypeOf(tensor);
  TensorView view;
  view.dtype = type.dtype;
  view.shape = std::move(type.shape);
  view.strides.assign(tensor.strides().begin(), tensor.strides().end());
  if (view.dtype == DType::kF4E2M1) {
    // The pairs of a row are contiguous.
    if (tensor.sizes().back() > 1 && view.strides.back() != 1) refuse("strides over pairs");
    for (int64_t& stride : view.strides) stride *= 2;
    view.strides.back() = 1;
  }
  if (tensor.is_cuda()) view.device = {Device::Kind::kCuda, static_cast<int>(tensor.get_device())};
  view.data = tensor.numel() == 0 ? nullptr : tensor.data_ptr();
  if (tensor.numel() != 0 && view.data == nullptr) refuse("has no memory");
  return view;
}

// A tensor with its sharding.

// This rank's part of a tensor, with any strides, and the tensor's sharding. If the rank is outside
// the sharding's mesh, `local` is undefined or has no elements.
struct DTensor {
  at::Tensor local;
  Sharding sharding;
};

// Options for one tensor.
struct RedistributeOptions {
  // The result's dtype. None: that of the source, or of the target sharding.
  std::optional<at::ScalarType> dtype = std::nullopt;
  // The dtype in which partial values are reduced, as Redistribution::reduce_dtype; equal on all
  // ranks.
  std::optional<at::ScalarType> reduce_dtype = std::nullopt;
  // The result tensor, with any strides without overlap, or the source itself (in place).
  // Undefined: a new tensor.
  at::Tensor out = {};
  // Redistribution::ticket.
  std::optional<int64_t> ticket = std::nullopt;
};

// One tensor of a list.
struct Transfer {
  DTensor source;
  Sharding to;
  std::optional<at::ScalarType> reduce_dtype = std::nullopt;
  at::Tensor out = {};
};

namespace internal {

// Work, and the tensors that it reads and writes.
struct Run {
  std::vector<at::Tensor> tensors;
  RunHandle handle;
};
// A list, because a run then moves between lists without allocation.
using RunList = std::forward_list<Run>;

// PyTorch's current stream of this thread; null on CPUs.
inline std::unique_ptr<Stream> CurrentStream([[maybe_unused]] NcclEngine* engine) {
#if MESHIFT_TORCH_CUDA
  if (engine != nullptr) {
    const cudaStream_t stream =
        c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(engine->device()));
    // PyTorch's default stream is null, which means another stream in code compiled with a default
    // stream per thread.
    return engine->WrapStream(stream == nullptr ? cudaStreamLegacy : stream);
  }
#endif
  return nullptr;
}

// Leaks the tensors: after an error MPI may write to them until the process ends
// (meshift/mpi_engine.h).
inline void KeepForever(std::vector<at::Tensor> tensors) {
  new std::vector<at::Tensor>(std::move(tensors));  // NOLINT: a leak on purpose
}

// Keeps the tensors of runs whose handle was dropped before they were done. Thread-safe.
class RunKeeper {
 public:
  // `engine`: null on CPUs.
  explicit RunKeeper(NcclEngine* engine) : engine_(engine) {}
  RunKeeper(const RunKeeper&) = delete;
  RunKeeper& operator=(const RunKeeper&) = delete;
  // Waits for the runs.
  ~RunKeeper() {
    for (Run& run : runs_) {
      if (!run.handle.Wait().ok()) KeepForever(std::move(run.tensors));
    }
  }

  void Keep(RunList run) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    runs_.splice_after(runs_.before_begin(), run);
  }

  // Frees the tensors of runs that have ended without an error.
  void FreeEnded() {
    RunList ended;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto before = runs_.before_begin(); std::next(before) != runs_.end();) {
      const RunHandle& handle = std::next(before)->handle;
      if (handle.IsDone() && handle.Wait().ok()) {
        ended.splice_after(ended.before_begin(), runs_, before);
      } else {
        ++before;
      }
    }
  }

  // The current stream waits for the run; on CPUs the host does. Then the tensors may be freed.
  absl::Status Wait(const Run& run) const {
    const std::unique_ptr<Stream> stream = CurrentStream(engine_);
    if (stream == nullptr) return run.handle.Wait();
    MESHIFT_RETURN_IF_ERROR(run.handle.Wait(*stream));
#if MESHIFT_TORCH_CUDA
    // The allocator reuses freed memory for later work on the stream of its allocation. If that is
    // not the current stream, the reuse must wait for the current stream.
    const auto current =
        c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(engine_->device()));
    for (const at::Tensor& tensor : run.tensors) {
      c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), current);
    }
#endif
    return absl::OkStatus();
  }

 private:
  NcclEngine* const engine_;
  std::mutex mutex_;
  RunList runs_;  // under mutex_
};

}  // namespace internal

// A redistribution in progress. It keeps its tensors alive; if it is dropped without a Wait, the
// redistributor keeps them at least until the work is done. Movable; used by one thread at a time.
// The engine must outlive it.
template <typename Result>
class [[nodiscard]] Pending {
 public:
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept {
    Drop();
    keeper_ = std::move(other.keeper_);
    run_ = std::move(other.run_);
    result_ = std::move(other.result_);
    return *this;
  }
  ~Pending() { Drop(); }

  // As RunHandle::IsDone. Does not wait, unless MPI does.
  bool IsDone() const { return run_.empty() || run_.front().handle.IsDone(); }
  // The result. On CPUs the host waits; on CUDA the current stream does. Throws the error of the
  // work (on CUDA only one that is known by then); its tensors are then kept until the process
  // ends. May be called again.
  const Result& Wait() {
    if (!run_.empty()) {
      Check(keeper_->Wait(run_.front()));
      run_.clear();
      keeper_.reset();
    }
    return result_;
  }

 private:
  friend class TensorRedistributor;
  Pending(std::shared_ptr<internal::RunKeeper> keeper, internal::RunList run, Result result)
      : keeper_(std::move(keeper)), run_(std::move(run)), result_(std::move(result)) {}
  void Drop() noexcept {
    if (!run_.empty()) keeper_->Keep(std::move(run_));
    run_.clear();
  }

  std::shared_ptr<internal::RunKeeper> keeper_;  // null after Wait()
  internal::RunList run_;                        // empty after Wait()
  Result result_;
};

// A Redistributor with PyTorch's types and stream rules.
//
//   redistribute(grad, "S(0)", {.reduce_dtype = at::kFloat}).local          // from "P"
//   redistribute(w, server).local                                           // onto another mesh
//   auto pending = redistribute.Start(w, "R");  ...;  pending.Wait().local  // beside other work
//
// All ranks make the same calls in the same order, as for a Redistributor. Movable. Safe for
// concurrent use except for moves; calls of several threads need tickets.
class TensorRedistributor {
 public:
  // Collective; as Redistributor::Create, whose errors it throws. `engine` must outlive this and
  // its pending runs. Throws c10::NotImplementedError if the engine's tensors are on CUDA and it is
  // not an NcclEngine, or this libtorch was built without CUDA.
  TensorRedistributor(const DeviceMesh& mesh, Engine* engine,
                      const RedistributorOptions& options = {})
      : TensorRedistributor(Check(Redistributor::Create(mesh, engine, options)), engine) {}
  // Takes over a redistributor of this engine. Throws in the same cases.
  TensorRedistributor(Redistributor redistributor, Engine* engine)
      : device_(engine->tensor_device()), redistributor_(std::move(redistributor)) {
    NcclEngine* nccl = nullptr;
    if (device_.kind == Device::Kind::kCuda) {
      nccl = dynamic_cast<NcclEngine*>(engine);
      if (nccl == nullptr || !MESHIFT_TORCH_CUDA) {
        Check(absl::UnimplementedError(
            MESHIFT_TORCH_CUDA ? "on CUDA, only an NcclEngine can follow PyTorch's streams"
                               : "this libtorch has no CUDA, or CUDA's headers were not found"));
      }
    }
    nccl_ = nccl;
    keeper_ = std::make_shared<internal::RunKeeper>(nccl);
  }

  // Makes `local` this rank's part of a tensor of these global sizes, on the redistributor's mesh.
  // Throws c10::ValueError if its shape does not match, and the message names both shapes; or as
  // Sharding::Parse and TypeOf.
  DTensor Wrap(at::Tensor local, at::IntArrayRef sizes, std::string_view placements) const {
    TensorType type = {ToDType(local.scalar_type()), Shape(sizes.begin(), sizes.end())};
    if (type.dtype == DType::kF4E2M1 && !type.shape.empty()) type.shape.back() *= 2;
    return Wrap(std::move(local), Check(Sharding::Parse(std::move(type), mesh(), placements)));
  }
  // The same on any mesh; the dtype must match too. If this rank is outside the mesh, `local` is
  // undefined or has sizes {0}.
  DTensor Wrap(at::Tensor local, const Sharding& sharding) const {
    const TensorType own = {sharding.dtype(), sharding.LocalBox(rank()).size};
    if (local.defined() && !(TypeOf(local) == own)) {
      Check(absl::InvalidArgumentError("the tensor is " + TypeOf(local).ToString() + "; rank " +
                                       std::to_string(rank()) + " holds " + own.ToString() +
                                       " of " + sharding.ToString()));
    }
    return {std::move(local), sharding};
  }

  // Allocates this rank's part of a tensor of this sharding, on the engine's device; contents are
  // unspecified. Throws c10::NotImplementedError as ToScalarType, and for f4e2m1 if the rows of the
  // part are not of whole bytes.
  DTensor Empty(const Sharding& sharding) const {
    Shape shape = sharding.LocalBox(rank()).size;
    if (sharding.dtype() == DType::kF4E2M1) {
      if (shape.empty() || shape.back() % 2 != 0) {
        Check(absl::UnimplementedError(sharding.ToString() + " has rows that are not of whole " +
                                       "bytes, as PyTorch's Float4_e2m1fn_x2 are"));
      }
      shape.back() /= 2;
    }
    const at::Device device =
        device_.kind == Device::Kind::kHost
            ? at::Device(at::kCPU)
            : at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device_.index));
    return {at::empty(at::IntArrayRef(shape.data(), shape.size()),
                      at::TensorOptions(device).dtype(ToScalarType(sharding.dtype()))),
            sharding};
  }

  // Redistributes to other placements on the same mesh ("S(0),R"), or to another sharding, on any
  // mesh whose ranks are in mesh(). On CPUs the result is ready when the call returns; on CUDA, for
  // later work on the current stream. An error of the engine is permanent: every later call throws
  // it.
  DTensor operator()(const DTensor& source, std::string_view placements,
                     const RedistributeOptions& options = {}) {
    return Start(source, placements, options).Wait();
  }
  DTensor operator()(const DTensor& source, const Sharding& to,
                     const RedistributeOptions& options = {}) {
    return Start(source, to, options).Wait();
  }
  // Several tensors in one call: small ones share collectives. No transfer may use the target of
  // another. If one is refused, nothing is done.
  std::vector<DTensor> operator()(absl::Span<const Transfer> list,
                                  std::optional<int64_t> ticket = std::nullopt) {
    return Start(list, ticket).Wait();
  }
  // All to the same placements. `options.out` must be undefined.
  std::vector<DTensor> operator()(const std::vector<DTensor>& sources, std::string_view placements,
                                  const RedistributeOptions& options = {}) {
    return Start(sources, placements, options).Wait();
  }

  // The same without waiting for the work. Before Wait() returns or IsDone() is true, the sources
  // must not be written and the results must not be read.
  Pending<DTensor> Start(const DTensor& source, std::string_view placements,
                         const RedistributeOptions& options = {}) {
    return Start(source, Check(source.sharding.WithPlacements(placements)), options);
  }
  Pending<DTensor> Start(const DTensor& source, const Sharding& to,
                         const RedistributeOptions& options = {}) {
    const Transfer transfer = Of(source, to, options);
    std::vector<DTensor> results;
    internal::RunList run = Begin({&transfer, 1}, options.ticket, &results);
    return {keeper_, std::move(run), std::move(results.front())};
  }
  Pending<std::vector<DTensor>> Start(absl::Span<const Transfer> list,
                                      std::optional<int64_t> ticket = std::nullopt) {
    std::vector<DTensor> results;
    internal::RunList run = Begin(list, ticket, &results);
    return {keeper_, std::move(run), std::move(results)};
  }
  Pending<std::vector<DTensor>> Start(const std::vector<DTensor>& sources,
                                      std::string_view placements,
                                      const RedistributeOptions& options = {}) {
    if (options.out.defined()) {
      Check(absl::InvalidArgumentError("one `out` was given for a list of tensors"));
    }
    std::vector<Transfer> list;
    list.reserve(sources.size());
    for (const DTensor& source : sources) {
      list.push_back(Of(source, Check(source.sharding.WithPlacements(placements)), options));
    }
    return Start(list, options.ticket);
  }

  // Prepare, stats, Abort and the rest.
  Redistributor& redistributor() { return redistributor_; }
  const DeviceMesh& mesh() const { return redistributor_.mesh(); }
  int64_t rank() const { return redistributor_.rank(); }

 private:
  static Transfer Of(const DTensor& source, Sharding to, const RedistributeOptions& options) {
    if (options.dtype) to = Check(to.WithDType(ToDType(*options.dtype)));
    return {source, std::move(to), options.reduce_dtype, options.out};
  }

  static void CheckNoGrad(const char* which, const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad() || !c10::GradMode::is_enabled()) return;
    Check(absl::InvalidArgumentError(
        std::string("the ") + which +
        " requires grad, which a redistribution does not record: call it under c10::NoGradGuard, "
        "or with tensor.detach()"));
  }

  TensorView ViewHere(const char* which, const at::Tensor& tensor, const Sharding& sharding) const {
    CheckNoGrad(which, tensor);
    if (!tensor.defined() && sharding.mesh().PositionOf(rank()).has_value()) {
      Check(absl::InvalidArgumentError(std::string("the ") + which + " is undefined; rank " +
                                       std::to_string(rank()) + " holds a part of " +
                                       sharding.ToString()));
    }
    TensorView view = View(tensor);
    // The library assumes that a CUDA engine can access host memory, so the device is checked here.
    if (tensor.defined() && !(view.device == device_)) {
      const std::string own =
          device_.kind == Device::Kind::kHost ? "cpu" : "cuda:" + std::to_string(device_.index);
      Check(absl::InvalidArgumentError(std::string("the ") + which + " is on " +
                                       tensor.device().str() + ", the engine's tensors on " + own));
    }
    return view;
  }

  internal::RunList Begin(absl::Span<const Transfer> transfers, std::optional<int64_t> ticket,
                          std::vector<DTensor>* results) {
    keeper_->FreeEnded();
    internal::RunList run(1);
    std::vector<at::Tensor>& tensors = run.front().tensors;
    std::vector<Redistribution> list;
    list.reserve(transfers.size());
    const std::unique_ptr<Stream> stream = internal::CurrentStream(nccl_);
    for (const Transfer& transfer : transfers) {
      at::Tensor source = transfer.source.local;
      if (source.defined()) source = source.resolve_conj().resolve_neg();
      at::Tensor target = transfer.out.defined() ? transfer.out : Empty(transfer.to).local;
      TensorView from = ViewHere("source", source, transfer.source.sharding);
      from.read_only = true;
      std::optional<DType> reduce_dtype;
      if (transfer.reduce_dtype) reduce_dtype = ToDType(*transfer.reduce_dtype);
      list.push_back({.from = transfer.source.sharding,
                      .to = transfer.to,
                      .source = std::move(from),
                      .target = ViewHere("target", target, transfer.to),
                      .reduce_dtype = reduce_dtype,
                      .after = stream.get()});
      if (source.defined()) tensors.push_back(std::move(source));
      tensors.push_back(target);
      results->push_back({std::move(target), transfer.to});
    }
    if (list.size() == 1) list[0].ticket = ticket;
    absl::StatusOr<RunHandle> handle =
        list.size() == 1 ? redistributor_(list[0]) : redistributor_(list, {}, ticket);
    if (!handle.ok() && !absl::IsInvalidArgument(handle.status()) &&
        !absl::IsUnimplemented(handle.status())) {
      internal::KeepForever(std::move(tensors));  // a part of the work may have begun
    }
    run.front().handle = Check(std::move(handle));
    // Tells autograd that `out` has changed.
    for (const Transfer& transfer : transfers) {
      if (transfer.out.defined() && !transfer.out.is_inference()) {
        transfer.out.unsafeGetTensorImpl()->bump_version();
      }
    }
    return run;
  }

  Device device_;
  NcclEngine* nccl_ = nullptr;  // null on CPUs
  std::shared_ptr<internal::RunKeeper> keeper_;
  Redistributor redistributor_;
};

#if MESHIFT_TORCH_CUDA

// A framework's communicator, lent to an NCCL engine (docs/nccl.md, "Lent communicators"):
//
//   auto group = ...;   // c10d::ProcessGroupNCCL, whose communicator exists
//   auto engine = Check(meshift::NcclEngine::FromLent(meshift::libtorch::Lend(*group)));
//
// The engine's memory comes from PyTorch's caching allocator. `communicator` is an ncclComm_t of
// the current device and must outlive the engine. Set `may_split` of the result if groups may be
// split from it. Throws the error UNAVAILABLE if CUDA makes no stream.
inline NcclLent Lend(void* communicator) {
  const c10::DeviceIndex device = c10::cuda::current_device();
  // Allocate for a stream that has no other work: memory that the allocator returns for a stream
  // may still be in use by earlier work on it.
  cudaStream_t made = nullptr;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
      error != cudaSuccess) {
    Check(absl::UnavailableError(std::string("cudaStreamCreateWithFlags: ") +
                                 cudaGetErrorString(error)));
  }
  const std::shared_ptr<CUstream_st> stream(made, [](cudaStream_t s) { cudaStreamDestroy(s); });
  NcclLent lent;
  lent.communicator = communicator;
  lent.allocate = [device, stream](int64_t bytes) -> void* {
    const c10::cuda::CUDAGuard guard(device);
    try {
      return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(static_cast<size_t>(bytes),
                                                                    stream.get());
    } catch (const c10::Error&) {
      return nullptr;  // out of memory
    }
  };
  lent.free = [](void* memory) { c10::cuda::CUDACachingAllocator::raw_delete(memory); };
  return lent;
}

// Lends the communicator that a c10d::ProcessGroupNCCL has on the current device. It exists after
// the group's first collective, or from the start if the group was made with a device id. Throws
// the error FAILED_PRECONDITION before that. Errors of the group end the engine, if this PyTorch
// has getError. `group` must outlive the engine.
template <typename ProcessGroupNccl>
requires requires(ProcessGroupNccl& group) { group.getCommPtr(); }
NcclLent Lend(ProcessGroupNccl& group) {
  const auto communicator = static_cast<intptr_t>(group.getCommPtr());
  if (communicator == 0) {
    Check(absl::FailedPreconditionError(
        "the process group has no communicator on the current device yet: make it with a device "
        "id, or run a collective first"));
  }
  NcclLent lent = Lend(reinterpret_cast<void*>(communicator));
  if constexpr (requires { group.getError(); }) {
    lent.error = [&group] {
      const auto error = static_cast<int>(group.getError());
      return error == 0 ? absl::OkStatus()
                        : absl::UnavailableError("the process group has failed (c10d::ErrorType " +
                                                 std::to_string(error) + ")");
    };
  }
  return lent;
}

#endif  // MESHIFT_TORCH_CUDA

}  // namespace meshift::libtorch

#endif  // MESHIFT_TORCH_H_

#include "comm/nccl/nccl_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/control/bootstrap.h"
#include "comm/cuda/driver.h"
#include "comm/engine/communicator.h"
#include "comm/engine/engine.h"
#include "comm/engine/symmetric_memory.h"
#include "comm/nccl/device.h"
#include "comm/nccl/job.h"
#include "comm/nccl/meeting.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/streams.h"
#include "comm/nccl/symmetric.h"
#include "placement/dtype.h"
#include "placement/placement.h"
#include "planner/options/capabilities.h"

namespace meshift {
namespace {

constexpr int kMaxInFlight = 16;
// What NCCL takes for maxCTAs where nothing is said (src/init.cc, parseCommConfig).
constexpr int kDefaultMaxCtas = 64;

ncclConfig_t ConfigOf(const NcclOptions& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const auto set = [](int value, int* field) {
    if (value >= 0) *field = value;
  };
  config.blocking = 0;
  config.splitShare = options.split_share ? 1 : 0;
  set(options.min_ctas, &config.minCTAs);
  set(options.max_ctas, &config.maxCTAs);
  // NCCL compares the two before it fills in what is not set.
  if (options.min_ctas > 0 && options.max_ctas < 0) {
    config.maxCTAs = std::max(options.min_ctas, kDefaultMaxCtas);
  }
  set(options.cga_cluster_size, &config.cgaClusterSize);
  set(options.cta_policy, &config.CTAPolicy);
  set(options.traffic_class, &config.trafficClass);
  if (!options.net_name.empty()) config.netName = options.net_name.c_str();
  return config;
}

absl::Status CheckOptions(const NcclOptions& options) {
  if (options.timeout.count() <= 0 || options.setup_timeout.count() <= 0) {
    return InvalidArgument("a timeout of {} ns is not positive",
                           std::min(options.timeout, options.setup_timeout).count());
  }
  if (!(options.cta_share >= 0 && options.cta_share <= 1)) {
    return InvalidArgument("cta_share {} is not between 0 and 1", options.cta_share);
  }
  if (options.min_ctas == 0 || options.max_ctas == 0) {
    return InvalidArgument("min_ctas {}, max_ctas {}: a communicator needs a thread block",
                           options.min_ctas, options.max_ctas);
  }
  if (options.min_ctas > 0 && options.max_ctas > 0 && options.min_ctas > options.max_ctas) {
    return InvalidArgument("min_ctas {} is more than max_ctas {}", options.min_ctas,
                           options.max_ctas);
  }
  return absl::OkStatus();
}

int MaxInFlight(const NcclOptions& options, int num_sms) {
  if (options.max_ctas <= 0) return 1;
  return std::clamp(static_cast<int>(options.cta_share * num_sms / options.max_ctas), 1,
                    kMaxInFlight);
}

std::vector<int64_t> Iota(int64_t n) {
  std::vector<int64_t> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// What this process needs before it can talk to others.
struct Parts {
  std::shared_ptr<const NcclLibrary> nccl;
  std::shared_ptr<CudaDevice> device;
};

// `device`: that one, or, where `or_only`, the only one that this process sees.
absl::StatusOr<Parts> LoadParts(const NcclOptions& options, int device, bool or_only) {
  Parts parts;
  MESHIFT_RETURN_IF_ERROR(CheckOptions(options));
  MESHIFT_ASSIGN_OR_RETURN(auto driver, CudaDriver::Load(options.cuda_library));
  MESHIFT_ASSIGN_OR_RETURN(parts.nccl, NcclLibrary::Load(options.nccl_library));
  MESHIFT_ASSIGN_OR_RETURN(const int devices, driver->InitAndCountDevices());
  if (or_only && devices == 1) device = 0;
  MESHIFT_ASSIGN_OR_RETURN(parts.device,
                           CudaDevice::Open(std::move(driver), device, options.timed_events));
  return parts;
}

std::shared_ptr<NcclJob> MakeJob(const Parts& parts, int64_t rank, const NcclOptions& options) {
  return std::make_shared<NcclJob>(
      parts.nccl, parts.device, rank,
      NcclJobOptions{.timeout = options.timeout,
                     .setup_timeout = options.setup_timeout,
                     .max_in_flight = MaxInFlight(options, parts.device->num_sms())});
}

class NcclEngineImpl final : public NcclEngine {
 public:
  NcclEngineImpl(std::shared_ptr<NcclJob> job, std::shared_ptr<NcclGroup> root,
                 const NcclOptions& options, EngineCapabilities capabilities,
                 ControlChannel* control, CUstream lent_stream)
      : job_(std::move(job)),
        options_(options),
        config_(ConfigOf(options_)),
        capabilities_(std::move(capabilities)),
        control_(control),
        lent_stream_(lent_stream),
        world_(job_, std::move(root), /*releases=*/false) {}
  ~NcclEngineImpl() override { job_->Close(); }

  const std::string& name() const override { return name_; }
  int64_t rank() const override { return job_->rank(); }
  int64_t world_size() const override { return world_.size(); }
  Communicator* world() override { return &world_; }
  EngineCapabilities Capabilities() const override { return capabilities_; }
  ControlChannel* control() override { return control_; }
  int device() const override { return job_->device().ordinal(); }
  Device tensor_device() const override { return {.kind = Device::Kind::kCuda, .index = device()}; }
  std::string nccl_version() const override { return job_->nccl().VersionText(); }

  absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator& parent,
                                                      absl::Span<const int64_t> ranks,
                                                      int64_t group,
                                                      const GroupOptions& options) override;
  absl::Status SkipSplit(Communicator& parent) override;

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return NcclBuffer::Create(job_, bytes);
  }
  absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> AllocateSymmetric(
      Communicator& communicator, const SymmetricRequest& request) override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    if (lent_stream_ != nullptr) return WrapStream(lent_stream_);
    return NcclStream::Create(job_);
  }
  std::unique_ptr<Stream> WrapStream(void* stream) override {
    return std::make_unique<NcclStream>(job_, static_cast<CUstream>(stream), /*lent=*/true);
  }
  absl::StatusOr<void*> HandleOf(Stream& stream) override {
    MESHIFT_ASSIGN_OR_RETURN(const NcclStream* own, NcclStream::Of(stream, *job_));
    return own->handle();
  }
  absl::StatusOr<std::shared_ptr<Event>> Record(Stream& stream) override {
    std::shared_ptr<Event> event;
    MESHIFT_RETURN_IF_ERROR(RecordInto(stream, &event));
    return event;
  }
  absl::Status RecordInto(Stream& stream, std::shared_ptr<Event>* event) override;
  absl::Status WaitFor(Stream& stream, std::shared_ptr<Event> event) override;
  absl::Status Synchronize(Stream& stream) override {
    MESHIFT_ASSIGN_OR_RETURN(const NcclStream* own, NcclStream::Of(stream, *job_));
    return own->Synchronize();
  }
  absl::Status Wait(const std::shared_ptr<Event>& event) override;

  absl::Status CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, Stream& stream) override {
    return OnStream(stream, [&](CUstream s) { return kernels().CopyBoxes(copies, dtype, s); });
  }
  absl::Status FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                            Stream& stream) override {
    return OnStream(stream,
                    [&](CUstream s) { return kernels().FillIdentity(data, count, dtype, op, s); });
  }
  absl::Status FillZero(void* data, int64_t bytes, Stream& stream) override {
    return OnStream(stream, [&](CUstream s) { return kernels().FillZero(data, bytes, s); });
  }
  absl::Status Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
                    Stream& stream) override {
    return OnStream(stream, [&](CUstream s) {
      return kernels().Cast(src, src_dtype, dst, dst_dtype, count, s);
    });
  }
  absl::Status ReduceInOrder(absl::Span<const void* const> inputs, void* out, int64_t count,
                             DType dtype, const Reduction& reduction, Stream& stream) override {
    return OnStream(stream, [&](CUstream s) {
      return kernels().ReduceBuffers(inputs, out, count, dtype, reduction, s);
    });
  }
  absl::Status CopyIn(const void* host, void* data, int64_t bytes, Stream& stream) override;
  absl::Status CopyOut(const void* data, void* host, int64_t bytes, Stream& stream) override;

 private:
  const CudaKernels& kernels() const { return job_->device().kernels(); }
  template <typename Work>
  absl::Status OnStream(Stream& stream, Work work) {
    MESHIFT_ASSIGN_OR_RETURN(const NcclStream* own, NcclStream::Of(stream, *job_));
    const CudaDevice::Scope scope(job_->device());
    return work(own->handle());
  }
  // What members tell each other before they register memory together.
  struct Told {
    int64_t first = 0;
    int64_t count = 0;
    int64_t bytes = 0;
    char why[104] = {};  // this member cannot; empty: it can
  };
  absl::StatusOr<std::vector<Told>> Exchange(NcclCommunicator& communicator, const Told& mine);
  absl::Status CheckTold(const NcclGroup& group, const std::vector<Told>& all,
                         absl::StatusCode code);
  absl::StatusOr<NcclCommunicator*> Own(Communicator& parent) const;
  absl::StatusOr<const NcclEvent*> Own(const std::shared_ptr<Event>& event) const;

  const std::string name_ = "nccl";
  const std::shared_ptr<NcclJob> job_;
  const NcclOptions options_;
  ncclConfig_t config_;  // points into options_
  const EngineCapabilities capabilities_;
  ControlChannel* const control_;
  const CUstream lent_stream_;  // null: none
  NcclCommunicator world_;
};

absl::StatusOr<NcclCommunicator*> NcclEngineImpl::Own(Communicator& parent) const {
  auto* own = dynamic_cast<NcclCommunicator*>(&parent);
  if (own == nullptr || own->job() != job_.get()) {
    return InvalidArgument("rank {} splits a communicator that is not its own: {}", rank(),
                           parent.ToString());
  }
  return own;
}

absl::StatusOr<std::shared_ptr<Communicator>> NcclEngineImpl::Split(Communicator& parent,
                                                                    absl::Span<const int64_t> ranks,
                                                                    int64_t group,
                                                                    const GroupOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(NcclCommunicator * own, Own(parent));
  const std::vector<int64_t>& all = own->group()->ranks;
  const std::string text = fmt::format("{{{}}}", fmt::join(ranks, ","));
  if (ranks.size() < 2) return InvalidArgument("group {} has fewer than two ranks", text);
  if (group < 0 || group > std::numeric_limits<int>::max()) {
    return InvalidArgument("group number {} is not between 0 and 2^31 - 1", group);
  }
  if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end()) {
    return InvalidArgument("the ranks of group {} do not ascend", text);
  }
  if (!std::includes(all.begin(), all.end(), ranks.begin(), ranks.end())) {
    return InvalidArgument("group {} is not part of {}", text, own->group()->ToString());
  }
  const auto self = std::lower_bound(ranks.begin(), ranks.end(), rank());
  if (self == ranks.end() || *self != rank()) {
    return InvalidArgument("rank {} is not in its group {}", rank(), text);
  }
  if (!own->group()->may_split) {
    if (options.one_channel) {
      return FailedPrecondition(
          "group {} needs a communicator of one channel; that of {} was lent without permission to "
          "split it (NcclLent::may_split)",
          text, own->group()->ToString());
    }
    if (ranks.size() == all.size()) {
      return std::make_shared<NcclCommunicator>(job_, own->group(), /*releases=*/false);
    }
    return FailedPrecondition(
        "group {} would be split from the communicator of {}, which was lent without permission to "
        "split it (NcclLent::may_split)",
        text, own->group()->ToString());
  }
  const auto key = static_cast<int>(self - ranks.begin());
  ncclConfig_t config = config_;
  if (options.one_channel) {
    config.minCTAs = config.maxCTAs = 1;
    config.collnetEnable = 0;
  }
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<NcclGroup> made,
                           job_->Split(*own->group(), static_cast<int>(group), key, &config,
                                       std::vector<int64_t>(ranks.begin(), ranks.end())));
  return std::make_shared<NcclCommunicator>(job_, std::move(made), /*releases=*/true);
}

absl::Status NcclEngineImpl::SkipSplit(Communicator& parent) {
  MESHIFT_ASSIGN_OR_RETURN(NcclCommunicator * own, Own(parent));
  // Where nobody may split, the ranks that wanted to have been refused.
  if (!own->group()->may_split) return absl::OkStatus();
  return job_->Split(*own->group(), NCCL_SPLIT_NOCOLOR, 0, &config_, {}).status();
}

absl::StatusOr<std::vector<NcclEngineImpl::Told>> NcclEngineImpl::Exchange(
    NcclCommunicator& communicator, const Told& mine) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Told));
  const int64_t n = communicator.size();
  std::vector<Told> all(n);
  MESHIFT_ASSIGN_OR_RETURN(const auto memory, Allocate(kBytes * (n + 1)));
  auto* const told = static_cast<char*>(memory->data());
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, CreateStream());
  MESHIFT_RETURN_IF_ERROR(CopyIn(&mine, told, kBytes, *stream));
  MESHIFT_RETURN_IF_ERROR(communicator.AllGather(told, told + kBytes, kBytes, DType::kU8, *stream));
  MESHIFT_RETURN_IF_ERROR(Synchronize(*stream));
  MESHIFT_RETURN_IF_ERROR(CopyOut(told + kBytes, all.data(), kBytes * n, *stream));
  MESHIFT_RETURN_IF_ERROR(Synchronize(*stream));
  return all;
}

absl::Status NcclEngineImpl::CheckTold(const NcclGroup& group, const std::vector<Told>& all,
                                       absl::StatusCode code) {
  const auto text = [](const Told& told) {
    return SymmetricRequest{told.first, told.count, told.bytes}.ToString();
  };
  for (size_t member = 1; member < all.size(); ++member) {
    if (text(all[member]) == text(all[0])) continue;
    return job_->Fail(FailedPrecondition("{}: rank {} asks for {}, and rank {} for {}",
                                         group.ToString(), group.ranks[0], text(all[0]),
                                         group.ranks[member], text(all[member])));
  }
  for (size_t member = 0; member < all.size(); ++member) {
    if (all[member].why[0] == '\0') continue;
    return absl::Status(code, fmt::format("rank {} has no symmetric memory: {}",
                                          group.ranks[member], all[member].why));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> NcclEngineImpl::AllocateSymmetric(
    Communicator& communicator, const SymmetricRequest& request) {
  MESHIFT_ASSIGN_OR_RETURN(NcclCommunicator * own, Own(communicator));
  MESHIFT_RETURN_IF_ERROR(CheckRequest(request));
  const std::shared_ptr<NcclGroup>& group = own->group();
  Told mine{.first = request.first, .count = request.count, .bytes = request.bytes};
  const auto say = [&](const std::string& why) {
    std::memcpy(mine.why, why.data(), std::min(why.size(), sizeof(mine.why) - 1));
  };
  say(WhyNoWindows(job_->nccl(), *group));
  MESHIFT_ASSIGN_OR_RETURN(std::vector<Told> all, Exchange(*own, mine));
  MESHIFT_RETURN_IF_ERROR(CheckTold(*group, all, absl::StatusCode::kUnimplemented));
  std::vector<std::unique_ptr<NcclSymmetricBuffer>> made;
  for (int64_t i = 0; i < request.count; ++i) {
    auto buffer = NcclSymmetricBuffer::Create(job_, group, request.first + i, request.bytes);
    if (buffer.ok()) {
      made.push_back(*std::move(buffer));
    } else {
      say(Message(buffer.status()));
    }
  }
  // Nobody waits for a member that has no memory.
  MESHIFT_ASSIGN_OR_RETURN(all, Exchange(*own, mine));
  MESHIFT_RETURN_IF_ERROR(CheckTold(*group, all, absl::StatusCode::kResourceExhausted));
  std::vector<std::unique_ptr<SymmetricBuffer>> buffers;
  for (std::unique_ptr<NcclSymmetricBuffer>& buffer : made) {
    MESHIFT_RETURN_IF_ERROR(buffer->Register());
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

absl::StatusOr<const NcclEvent*> NcclEngineImpl::Own(const std::shared_ptr<Event>& event) const {
  const auto* own = dynamic_cast<const NcclEvent*>(event.get());
  if (own == nullptr || own->job() != job_.get()) {
    return InvalidArgument("the event is null or of another engine");
  }
  return own;
}

absl::Status NcclEngineImpl::RecordInto(Stream& stream, std::shared_ptr<Event>* event) {
  MESHIFT_ASSIGN_OR_RETURN(const NcclStream* own, NcclStream::Of(stream, *job_));
  auto* marked = event->use_count() == 1 ? dynamic_cast<NcclEvent*>(event->get()) : nullptr;
  if (marked != nullptr && marked->job() == job_.get()) return marked->Record(*own);
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<NcclEvent> made, NcclEvent::Create(job_));
  MESHIFT_RETURN_IF_ERROR(made->Record(*own));
  *event = std::move(made);
  return absl::OkStatus();
}

absl::Status NcclEngineImpl::WaitFor(Stream& stream, std::shared_ptr<Event> event) {
  MESHIFT_ASSIGN_OR_RETURN(const NcclEvent* own, Own(event));
  MESHIFT_ASSIGN_OR_RETURN(const NcclStream* target, NcclStream::Of(stream, *job_));
  return own->Delay(*target);
}

absl::Status NcclEngineImpl::Wait(const std::shared_ptr<Event>& event) {
  MESHIFT_ASSIGN_OR_RETURN(const NcclEvent* own, Own(event));
  if (own->InGraph()) {
    return FailedPrecondition(
        "the event is part of a CUDA graph: the host can wait for the graph's launch only");
  }
  return job_->Await(own->handle());
}

absl::Status NcclEngineImpl::CopyIn(const void* host, void* data, int64_t bytes, Stream& stream) {
  if (bytes == 0) return absl::OkStatus();
  return OnStream(stream, [&](CUstream s) {
    return job_->device().driver().MemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(data), host,
                                                   static_cast<size_t>(bytes), s);
  });
}

absl::Status NcclEngineImpl::CopyOut(const void* data, void* host, int64_t bytes, Stream& stream) {
  if (bytes == 0) return absl::OkStatus();
  return OnStream(stream, [&](CUstream s) {
    return job_->device().driver().MemcpyDtoHAsync(host, reinterpret_cast<CUdeviceptr>(data),
                                                   static_cast<size_t>(bytes), s);
  });
}

// FAILED_PRECONDITION where NCCL finds this setting.
absl::Status CheckUnset(std::string_view name, std::string_view value,
                        const Environment& environment) {
  if (environment.Get(std::string(name)) != value) return absl::OkStatus();
  return FailedPrecondition("{} is {}, which the NCCL engine cannot work with; unset it", name,
                            value);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclEngine>> NcclEngine::Create(Bootstrap* bootstrap,
                                                               const NcclOptions& options) {
  const NcclEnvironment found(Environment::Process());
  const Environment& environment = options.environment != nullptr ? *options.environment : found;
  const JobRank& job = bootstrap->job();
  const bool given = options.device >= 0;
  absl::StatusOr<Parts> parts = LoadParts(
      options, given ? options.device : static_cast<int>(job.local_rank), /*or_only=*/!given);
  if (parts.ok()) {
    // It goes before a communicator's configuration, and calls that block have no time-out.
    const absl::Status unblocked = CheckUnset("NCCL_COMM_BLOCKING", "1", environment);
    if (!unblocked.ok()) parts = unblocked;
  }
  MESHIFT_ASSIGN_OR_RETURN(NcclMeeting meeting,
                           Meet(bootstrap, parts.status(), parts.ok() ? parts->nccl.get() : nullptr,
                                parts.ok() ? parts->device.get() : nullptr, environment));
  const std::shared_ptr<NcclJob> shared = MakeJob(*parts, job.rank, options);
  const std::vector<int64_t> ranks = Iota(job.world_size);
  MESHIFT_RETURN_IF_ERROR(shared->Join(bootstrap->control(), ranks));
  ncclConfig_t config = ConfigOf(options);
  absl::StatusOr<std::shared_ptr<NcclGroup>> root =
      shared->MakeRoot("ncclCommInitRankConfig", ranks, [&](ncclComm_t* comm) {
        return parts->nccl->CommInitRankConfig(comm, static_cast<int>(job.world_size), meeting.id,
                                               static_cast<int>(job.rank), &config);
      });
  if (!root.ok()) {
    shared->Fail(root.status()).IgnoreError();
    shared->Close();
    return root.status();
  }
  return std::make_unique<NcclEngineImpl>(shared, *root, options, std::move(meeting.capabilities),
                                          bootstrap->control(), nullptr);
}

absl::StatusOr<std::unique_ptr<NcclEngine>> NcclEngine::FromLent(const NcclLent& lent,
                                                                 const NcclOptions& options) {
  if (lent.communicator == nullptr) return InvalidArgument("the lent communicator is null");
  if (lent.may_split) {
    // Aborting what was split off would abort the lent communicator too.
    const NcclEnvironment found(Environment::Process());
    const Environment& environment = options.environment != nullptr ? *options.environment : found;
    MESHIFT_RETURN_IF_ERROR(CheckUnset("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1", environment));
  }
  const auto comm = static_cast<ncclComm_t>(lent.communicator);
  MESHIFT_ASSIGN_OR_RETURN(auto nccl, NcclLibrary::Load(options.nccl_library));
  int size = 0;
  int rank = 0;
  int device = 0;
  MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->CommCount(comm, &size), "ncclCommCount", comm));
  MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->CommUserRank(comm, &rank), "ncclCommUserRank", comm));
  MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->CommCuDevice(comm, &device), "ncclCommCuDevice", comm));
  MESHIFT_ASSIGN_OR_RETURN(const Parts parts, LoadParts(options, device, /*or_only=*/false));
  const std::shared_ptr<NcclJob> shared = MakeJob(parts, rank, options);
  const std::vector<int64_t> ranks = Iota(size);
  if (lent.control != nullptr) MESHIFT_RETURN_IF_ERROR(shared->Join(lent.control, ranks));
  absl::StatusOr<std::shared_ptr<NcclGroup>> root = shared->Lend(comm, lent.may_split, ranks, rank);
  if (!root.ok()) {
    shared->Fail(root.status()).IgnoreError();
    shared->Close();
    return root.status();
  }
  EngineCapabilities capabilities = EngineCapabilities::Nccl();
  capabilities.native_why = "nobody has compared the environments of a lent communicator's ranks";
  return std::make_unique<NcclEngineImpl>(shared, *root, options, std::move(capabilities),
                                          lent.control, static_cast<CUstream>(lent.stream));
}

}  // namespace meshift

#include "meshift/nccl_engine.h"

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
#include "comm/cuda/driver.h"
#include "comm/nccl/context.h"
#include "comm/nccl/device.h"
#include "comm/nccl/environment.h"
#include "comm/nccl/groups.h"
#include "comm/nccl/library_copies.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/nccl_config.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/rendezvous.h"
#include "comm/nccl/streams.h"
#include "comm/nccl/symmetric.h"
#include "meshift/bootstrap.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"

namespace meshift {
namespace {

std::vector<int64_t> Iota(int64_t n) {
  std::vector<int64_t> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// NCCL's library and the device, which a rank needs before the rendezvous.
struct Parts {
  std::shared_ptr<const NcclLibrary> nccl;
  std::shared_ptr<CudaDevice> device;
};

// Opens `device`, or, if `or_only` and the process sees only one device, that one.
absl::StatusOr<Parts> LoadParts(const NcclOptions& options, int device, bool or_only,
                                MemorySource memory) {
  Parts parts;
  MESHIFT_RETURN_IF_ERROR(CheckOptions(options));
  MESHIFT_ASSIGN_OR_RETURN(auto driver, CudaDriver::Load(options.cuda_library));
  MESHIFT_ASSIGN_OR_RETURN(parts.nccl, NcclLibrary::Load(options.nccl_library));
  MESHIFT_ASSIGN_OR_RETURN(const int devices, driver->InitAndCountDevices());
  if (or_only && devices == 1) device = 0;
  MESHIFT_ASSIGN_OR_RETURN(parts.device, CudaDevice::Open(std::move(driver), device,
                                                          options.timed_events, std::move(memory)));
  return parts;
}

absl::StatusOr<std::shared_ptr<NcclContext>> MakeContext(const Parts& parts, int64_t rank,
                                                         const NcclOptions& options,
                                                         const Environment& environment,
                                                         const NcclLent& lent) {
  // The variable overrides a communicator's configuration.
  const bool bounded =
      options.bounded_calls || environment.Get("NCCL_COMM_BLOCKING").value_or("") == "0";
  return NcclContext::Create(
      parts.nccl, parts.device, rank,
      {.timeouts = {.setup = options.setup_timeout, .running = options.timeout},
       .max_in_flight = MaxInFlight(options, parts.device->num_sms(), environment),
       .blocking_groups = !bounded,
       .lender_error = lent.error});
}

// The world group: `root` itself if calls are bounded or it may not be split; else a blocking
// communicator that is split from it.
absl::StatusOr<std::shared_ptr<NcclGroup>> MakeWorld(NcclContext& context,
                                                     const std::shared_ptr<NcclGroup>& root,
                                                     const NcclOptions& options) {
  if (!context.blocking_groups() || !root->may_split) return root;
  return context.Split(root, {.color = 0,
                              .key = root->member,
                              .ranks = root->ranks,
                              .config = ConfigOf(options, context.device().num_sms()),
                              .net_name = options.net_name,
                              .name = CommNameOf("world", root->ranks),
                              .kind = ""});
}

class NcclEngineImpl final : public NcclEngine {
 public:
  NcclEngineImpl(std::shared_ptr<NcclContext> context, std::shared_ptr<NcclGroup> root,
                 const NcclOptions& options, EngineCapabilities capabilities,
                 ControlChannel* control, CUstream lent_stream)
      : context_(std::move(context)),
        options_(options),
        capabilities_(std::move(capabilities)),
        control_(control),
        lent_stream_(lent_stream),
        world_(context_, std::move(root)) {}
  ~NcclEngineImpl() override { context_->Close(); }

  const std::string& name() const override { return name_; }
  int64_t rank() const override { return context_->rank(); }
  int64_t world_size() const override { return world_.size(); }
  Communicator* world() override { return &world_; }
  EngineCapabilities Capabilities() const override { return capabilities_; }
  ControlChannel* control() override { return control_; }
  absl::Status SetTimeouts(const Timeouts& timeouts) override {
    return context_->SetTimeouts(timeouts);
  }
  Timeouts timeouts() const override { return context_->timeouts(); }
  int device() const override { return context_->device().ordinal(); }
  Device tensor_device() const override { return {.kind = Device::Kind::kCuda, .index = device()}; }
  std::string nccl_version() const override { return context_->nccl().VersionText(); }
  std::string Library() const override { return DescribeNccl(context_->nccl()); }

  absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator& parent,
                                                      absl::Span<const int64_t> ranks,
                                                      int64_t group,
                                                      const GroupOptions& options) override;
  absl::Status SplitNoColor(Communicator& parent) override;

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return NcclBuffer::Create(context_, bytes);
  }
  absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> AllocateSymmetric(
      Communicator& communicator, const SymmetricRequest& request) override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    if (lent_stream_ != nullptr) return WrapStream(lent_stream_);
    return NcclStream::Create(context_);
  }
  std::unique_ptr<Stream> WrapStream(void* stream) override {
    return std::make_unique<NcclStream>(context_, static_cast<CUstream>(stream), /*lent=*/true);
  }
  absl::StatusOr<void*> HandleOf(Stream& stream) override {
    MESHIFT_ASSIGN_OR_RETURN(const NcclStream* own, NcclStream::Of(stream, *context_));
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
    MESHIFT_ASSIGN_OR_RETURN(const NcclStream* own, NcclStream::Of(stream, *context_));
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
  const CudaKernels& kernels() const { return context_->device().kernels(); }
  NcclSplit SplitOf(int color) const {
    return {.color = color,
            .key = 0,
            .ranks = {},
            .config = ConfigOf(options_, context_->device().num_sms()),
            .net_name = options_.net_name,
            .name = "",
            .kind = ""};
  }
  template <typename Work>
  absl::Status OnStream(Stream& stream, Work work) {
    MESHIFT_ASSIGN_OR_RETURN(const NcclStream* own, NcclStream::Of(stream, *context_));
    const CudaDevice::Scope scope(context_->device());
    return work(own->handle());
  }
  // The record that members exchange before they register symmetric memory together.
  struct SymmetricProposal {
    int64_t first = 0;  // the SymmetricRequest
    int64_t count = 0;
    int64_t bytes = 0;
    char why[104] = {};  // why this member cannot; empty: it can
  };
  absl::StatusOr<std::vector<SymmetricProposal>> Exchange(NcclCommunicator& communicator,
                                                          const SymmetricProposal& mine);
  absl::Status CheckProposals(const NcclGroup& group, const std::vector<SymmetricProposal>& all,
                              absl::StatusCode code);
  absl::StatusOr<NcclCommunicator*> Own(Communicator& parent) const;
  absl::StatusOr<const NcclEvent*> Own(const std::shared_ptr<Event>& event) const;

  const std::string name_ = "nccl";
  const std::shared_ptr<NcclContext> context_;
  const NcclOptions options_;
  const EngineCapabilities capabilities_;
  ControlChannel* const control_;
  const CUstream lent_stream_;  // null: none
  NcclCommunicator world_;
};

absl::StatusOr<NcclCommunicator*> NcclEngineImpl::Own(Communicator& parent) const {
  auto* own = dynamic_cast<NcclCommunicator*>(&parent);
  if (own == nullptr || own->context() != context_.get()) {
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
    return InvalidArgument("the ranks of group {} are not strictly ascending", text);
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
      return std::make_shared<NcclCommunicator>(context_, own->group());
    }
    return FailedPrecondition(
        "group {} would be split from the communicator of {}, which was lent without permission to "
        "split it (NcclLent::may_split)",
        text, own->group()->ToString());
  }
  NcclSplit split = SplitOf(static_cast<int>(group));
  split.key = static_cast<int>(self - ranks.begin());
  split.ranks.assign(ranks.begin(), ranks.end());
  split.name = CommNameOf(options.name, ranks);
  split.kind = options.ToString();
  if (options.one_channel) {
    split.config.minCTAs = split.config.maxCTAs = 1;
    split.config.collnetEnable = 0;
  }
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<NcclGroup> made,
                           context_->Split(own->group(), std::move(split)));
  return std::make_shared<NcclCommunicator>(context_, std::move(made));
}

absl::Status NcclEngineImpl::SplitNoColor(Communicator& parent) {
  MESHIFT_ASSIGN_OR_RETURN(NcclCommunicator * own, Own(parent));
  // If the parent may not be split, Split makes no collective call on the group's ranks.
  if (!own->group()->may_split) return absl::OkStatus();
  return context_->Split(own->group(), SplitOf(NCCL_SPLIT_NOCOLOR)).status();
}

absl::StatusOr<std::vector<NcclEngineImpl::SymmetricProposal>> NcclEngineImpl::Exchange(
    NcclCommunicator& communicator, const SymmetricProposal& mine) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(SymmetricProposal));
  const int64_t n = communicator.size();
  std::vector<SymmetricProposal> all(n);
  MESHIFT_ASSIGN_OR_RETURN(const auto memory, Allocate(kBytes * (n + 1)));
  auto* const proposal = static_cast<char*>(memory->data());
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, CreateStream());
  MESHIFT_RETURN_IF_ERROR(CopyIn(&mine, proposal, kBytes, *stream));
  MESHIFT_RETURN_IF_ERROR(
      communicator.AllGather(proposal, proposal + kBytes, kBytes, DType::kU8, *stream));
  MESHIFT_RETURN_IF_ERROR(Synchronize(*stream));
  MESHIFT_RETURN_IF_ERROR(CopyOut(proposal + kBytes, all.data(), kBytes * n, *stream));
  MESHIFT_RETURN_IF_ERROR(Synchronize(*stream));
  return all;
}

absl::Status NcclEngineImpl::CheckProposals(const NcclGroup& group,
                                            const std::vector<SymmetricProposal>& all,
                                            absl::StatusCode code) {
  const auto text = [](const SymmetricProposal& proposal) {
    return SymmetricRequest{proposal.first, proposal.count, proposal.bytes}.ToString();
  };
  for (size_t member = 1; member < all.size(); ++member) {
    if (text(all[member]) == text(all[0])) continue;
    return context_->Fail(FailedPrecondition("{}: rank {} asks for {}, and rank {} for {}",
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
  SymmetricProposal mine{.first = request.first, .count = request.count, .bytes = request.bytes};
  const auto set_reason = [&](const std::string& why) {
    std::memcpy(mine.why, why.data(), std::min(why.size(), sizeof(mine.why) - 1));
  };
  set_reason(WhyNoWindows(context_->nccl(), *group));
  MESHIFT_ASSIGN_OR_RETURN(std::vector<SymmetricProposal> all, Exchange(*own, mine));
  MESHIFT_RETURN_IF_ERROR(CheckProposals(*group, all, absl::StatusCode::kUnimplemented));
  std::vector<std::unique_ptr<NcclSymmetricBuffer>> made;
  for (int64_t i = 0; i < request.count; ++i) {
    auto buffer = NcclSymmetricBuffer::Create(context_, group, request.first + i, request.bytes);
    if (buffer.ok()) {
      made.push_back(*std::move(buffer));
    } else {
      set_reason(Message(buffer.status()));
    }
  }
  // Registering is collective, so first learn whether all members have memory.
  MESHIFT_ASSIGN_OR_RETURN(all, Exchange(*own, mine));
  MESHIFT_RETURN_IF_ERROR(CheckProposals(*group, all, absl::StatusCode::kResourceExhausted));
  std::vector<std::unique_ptr<SymmetricBuffer>> buffers;
  for (std::unique_ptr<NcclSymmetricBuffer>& buffer : made) {
    MESHIFT_RETURN_IF_ERROR(buffer->Register());
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

absl::StatusOr<const NcclEvent*> NcclEngineImpl::Own(const std::shared_ptr<Event>& event) const {
  const auto* own = dynamic_cast<const NcclEvent*>(event.get());
  if (own == nullptr || own->context() != context_.get()) {
    return InvalidArgument("the event is null or belongs to another engine");
  }
  return own;
}

absl::Status NcclEngineImpl::RecordInto(Stream& stream, std::shared_ptr<Event>* event) {
  MESHIFT_ASSIGN_OR_RETURN(const NcclStream* own, NcclStream::Of(stream, *context_));
  auto* marked = event->use_count() == 1 ? dynamic_cast<NcclEvent*>(event->get()) : nullptr;
  if (marked != nullptr && marked->context() == context_.get()) return marked->Record(*own);
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<NcclEvent> made, NcclEvent::Create(context_));
  MESHIFT_RETURN_IF_ERROR(made->Record(*own));
  *event = std::move(made);
  return absl::OkStatus();
}

absl::Status NcclEngineImpl::WaitFor(Stream& stream, std::shared_ptr<Event> event) {
  MESHIFT_ASSIGN_OR_RETURN(const NcclEvent* own, Own(event));
  MESHIFT_ASSIGN_OR_RETURN(const NcclStream* target, NcclStream::Of(stream, *context_));
  return own->Delay(*target);
}

absl::Status NcclEngineImpl::Wait(const std::shared_ptr<Event>& event) {
  MESHIFT_ASSIGN_OR_RETURN(const NcclEvent* own, Own(event));
  if (own->InGraph()) {
    return FailedPrecondition(
        "the event is part of a CUDA graph: the host can wait for the graph's launch only");
  }
  return context_->Await(own->handle());
}

absl::Status NcclEngineImpl::CopyIn(const void* host, void* data, int64_t bytes, Stream& stream) {
  if (bytes == 0) return absl::OkStatus();
  return OnStream(stream, [&](CUstream s) {
    return context_->device().driver().MemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(data), host,
                                                       static_cast<size_t>(bytes), s);
  });
}

absl::Status NcclEngineImpl::CopyOut(const void* data, void* host, int64_t bytes, Stream& stream) {
  if (bytes == 0) return absl::OkStatus();
  return OnStream(stream, [&](CUstream s) {
    return context_->device().driver().MemcpyDtoHAsync(host, reinterpret_cast<CUdeviceptr>(data),
                                                       static_cast<size_t>(bytes), s);
  });
}

// FAILED_PRECONDITION if the variable has this value.
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
  absl::StatusOr<Parts> parts =
      LoadParts(options, given ? options.device : static_cast<int>(job.local_rank),
                /*or_only=*/!given, MemorySource{});
  if (parts.ok()) {
    // The variable overrides the configuration of the root, whose set-up could then block for ever.
    const absl::Status unblocked = CheckUnset("NCCL_COMM_BLOCKING", "1", environment);
    if (!unblocked.ok()) parts = unblocked;
  }
  MESHIFT_ASSIGN_OR_RETURN(
      NcclRendezvous rendezvous,
      Rendezvous(bootstrap, parts.status(), parts.ok() ? parts->nccl.get() : nullptr,
                 parts.ok() ? parts->device.get() : nullptr, environment));
  MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<NcclContext> shared,
                           MakeContext(*parts, job.rank, options, environment, {}));
  const std::vector<int64_t> ranks = Iota(job.world_size);
  MESHIFT_RETURN_IF_ERROR(shared->Join(bootstrap->control(), ranks));
  ncclConfig_t config = ConfigOf(options, parts->device->num_sms());
  absl::StatusOr<std::shared_ptr<NcclGroup>> world =
      shared->MakeRoot("ncclCommInitRankConfig", ranks, [&](ncclComm_t* comm) {
        return parts->nccl->CommInitRankConfig(comm, static_cast<int>(job.world_size),
                                               rendezvous.id, static_cast<int>(job.rank), &config);
      });
  if (world.ok()) world = MakeWorld(*shared, *world, options);
  if (!world.ok()) {
    shared->Fail(world.status()).IgnoreError();
    shared->Close();
    return world.status();
  }
  return std::make_unique<NcclEngineImpl>(
      shared, *world, options, std::move(rendezvous.capabilities), bootstrap->control(), nullptr);
}

absl::StatusOr<std::unique_ptr<NcclEngine>> NcclEngine::FromLent(const NcclLent& lent,
                                                                 const NcclOptions& options) {
  if (lent.communicator == nullptr) return InvalidArgument("the lent communicator is null");
  if ((lent.allocate == nullptr) != (lent.free == nullptr)) {
    return InvalidArgument("the lender has only one of allocate and free; give both or neither");
  }
  const NcclEnvironment found(Environment::Process());
  const Environment& environment = options.environment != nullptr ? *options.environment : found;
  if (lent.may_split) {
    // Groups that share resources with the lent communicator would, if aborted, abort it too.
    MESHIFT_RETURN_IF_ERROR(CheckUnset("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1", environment));
    if (options.split_share) {
      return InvalidArgument("split_share: groups cannot share with a lent communicator");
    }
  }
  const auto comm = static_cast<ncclComm_t>(lent.communicator);
  MESHIFT_ASSIGN_OR_RETURN(auto nccl, NcclLibrary::Load(options.nccl_library));
  MESHIFT_RETURN_IF_ERROR(CheckOneCopy(*nccl, lent.function));
  int size = 0;
  int rank = 0;
  int device = 0;
  MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->CommCount(comm, &size), "ncclCommCount", comm));
  MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->CommUserRank(comm, &rank), "ncclCommUserRank", comm));
  MESHIFT_RETURN_IF_ERROR(nccl->Check(nccl->CommCuDevice(comm, &device), "ncclCommCuDevice", comm));
  MESHIFT_ASSIGN_OR_RETURN(const Parts parts,
                           LoadParts(options, device, /*or_only=*/false,
                                     {.allocate = lent.allocate, .free = lent.free}));
  MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<NcclContext> shared,
                           MakeContext(parts, rank, options, environment, lent));
  const std::vector<int64_t> ranks = Iota(size);
  if (lent.control != nullptr) MESHIFT_RETURN_IF_ERROR(shared->Join(lent.control, ranks));
  absl::StatusOr<std::shared_ptr<NcclGroup>> world =
      shared->Lend(comm, lent.may_split, ranks, rank);
  if (world.ok()) world = MakeWorld(*shared, *world, options);
  if (!world.ok()) {
    shared->Fail(world.status()).IgnoreError();
    shared->Close();
    return world.status();
  }
  EngineCapabilities capabilities = EngineCapabilities::Nccl();
  capabilities.native_why = "the environments of a lent communicator's ranks were not compared";
  return std::make_unique<NcclEngineImpl>(shared, *world, options, std::move(capabilities),
                                          lent.control, static_cast<CUstream>(lent.stream));
}

}  // namespace meshift

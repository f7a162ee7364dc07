// Implements the functions of meshift/c.h on the NCCL engine, in a build with CUDA; others have
// nccl_absent.cc. Times are in ns. A lent communicator and stream must outlive the engine, a
// wrapped stream the handle that holds it. None of them is destroyed here.
#include <chrono>
#include <memory>
#include <utility>

#include "capi/call.h"
#include "capi/handles.h"
#include "meshift/bootstrap.h"
#include "meshift/nccl_engine.h"

namespace {

using meshift::NcclEngine;
using meshift::capi::SharedEngine;

// The members are destroyed in reverse order: the engine uses the bootstrap.
struct Job {
  std::unique_ptr<meshift::Bootstrap> bootstrap;
  std::unique_ptr<NcclEngine> engine;
};

SharedEngine Share(std::unique_ptr<meshift::Bootstrap> bootstrap,
                   std::unique_ptr<NcclEngine> engine) {
  auto job = std::make_shared<Job>();
  job->bootstrap = std::move(bootstrap);
  job->engine = std::move(engine);
  return {.owner = job, .engine = job->engine.get(), .nccl = job->engine.get()};
}

absl::StatusOr<SharedEngine> FromLent(const meshift_nccl_lent& given) {
  MESHIFT_RETURN_IF_ERROR(meshift::capi::NotNull({{"lent.communicator", given.communicator}}));
  if ((given.allocate == nullptr) != (given.deallocate == nullptr)) {
    return meshift::InvalidArgument(
        "lent.allocate and lent.deallocate must both be set, or neither");
  }
  meshift::NcclLent lent;
  lent.communicator = given.communicator;
  lent.stream = given.stream;
  lent.may_split = given.may_split != 0;
  lent.function = given.function;
  if (given.allocate != nullptr) {
    lent.allocate = [allocate = given.allocate, context = given.context](int64_t bytes) {
      return allocate(context, bytes);
    };
    lent.free = [deallocate = given.deallocate, context = given.context](void* memory) {
      deallocate(context, memory);
    };
  }
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<NcclEngine> engine, NcclEngine::FromLent(lent));
  return Share(nullptr, std::move(engine));
}

absl::StatusOr<SharedEngine> FromTorchrun(int64_t timeout_ns) {
  if (timeout_ns < 0) {
    return meshift::InvalidArgument("timeout_ns is {}; it must be 0 or more", timeout_ns);
  }
  meshift::Bootstrap::Timeout timeout = meshift::Bootstrap::kDefaultTimeout;
  meshift::NcclOptions options;
  if (timeout_ns > 0) {
    timeout = options.timeout = options.setup_timeout = std::chrono::nanoseconds(timeout_ns);
  }
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<meshift::Bootstrap> bootstrap,
                           meshift::Bootstrap::FromTorchrun(timeout));
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<NcclEngine> engine,
                           NcclEngine::Create(bootstrap.get(), options));
  return Share(std::move(bootstrap), std::move(engine));
}

}  // namespace

meshift_code meshift_nccl_engine_from_lent(const meshift_nccl_lent* lent, meshift_engine** engine,
                                           char** error) {
  meshift::capi::Clear(engine);
  return meshift::capi::Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckStruct("lent", lent));
    MESHIFT_RETURN_IF_ERROR(meshift::capi::NotNull({{"engine", engine}}));
    return meshift::capi::GiveOr(engine, FromLent(*lent));
  });
}

meshift_code meshift_nccl_engine_from_torchrun(int64_t timeout_ns, meshift_engine** engine,
                                               char** error) {
  meshift::capi::Clear(engine);
  return meshift::capi::Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(meshift::capi::NotNull({{"engine", engine}}));
    return meshift::capi::GiveOr(engine, FromTorchrun(timeout_ns));
  });
}

meshift_code meshift_nccl_stream_wrap(meshift_engine* engine, void* cuda_stream,
                                      meshift_stream** stream, char** error) {
  meshift::capi::Clear(stream);
  return meshift::capi::Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(meshift::capi::NotNull(
        {{"engine", engine}, {"cuda_stream", cuda_stream}, {"stream", stream}}));
    if (engine->shared.nccl == nullptr) {
      return meshift::InvalidArgument("engine is {}, not nccl", engine->shared.engine->name());
    }
    return meshift::capi::Give(stream, engine->shared,
                               engine->shared.nccl->WrapStream(cuda_stream));
  });
}

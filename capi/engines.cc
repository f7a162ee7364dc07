// Implements the functions of meshift/c.h that make local worlds, and those on engines of all kinds
// and their streams and buffers. Sizes of buffers are in bytes, times in ns; negative ones are
// refused with INVALID_ARGUMENT. meshift/c.h says which threads may call.
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "capi/call.h"
#include "capi/handles.h"
#include "meshift/bootstrap.h"
#include "meshift/local_world.h"

namespace meshift::capi {
namespace {

struct LocalWorldOwner {
  LocalWorldOwner() = default;
  LocalWorldOwner(const LocalWorldOwner&) = delete;
  LocalWorldOwner& operator=(const LocalWorldOwner&) = delete;
  ~LocalWorldOwner() {
    world.reset();
    // Rank 0's is destroyed last: it has the hub of the others.
    while (!bootstraps.empty()) bootstraps.pop_back();
  }

  std::vector<std::unique_ptr<Bootstrap>> bootstraps;  // by rank; empty: no control channel
  std::unique_ptr<LocalWorld> world;
  int64_t num_ranks = 0;
};

using enum ReductionOrder;
static_assert(static_cast<int>(kRanks) == MESHIFT_REDUCTION_ORDER_RANKS);
static_assert(static_cast<int>(kTopology) == MESHIFT_REDUCTION_ORDER_TOPOLOGY);
static_assert(static_cast<int>(kAdversarial) == MESHIFT_REDUCTION_ORDER_ADVERSARIAL);

absl::StatusOr<std::shared_ptr<LocalWorldOwner>> MakeLocalWorld(const meshift_local_options& from) {
  if (from.num_workers < -1) {
    return InvalidArgument("options.num_workers is {}; it must be -1 or more", from.num_workers);
  }
  if (from.timeout_ns < 0) {
    return InvalidArgument("options.timeout_ns is {}; it must be 0 or more", from.timeout_ns);
  }
  auto made = std::make_shared<LocalWorldOwner>();
  LocalWorldOptions options;
  options.num_ranks = made->num_ranks = from.num_ranks;
  if (from.num_workers != 0) options.num_workers = from.num_workers < 0 ? 0 : from.num_workers;
  if (from.timeout_ns != 0) options.timeout = std::chrono::nanoseconds(from.timeout_ns);
  if (from.control != 0) {
    MESHIFT_ASSIGN_OR_RETURN(made->bootstraps, Bootstrap::InProcess(from.num_ranks));
    for (const auto& bootstrap : made->bootstraps) options.control.push_back(bootstrap->control());
  }
  MESHIFT_ASSIGN_OR_RETURN(made->world, LocalWorld::Create(options));
  return made;
}

absl::Status CheckBytes(int64_t num_bytes) {
  if (num_bytes >= 0) return absl::OkStatus();
  return InvalidArgument("num_bytes is {}; it must be 0 or more", num_bytes);
}

}  // namespace
}  // namespace meshift::capi

struct meshift_local_world {
  std::shared_ptr<meshift::capi::LocalWorldOwner> shared;
};

using meshift::capi::Call;
using meshift::capi::CheckStruct;
using meshift::capi::Clear;
using meshift::capi::Give;
using meshift::capi::NotNull;

meshift_code meshift_local_world_create(const meshift_local_options* options,
                                        meshift_local_world** world, char** error) {
  Clear(world);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckStruct("options", options));
    MESHIFT_RETURN_IF_ERROR(NotNull({{"world", world}}));
    return meshift::capi::GiveOr(world, meshift::capi::MakeLocalWorld(*options));
  });
}

void meshift_local_world_destroy(meshift_local_world* world) { delete world; }

meshift_code meshift_local_world_set_reduction_order(meshift_local_world* world,
                                                     meshift_reduction_order order,
                                                     int64_t domain_size, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"world", world}}));
    if (order < MESHIFT_REDUCTION_ORDER_RANKS || order > MESHIFT_REDUCTION_ORDER_ADVERSARIAL) {
      return meshift::InvalidArgument("order is {}; it must be 0, 1 or 2", order);
    }
    if (order == MESHIFT_REDUCTION_ORDER_TOPOLOGY && domain_size < 1) {
      return meshift::InvalidArgument("domain_size is {}; it must be 1 or more", domain_size);
    }
    world->shared->world->SetReductionOrder(static_cast<meshift::ReductionOrder>(order),
                                            domain_size);
    return absl::OkStatus();
  });
}

meshift_code meshift_local_world_engine(const meshift_local_world* world, int64_t rank,
                                        meshift_engine** engine, char** error) {
  Clear(engine);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"world", world}, {"engine", engine}}));
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckIndex("rank", rank, world->shared->num_ranks));
    return Give(engine, meshift::capi::SharedEngine{.owner = world->shared,
                                                    .engine = world->shared->world->engine(rank)});
  });
}

void meshift_engine_destroy(meshift_engine* engine) { delete engine; }

meshift_code meshift_engine_get_info(const meshift_engine* engine, meshift_engine_info* info,
                                     char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"engine", engine}}));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("info", info));
    const meshift::Engine& from = *engine->shared.engine;
    info->rank = from.rank();
    info->world_size = from.world_size();
    info->name = from.name().c_str();
    return absl::OkStatus();
  });
}

meshift_code meshift_engine_set_timeouts(meshift_engine* engine, int64_t setup_ns,
                                         int64_t running_ns, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"engine", engine}}));
    return engine->shared.engine->SetTimeouts({.setup = std::chrono::nanoseconds(setup_ns),
                                               .running = std::chrono::nanoseconds(running_ns)});
  });
}

meshift_code meshift_engine_dump(const meshift_engine* engine, const char* folder, char** path,
                                 char** error) {
  Clear(path);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"engine", engine}, {"folder", folder}, {"path", path}}));
    MESHIFT_ASSIGN_OR_RETURN(const std::string written, engine->shared.engine->Dump(folder));
    return meshift::capi::GiveText(written, path);
  });
}

meshift_code meshift_stream_create(meshift_engine* engine, meshift_stream** stream, char** error) {
  Clear(stream);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"engine", engine}, {"stream", stream}}));
    MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<meshift::Stream> made,
                             engine->shared.engine->CreateStream());
    return Give(stream, engine->shared, std::move(made));
  });
}

meshift_code meshift_stream_synchronize(meshift_stream* stream, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"stream", stream}}));
    return stream->engine.engine->Synchronize(*stream->value);
  });
}

void meshift_stream_destroy(meshift_stream* stream) { delete stream; }

meshift_code meshift_buffer_create(meshift_engine* engine, int64_t num_bytes,
                                   meshift_buffer** buffer, char** error) {
  Clear(buffer);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"engine", engine}, {"buffer", buffer}}));
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckBytes(num_bytes));
    MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<meshift::Buffer> made,
                             engine->shared.engine->Allocate(num_bytes));
    return Give(buffer, engine->shared, std::move(made));
  });
}

void* meshift_buffer_data(const meshift_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->value->data();
}

void meshift_buffer_destroy(meshift_buffer* buffer) { delete buffer; }

meshift_code meshift_stream_copy_in(meshift_stream* stream, const void* host, void* data,
                                    int64_t num_bytes, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"stream", stream}, {"host", host}, {"data", data}}));
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckBytes(num_bytes));
    return stream->engine.engine->CopyIn(host, data, num_bytes, *stream->value);
  });
}

meshift_code meshift_stream_copy_out(meshift_stream* stream, const void* data, void* host,
                                     int64_t num_bytes, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"stream", stream}, {"data", data}, {"host", host}}));
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckBytes(num_bytes));
    return stream->engine.engine->CopyOut(data, host, num_bytes, *stream->value);
  });
}

// Implements the functions of meshift/c.h on the NCCL engine in a build without CUDA, in place of
// nccl.cc: each sets its handle to NULL and returns UNIMPLEMENTED with the reason, whatever
// its arguments are.
#include "capi/call.h"
#include "meshift/nccl_engine.h"

namespace {

template <typename Handle>
meshift_code IsAbsent(Handle** out, char** error) {
  meshift::capi::Clear(out);
  return meshift::capi::Call(error, [] {
    return meshift::Unimplemented("the NCCL engine is not in this build: {}",
                                  meshift::NcclAbsence());
  });
}

}  // namespace

meshift_code meshift_nccl_engine_from_lent(const meshift_nccl_lent*, meshift_engine** engine,
                                           char** error) {
  return IsAbsent(engine, error);
}

meshift_code meshift_nccl_engine_from_torchrun(int64_t, meshift_engine** engine, char** error) {
  return IsAbsent(engine, error);
}

meshift_code meshift_nccl_stream_wrap(meshift_engine*, void*, meshift_stream** stream,
                                      char** error) {
  return IsAbsent(stream, error);
}

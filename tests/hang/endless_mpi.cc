// A barrier of all ranks that no other rank calls.
#include "tests/hang/endless_work.h"

namespace meshift {

absl::Status PutEndlessWork(Engine& engine, Stream& stream) {
  return engine.world()->Barrier(stream);
}

}  // namespace meshift

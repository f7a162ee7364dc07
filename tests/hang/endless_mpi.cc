// A barrier of the world that no other rank makes.
#include "tests/hang/endless_work.h"

namespace meshift {

absl::Status PutEndlessWork(Engine& engine, Stream& stream) {
  return engine.world()->Barrier(stream);
}

}  // namespace meshift

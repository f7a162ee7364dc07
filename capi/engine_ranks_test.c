// One rank of a job over MPI or NCCL, in C99: sums a tensor over all ranks in the engine's memory,
// which is device memory on NCCL.
//
//   mpirun -n 4 engine_ranks mpi
//   torchrun.sh 4 engine_ranks nccl
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meshift/c.h"

#define ELEMENTS 24

// Whether the process must exit by meshift_mpi_leave.
static int is_mpi = 0;

static void Check(meshift_code code, char* error) {
  if (code == MESHIFT_OK) return;
  fprintf(stderr, "%s: %s\n", meshift_code_name(code), error != NULL ? error : "");
  fflush(NULL);
  if (is_mpi) meshift_mpi_leave(1);
  exit(1);
}

static meshift_engine* Start(const char* name) {
  meshift_engine* engine = NULL;
  char* error = NULL;
  meshift_code code;
  if (strcmp(name, "mpi") == 0) {
    const meshift_mpi_options options = {.size = sizeof(options), .timeout_ns = 60000000000};
    is_mpi = 1;
    code = meshift_mpi_engine_create(&options, &engine, &error);
  } else {
    code = meshift_nccl_engine_from_torchrun(60000000000, &engine, &error);
  }
  Check(code, error);
  return engine;
}

// Arguments that are refused before other ranks are involved.
static void RefuseBadArguments(meshift_engine* engine) {
  meshift_engine* none = NULL;
  meshift_stream* stream = NULL;
  meshift_mpi_options options = {.size = 1};
  meshift_nccl_lent lent = {.size = sizeof(lent)};
  char* error = NULL;
  meshift_code refused[] = {
      meshift_mpi_engine_create(NULL, NULL, NULL),
      meshift_mpi_engine_create(&options, &none, NULL),
      meshift_nccl_engine_from_lent(&lent, &none, NULL),
      meshift_nccl_engine_from_lent(NULL, &none, NULL),
      meshift_nccl_engine_from_torchrun(-1, &none, NULL),
      meshift_nccl_engine_from_torchrun(0, NULL, NULL),
      meshift_nccl_stream_wrap(NULL, &none, &stream, NULL),
      meshift_nccl_stream_wrap(engine, NULL, &stream, &error),
  };
  for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i) {
    // UNIMPLEMENTED: a build without the engine.
    if (refused[i] == MESHIFT_INVALID_ARGUMENT || refused[i] == MESHIFT_UNIMPLEMENTED) continue;
    fprintf(stderr, "bad arguments %d: %s\n", (int)i, meshift_code_name(refused[i]));
    exit(1);
  }
  meshift_free(error);
}

int main(int argc, char** argv) {
  meshift_engine* const engine = Start(argc > 1 ? argv[1] : "mpi");
  meshift_engine_info info = {.size = sizeof(info)};
  meshift_mesh* mesh = NULL;
  meshift_sharding *parts = NULL, *sums = NULL;
  meshift_stream* stream = NULL;
  meshift_buffer *in = NULL, *out = NULL;
  meshift_redistributor* redistributor = NULL;
  meshift_run* run = NULL;
  meshift_redistribution what = {.size = sizeof(what)};
  float values[ELEMENTS];
  char text[32];
  char* error = NULL;
  meshift_code code;
  int wrong = 0;

  RefuseBadArguments(engine);
  code = meshift_engine_get_info(engine, &info, &error);
  Check(code, error);
  snprintf(text, sizeof(text), "all=%d", (int)info.world_size);
  code = meshift_mesh_parse(text, &mesh, &error);
  Check(code, error);
  code = meshift_sharding_create("f32[24]", mesh, "P", &parts, &error);
  Check(code, error);
  code = meshift_sharding_with_placements(parts, "R", &sums, &error);
  Check(code, error);

  code = meshift_stream_create(engine, &stream, &error);
  Check(code, error);
  code = meshift_buffer_create(engine, sizeof(values), &in, &error);
  Check(code, error);
  code = meshift_buffer_create(engine, sizeof(values), &out, &error);
  Check(code, error);
  for (int i = 0; i < ELEMENTS; ++i) values[i] = (float)(info.rank + i);
  code = meshift_stream_copy_in(stream, values, meshift_buffer_data(in), sizeof(values), &error);
  Check(code, error);

  // The sum comes after the copy, and the copy back after the sum; the host waits once.
  code = meshift_redistributor_create(mesh, engine, NULL, &redistributor, &error);
  Check(code, error);
  what.from = parts;
  what.to = sums;
  what.source = meshift_buffer_data(in);
  what.target = meshift_buffer_data(out);
  what.after = stream;
  code = meshift_redistribute(redistributor, &what, &run, &error);
  Check(code, error);
  code = meshift_run_wait_on(run, stream, &error);
  Check(code, error);
  code = meshift_stream_copy_out(stream, meshift_buffer_data(out), values, sizeof(values), &error);
  Check(code, error);
  code = meshift_stream_synchronize(stream, &error);
  Check(code, error);
  code = meshift_run_wait(run, &error);
  Check(code, error);
  for (int i = 0; i < ELEMENTS; ++i) {
    const int64_t sum = info.world_size * (info.world_size - 1) / 2 + info.world_size * i;
    wrong += values[i] != (float)sum;
  }
  if (wrong == 0)
    printf("rank %d of %d, %s: right\n", (int)info.rank, (int)info.world_size, info.name);

  meshift_run_destroy(run);
  meshift_redistributor_destroy(redistributor);
  meshift_buffer_destroy(out);
  meshift_buffer_destroy(in);
  meshift_stream_destroy(stream);
  meshift_sharding_destroy(sums);
  meshift_sharding_destroy(parts);
  meshift_mesh_destroy(mesh);
  meshift_engine_destroy(engine);
  return wrong == 0 ? 0 : 1;
}

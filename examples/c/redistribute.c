// Meshift from C99: shards of rows become shards of columns, and a sum becomes replicated, on four
// ranks in this process, each a thread.
//
//   ./bazelw run //examples/c:redistribute
//
// prints both plans, and at the end
//
//   4 ranks hold the right numbers
#define _POSIX_C_SOURCE 200112L  // pthread.h

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "meshift/c.h"

#define RANKS 4
#define ROWS 6
#define COLUMNS 8

// Ends the program with the message of a failed call.
static void Check(meshift_code code, char* error) {
  if (code == MESHIFT_OK) return;
  fprintf(stderr, "%s: %s\n", meshift_code_name(code), error != NULL ? error : "");
  exit(1);
}

// Data that all ranks share, and only read.
struct Job {
  const meshift_local_world* world;
  const meshift_mesh* mesh;
  const meshift_sharding* rows;
  const meshift_sharding* columns;
  const meshift_sharding* parts;
  const meshift_sharding* sums;
};

struct Rank {
  const struct Job* job;
  int64_t rank;
  pthread_t thread;
  int64_t wrong;  // elements
};

// This rank's part of a tensor.
static meshift_box BoxOf(const meshift_sharding* sharding, int64_t rank) {
  meshift_box box;
  char* error = NULL;
  meshift_code code;
  box.size = sizeof(box);
  code = meshift_sharding_local_box(sharding, rank, &box, &error);
  Check(code, error);
  return box;
}

static float* Allocate(meshift_box box) {
  float* local = malloc(box.num_bytes > 0 ? (size_t)box.num_bytes : 1);
  if (local == NULL) exit(1);
  return local;
}

// A local tensor in which each element is its row-major index in the global tensor.
static float* Places(meshift_box box) {
  float* local = Allocate(box);
  for (int64_t row = 0; row < box.shape[0]; ++row) {
    for (int64_t column = 0; column < box.shape[1]; ++column) {
      local[row * box.shape[1] + column] =
          (float)((box.offset[0] + row) * COLUMNS + box.offset[1] + column);
    }
  }
  return local;
}

// The work of every rank.
static void* Work(void* argument) {
  struct Rank* const me = argument;
  const struct Job* const job = me->job;
  const meshift_box rows = BoxOf(job->rows, me->rank);
  const meshift_box columns = BoxOf(job->columns, me->rank);
  const meshift_box whole = BoxOf(job->sums, me->rank);
  float *in = Places(rows), *out = Allocate(columns), *expected = Places(columns);
  float *part = Places(whole), *sum = Allocate(whole);
  const meshift_redistribution move = {
      .size = sizeof(move), .from = job->rows, .to = job->columns, .source = in, .target = out};
  const meshift_redistribution add = {
      .size = sizeof(add), .from = job->parts, .to = job->sums, .source = part, .target = sum};
  meshift_engine* engine = NULL;
  meshift_redistributor* redistributor = NULL;
  meshift_run *moved = NULL, *added = NULL;
  char* error = NULL;
  meshift_code code;

  code = meshift_local_world_engine(job->world, me->rank, &engine, &error);
  Check(code, error);
  code = meshift_redistributor_create(job->mesh, engine, NULL, &redistributor, &error);
  Check(code, error);

  code = meshift_redistribute(redistributor, &move, &moved, &error);
  Check(code, error);
  code = meshift_redistribute(redistributor, &add, &added, &error);
  Check(code, error);

  code = meshift_run_wait(moved, &error);
  Check(code, error);
  code = meshift_run_wait(added, &error);
  Check(code, error);
  for (int64_t i = 0; i < columns.num_elements; ++i) me->wrong += out[i] != expected[i];
  for (int64_t i = 0; i < whole.num_elements; ++i) me->wrong += sum[i] != RANKS * part[i];

  meshift_run_destroy(added);
  meshift_run_destroy(moved);
  meshift_redistributor_destroy(redistributor);
  meshift_engine_destroy(engine);
  free(sum);
  free(part);
  free(expected);
  free(out);
  free(in);
  return NULL;
}

// Plans, proves and prints. Each rank makes the same plan in its first redistribution.
static void Show(const meshift_sharding* from, const meshift_sharding* to) {
  meshift_plan* plan = NULL;
  char *text = NULL, *error = NULL;
  meshift_code code = meshift_plan_make(from, to, NULL, &plan, &error);
  Check(code, error);
  code = meshift_plan_verify(plan, 0, NULL, NULL, &error);
  Check(code, error);
  code = meshift_plan_text(plan, &text, &error);
  Check(code, error);
  fputs(text, stdout);
  meshift_free(text);
  meshift_plan_destroy(plan);
}

int main(void) {
  const meshift_local_options options = {.size = sizeof(options), .num_ranks = RANKS};
  meshift_local_world* world = NULL;
  meshift_mesh* mesh = NULL;
  meshift_sharding *rows = NULL, *columns = NULL, *parts = NULL, *sums = NULL;
  struct Job job;
  struct Rank ranks[RANKS];
  int64_t wrong = 0;
  char* error = NULL;
  meshift_code code;

  if (meshift_abi_version() != MESHIFT_ABI_VERSION) {
    fprintf(stderr, "the library is %s, with another interface\n", meshift_version());
    return 1;
  }
  code = meshift_mesh_parse("tp=4", &mesh, &error);
  Check(code, error);
  code = meshift_sharding_create("f32[6,8]", mesh, "S(0)", &rows, &error);
  Check(code, error);
  code = meshift_sharding_with_placements(rows, "S(1)", &columns, &error);
  Check(code, error);
  code = meshift_sharding_with_placements(rows, "P", &parts, &error);
  Check(code, error);
  code = meshift_sharding_with_placements(rows, "R", &sums, &error);
  Check(code, error);
  Show(rows, columns);
  Show(parts, sums);

  code = meshift_local_world_create(&options, &world, &error);
  Check(code, error);
  job = (struct Job){
      .world = world, .mesh = mesh, .rows = rows, .columns = columns, .parts = parts, .sums = sums};
  for (int r = 0; r < RANKS; ++r) {
    ranks[r] = (struct Rank){.job = &job, .rank = r};
    if (pthread_create(&ranks[r].thread, NULL, Work, &ranks[r]) != 0) return 1;
  }
  for (int r = 0; r < RANKS; ++r) {
    if (pthread_join(ranks[r].thread, NULL) != 0) return 1;
    wrong += ranks[r].wrong;
  }

  meshift_local_world_destroy(world);
  meshift_sharding_destroy(sums);
  meshift_sharding_destroy(parts);
  meshift_sharding_destroy(columns);
  meshift_sharding_destroy(rows);
  meshift_mesh_destroy(mesh);
  if (wrong != 0) {
    fprintf(stderr, "%d elements are wrong\n", (int)wrong);
    return 1;
  }
  printf("%d ranks hold the right numbers\n", RANKS);
  return 0;
}

// Meshift for C, and for every language that can call C: C99, C++17, Rust, Julia, Fortran, Python.
// It makes, proves and runs plans that move a tensor from one sharding to another.
//
//   char* error = NULL;
//   meshift_mesh* mesh = NULL;
//   meshift_sharding *from = NULL, *to = NULL;
//   meshift_plan* plan = NULL;
//   char* text = NULL;
//   if (meshift_mesh_parse("dp=2,tp=4", &mesh, &error) != MESHIFT_OK ||
//       meshift_sharding_create("bf16[64,16]", mesh, "P,R", &from, &error) != MESHIFT_OK ||
//       meshift_sharding_with_placements(from, "R,R", &to, &error) != MESHIFT_OK ||
//       meshift_plan_make(from, to, NULL, &plan, &error) != MESHIFT_OK ||
//       meshift_plan_verify(plan, 0, NULL, NULL, &error) != MESHIFT_OK ||
//       meshift_plan_text(plan, &text, &error) != MESHIFT_OK) {
//     fprintf(stderr, "%s\n", error);
//     meshift_free(error);
//   } else {
//     puts(text);
//   }
//   meshift_free(text);
//   meshift_plan_destroy(plan);
//   meshift_sharding_destroy(to);
//   meshift_sharding_destroy(from);
//   meshift_mesh_destroy(mesh);
//
// examples/c has whole programs. docs/c.md lists the functions by theme.
//
// Errors. A function that can fail returns a meshift_code. Its last argument, `error`, may be NULL.
// Otherwise *error becomes NULL, or after a failure the message, which the caller frees with
// meshift_free; it stays NULL if out of memory. A function that fails sets its output handles and
// texts to NULL, but for `rule` of meshift_plan_verify. INVALID_ARGUMENT: an argument is NULL but
// must not be; the `size` of a struct is wrong; a text or a number is invalid; an index is
// negative, or not below the number of items. RESOURCE_EXHAUSTED: out of memory. INTERNAL: an
// unexpected exception. Functions throw none.
//
// Units. Times are in nanoseconds (names end in _ns), memory and offsets in bytes, `count` and
// strides in elements, unless a comment says otherwise.
//
// Input text is UTF-8 that ends with a zero byte. A `char**` gets text that the caller frees with
// meshift_free. A `const char*` that is returned, or is a field of a struct, belongs to the
// library.
//
// Structs that functions take or fill begin with `size_t size`, which the caller sets to the
// struct's sizeof before every call. In input structs, zero means the default of an optional field.
//
// Handles are made by a function with a `meshift_...**` argument, and destroyed by the `_destroy`
// function of their type, which accepts NULL. A handle holds references to the handles that it
// needs, so they may be destroyed in any order, unless a comment says otherwise. Tensors and
// communicators belong to the caller; no handle keeps them alive.
//
// Threads. Meshes, shardings, plans, explanations and programs never change, and any threads may
// use them at once. Options and streams: one thread at a time. Other handles: any threads, but see
// meshift_redistribute, and meshift_mpi_engine_create where MPI does not allow it. No handle is
// destroyed while another thread uses it.
#ifndef MESHIFT_C_H_
#define MESHIFT_C_H_

#include <stddef.h>
#include <stdint.h>

// Keeps the functions visible in a library built with hidden symbols.
#if defined(__GNUC__)
#define MESHIFT_EXPORT __attribute__((visibility("default")))
#else
#define MESHIFT_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

// --- Version, codes, memory ---

// The ABI version of this header. It increases with every incompatible change; added functions do
// not change it.
#define MESHIFT_ABI_VERSION 1
// The ABI version of the library. It must equal MESHIFT_ABI_VERSION.
MESHIFT_EXPORT int32_t meshift_abi_version(void);
MESHIFT_EXPORT const char* meshift_version(void);  // "0.2.0"

// The numbers of absl::StatusCode. docs/errors.md says what each is for.
typedef int32_t meshift_code;
enum {
  MESHIFT_OK = 0,
  MESHIFT_CANCELLED = 1,
  MESHIFT_UNKNOWN = 2,
  MESHIFT_INVALID_ARGUMENT = 3,
  MESHIFT_DEADLINE_EXCEEDED = 4,
  MESHIFT_NOT_FOUND = 5,
  MESHIFT_ALREADY_EXISTS = 6,
  MESHIFT_PERMISSION_DENIED = 7,
  MESHIFT_RESOURCE_EXHAUSTED = 8,
  MESHIFT_FAILED_PRECONDITION = 9,
  MESHIFT_ABORTED = 10,
  MESHIFT_OUT_OF_RANGE = 11,
  MESHIFT_UNIMPLEMENTED = 12,
  MESHIFT_INTERNAL = 13,
  MESHIFT_UNAVAILABLE = 14,
  MESHIFT_DATA_LOSS = 15,
  MESHIFT_UNAUTHENTICATED = 16
};
MESHIFT_EXPORT const char* meshift_code_name(meshift_code code);  // "OK"; NULL: unknown

// Frees text that this library returned. NULL does nothing.
MESHIFT_EXPORT void meshift_free(void* text);

// --- Dtypes and operations ---

typedef int32_t meshift_dtype;
enum {
  MESHIFT_DTYPE_NONE = 0,
  MESHIFT_DTYPE_BOOL = 1,
  MESHIFT_DTYPE_I8 = 2,
  MESHIFT_DTYPE_I16 = 3,
  MESHIFT_DTYPE_I32 = 4,
  MESHIFT_DTYPE_I64 = 5,
  MESHIFT_DTYPE_U8 = 6,
  MESHIFT_DTYPE_U16 = 7,
  MESHIFT_DTYPE_U32 = 8,
  MESHIFT_DTYPE_U64 = 9,
  MESHIFT_DTYPE_F16 = 10,
  MESHIFT_DTYPE_BF16 = 11,
  MESHIFT_DTYPE_F32 = 12,
  MESHIFT_DTYPE_F64 = 13,
  MESHIFT_DTYPE_F8E4M3 = 14,
  MESHIFT_DTYPE_F8E5M2 = 15,
  MESHIFT_DTYPE_F4E2M1 = 16,  // two elements to a byte
  MESHIFT_DTYPE_C64 = 17,
  MESHIFT_DTYPE_C128 = 18
};
MESHIFT_EXPORT const char* meshift_dtype_name(meshift_dtype dtype);  // "bf16"; NULL: unknown
MESHIFT_EXPORT int32_t meshift_dtype_bits(meshift_dtype dtype);      // of an element; 0: unknown
MESHIFT_EXPORT meshift_code meshift_dtype_parse(const char* name, meshift_dtype* dtype,
                                                char** error);

// The operations that combine partial values. docs/dtypes.md says what each computes in each dtype.
typedef int32_t meshift_op;
enum {
  MESHIFT_OP_NONE = 0,
  MESHIFT_OP_SUM = 1,
  MESHIFT_OP_AVG = 2,  // the sum, divided once by a divisor before it is rounded
  MESHIFT_OP_MIN = 3,
  MESHIFT_OP_MAX = 4,
  MESHIFT_OP_PRODUCT = 5,
  MESHIFT_OP_AND = 6,
  MESHIFT_OP_OR = 7,
  MESHIFT_OP_XOR = 8
};
MESHIFT_EXPORT const char* meshift_op_name(meshift_op op);  // "sum"; NULL: unknown
MESHIFT_EXPORT meshift_code meshift_op_parse(const char* name, meshift_op* op, char** error);

// --- Meshes: ranks in a grid with named dims ---

typedef struct meshift_mesh meshift_mesh;

// `text`: "dp=2,tp=4", or with the ranks in row-major order of the grid "dp=2,tp=2@4-5,0-1".
MESHIFT_EXPORT meshift_code meshift_mesh_parse(const char* text, meshift_mesh** mesh, char** error);
// A mesh of all ranks of both, for redistributions from one to the other.
MESHIFT_EXPORT meshift_code meshift_mesh_union(const meshift_mesh* a, const meshift_mesh* b,
                                               meshift_mesh** mesh, char** error);
MESHIFT_EXPORT void meshift_mesh_destroy(meshift_mesh* mesh);
// Text that meshift_mesh_parse reads.
MESHIFT_EXPORT meshift_code meshift_mesh_text(const meshift_mesh* mesh, char** text, char** error);

typedef struct meshift_mesh_info {
  size_t size;
  int32_t num_dims;
  int64_t num_ranks;
  int64_t max_rank;  // the largest
} meshift_mesh_info;
MESHIFT_EXPORT meshift_code meshift_mesh_get_info(const meshift_mesh* mesh, meshift_mesh_info* info,
                                                  char** error);
// Name and size of a dim, 0 <= dim < num_dims. Either pointer may be NULL.
MESHIFT_EXPORT meshift_code meshift_mesh_dim(const meshift_mesh* mesh, int32_t dim, char** name,
                                             int64_t* dim_size, char** error);
// A position is a row-major index in the grid, 0 <= position < num_ranks.
MESHIFT_EXPORT meshift_code meshift_mesh_rank_at(const meshift_mesh* mesh, int64_t position,
                                                 int64_t* rank, char** error);
// NOT_FOUND: the rank is not in the mesh.
MESHIFT_EXPORT meshift_code meshift_mesh_position_of(const meshift_mesh* mesh, int64_t rank,
                                                     int64_t* position, char** error);
// Writes num_dims numbers to `coordinate`, which has room for `capacity`. INVALID_ARGUMENT:
// `capacity` is too small. NOT_FOUND: the rank is not in the mesh.
MESHIFT_EXPORT meshift_code meshift_mesh_coordinate(const meshift_mesh* mesh, int64_t rank,
                                                    int64_t* coordinate, size_t capacity,
                                                    char** error);

// --- Shardings: a tensor on a mesh, and the part that each rank holds ---

typedef struct meshift_sharding meshift_sharding;

// `tensor`: "bf16[64,16]", dtype and global shape. `placements`: one per mesh dim, "P,S(0)", with
// the meaning of PyTorch's DTensor.
MESHIFT_EXPORT meshift_code meshift_sharding_create(const char* tensor, const meshift_mesh* mesh,
                                                    const char* placements,
                                                    meshift_sharding** sharding, char** error);
// `text`: "bf16[64,16] on dp=2,tp=4 as P,S(0)".
MESHIFT_EXPORT meshift_code meshift_sharding_parse(const char* text, meshift_sharding** sharding,
                                                   char** error);
// The same tensor and mesh with other placements.
MESHIFT_EXPORT meshift_code meshift_sharding_with_placements(const meshift_sharding* sharding,
                                                             const char* placements,
                                                             meshift_sharding** other,
                                                             char** error);
// The same mesh, shape and placements with another dtype.
MESHIFT_EXPORT meshift_code meshift_sharding_with_dtype(const meshift_sharding* sharding,
                                                        meshift_dtype dtype,
                                                        meshift_sharding** other, char** error);
MESHIFT_EXPORT void meshift_sharding_destroy(meshift_sharding* sharding);
// Text that meshift_sharding_parse reads.
MESHIFT_EXPORT meshift_code meshift_sharding_text(const meshift_sharding* sharding, char** text,
                                                  char** error);
MESHIFT_EXPORT meshift_code meshift_sharding_placements(const meshift_sharding* sharding,
                                                        char** text, char** error);
MESHIFT_EXPORT meshift_code meshift_sharding_mesh(const meshift_sharding* sharding,
                                                  meshift_mesh** mesh, char** error);

#define MESHIFT_MAX_TENSOR_RANK 16

// A box of global indices: `shape` indices from `offset` in each tensor dim. A local tensor has the
// elements of its rank's box.
typedef struct meshift_box {
  size_t size;
  meshift_dtype dtype;
  int32_t num_dims;
  int64_t offset[MESHIFT_MAX_TENSOR_RANK];
  int64_t shape[MESHIFT_MAX_TENSOR_RANK];
  int64_t num_elements;
  int64_t num_bytes;
} meshift_box;
// The whole tensor; its offsets are 0.
MESHIFT_EXPORT meshift_code meshift_sharding_tensor(const meshift_sharding* sharding,
                                                    meshift_box* box, char** error);
// The box that `rank` holds. A rank that is not in the mesh has a box of one dim, without elements.
MESHIFT_EXPORT meshift_code meshift_sharding_local_box(const meshift_sharding* sharding,
                                                       int64_t rank, meshift_box* box,
                                                       char** error);

// --- Topologies: how fast links are ---

// An equal text, and the JSON form, of a value of the option "topology": a preset ("h100"),
// "nvlink=8", or JSON. The text is "flat", a preset's name, "nvlink=8", or else JSON on one line.
// INVALID_ARGUMENT names the value and the rule.
MESHIFT_EXPORT meshift_code meshift_topology_text(const char* topology, char** text, char** error);
MESHIFT_EXPORT meshift_code meshift_topology_json(const char* topology, char** json, char** error);
// The names of the presets, 0 <= index < count: "h100-ndr".
MESHIFT_EXPORT size_t meshift_topology_preset_count(void);
MESHIFT_EXPORT meshift_code meshift_topology_preset(size_t index, char** name, char** error);

// --- Options of planning, by name ---

// Names are those of plans: "max_memory", "reproducibility", ...; and "topology" ("h100") and
// "engine" ("local", "mpi", "nccl").
typedef struct meshift_options meshift_options;

MESHIFT_EXPORT meshift_code meshift_options_create(meshift_options** options, char** error);
MESHIFT_EXPORT void meshift_options_destroy(meshift_options* options);
// INVALID_ARGUMENT: unknown name, or invalid value. "existing_groups" names mesh dims, so its value
// is checked when the options are used.
MESHIFT_EXPORT meshift_code meshift_options_set(meshift_options* options, const char* name,
                                                const char* value, char** error);

typedef struct meshift_option_info {
  size_t size;
  const char* name;
  const char* value_name;  // "BYTES"; "" for an on/off switch
  const char* help;        // one line
} meshift_option_info;
// The options that meshift_options_set accepts, 0 <= index < count. The text stays valid.
MESHIFT_EXPORT size_t meshift_option_count(void);
MESHIFT_EXPORT meshift_code meshift_option_get_info(size_t index, meshift_option_info* info,
                                                    char** error);

// --- Plans: steps that turn one sharding into another, the same on every rank ---

typedef struct meshift_plan meshift_plan;

// `options` may be NULL. The result depends on the arguments only. INVALID_ARGUMENT, UNIMPLEMENTED,
// FAILED_PRECONDITION, RESOURCE_EXHAUSTED: as MakePlan of meshift/planner.h.
MESHIFT_EXPORT meshift_code meshift_plan_make(const meshift_sharding* from,
                                              const meshift_sharding* to,
                                              const meshift_options* options, meshift_plan** plan,
                                              char** error);
// Reads the output of meshift_plan_text and meshift_plan_json. The plan may be wrong: see
// meshift_plan_verify. UNIMPLEMENTED: a newer version of the format.
MESHIFT_EXPORT meshift_code meshift_plan_read(const char* text, meshift_plan** plan, char** error);
MESHIFT_EXPORT void meshift_plan_destroy(meshift_plan* plan);
// The plan as readable text, and as JSON; docs/plan_format.md defines both formats. `indent`:
// spaces per level, at most 16; -1 for one line.
MESHIFT_EXPORT meshift_code meshift_plan_text(const meshift_plan* plan, char** text, char** error);
MESHIFT_EXPORT meshift_code meshift_plan_json(const meshift_plan* plan, int32_t indent, char** json,
                                              char** error);
// 32 hex digits, equal on every rank.
MESHIFT_EXPORT meshift_code meshift_plan_fingerprint(const meshift_plan* plan, char** text,
                                                     char** error);
// The promise about equal bits that the plan keeps, "none", "replicas", "batch-invariant" or
// "ordered" (docs/glossary.md), and the reason. Either may be NULL.
MESHIFT_EXPORT meshift_code meshift_plan_promise(const meshift_plan* plan, char** kept, char** why,
                                                 char** error);
MESHIFT_EXPORT meshift_code meshift_plan_from(const meshift_plan* plan, meshift_sharding** from,
                                              char** error);
MESHIFT_EXPORT meshift_code meshift_plan_to(const meshift_plan* plan, meshift_sharding** to,
                                            char** error);
// Proves the plan. FAILED_PRECONDITION: a rule of docs/errors.md is broken. Then *rule gets its
// name, and *step the number of the step, or -1 if the rule is about the whole plan. Both may be
// NULL; they get NULL and -1 if the plan is right. `max_work`: the limit on work in units of about
// 10 ns; 0: the default, a few seconds and about 1 GiB.
MESHIFT_EXPORT meshift_code meshift_plan_verify(const meshift_plan* plan, int64_t max_work,
                                                char** rule, int32_t* step, char** error);

// Bytes are those of the rank with the most, times are estimates.
typedef struct meshift_plan_info {
  size_t size;
  int32_t num_steps;
  int32_t num_meshes;  // 2: from one mesh to another
  int64_t collectives;
  int64_t bytes_sent;
  int64_t est_ns;
  int64_t setup_ns;         // for new groups
  int64_t peak_bytes;       // source, target and workspace together
  int64_t workspace_bytes;  // beside source and target
  // No plan can send fewer bytes, or take less time.
  int64_t lower_bound_bytes_sent;
  int64_t lower_bound_est_ns;
} meshift_plan_info;
MESHIFT_EXPORT meshift_code meshift_plan_get_info(const meshift_plan* plan, meshift_plan_info* info,
                                                  char** error);
MESHIFT_EXPORT meshift_code meshift_plan_mesh(const meshift_plan* plan, int32_t mesh,
                                              meshift_mesh** out, char** error);

typedef int32_t meshift_step_op;
enum {
  MESHIFT_STEP_ALL_REDUCE = 1,
  MESHIFT_STEP_REDUCE_SCATTER = 2,
  MESHIFT_STEP_ALL_GATHER = 3,
  MESHIFT_STEP_ALL_TO_ALL = 4,
  MESHIFT_STEP_PERMUTE = 5,
  MESHIFT_STEP_EXCHANGE = 6,
  MESHIFT_STEP_SLICE = 7,  // this to relabel: local
  MESHIFT_STEP_MASK = 8,
  MESHIFT_STEP_CAST = 9,
  MESHIFT_STEP_RELABEL = 10,
  MESHIFT_STEP_BROADCAST = 11,  // this and the following: rooted collectives
  MESHIFT_STEP_REDUCE = 12,
  MESHIFT_STEP_GATHER = 13,
  MESHIFT_STEP_SCATTER = 14,
  MESHIFT_STEP_SEND = 15
};
MESHIFT_EXPORT const char* meshift_step_op_name(meshift_step_op op);  // "all_reduce"; NULL: unknown

// The pointers are valid until the plan is destroyed.
typedef struct meshift_step {
  size_t size;
  meshift_step_op op;
  int32_t mesh;              // index of the mesh of mesh_dims and of `after`
  const int32_t* mesh_dims;  // dims that the groups span, or whose placement changes
  size_t num_mesh_dims;
  meshift_op reduce_op;      // NONE: nothing is reduced
  int32_t in_order;          // 1: in ascending order of coordinates; 0: in any
  int64_t divisor;           // of an average; else 0
  meshift_dtype wire_dtype;  // NONE in a local step
  int64_t group_size;        // 0 in a local step
  int64_t groups;            // their number; 0 in a local step
  int64_t bytes_in;
  int64_t bytes_out;
  int64_t bytes_sent;
  int64_t est_ns;
} meshift_step;
MESHIFT_EXPORT meshift_code meshift_plan_step(const meshift_plan* plan, int32_t step,
                                              meshift_step* out, char** error);
// "all_reduce{dp,tp} -> R,R"
MESHIFT_EXPORT meshift_code meshift_plan_step_text(const meshift_plan* plan, int32_t step,
                                                   char** text, char** error);
// How the tensor is sharded after the step.
MESHIFT_EXPORT meshift_code meshift_plan_step_after(const meshift_plan* plan, int32_t step,
                                                    meshift_sharding** after, char** error);

// --- Explanations: alternatives to the best plan, and why each was not chosen ---

typedef struct meshift_explanation meshift_explanation;

// The best plan, then at most `most` others that keep the promise, the cheapest first, and some
// that break it: ListAlternatives of meshift/explain.h. `options` may be NULL; `most`: 0 for 8.
// Errors as those of meshift_plan_make.
MESHIFT_EXPORT meshift_code meshift_explanation_create(const meshift_sharding* from,
                                                       const meshift_sharding* to,
                                                       const meshift_options* options, int32_t most,
                                                       meshift_explanation** explanation,
                                                       char** error);
MESHIFT_EXPORT void meshift_explanation_destroy(meshift_explanation* explanation);
// The number of alternatives, the best plan among them; 0 for NULL.
MESHIFT_EXPORT size_t meshift_explanation_count(const meshift_explanation* explanation);

// The pointers are valid until the explanation is destroyed.
typedef struct meshift_alternative {
  size_t size;
  const char* verdict;  // "best", "costs more", "breaks the promise", ...
  const char* reason;   // "" for the best
  int32_t num_steps;
} meshift_alternative;
MESHIFT_EXPORT meshift_code meshift_explanation_get(const meshift_explanation* explanation,
                                                    size_t index, meshift_alternative* alternative,
                                                    char** error);
MESHIFT_EXPORT meshift_code meshift_explanation_plan(const meshift_explanation* explanation,
                                                     size_t index, meshift_plan** plan,
                                                     char** error);

// The terms of a step's time (docs/cost_model.md). The pointers are valid until the explanation is
// destroyed.
typedef struct meshift_step_time {
  size_t size;
  int64_t starts_ns;
  int64_t hops_ns;
  int64_t messages_ns;
  int64_t links_ns;
  int64_t copies_ns;
  const char* algorithm;      // "ring"; NULL: the step makes no call
  const char* protocol;       // "LL128"; NULL: the topology has none, or nothing is sent
  const char* slowest_links;  // "nvlink"; NULL: nothing is sent
  // If those links are between domains: the fewest members of a group in one domain of the level
  // below, each with its own link. Else 0.
  int64_t links_per_domain;
} meshift_step_time;
MESHIFT_EXPORT meshift_code meshift_explanation_step_time(const meshift_explanation* explanation,
                                                          size_t index, int32_t step,
                                                          meshift_step_time* time, char** error);

// --- Programs: the instructions of one rank, for executors in other languages ---
//
// A program uses three pieces of memory: the rank's source, its target, and a workspace of
// workspace_bytes, aligned to 16 bytes. It is a list of instructions, executed in order. An
// instruction with a group is a collective call: every member of the group has it in its own
// program, and all programs have the calls of one group in the same order, so blocking calls do not
// deadlock. An instruction without a group is local.

typedef struct meshift_program meshift_program;

typedef struct meshift_program_options {
  size_t size;
  // In elements, one per dim of the local tensor; NULL: row-major.
  const int64_t* source_strides;
  const int64_t* target_strides;
  int32_t one_buffer;      // 1: source and target begin at the same address
  int32_t consume_source;  // 1: the source may be overwritten once it is read
} meshift_program_options;
// The program of `rank`; `options` may be NULL. A rank outside both meshes has a program without
// instructions. INVALID_ARGUMENT: a negative rank, a wrong plan, or invalid strides. UNIMPLEMENTED:
// a step that sends another dtype than the tensor's, or a mesh of more than 64 dims.
MESHIFT_EXPORT meshift_code meshift_plan_lower(const meshift_plan* plan, int64_t rank,
                                               const meshift_program_options* options,
                                               meshift_program** program, char** error);
MESHIFT_EXPORT void meshift_program_destroy(meshift_program* program);
// One line per group and per instruction.
MESHIFT_EXPORT meshift_code meshift_program_text(const meshift_program* program, char** text,
                                                 char** error);

typedef struct meshift_program_info {
  size_t size;
  int64_t rank;
  int64_t workspace_bytes;
  size_t num_groups;
  size_t num_instructions;
  size_t num_copies;
  size_t num_messages;
  // The local tensors. f4e2m1 is given as bytes: u8, with half the last dim.
  meshift_dtype source_dtype;
  meshift_dtype target_dtype;
  int64_t source_bytes;  // of the elements, without gaps between them
  int64_t target_bytes;
} meshift_program_info;
MESHIFT_EXPORT meshift_code meshift_program_get_info(const meshift_program* program,
                                                     meshift_program_info* info, char** error);

// A set of ranks that make collective calls together. All programs of a plan have the same list of
// groups; entry i has the ranks of this rank's own group. Over all ranks, entry i gives the groups
// of a mesh over some of its dims. Groups are listed even if this rank makes no call, because on
// some engines all ranks create groups together. The pointers are valid until the program is
// destroyed.
typedef struct meshift_program_group {
  size_t size;
  int32_t mesh;  // index of a mesh of the plan; 2: a mesh of all ranks of both
  const int32_t* mesh_dims;
  size_t num_mesh_dims;
  const int64_t* ranks;  // ascending: member i is ranks[i]; empty if this rank is in no group
  size_t num_ranks;
  int32_t member;       // this rank's index in `ranks`; -1: in no group
  int64_t number;       // the group's number among those over these dims
  int32_t one_channel;  // 1: NCCL must give the communicator one channel (docs/nccl.md)
} meshift_program_group;
MESHIFT_EXPORT meshift_code meshift_program_get_group(const meshift_program* program, size_t index,
                                                      meshift_program_group* group, char** error);

typedef int32_t meshift_instruction_kind;
enum {
  // Local. Executes all copies of the instruction, in any order.
  MESHIFT_INSTRUCTION_COPY = 1,
  // Local. Sets `count` elements at dst to the identity of `op` (docs/dtypes.md): -0.0 for a sum of
  // floats, 0 for one of integers.
  MESHIFT_INSTRUCTION_FILL_IDENTITY = 2,
  // Local. Sets `count` bytes at dst to 0.
  MESHIFT_INSTRUCTION_FILL_ZERO = 3,
  // Sets `count` elements at dst to the op over those at all members' src. src may be dst.
  MESHIFT_INSTRUCTION_ALL_REDUCE = 4,
  // src has one block per member, contiguous; dst gets the op over all members' blocks with this
  // member's number. Blocks have `count` elements, or counts[i] if num_counts > 0.
  MESHIFT_INSTRUCTION_REDUCE_SCATTER = 5,
  // dst gets the blocks at all members' src, contiguous. Blocks as above.
  MESHIFT_INSTRUCTION_ALL_GATHER = 6,
  // All sends and receives of the instruction, as one operation. A member without messages makes
  // the call too.
  MESHIFT_INSTRUCTION_SEND_RECV = 7,
  // Local. Casts `count` elements at src to `to_dtype` at dst, rounded once (docs/c.md).
  MESHIFT_INSTRUCTION_CAST = 8,
  // Local. Sets `count` elements at dst to the op over `blocks` blocks, the first at src, each
  // `block_bytes` after the one before. They are combined in this order and rounded once. If
  // op_block > 0, op_block consecutive blocks are combined first, then the results in order. dst
  // may be one of the blocks.
  MESHIFT_INSTRUCTION_REDUCE_IN_ORDER = 9
};
// "copy"; NULL: unknown.
MESHIFT_EXPORT const char* meshift_instruction_kind_name(meshift_instruction_kind kind);

enum {
  MESHIFT_SPACE_NONE = 0,  // the instruction does not use it
  MESHIFT_SPACE_SOURCE = 1,
  MESHIFT_SPACE_TARGET = 2,
  MESHIFT_SPACE_WORKSPACE = 3
};
// A place in memory: `offset` bytes after the beginning of one of the three pieces. A strided
// tensor begins at its element (0, 0, ...).
typedef struct meshift_location {
  int32_t space;
  int64_t offset;
} meshift_location;

// The pointers are valid until the program is destroyed.
typedef struct meshift_instruction {
  size_t size;
  meshift_instruction_kind kind;
  int32_t step;   // index of the step in the plan
  int32_t group;  // index of the group in the program; -1: local
  meshift_location src;
  meshift_location dst;
  int64_t count;  // elements; bytes for FILL_ZERO
  meshift_dtype dtype;
  meshift_dtype to_dtype;  // after a CAST; else as dtype
  meshift_op op;           // NONE: nothing is reduced
  int64_t divisor;         // of AVG, else 1
  int64_t op_block;        // of REDUCE_IN_ORDER, else 0
  int64_t blocks;          // of REDUCE_IN_ORDER, else 0
  int64_t block_bytes;     // of REDUCE_IN_ORDER, else 0
  const int64_t* counts;   // one per member, if blocks differ in size
  size_t num_counts;
  size_t first_copy;  // the copies of a COPY, as indices of the program's copies
  size_t num_copies;
  size_t first_send;  // the messages of a SEND_RECV, as indices of the program's messages;
                      // ascending peers
  size_t num_sends;
  size_t first_recv;
  size_t num_recvs;
} meshift_instruction;
MESHIFT_EXPORT meshift_code meshift_program_get_instruction(const meshift_program* program,
                                                            size_t index,
                                                            meshift_instruction* instruction,
                                                            char** error);

// A copy of a box of elements of the instruction's dtype. Strides are in elements. With num_dims 0
// it has one element. The pointers are valid until the program is destroyed.
typedef struct meshift_copy {
  size_t size;
  meshift_location src;
  meshift_location dst;
  size_t num_dims;
  const int64_t* shape;
  const int64_t* src_strides;
  const int64_t* dst_strides;
} meshift_copy;
MESHIFT_EXPORT meshift_code meshift_program_get_copy(const meshift_program* program, size_t index,
                                                     meshift_copy* copy, char** error);

// `count` contiguous elements of the instruction's dtype, to or from member `peer` of its group.
typedef struct meshift_message {
  size_t size;
  int32_t peer;
  meshift_location at;
  int64_t count;  // > 0
} meshift_message;
MESHIFT_EXPORT meshift_code meshift_program_get_message(const meshift_program* program,
                                                        size_t index, meshift_message* message,
                                                        char** error);

// --- Engines: where redistributions run ---

// The engine of one rank. It ends when this handle and all streams, buffers, redistributors and
// runs on it are destroyed, and for a local engine also its world and the world's other engines. A
// local engine may be used by any thread; one thread may drive all ranks, unless the world has a
// control channel.
typedef struct meshift_engine meshift_engine;

// All ranks in this process, each with its own buffers.
typedef struct meshift_local_world meshift_local_world;
typedef struct meshift_local_options {
  size_t size;
  int64_t num_ranks;    // 1 to 2^20
  int32_t num_workers;  // worker threads; 0: two; -1: none, work runs inside waits
  // 1: ranks have a control channel, through which calls wait for peers: each rank must be a
  // thread.
  int32_t control;
  int64_t timeout_ns;  // time-out of a collective with missing members; 0: ten minutes
} meshift_local_options;
MESHIFT_EXPORT meshift_code meshift_local_world_create(const meshift_local_options* options,
                                                       meshift_local_world** world, char** error);
MESHIFT_EXPORT void meshift_local_world_destroy(meshift_local_world* world);
// The order in which collectives combine the contributions to sums, averages and products of
// floats.
typedef int32_t meshift_reduction_order;
enum {
  MESHIFT_REDUCTION_ORDER_RANKS = 0,  // ascending ranks
  // First in each domain, rounded, then across domains. Ranks r with equal r / domain_size share a
  // domain.
  MESHIFT_REDUCTION_ORDER_TOPOLOGY = 1,
  // As if each group had a different order: values from different groups differ in their last bits.
  MESHIFT_REDUCTION_ORDER_ADVERSARIAL = 2
};
// Takes effect for collectives that are enqueued later. `domain_size`, 1 or more, is used by
// MESHIFT_REDUCTION_ORDER_TOPOLOGY only.
MESHIFT_EXPORT meshift_code meshift_local_world_set_reduction_order(meshift_local_world* world,
                                                                    meshift_reduction_order order,
                                                                    int64_t domain_size,
                                                                    char** error);
MESHIFT_EXPORT meshift_code meshift_local_world_engine(const meshift_local_world* world,
                                                       int64_t rank, meshift_engine** engine,
                                                       char** error);

MESHIFT_EXPORT void meshift_engine_destroy(meshift_engine* engine);
typedef struct meshift_engine_info {
  size_t size;
  int64_t rank;
  int64_t world_size;
  const char* name;  // "local"; valid until the engine is destroyed
} meshift_engine_info;
MESHIFT_EXPORT meshift_code meshift_engine_get_info(const meshift_engine* engine,
                                                    meshift_engine_info* info, char** error);
// How long calls may take before they count as hung: the first of a group, and all others. A local
// engine's time-outs apply to all ranks of its world. INVALID_ARGUMENT: not positive.
MESHIFT_EXPORT meshift_code meshift_engine_set_timeouts(meshift_engine* engine, int64_t setup_ns,
                                                        int64_t running_ns, char** error);
// Writes the record of the last calls to a file in `folder`; *path gets its path
// (docs/when_it_hangs.md). `path` must not be NULL. FAILED_PRECONDITION: the engine has had no
// redistributor, or `folder` is empty. UNAVAILABLE: the file cannot be written.
MESHIFT_EXPORT meshift_code meshift_engine_dump(const meshift_engine* engine, const char* folder,
                                                char** path, char** error);

// An in-order queue of work of one engine.
typedef struct meshift_stream meshift_stream;
MESHIFT_EXPORT meshift_code meshift_stream_create(meshift_engine* engine, meshift_stream** stream,
                                                  char** error);
// Waits until all its work is done, and returns the first error.
MESHIFT_EXPORT meshift_code meshift_stream_synchronize(meshift_stream* stream, char** error);
// Waits for its work, unless the stream is a wrapped one.
MESHIFT_EXPORT void meshift_stream_destroy(meshift_stream* stream);

// Memory of an engine, aligned to 64 bytes or more, for programs without their own device
// allocator. The host cannot read the memory of a GPU. meshift_buffer_data returns NULL for NULL.
typedef struct meshift_buffer meshift_buffer;
MESHIFT_EXPORT meshift_code meshift_buffer_create(meshift_engine* engine, int64_t num_bytes,
                                                  meshift_buffer** buffer, char** error);
MESHIFT_EXPORT void* meshift_buffer_data(const meshift_buffer* buffer);
MESHIFT_EXPORT void meshift_buffer_destroy(meshift_buffer* buffer);
// Copies between host memory and engine memory, as work of the stream: both must stay valid until
// meshift_stream_synchronize. For set-up and tests.
MESHIFT_EXPORT meshift_code meshift_stream_copy_in(meshift_stream* stream, const void* host,
                                                   void* data, int64_t num_bytes, char** error);
MESHIFT_EXPORT meshift_code meshift_stream_copy_out(meshift_stream* stream, const void* data,
                                                    void* host, int64_t num_bytes, char** error);

// The functions of MPI and of NCCL are in separate libraries: //:meshift_c_mpi and
// //:meshift_c_nccl.

typedef struct meshift_mpi_options {
  size_t size;
  // The communicator whose ranks are the world, from MPI_Comm_c2f; NULL: MPI_COMM_WORLD. It must
  // outlive the engine.
  const int32_t* communicator;
  int64_t timeout_ns;  // 0: ten minutes
  // 1: every call returns, even if MPI does not (docs/engines.md). Needs MPI_THREAD_MULTIPLE.
  int32_t bounded_waits;
} meshift_mpi_options;
// A rank of a job over MPI, with its control channel. `options` may be NULL. Collective, as is the
// engine's end, which waits for all ranks. If the program has not initialised MPI, this does, and
// finalises it at the end of the engine. If the program has, with less than MPI_THREAD_MULTIPLE,
// meshift/mpi_engine.h says which threads may call, and when work advances. UNIMPLEMENTED: this
// build has no MPI.
MESHIFT_EXPORT meshift_code meshift_mpi_engine_create(const meshift_mpi_options* options,
                                                      meshift_engine** engine, char** error);
// Ends the process at once, without MPI_Finalize, which would wait for the other ranks: for a rank
// that has seen an error of an engine. Flush output before the call.
MESHIFT_EXPORT void meshift_mpi_leave(int32_t exit_code);

// A communicator and other objects that a framework lends. They belong to the framework and must
// outlive the engine.
typedef struct meshift_nccl_lent {
  size_t size;
  void* communicator;  // ncclComm_t
  void* stream;        // CUstream for all work; NULL: the engine's own streams
  int32_t may_split;   // 1: groups may be split from the communicator, collectively
  // Any function of the NCCL that made the communicator, such as &ncclAllReduce; may be NULL.
  const void* function;
  // Allocator of device memory; set both or neither. `allocate` returns NULL if out of memory.
  // Called from any thread with `context`, until the engine has ended.
  void* (*allocate)(void* context, int64_t bytes);
  void (*deallocate)(void* context, void* memory);
  void* context;
} meshift_nccl_lent;
// UNIMPLEMENTED: this build has no NCCL engine. docs/nccl.md has the rules of lent communicators.
MESHIFT_EXPORT meshift_code meshift_nccl_engine_from_lent(const meshift_nccl_lent* lent,
                                                          meshift_engine** engine, char** error);
// A rank of a job started by torchrun (RANK, WORLD_SIZE, MASTER_ADDR, ...), with its own
// communicator. `timeout_ns`: 0 for ten minutes. Collective, as is the engine's end.
MESHIFT_EXPORT meshift_code meshift_nccl_engine_from_torchrun(int64_t timeout_ns,
                                                              meshift_engine** engine,
                                                              char** error);
// Wraps a CUstream of the caller as a stream of an NCCL engine. It must outlive the handle, which
// neither waits for it nor destroys it. INVALID_ARGUMENT: a null stream, or another engine.
MESHIFT_EXPORT meshift_code meshift_nccl_stream_wrap(meshift_engine* engine, void* cuda_stream,
                                                     meshift_stream** stream, char** error);

// --- Redistributing ---

typedef struct meshift_redistributor meshift_redistributor;
typedef struct meshift_run meshift_run;

typedef int32_t meshift_agreement;
enum {
  MESHIFT_AGREEMENT_FIRST_CALLS = 0,  // the first 16
  MESHIFT_AGREEMENT_OFF = 1,
  MESHIFT_AGREEMENT_ALWAYS = 2
};
typedef struct meshift_redistributor_options {
  size_t size;
  const meshift_options* planning;  // copied; NULL: defaults. "engine" is not read.
  meshift_agreement agreement;      // which calls wait until all peers have announced their plan
  int32_t single_stream;            // 1: all groups share one stream
  int64_t timeout_ns;               // for agreement and tickets; 0: the engine's
  int64_t max_cached_bytes;         // limit of each cache of plans or programs; 0: 64 MiB
} meshift_redistributor_options;
// For all redistributions among the mesh's ranks. Collective over them: all make their
// redistributors in the same order, with equal options. On NCCL the ranks outside the mesh make one
// too. `options` may be NULL.
MESHIFT_EXPORT meshift_code
meshift_redistributor_create(const meshift_mesh* mesh, const meshift_engine* engine,
                             const meshift_redistributor_options* options,
                             meshift_redistributor** redistributor, char** error);
// Waits for its work, unless runs still refer to it, or the work is on a lent stream.
MESHIFT_EXPORT void meshift_redistributor_destroy(meshift_redistributor* redistributor);

typedef struct meshift_redistribution {
  size_t size;
  const meshift_sharding* from;
  const meshift_sharding* to;
  // This rank's local tensors; NULL for one without elements. The source is only read, unless it is
  // consumed, or shares a buffer with the target (begins at the same address).
  const void* source;
  void* target;
  // In elements, one per dim of the local tensor; NULL: row-major.
  const int64_t* source_strides;
  const int64_t* target_strides;
  // Scratch memory, aligned to 16 bytes; NULL: the redistributor's own. Must be NULL in a list.
  void* workspace;
  int64_t workspace_bytes;
  int32_t consume_source;  // 1: the source is donated: its memory may be overwritten
  meshift_dtype
      reduce_dtype;  // dtype in which partial values are reduced; NONE: the planner's choice
  // Dependencies: all work that is now on this stream, and this earlier run, are done before the
  // tensors are used. Both belong to the redistributor's engine, or are NULL.
  meshift_stream* after;
  const meshift_run* after_run;
  // The position of this call in the order of all calls, from 0, if several threads make them.
  // Either all calls have a ticket or none. In a list, only the first element may have one.
  int32_t has_ticket;
  int64_t ticket;
} meshift_redistribution;

// Enqueues the redistribution on streams, and returns. All ranks of the redistributor's mesh make
// the same calls in the same order. Tensors and workspace must not be used until the run is done.
// Several threads may call at once only with tickets. Refused arguments (INVALID_ARGUMENT, or an
// error of meshift_plan_make) have no effect, except that the ticket is used up. An error of the
// engine or of a peer is permanent: all later calls return it.
MESHIFT_EXPORT meshift_code meshift_redistribute(meshift_redistributor* redistributor,
                                                 const meshift_redistribution* what,
                                                 meshift_run** run, char** error);
// Several tensors in one call: small ones share collectives, and those that go onto another mesh
// are planned together, so that the busiest link is less busy. `workspace` may be NULL. No other
// element may use the target, or a consumed source, of an element.
MESHIFT_EXPORT meshift_code meshift_redistribute_list(meshift_redistributor* redistributor,
                                                      const meshift_redistribution* const* list,
                                                      size_t count, void* workspace,
                                                      int64_t workspace_bytes, meshift_run** run,
                                                      char** error);
// Verifies and runs a given plan. from, to and reduce_dtype of `what` must not be set: the plan has
// them.
MESHIFT_EXPORT meshift_code meshift_redistribute_plan(meshift_redistributor* redistributor,
                                                      const meshift_plan* plan,
                                                      const meshift_redistribution* what,
                                                      meshift_run** run, char** error);
// Does the work of a first call with row-major tensors, without running it. Collective.
// `reduce_dtype`: as in meshift_redistribution. *plan gets the plan; `plan` may be NULL.
MESHIFT_EXPORT meshift_code meshift_redistributor_prepare(meshift_redistributor* redistributor,
                                                          const meshift_sharding* from,
                                                          const meshift_sharding* to,
                                                          meshift_dtype reduce_dtype,
                                                          meshift_plan** plan, char** error);
// The workspace in bytes that a call with this list needs on this rank. Not collective, but waits
// while another thread makes a call.
MESHIFT_EXPORT meshift_code meshift_redistributor_workspace_bytes(
    const meshift_redistributor* redistributor, const meshift_redistribution* const* list,
    size_t count, int64_t* bytes, char** error);
// Ends all work with ABORTED, on all ranks if the engine has a control channel; later calls return
// ABORTED too, or an earlier error. Any thread.
MESHIFT_EXPORT meshift_code meshift_redistributor_abort(meshift_redistributor* redistributor,
                                                        char** error);

typedef struct meshift_stats {
  size_t size;
  int64_t calls;
  int64_t plans_made;
  int64_t plans_reused;
  int64_t plans_cached;
  int64_t programs_made;   // for other layouts than row-major, or merged for lists
  int64_t groups_created;  // communicators created, without the one of all ranks
  int64_t groups_reused;
  int64_t groups;  // now
} meshift_stats;
MESHIFT_EXPORT meshift_code meshift_redistributor_get_stats(
    const meshift_redistributor* redistributor, meshift_stats* stats, char** error);

// A run is a handle to enqueued work. Destroying it neither waits nor cancels.
MESHIFT_EXPORT void meshift_run_destroy(meshift_run* run);
// Waits until the work is done, and returns its error. May be called again.
MESHIFT_EXPORT meshift_code meshift_run_wait(const meshift_run* run, char** error);
// *done gets 1 if meshift_run_wait would not wait, else 0. Does not wait, unless MPI does. Without
// workers a local run is not done before a thread has waited.
MESHIFT_EXPORT meshift_code meshift_run_is_done(const meshift_run* run, int32_t* done,
                                                char** error);
// Makes later work on `stream`, of the same engine, wait for this work.
MESHIFT_EXPORT meshift_code meshift_run_wait_on(const meshift_run* run, meshift_stream* stream,
                                                char** error);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MESHIFT_C_H_

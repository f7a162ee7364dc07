// Limits the MPI thread level of any program, and ends the program if it breaks the rule of that
// level, by MPI's profiling interface. A shared library for LD_PRELOAD in the environment of all
// ranks.
//
//   MESHIFT_MPI_LEVEL=SERIALIZED      # no two threads at once; or FUNNELED; or SINGLE, by MPI_Init
#include <mpi.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

namespace {

int Level() {
  static const int level = [] {
    const char* const name = std::getenv("MESHIFT_MPI_LEVEL");
    for (const auto& [each, number] :
         {std::pair<std::string_view, int>("SINGLE", MPI_THREAD_SINGLE),
          {"FUNNELED", MPI_THREAD_FUNNELED},
          {"SERIALIZED", MPI_THREAD_SERIALIZED}}) {
      if (name != nullptr && each == name) return number;
    }
    std::fprintf(stderr, "unknown MESHIFT_MPI_LEVEL; expected SINGLE, FUNNELED or SERIALIZED\n");
    std::_Exit(1);
  }();
  return level;
}

// Lives as long as a call of MPI.
class Call {
 public:
  explicit Call(const char* name) {
    const std::thread::id self = std::this_thread::get_id();
    std::thread::id main;  // the first thread that calls
    if (Level() != MPI_THREAD_SERIALIZED &&
        !main_.compare_exchange_strong(main, self, std::memory_order_relaxed) && main != self) {
      Broken(name, "is called by another thread");
    }
    if (inside_.fetch_add(1) > 0) Broken(name, "is called while another call is made");
  }
  ~Call() { inside_.fetch_sub(1); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  static void Broken(const char* name, const char* how) {
    std::fprintf(stderr, "broken rule of level %d: %s %s\n", Level(), name, how);
    std::abort();
  }
  static std::atomic<int> inside_;
  static std::atomic<std::thread::id> main_;
};

std::atomic<int> Call::inside_{0};
std::atomic<std::thread::id> Call::main_;

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int, int* provided) {
  const Call call("MPI_Init_thread");
  if (Level() > MPI_THREAD_SINGLE) return PMPI_Init_thread(argc, argv, Level(), provided);
  const int code = PMPI_Init(argc, argv);
  PMPI_Query_thread(provided);
  return code;
}

// All functions that the engine and its tests call.
#define MESHIFT_CALL(name, parameters, arguments) \
  int MPI_##name parameters {                     \
    const Call call("MPI_" #name);                \
    return PMPI_##name arguments;                 \
  }

MESHIFT_CALL(Isend,
             (const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request),
             (data, count, type, peer, tag, comm, request))
MESHIFT_CALL(Irecv,
             (void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request),
             (data, count, type, peer, tag, comm, request))
MESHIFT_CALL(Testall, (int count, MPI_Request requests[], int* done, MPI_Status statuses[]),
             (count, requests, done, statuses))
MESHIFT_CALL(Request_get_status, (MPI_Request request, int* done, MPI_Status* status),
             (request, done, status))
MESHIFT_CALL(Cancel, (MPI_Request * request), (request))
MESHIFT_CALL(Request_free, (MPI_Request * request), (request))
MESHIFT_CALL(Get_count, (const MPI_Status* status, MPI_Datatype type, int* count),
             (status, type, count))
MESHIFT_CALL(Error_string, (int code, char* text, int* length), (code, text, length))
MESHIFT_CALL(Error_class, (int code, int* error_class), (code, error_class))
MESHIFT_CALL(Comm_dup, (MPI_Comm comm, MPI_Comm* made), (comm, made))
MESHIFT_CALL(Comm_free, (MPI_Comm * comm), (comm))
MESHIFT_CALL(Comm_rank, (MPI_Comm comm, int* rank), (comm, rank))
MESHIFT_CALL(Comm_size, (MPI_Comm comm, int* size), (comm, size))
MESHIFT_CALL(Comm_group, (MPI_Comm comm, MPI_Group* group), (comm, group))
MESHIFT_CALL(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made),
             (comm, group, tag, made))
MESHIFT_CALL(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made),
             (comm, type, key, info, made))
MESHIFT_CALL(Win_allocate_shared,
             (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* window),
             (size, unit, info, comm, base, window))
MESHIFT_CALL(Win_shared_query, (MPI_Win window, int rank, MPI_Aint* size, int* unit, void* base),
             (window, rank, size, unit, base))
MESHIFT_CALL(Win_free, (MPI_Win * window), (window))
MESHIFT_CALL(Barrier, (MPI_Comm comm), (comm))
MESHIFT_CALL(Bcast, (void* data, int count, MPI_Datatype type, int root, MPI_Comm comm),
             (data, count, type, root, comm))
MESHIFT_CALL(Finalize, (void), ())

#undef MESHIFT_CALL

}  // extern "C"

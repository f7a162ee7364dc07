#include "testing/internal/mpi/hang.h"

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>

namespace meshift {
namespace {

std::atomic<const char*> where{""};
std::atomic<bool (*)()> condition{nullptr};
std::atomic<int> hanging{0};

bool Hangs(std::string_view function) {
  const std::string_view name = where.load();
  if (name != "*" && name != function) return false;
  bool (*const when)() = condition.load();
  return when == nullptr || when();
}

// Lives as long as a call. A call that hung counts until it returns.
class MayHang {
 public:
  explicit MayHang(std::string_view function) : hangs_(Hangs(function)) {
    if (!hangs_) return;
    hanging.fetch_add(1);
    // Open MPI would spin, but other ranks of a test need the cores.
    while (Hangs(function)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~MayHang() {
    if (hangs_) hanging.fetch_sub(1);
  }
  MayHang(const MayHang&) = delete;
  MayHang& operator=(const MayHang&) = delete;

 private:
  const bool hangs_;
};

}  // namespace

void HangIn(const char* function, bool (*when)()) {
  condition.store(when);
  where.store(function);
}

bool SomeHangs() { return hanging.load() > 0; }

void EndHang() {
  HangIn("");
  while (SomeHangs()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace meshift

using meshift::MayHang;

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const MayHang may_hang("MPI_Isend");
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const MayHang may_hang("MPI_Irecv");
  return PMPI_Irecv(data, count, type, peer, tag, comm, request);
}

int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  const MayHang may_hang("MPI_Testall");
  return PMPI_Testall(count, requests, done, statuses);
}

int MPI_Request_get_status(MPI_Request request, int* done, MPI_Status* status) {
  const MayHang may_hang("MPI_Request_get_status");
  return PMPI_Request_get_status(request, done, status);
}

int MPI_Cancel(MPI_Request* request) {
  const MayHang may_hang("MPI_Cancel");
  return PMPI_Cancel(request);
}

int MPI_Request_free(MPI_Request* request) {
  const MayHang may_hang("MPI_Request_free");
  return PMPI_Request_free(request);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  const MayHang may_hang("MPI_Comm_dup");
  return PMPI_Comm_dup(comm, made);
}

int MPI_Comm_free(MPI_Comm* comm) {
  const MayHang may_hang("MPI_Comm_free");
  return PMPI_Comm_free(comm);
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  const MayHang may_hang("MPI_Comm_create_group");
  return PMPI_Comm_create_group(comm, group, tag, made);
}

int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void* base,
                            MPI_Win* window) {
  const MayHang may_hang("MPI_Win_allocate_shared");
  return PMPI_Win_allocate_shared(size, unit, info, comm, base, window);
}

int MPI_Win_free(MPI_Win* window) {
  const MayHang may_hang("MPI_Win_free");
  return PMPI_Win_free(window);
}

}  // extern "C"

// Injects a fault into one rank of any MPI program, by MPI's profiling interface: a shared library
// for LD_PRELOAD in the environment of all ranks.
//
//   MESHIFT_FAULT=kill:3:200         # rank 3 kills itself as it posts its 200th message
//   MESHIFT_FAULT=hang:3:200         # the same; the other ranks then hang in MPI_Testall
//   MESHIFT_FAULT_FILE=...           # a file that is made right before
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Fault {
  Fault() {
    const std::string text = Variable("MESHIFT_FAULT");
    const size_t first = text.find(':');
    const size_t second = text.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) return;
    kind = text.substr(0, first);
    const std::string rank = Variable("OMPI_COMM_WORLD_RANK");
    mine =
        text.substr(first + 1, second - first - 1) == (rank.empty() ? Variable("PMI_RANK") : rank);
    messages = std::atoll(text.c_str() + second + 1);
    file = Variable("MESHIFT_FAULT_FILE");
  }
  std::string kind;
  bool mine = false;
  int64_t messages = 0;
  std::string file;
};

const Fault& TheFault() {
  static const Fault fault;
  return fault;
}

}  // namespace

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  static std::atomic<int64_t> posted{0};
  const Fault& fault = TheFault();
  if (fault.mine && ++posted == fault.messages) {
    close(open(fault.file.c_str(), O_CREAT | O_WRONLY, 0600));
    kill(getpid(), SIGKILL);
  }
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  const Fault& fault = TheFault();
  while (fault.kind == "hang" && access(fault.file.c_str(), F_OK) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return PMPI_Testall(count, requests, done, statuses);
}

}  // extern "C"

// A store with the protocol of torchrun's (PyTorch's TCPStore), as far as
// comm/control/torch_store.h needs it. For tests.
//
//   const TestingStore store;
//   TorchStore("127.0.0.1", store.port()).Set("key", "value", deadline);
#ifndef MESHIFT_TESTING_INTERNAL_TESTING_STORE_H_
#define MESHIFT_TESTING_INTERNAL_TESTING_STORE_H_

#include <atomic>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "comm/control/socket.h"

namespace meshift {

class TestingStore {
 public:
  TestingStore();
  ~TestingStore();

  int port() const { return listening_.port(); }
  int Size() const;
  // Whether a key or a value contains `text`.
  bool Has(std::string_view text) const;

 private:
  void Run();
  void Serve(const Socket& socket);

  const Listening listening_;
  std::atomic<bool> stopping_ = false;
  mutable Mutex mutex_;
  std::map<std::string, std::string> values_ MESHIFT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_TESTING_STORE_H_

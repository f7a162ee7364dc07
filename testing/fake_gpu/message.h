// The messages between ranks and their hub. One struct for all kinds, so that a socket sends a
// fixed part and two variable ones.
#ifndef MESHIFT_TESTING_FAKE_GPU_MESSAGE_H_
#define MESHIFT_TESTING_FAKE_GPU_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace meshift::fake {

enum class OpKind : int32_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAlltoAll,
  kSend,
  kRecv,
};

// The parameters of an operation that must be equal on all ranks.
struct OpDescription {
  OpKind kind = OpKind::kAllReduce;
  int32_t dtype = 0;  // ncclDataType_t
  int32_t op = 0;     // ncclRedOp_t
  int32_t root = 0;
  uint64_t count = 0;
  // The positions of both buffers in symmetric windows: the number of the window's registration,
  // and the offset. -1: not in windows.
  int64_t send_window = -1;
  int64_t send_offset = 0;
  int64_t receive_window = -1;
  int64_t receive_offset = 0;

  bool operator==(const OpDescription&) const = default;
};

std::string ToString(const OpDescription& description);

using Payload = std::shared_ptr<std::vector<char>>;

struct Message {
  enum class Kind : int32_t {
    // To the hub. Those with a request number get an answer that carries it.
    kJoin,        // a: ranks; text: the device's name; comm: the unique id's number
    kSplit,       // seq: number of the split; a: color, b: key
    kCollective,  // b: splits before it, c: calls without elements before it; peer: of an
                  // all-reduce by trees, their number
    kSend,        // peer: the receiver
    kRecv,        // peer: the sender
    kConnect,     // text: the connection; peer: the other end, -1: all ranks
    kLaunched,    // text: the operations of one launch, see LaunchOrder
    kDestroy,
    kLeave,  // destroyed or aborted
    kDead,   // the rank's device was killed
    // To a rank.
    kDone,       // the answer; comm, rank, a (ranks) of a new communicator; or the data
    kRefused,    // the answer: text
    kPeerDead,   // comm, rank: the receiver's; peer: the dead rank
    kViolation,  // text
  };

  Kind kind = Kind::kJoin;
  int32_t rank = 0;
  int32_t peer = 0;
  uint64_t request = 0;
  uint64_t comm = 0;
  uint64_t seq = 0;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
  OpDescription op;
  std::string text;
  Payload payload;
};

// Receives a hub's messages for one process (or for threads of the hub's process).
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void Deliver(Message message) = 0;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_MESSAGE_H_

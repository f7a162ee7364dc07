// What ranks and their hub tell each other. One struct for all kinds, so that it travels through a
// socket as a fixed part and two variable ones.
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

// What all ranks must agree on.
struct OpDescription {
  OpKind kind = OpKind::kAllReduce;
  int32_t dtype = 0;  // ncclDataType_t
  int32_t op = 0;     // ncclRedOp_t
  int32_t root = 0;
  uint64_t count = 0;
  // Where both buffers lie in symmetric windows: the number of the window's registration, and the
  // offset in it. -1: they do not.
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
    kJoin,        // a: ranks; text: who the device is; comm: the unique id's number
    kSplit,       // seq: number of the split; a: color, b: key
    kCollective,  // b: splits before it, c: calls without elements before it; peer: of an
                  // all-reduce by trees, their number
    kSend,        // peer: the receiver
    kRecv,        // peer: the sender
    kConnect,     // text: what is connected; peer: with whom, -1: all ranks
    kLaunched,    // text: the operations of one launch, see LaunchOrder
    kDestroy,
    kLeave,  // destroyed or aborted
    kDead,   // the rank's device was killed
    // To a rank.
    kDone,       // the answer; comm, rank, a (ranks): of a new communicator; or the data
    kRefused,    // the answer: text
    kPeerDead,   // comm, rank: the receiver's; peer: who is dead
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

// Where a hub sends messages for one process (or the threads of its own).
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void Deliver(Message message) = 0;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_MESSAGE_H_

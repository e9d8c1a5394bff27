// Transports of several processes inside one test process. Bytes move through the same sessions and
// checks as over UCX; every step is one task given to `post`, so a test's executor decides when it
// runs. A hook decides what happens to each message.
//
// Owner: a test; the network outlives its transports' use. Thread: `post` must run tasks one at a
// time (a strand, or the manual pump); public methods of transports may be called from any thread.
// Failure: as transport.h says; `kill` makes a process vanish.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transfer/message.h"
#include "transfer/transport.h"

namespace baton::testing {

// What becomes of one message.
enum class FakeFate {
  Deliver,
  Drop,       // lost; the sender believes it arrived
  Duplicate,  // arrives twice
  Late,       // the sender believes it arrived; it lands at release_late()
  Stall,      // neither arrives nor completes until release_stalled()
  Fail,       // the sender's operation fails as if the peer had died
  // It arrives, all of its length, but not as it was sent:
  Flip,    // one bit is another
  Swap,    // its first two blocks have changed places; two are needed
  Tear,    // half of its last block was not written
  Replay,  // the bytes of the message before, which had the same length
};

struct FakeMessage {
  std::string from;
  std::string to;
  transfer::MessageHeader header;
  std::vector<std::byte> bytes;
};

class FakeNetwork {
 public:
  using Post = std::function<void(std::function<void()>)>;
  using Hook = std::function<FakeFate(const FakeMessage&)>;

  // Without `post`, tasks wait for pump().
  explicit FakeNetwork(Post post = nullptr);
  ~FakeNetwork();

  // A transport whose inlets' address is `name`.
  std::unique_ptr<transfer::Transport> make_transport(
      const std::string& name, KvArenaView arena, const transfer::TransportOptions& options = {});
  // Runs at the time a message is sent, inside a task. Set before traffic begins, or inside a task.
  void set_hook(Hook hook);
  // Gives a raw message to the transport `to`, as a hostile peer would.
  void inject(const std::string& to,
              std::span<const std::byte> header,
              std::span<const std::byte> bytes);
  void release_late();
  void release_stalled();
  // The data thread of `name` stands still, or moves again: nothing of it is sent or received, and
  // its loops are not counted. Messages that it holds up are released by release_stalled().
  void set_stuck(const std::string& name, bool is_stuck);
  // The process `name` is gone: its callbacks never run again, peers see PeerDead.
  void kill(const std::string& name);
  // Runs waiting tasks until none is left; returns how many ran. Manual mode only.
  std::size_t pump();

  class Core;

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace baton::testing

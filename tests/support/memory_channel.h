// Control connections in memory, for unit tests and simulations: a pair of Channels joined through
// their executors, and a Network of named addresses. Frames are copied through their bytes, so that
// what a test sends is what a wire would carry.
//
// Owner: a test; the fabric outlives its channels. Thread: one; each end's callbacks run as tasks
// of its process's executor, so that a process that does not run reads nothing. Failure: as a TCP
// channel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/exec/executor.h"
#include "common/rpc/network.h"

namespace baton {
class Greeter;
}

namespace baton::testing {

// What a test may do to a frame on its way.
struct FrameFate {
  bool drop = false;
  Duration delay{};  // later frames of the same direction never overtake
};
// `from`, `to`: names of the two ends.
using FrameHook = std::function<FrameFate(
    const std::string& from, const std::string& to, const wire::Frame& frame)>;
// How long the news that a connection has ended takes from one end to the other.
using EndHook = std::function<Duration(const std::string& from, const std::string& to)>;

class MemoryLink;

// Both ends of one connection and the power to cut it.
struct MemoryPair {
  std::unique_ptr<Channel> first;
  std::unique_ptr<Channel> second;
  std::shared_ptr<MemoryLink> link;

  // Both sides see the connection lost (PeerDead), later, on the executor.
  void kill();
};

MemoryPair make_memory_pair(Executor& executor,
                            std::string first_name = "first",
                            std::string second_name = "second",
                            FrameHook hook = {},
                            std::shared_ptr<const std::set<std::string>> held = nullptr);

// A Network of addresses in one process. `self` names the dialling side in hooks and `remote()`.
class MemoryFabric {
 public:
  explicit MemoryFabric(Executor& executor) : executor_(executor) {}
  ~MemoryFabric();

  // The view of one process; the fabric outlives it. Without `executor`, the fabric's own.
  std::unique_ptr<Network> network(std::string self) { return network(std::move(self), executor_); }
  std::unique_ptr<Network> network(std::string self, Executor& executor);
  void set_hook(FrameHook hook) { hook_ = std::move(hook); }
  void set_end_hook(EndHook hook) { end_hook_ = std::move(hook); }
  // Cuts every connection of a process and forgets its listeners, as `kill -9` does.
  void kill(const std::string& self);
  // A process reads nothing that comes to it until it is let go, as SIGSTOP does; its connections
  // stay.
  void set_held(const std::string& self, bool is_held);
  // The same, but its peers first read what it had sent before.
  void vanish(const std::string& self);
  // Breaks the connections between two processes; false: there was none.
  bool cut(const std::string& one, const std::string& other);
  // Calls of `self` that wait for their answer.
  std::size_t open_calls(const std::string& self) const;

 private:
  friend class MemoryNetwork;
  friend class MemoryListener;
  struct Listening {
    std::string owner;
    Executor* executor = nullptr;
    std::uint64_t number = 0;
    std::shared_ptr<Greeter> greeter;
  };

  void forget_listeners(const std::string& self);

  Executor& executor_;
  FrameHook hook_;
  EndHook end_hook_;
  std::map<std::string, Listening> listening_;  // by address
  std::vector<std::weak_ptr<MemoryLink>> links_;
  const std::shared_ptr<std::set<std::string>> held_ = std::make_shared<std::set<std::string>>();
  std::uint64_t next_number_ = 1;
  std::uint16_t next_port_ = 20000;
};

}  // namespace baton::testing

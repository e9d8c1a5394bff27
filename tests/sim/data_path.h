// The data plane of a simulation: Transports of several processes over the sessions and checks of
// the real one, with a reactor strand for each process and a network that a seed makes worse.
//
// A message is eager (its bytes are taken when it is posted, its sender is done at once) or fetched
// in two parts, each read from the sender's blocks when it is asked for. So a lease can be revoked,
// a sender aborted, a process killed or stopped between any two of: post, arrival, first part read,
// first part written, second part read, landed, sender told.
//
// Owner: a Simulation. Thread: the simulation's. Failure: as transport.h says; blocks that change
// while they are sent, or writes that no lease allows, fail the world.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/arena_watch.h"
#include "tests/sim/rng.h"
#include "tests/sim/world.h"
#include "transfer/message.h"
#include "transfer/transport.h"

namespace baton::sim {

// How often a message meets with which mishap.
struct DataWeather {
  double slow = 0;       // takes up to `slow_most`: overtaken by later ones
  double drop = 0;       // lost; the sender believes it arrived
  double duplicate = 0;  // arrives twice
  double late = 0;       // lost for up to `late_most`, then lands, even where its inlet is closed
  double partial = 0;    // its first part is written, then the connection breaks
  double hang = 0;       // neither arrives nor ends until the connection is given up
  double corrupt = 0;    // a bit is flipped on the way
  Duration slow_most = milliseconds(300);
  Duration late_most = seconds(40);
};

struct DataCounts {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t slow = 0;
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t late = 0;
  std::uint64_t partial = 0;
  std::uint64_t hung = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t mismatches = 0;   // digests that differed
  std::uint64_t after_close = 0;  // arrived at a closed inlet
  std::uint64_t refused = 0;      // by the receiver's checks
};

class DataPath {
 public:
  // A message before it goes out; may change its weather.
  using Hook = std::function<void(const std::string& from,
                                  const std::string& to,
                                  const transfer::MessageHeader&,
                                  DataWeather&)>;
  // How much longer a message takes, for a network that is cut.
  using Hold = std::function<Duration(const std::string& from, const std::string& to)>;

  DataPath(World& world, std::uint64_t seed);
  DataPath(const DataPath&) = delete;
  DataPath& operator=(const DataPath&) = delete;
  ~DataPath();

  // The transport of one life of a process.
  std::unique_ptr<transfer::Transport> make_transport(Process& process,
                                                      Strand& reactor,
                                                      const KvArenaView& arena,
                                                      ArenaWatch& watch);
  void set_weather(const DataWeather& weather);
  void set_hook(Hook hook);
  void set_hold(Hold hold);
  // The process is dead: its peers find out.
  void died(const Process& process);
  // Breaks the data connections from one process to another.
  void cut(const std::string& from, const std::string& to);
  // Inlets that are open on a process.
  std::size_t open_inlets(const Process& process) const;
  const DataCounts& counts() const;

  class Core;

 private:
  const std::shared_ptr<Core> core_;
};

}  // namespace baton::sim

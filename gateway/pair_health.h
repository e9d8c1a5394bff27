// Which pairs of nodes deliver what was sent. A pair between which the digests of received blocks
// differed twice in a row is out of routing until either node has started anew: something between
// the two is broken, and each of them may be well with others.
//
// Owner: the composition root. Thread: the control strand. Failure: none.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"

namespace baton::gateway {

// One life of a node's process.
struct NodeLife {
  NodeName name;
  Incarnation incarnation{};
  auto operator<=>(const NodeLife&) const = default;
};

class PairHealth {
 public:
  static constexpr std::uint32_t kMaxInARow = 2;

  struct Pair {
    NodeLife prefill;
    NodeLife decode;
    auto operator<=>(const Pair&) const = default;
  };

  // `metrics` may be null: then nothing is counted. `on_change`: a pair went out or came back.
  PairHealth(const Logger& log, Metrics* metrics, std::function<void()> on_change);

  // Blocks that this prefill node sent arrived changed on this decode node.
  void mismatch(const Pair& pair);
  // A transfer between them was verified.
  void good(const Pair& pair);
  // A node is here, in this life: what was said of its earlier ones is forgotten.
  void started(const NodeLife& node);

  // In order of names.
  std::vector<Pair> out() const;

 private:
  const Logger& log_;
  Metrics* const metrics_;
  const std::function<void()> on_change_;
  std::map<Pair, std::uint32_t> in_a_row_;
  std::size_t num_out_ = 0;
  Gauge out_gauge_;
};

}  // namespace baton::gateway

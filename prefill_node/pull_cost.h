// Whether fetching a prefix from a decode node is cheaper than computing it:
//
//   round trip + bytes / bandwidth of the pair  <  tokens / measured tokens a second
//
// The bandwidth is what earlier pulls from that node had, and a cautious guess before the first one
// or after a quiet minute. A node that failed a pull is left alone for a while.
//
// Owner: Pulls. Thread: control strand. Failure: none.
#pragma once

#include <cstdint>
#include <map>

#include "common/base/ids.h"
#include "common/exec/executor.h"

namespace baton::prefill_node {

class PullCost {
 public:
  static constexpr double kGuessedBytesPerSecond = 200e6;
  static constexpr double kGuessedTokensPerSecond = 1000;
  static constexpr Duration kRoundTrip = std::chrono::milliseconds(2);
  static constexpr Duration kFresh = std::chrono::seconds(60);   // a measurement counts so long
  static constexpr Duration kHoldOff = std::chrono::seconds(5);  // after a failure
  static constexpr Duration kLeastLimit = std::chrono::milliseconds(50);

  // What computing the tokens would take. `tokens_per_second`: 0 when nothing was measured yet.
  static Duration compute_time(std::uint32_t tokens, double tokens_per_second);
  // How long a pull may take: no longer than computing, but time to notice an answer.
  static Duration limit(std::uint32_t tokens, double tokens_per_second);

  bool is_worth(const NodeName& node,
                std::uint64_t bytes,
                std::uint32_t tokens,
                double tokens_per_second,
                TimePoint now) const;
  void succeeded(const NodeName& node, std::uint64_t bytes, Duration took, TimePoint now);
  void failed(const NodeName& node, TimePoint now);
  double bytes_per_second(const NodeName& node, TimePoint now) const;

 private:
  struct Pair {
    double bytes_per_second = 0;  // 0: nothing measured
    TimePoint measured{};
    TimePoint held_off_until{};
  };
  std::map<NodeName, Pair> pairs_;
};

}  // namespace baton::prefill_node

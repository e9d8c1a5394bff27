#include "decode_node/grant.h"

#include <algorithm>
#include <array>
#include <utility>

namespace baton::decode_node {

bool may_follow(GrantState from, GrantState to) {
  using enum GrantState;
  constexpr std::array<std::pair<GrantState, GrantState>, 7> kEdges{{{Granted, Landing},
                                                                     {Granted, Quarantined},
                                                                     {Landing, Fencing},
                                                                     {Landing, Quarantined},
                                                                     {Fencing, Quarantined},
                                                                     {Fencing, Ended},
                                                                     {Quarantined, Ended}}};
  return std::ranges::find(kEdges, std::pair{from, to}) != kEdges.end();
}

}  // namespace baton::decode_node

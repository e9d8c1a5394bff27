// Log-probabilities of a prompt's tokens, gathered over the steps that compute it, on their way
// into the event of the first token.
//
// Owner: a role's scheduler, with the request. Thread: control strand. Failure: none.
#pragma once

#include <vector>

#include "common/types/token_event.h"
#include "engine/runner.h"

namespace baton::node {

class PromptScores {
 public:
  void add(std::vector<engine::SampledToken> scored);
  bool empty() const { return scored_.empty(); }
  // Moves all of it into the event.
  void put(TokenEvent& event);

 private:
  std::vector<engine::SampledToken> scored_;
};

}  // namespace baton::node

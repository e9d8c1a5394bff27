#include "node/prompt_scores.h"

#include <iterator>
#include <utility>

namespace baton::node {

void PromptScores::add(std::vector<engine::SampledToken> scored) {
  scored_.insert(scored_.end(),
                 std::make_move_iterator(scored.begin()),
                 std::make_move_iterator(scored.end()));
}

void PromptScores::put(TokenEvent& event) {
  for (engine::SampledToken& token : std::exchange(scored_, {})) {
    event.prompt_logprobs.push_back({token.token, token.logprob});
    event.prompt_top_logprobs.push_back(std::move(token.top));
  }
}

}  // namespace baton::node

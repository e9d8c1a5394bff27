#include "gateway/api/prompt_logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "common/json/json_escape.h"
#include "gateway/openai/responses.h"

namespace baton::gateway {
namespace {

std::span<const TokenLogprob> best_of(const TokenEvent& event,
                                      std::size_t i,
                                      std::uint32_t alternatives) {
  if (i >= event.prompt_top_logprobs.size()) {
    return {};
  }
  const std::span<const TokenLogprob> all = event.prompt_top_logprobs[i];
  return all.first(std::min<std::size_t>(all.size(), alternatives));
}

}  // namespace

std::string prompt_logprobs_json(const TokenEvent& event,
                                 const engine::Tokenizer& tokenizer,
                                 std::uint32_t alternatives) {
  std::string out = "[null";
  const auto append = [&](const TokenLogprob& entry, std::size_t rank) {
    fmt::format_to(std::back_inserter(out), "\"{}\":{{\"logprob\":", entry.token);
    append_logprob(out, entry.logprob);
    out += ",\"rank\":";
    out += rank > 0 ? std::to_string(rank) : "null";
    out += ",\"decoded_token\":";
    append_json_string(out, printable_token(tokenizer.token_bytes(entry.token, true)));
    out += '}';
  };
  for (std::size_t i = 0; i < event.prompt_logprobs.size(); ++i) {
    const TokenLogprob& own = event.prompt_logprobs[i];
    const auto best = best_of(event, i, alternatives);
    const auto found = std::ranges::find(best, own.token, &TokenLogprob::token);
    const auto rank = static_cast<std::size_t>(found - best.begin());
    out += ",{";
    append(own, found == best.end() ? 0 : rank + 1);
    for (std::size_t k = 0; k < best.size(); ++k) {
      if (k != rank) {
        out += ',';
        append(best[k], k + 1);
      }
    }
    out += '}';
  }
  return out + ']';
}

std::vector<TextLogprob> prompt_entries(const TokenEvent& event,
                                        const engine::Tokenizer& tokenizer,
                                        std::span<const TokenId> prompt,
                                        std::uint32_t alternatives) {
  const auto text_of = [&](TokenId id) { return std::string(tokenizer.token_bytes(id, true)); };
  std::vector<TextLogprob> entries;
  entries.push_back({.bytes = text_of(prompt.front()), .is_known = false});
  for (std::size_t i = 0; i < event.prompt_logprobs.size(); ++i) {
    const TokenLogprob& own = event.prompt_logprobs[i];
    TextLogprob entry{.bytes = text_of(own.token), .logprob = own.logprob};
    for (const TokenLogprob& top : best_of(event, i, alternatives)) {
      entry.top.push_back({text_of(top.token), top.logprob});
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace baton::gateway

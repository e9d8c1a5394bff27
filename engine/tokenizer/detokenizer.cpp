#include <algorithm>

#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine {

Detokenizer::Detokenizer(const Tokenizer& tokenizer,
                         bool with_special,
                         std::span<const TokenId> shown)
    : tokenizer_(&tokenizer), with_special_(with_special), shown_(shown) {}

std::string Detokenizer::push(TokenId id) {
  const bool is_shown = with_special_ || std::ranges::find(shown_, id) != shown_.end();
  std::string_view bytes = tokenizer_->token_bytes(id, is_shown);
  if (bytes.empty()) {
    return {};
  }
  if (at_start_) {
    at_start_ = false;
    // SentencePiece put a space before the first word when encoding; take it off again.
    const TokenizerSpec& spec = tokenizer_->spec();
    if (spec.model == "llama" && spec.add_space_prefix && bytes.front() == ' ') {
      bytes.remove_prefix(1);
    }
  }
  pending_.append(bytes);
  const std::size_t complete = complete_utf8_prefix(pending_);
  std::string out = sanitize_utf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return out;
}

std::string Detokenizer::flush() {
  std::string out = sanitize_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace baton::engine

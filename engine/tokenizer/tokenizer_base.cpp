#include "engine/tokenizer/tokenizer_base.h"

#include <algorithm>
#include <array>

#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

// Ends of turns and documents by name. Files sometimes call the first group plain text; they are
// control tokens all the same.
constexpr std::array<std::string_view, 14> kTurnEnds = {"<|eot_id|>",
                                                        "<|im_end|>",
                                                        "<|end|>",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<end_of_turn>",
                                                        "<|endoftext|>",
                                                        "<|end_of_text|>",
                                                        "<|eom_id|>",
                                                        "<|end_of_turn|>",
                                                        "<EOT>",
                                                        "<end_of_utterance>",
                                                        "<turn|>",
                                                        "<｜end▁of▁sentence｜>"};
// These are words of other uses too (HTML's </s>), so they count only when the file says control.
constexpr std::array<std::string_view, 4> kControlOnly = {"</s>", "<eos>", "[EOS]", "[EOT]"};

// Phi-3's control tokens take the white space after them, but for these.
constexpr std::array<std::string_view, 3> kPhi3Plain = {"<unk>", "<s>", "<|endoftext|>"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<bool> flags_of(const std::vector<TokenId>& ids, std::size_t count) {
  std::vector<bool> out(ids.empty() ? 0 : count);
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<std::size_t>(id) < count) {
      out[static_cast<std::size_t>(id)] = true;
    }
  }
  return out;
}

bool has(const std::vector<bool>& flags, TokenId id) {
  return !flags.empty() && flags[static_cast<std::size_t>(id)];
}

// The end of `text[from, to)` without the spaces at its end.
std::size_t before_spaces(std::string_view text, std::size_t from, std::size_t to) {
  while (to > from) {
    std::size_t start = to - 1;
    while (start > from && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) {
      --start;
    }
    if (!is_white_space(decode_utf8(text, start).code)) {
      break;
    }
    to = start;
  }
  return to;
}

}  // namespace

TokenizerBase::TokenizerBase(TokenizerSpec spec) : spec_(std::move(spec)), kinds_(spec_.kinds) {
  kinds_.resize(spec_.tokens.size(), TokenKind::Normal);
  const auto add_stop = [this](TokenId id) {
    if (id >= 0 && std::find(stop_tokens_.begin(), stop_tokens_.end(), id) == stop_tokens_.end()) {
      stop_tokens_.push_back(id);
    }
  };
  add_stop(spec_.eos);
  add_stop(spec_.eot);
  for (const TokenId id : spec_.more_stops) {
    add_stop(id);
  }
  strips_left_ = flags_of(spec_.strip_left, spec_.tokens.size());
  strips_right_ = flags_of(spec_.strip_right, spec_.tokens.size());
  const bool phi3 = spec_.model == "llama" && spec_.architecture == "phi3";
  if (phi3) {
    strips_right_.resize(spec_.tokens.size());
  }
  for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
    const std::string& text = spec_.tokens[i];
    if (text.empty() || kinds_[i] == TokenKind::Byte) {
      continue;
    }
    const auto id = static_cast<TokenId>(i);
    if (is_one_of(kTurnEnds, text)) {
      kinds_[i] = TokenKind::Control;
      add_stop(id);
    } else if (kinds_[i] == TokenKind::Control && is_one_of(kControlOnly, text)) {
      add_stop(id);
    }
    switch (kinds_[i]) {
      case TokenKind::Control:
      case TokenKind::Unknown:
        scanner_.add(text, id, false);
        if (phi3 && !is_one_of(kPhi3Plain, text)) {
          strips_right_[i] = true;
        }
        break;
      case TokenKind::UserDefined:
        scanner_.add(text, id, true);
        break;
      default:
        break;
    }
  }
}

void TokenizerBase::set_bytes(const std::vector<std::string>& bytes, std::size_t shrink) {
  std::size_t total = 0;
  for (const auto& text : bytes) {
    total += text.size();
    longest_ = std::max(longest_, text.size() * shrink);
  }
  bytes_.reserve(total);
  byte_starts_.reserve(bytes.size() + 1);
  for (const auto& text : bytes) {
    byte_starts_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    bytes_.append(text);
  }
  byte_starts_.push_back(static_cast<std::uint32_t>(bytes_.size()));
}

std::string_view TokenizerBase::token_bytes(TokenId id, bool with_special) const {
  if (id < 0 || static_cast<std::size_t>(id) >= vocab_size()) {
    return {};
  }
  const auto index = static_cast<std::size_t>(id);
  const TokenKind token_kind = kinds_[index];
  if (!with_special && (token_kind == TokenKind::Control || token_kind == TokenKind::Unknown ||
                        token_kind == TokenKind::Unused)) {
    return {};
  }
  const std::uint32_t start = byte_starts_[index];
  return std::string_view(bytes_).substr(start, byte_starts_[index + 1] - start);
}

std::vector<TokenId> TokenizerBase::encode(std::string_view text,
                                           bool special_allowed,
                                           bool add_bos) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = sanitize_utf8(text);
    text = repaired;
  }
  const TextRange whole{0, text.size()};
  std::vector<TokenId> out;
  encode_joined(text, {&whole, special_allowed ? 1UL : 0UL}, add_bos, out);
  return out;
}

std::vector<TokenId> TokenizerBase::encode(std::span<const PromptPiece> pieces,
                                           bool add_bos) const {
  std::size_t bytes = 0;
  for (const PromptPiece& piece : pieces) {
    bytes += piece.text.size();
  }
  std::string text;
  text.reserve(bytes);
  std::vector<TextRange> allowed;
  for (const PromptPiece& piece : pieces) {
    const std::size_t begin = text.size();
    append_sanitized(text, piece.text);
    if (!piece.special_allowed || text.size() == begin) {
      continue;
    }
    if (!allowed.empty() && allowed.back().end == begin) {
      allowed.back().end = text.size();
    } else {
      allowed.push_back({begin, text.size()});
    }
  }
  std::vector<TokenId> out;
  encode_joined(text, allowed, add_bos, out);
  return out;
}

void TokenizerBase::encode_joined(std::string_view text,
                                  std::span<const TextRange> allowed,
                                  bool add_bos,
                                  std::vector<TokenId>& out) const {
  out.reserve(text.size() / 4 + 8);
  if (add_bos && spec_.add_bos && spec_.bos >= 0) {
    out.push_back(spec_.bos);
  }
  bool after_special = true;
  std::size_t at = 0;
  while (at < text.size()) {
    while (!allowed.empty() && allowed.front().end <= at) {
      allowed = allowed.subspan(1);
    }
    const SpecialScanner::Match match = scanner_.find(text, at, allowed);
    std::size_t plain_end = match.id < 0 ? text.size() : match.begin;
    if (match.id >= 0 && has(strips_left_, match.id)) {
      plain_end = before_spaces(text, at, plain_end);
    }
    if (plain_end > at) {
      encode_text(text.substr(at, plain_end - at), after_special, out);
      after_special = false;
    }
    if (match.id < 0) {
      return;
    }
    out.push_back(match.id);
    after_special = !spec_.space_prefix_once;
    at = has(strips_right_, match.id) ? end_of_white_space(text, match.end) : match.end;
  }
}

}  // namespace baton::engine

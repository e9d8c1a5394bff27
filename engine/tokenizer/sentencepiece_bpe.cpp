#include "engine/tokenizer/sentencepiece_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <queue>

#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr std::size_t kShortWord = 32;  // characters; longer words merge through a heap

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(from, at);
    out.append(text.substr(at, found - at));
    if (found == std::string_view::npos) {
      return out;
    }
    out.append(to);
    at = found + from.size();
  }
}

// The byte of a token like "<0x0A>", or -1.
int byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') {
    return -1;
  }
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) {
      return -1;
    }
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

void NeighbourSet::reserve(std::size_t pairs) {
  // Sixteen bits a pair: few others share a bit.
  const std::size_t bits = std::bit_ceil(std::max<std::size_t>(pairs * 16, 64));
  bits_.assign(bits / 64, 0);
  shift_ = 64 - std::countr_zero(bits);
}

void NeighbourSet::add(char32_t left, char32_t right) {
  const std::size_t bit = place(left, right);
  bits_[bit >> 6] |= 1ULL << (bit & 63);
}

SentencePieceBpe::SentencePieceBpe(TokenizerSpec spec) : TokenizerBase(std::move(spec)) {}

Result<std::unique_ptr<const Tokenizer>> SentencePieceBpe::create(TokenizerSpec spec) {
  if (spec.scores.size() != spec.tokens.size()) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("a llama tokenizer needs one score a token "
                            "(tokenizer.ggml.scores has {}, tokens {})",
                            spec.scores.size(),
                            spec.tokens.size()));
  }
  std::unique_ptr<SentencePieceBpe> made(new SentencePieceBpe(std::move(spec)));
  BATON_TRY(made->build());
  return made;
}

Status SentencePieceBpe::build() {
  const auto& tokens = spec().tokens;
  byte_tokens_.fill(-1);
  std::vector<std::string> bytes(tokens.size());
  tokens_ = TextIndex(tokens.size());
  neighbours_.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (kind(id) == TokenKind::Byte) {
      const int byte = byte_of(tokens[i]);
      if (byte < 0) {
        return fail(
            ErrorCode::InvalidModel,
            fmt::format("token {} ('{}') is of kind byte but not like <0x0A>", i, tokens[i]));
      }
      byte_tokens_[static_cast<std::size_t>(byte)] = id;
      bytes[i].assign(1, static_cast<char>(byte));
      continue;
    }
    bytes[i] = kind(id) == TokenKind::Normal ? replace_all(tokens[i], kSpaceMark, " ") : tokens[i];
    if (!is_mergeable(id) || tokens[i].empty()) {
      continue;
    }
    tokens_.add(tokens[i], id);
    char32_t last = 0;
    for (std::size_t at = 0; at < tokens[i].size();) {
      const Utf8Char c = decode_utf8(tokens[i], at);
      if (at > 0) {
        neighbours_.add(last, c.code);
      }
      last = c.code;
      at += c.size;
    }
  }
  set_bytes(bytes);

  is_whole_.resize(tokens.size());
  std::vector<TokenId> merged;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!is_mergeable(id) || tokens[i].empty() || !is_valid_utf8(tokens[i])) {
      continue;
    }
    merged.clear();
    merge_word(tokens[i], merged);
    is_whole_[i] = merged.size() == 1 && merged[0] == id;
  }
  return {};
}

void SentencePieceBpe::encode_text(std::string_view text,
                                   bool after_special,
                                   std::vector<TokenId>& out) const {
  std::string escaped;
  const bool has_space = text.starts_with(' ') || text.starts_with(kSpaceMark);
  if (spec().add_space_prefix && after_special &&
      !(has_space && spec().pre_tokenizer == kMetaspace)) {
    escaped = kSpaceMark;
  }
  escaped += replace_all(text, " ", kSpaceMark);
  const std::string_view all = escaped;
  std::size_t begin = 0;
  const auto take = [&](std::size_t end) {
    const std::string_view word = all.substr(begin, end - begin);
    const TokenId whole = tokens_.find(word);
    if (whole >= 0 && is_whole_[static_cast<std::size_t>(whole)]) {
      out.push_back(whole);
    } else {
      merge_word(word, out);
    }
    begin = end;
  };
  char32_t last = 0;
  for (std::size_t at = 0; at < all.size();) {
    const Utf8Char c = decode_utf8(all, at);
    if (at > 0 && !neighbours_.may_hold(last, c.code)) {
      take(at);
    }
    last = c.code;
    at += c.size;
  }
  if (begin < all.size()) {
    take(all.size());
  }
}

void SentencePieceBpe::append_symbol(std::string_view symbol, std::vector<TokenId>& out) const {
  if (const TokenId id = tokens_.find(symbol); id >= 0) {
    out.push_back(id);
    return;
  }
  bool unknown = false;
  for (const char c : symbol) {
    const TokenId id = byte_tokens_[static_cast<std::uint8_t>(c)];
    if (id >= 0) {
      out.push_back(id);
    } else if (spec().unknown >= 0 && !unknown) {
      out.push_back(spec().unknown);  // a vocabulary without byte tokens: once a character
      unknown = true;
    }
  }
}

void SentencePieceBpe::merge_word(std::string_view word, std::vector<TokenId>& out) const {
  std::array<std::uint32_t, kShortWord + 1> starts;  // of the symbols, and the end
  std::array<TokenId, kShortWord> merges;            // of symbol i and i + 1, or -1
  std::size_t count = 0;
  for (std::size_t at = 0; at < word.size(); ++count) {
    if (count == kShortWord) {
      return merge_long(word, out);
    }
    starts[count] = static_cast<std::uint32_t>(at);
    at += decode_utf8(word, at).size;
  }
  starts[count] = static_cast<std::uint32_t>(word.size());
  const auto merged = [&](std::size_t i) {
    return tokens_.find(word.substr(starts[i], starts[i + 2] - starts[i]));
  };
  for (std::size_t i = 0; i + 1 < count; ++i) {
    merges[i] = merged(i);
  }
  while (count > 1) {
    std::size_t best = count;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (merges[i] >= 0 && (best == count || score(merges[i]) > score(merges[best]))) {
        best = i;
      }
    }
    if (best == count) {
      break;
    }
    for (std::size_t i = best + 1; i < count; ++i) {
      starts[i] = starts[i + 1];
      merges[i - 1] = merges[i];
    }
    --count;
    if (best > 0) {
      merges[best - 1] = merged(best - 1);
    }
    if (best + 1 < count) {
      merges[best] = merged(best);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    append_symbol(word.substr(starts[i], starts[i + 1] - starts[i]), out);
  }
}

// The same merges through a heap and a linked list: n log n for words of any length.
void SentencePieceBpe::merge_long(std::string_view word, std::vector<TokenId>& out) const {
  struct Symbol {
    std::uint32_t start, size, previous, next;
  };
  struct Candidate {
    float score;
    std::uint32_t left, left_size, size;
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  std::vector<Symbol> symbols;
  for (std::size_t at = 0; at < word.size();) {
    const std::uint32_t size = decode_utf8(word, at).size;
    const auto index = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({static_cast<std::uint32_t>(at), size, index - 1, index + 1});
    at += size;
  }
  symbols.front().previous = kEnd;
  symbols.back().next = kEnd;
  std::priority_queue<Candidate> queue;
  const auto offer = [&](std::uint32_t left, std::uint32_t right) {
    const std::uint32_t size = symbols[left].size + symbols[right].size;
    const TokenId id = tokens_.find(word.substr(symbols[left].start, size));
    if (id >= 0) {
      queue.push({score(id), left, symbols[left].size, size});
    }
  };
  for (std::uint32_t i = 1; i < symbols.size(); ++i) {
    offer(i - 1, i);
  }
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    // A merge since then has changed one of the two (size 0: it is part of another symbol).
    if (left.size != top.left_size || left.next == kEnd ||
        left.size + symbols[left.next].size != top.size) {
      continue;
    }
    Symbol& right = symbols[left.next];
    left.size = top.size;
    right.size = 0;
    left.next = right.next;
    if (right.next != kEnd) {
      symbols[right.next].previous = top.left;
      offer(top.left, right.next);
    }
    if (left.previous != kEnd) {
      offer(left.previous, top.left);
    }
  }
  for (std::uint32_t i = 0; i != kEnd; i = symbols[i].next) {
    append_symbol(word.substr(symbols[i].start, symbols[i].size), out);
  }
}

}  // namespace baton::engine

#include "engine/tokenizer/byte_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <queue>
#include <unordered_map>

#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

// The GPT-2 alphabet: printable Latin-1 stands for itself, the other bytes for U+0100 and up.
std::array<char32_t, 256> byte_alphabet() {
  std::array<char32_t, 256> letters{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    letters[byte] = printable ? byte : next++;
  }
  return letters;
}

class AlphabetDecoder {
 public:
  AlphabetDecoder() {
    const auto letters = byte_alphabet();
    bytes_.fill(-1);
    for (std::size_t byte = 0; byte < letters.size(); ++byte) {
      bytes_[letters[byte]] = static_cast<std::int16_t>(byte);
    }
  }
  // False when a character is none of the alphabet.
  bool decode(std::string_view text, std::string& out) const {
    out.clear();
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      if (!c.valid || c.code >= bytes_.size() || bytes_[c.code] < 0) {
        return false;
      }
      out.push_back(static_cast<char>(bytes_[c.code]));
      at += c.size;
    }
    return true;
  }

 private:
  std::array<std::int16_t, 0x150> bytes_{};
};

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t expected)
    : slots_(std::bit_ceil(expected + expected / 2 + 2)),
      shift_(64 - std::countr_zero(slots_.size())) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  return (key * 0x9E3779B97F4A7C15ULL) >> shift_;
}

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  std::size_t i = slot_of(key);
  while (slots_[i].key != ~0ULL) {
    if (slots_[i].key == key) {
      return;
    }
    i = (i + 1) & (slots_.size() - 1);
  }
  slots_[i] = {key, merge};
}

MergeTable::Merge MergeTable::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t i = slot_of(key);
  while (slots_[i].key != key) {
    if (slots_[i].key == ~0ULL) {
      return {kNone, -1};
    }
    i = (i + 1) & (slots_.size() - 1);
  }
  return slots_[i].merge;
}

Result<std::unique_ptr<const Tokenizer>> ByteBpe::create(TokenizerSpec spec) {
  BATON_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::create(spec.pre_tokenizer));
  std::unique_ptr<ByteBpe> made(new ByteBpe(std::move(spec), std::move(pre_tokenizer)));
  BATON_TRY(made->build());
  return made;
}

ByteBpe::ByteBpe(TokenizerSpec spec, PreTokenizer pre_tokenizer)
    : TokenizerBase(std::move(spec)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      merges_(this->spec().merges.size()) {}

Status ByteBpe::build() {
  const auto& tokens = spec().tokens;
  const AlphabetDecoder decoder;
  std::vector<std::string> bytes(tokens.size());
  std::vector<bool> plain(tokens.size());  // written in the byte alphabet and mergeable
  std::unordered_map<std::string_view, TokenId> by_text;
  by_text.reserve(tokens.size());
  byte_tokens_.fill(-1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    plain[i] = is_mergeable(id) && kind(id) != TokenKind::UserDefined &&
               decoder.decode(tokens[i], bytes[i]);
    if (!plain[i]) {
      bytes[i] = tokens[i];
      continue;
    }
    by_text.emplace(tokens[i], id);
    if (bytes[i].size() == 1) {
      TokenId& slot = byte_tokens_[static_cast<std::uint8_t>(bytes[i][0])];
      slot = slot < 0 ? id : slot;
    }
  }
  // Normalizing makes at most one byte of three (Hangul in parts).
  set_bytes(bytes, pre_tokenizer_.normalizes() ? 3 : 1);

  const auto id_of = [&](std::string_view text) {
    const auto found = by_text.find(text);
    return found == by_text.end() ? TokenId{-1} : found->second;
  };
  std::string joined;
  for (std::size_t rank = 0; rank < spec().merges.size(); ++rank) {
    const std::string_view merge = spec().merges[rank];
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("tokenizer merge {} ('{}') is not 'left right'", rank, merge));
    }
    joined.assign(merge.substr(0, space));
    joined.append(merge.substr(space + 1));
    const TokenId left = id_of(merge.substr(0, space));
    const TokenId right = id_of(merge.substr(space + 1));
    const TokenId product = id_of(joined);
    if (left >= 0 && right >= 0 && product >= 0) {  // else it can never apply
      merges_.add(left, right, {static_cast<std::uint32_t>(rank), product});
      const auto end = static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(left)].back());
      const auto begin = static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(right)].front());
      joins_.set(end * 256U + begin);
    }
  }

  byte_merges_.resize(256 * 256, {MergeTable::kNone, -1});
  for (std::size_t first = 0; first < 256; ++first) {
    for (std::size_t second = 0; second < 256; ++second) {
      if (byte_tokens_[first] >= 0 && byte_tokens_[second] >= 0) {
        byte_merges_[first * 256 + second] =
            merges_.find(byte_tokens_[first], byte_tokens_[second]);
      }
    }
  }

  words_ = TextIndex(tokens.size());
  std::vector<TokenId> merged;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!plain[i] || bytes[i].empty()) {
      continue;
    }
    const auto id = static_cast<TokenId>(i);
    const std::string_view word = token_bytes(id, true);
    merged.clear();
    if (!pre_tokenizer_.ignore_merges()) {
      merge_word(word, merged);
    }
    if (merged.empty() || (merged.size() == 1 && merged[0] == id)) {
      words_.add(word, id);
    }
  }
  return {};
}

void ByteBpe::encode_text(std::string_view text, bool, std::vector<TokenId>& out) const {
  if (pre_tokenizer_.normalizes() && !nfc_.is_normalized(text)) {
    encode_words(nfc_.normalize(text), out);
  } else {
    encode_words(text, out);
  }
}

void ByteBpe::encode_words(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<std::uint32_t> ends;
  ends.reserve(text.size() / 4 + 8);
  pre_tokenizer_.split(text, ends);
  std::size_t begin = 0;
  for (const std::uint32_t end : ends) {
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    const TokenId whole = words_.find(word);
    if (whole >= 0) {
      out.push_back(whole);
    } else {
      merge_word(word, out);
    }
  }
}

// Cuts the word where no merge reaches across, so that each part merges by itself.
void ByteBpe::merge_word(std::string_view word, std::vector<TokenId>& out) const {
  ShortWord part;
  std::vector<TokenId> longer;  // the part's tokens before those in `part`, once it is long
  const auto finish = [&] {
    if (longer.empty()) {
      merge_short(part, out);
    } else {
      longer.insert(longer.end(), part.ids.data(), part.ids.data() + part.count);
      merge_long(longer);
      out.insert(out.end(), longer.begin(), longer.end());
      longer.clear();
    }
    part.count = 0;
  };
  std::size_t last = 0;  // byte of the token before
  for (const char c : word) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte_tokens_[byte] < 0) {
      continue;
    }
    if (part.count > 0) {
      const std::size_t pair = last * 256 + byte;
      if (!joins_[pair]) {
        finish();
      } else if (part.count == kShortWord) {
        longer.insert(longer.end(), part.ids.begin(), part.ids.end());
        part.count = 0;
      } else {
        part.merges[part.count - 1] = byte_merges_[pair];
      }
    }
    part.ids[part.count++] = byte_tokens_[byte];
    last = byte;
  }
  finish();
}

void ByteBpe::merge_short(ShortWord& part, std::vector<TokenId>& out) const {
  auto& [ids, merges, count] = part;
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) {
        best = i;
      }
    }
    if (merges[best].rank == MergeTable::kNone) {
      break;
    }
    ids[best] = merges[best].id;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best > 0) {
      merges[best - 1] = merges_.find(ids[best - 1], ids[best]);
    }
    if (best + 1 < count) {
      merges[best] = merges_.find(ids[best], ids[best + 1]);
    }
  }
  out.insert(out.end(), ids.data(), ids.data() + count);
}

// The same merges through a heap and a linked list: n log n for words of any length.
void ByteBpe::merge_long(std::vector<TokenId>& ids) const {
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t left;
    TokenId left_id, right_id, merged;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  const auto count = static_cast<std::uint32_t>(ids.size());
  std::vector<std::uint32_t> next(count);
  std::vector<std::uint32_t> previous(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::uint32_t left, std::uint32_t right) {
    const MergeTable::Merge merge = merges_.find(ids[left], ids[right]);
    if (merge.rank != MergeTable::kNone) {
      queue.push({merge.rank, left, ids[left], ids[right], merge.id});
    }
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    if (i > 0) {
      offer(i - 1, i);
    }
  }
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const std::uint32_t right = next[top.left];
    // A merge since then has taken one of the two.
    if (ids[top.left] != top.left_id || right == kEnd || ids[right] != top.right_id) {
      continue;
    }
    ids[top.left] = top.merged;
    ids[right] = -1;
    next[top.left] = next[right];
    if (next[right] != kEnd) {
      previous[next[right]] = top.left;
      offer(top.left, next[right]);
    }
    if (previous[top.left] != kEnd) {
      offer(previous[top.left], top.left);
    }
  }
  std::erase(ids, -1);
}

}  // namespace baton::engine

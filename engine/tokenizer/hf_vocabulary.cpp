#include "engine/tokenizer/hf_vocabulary.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

constexpr std::uint64_t kMaxTokens = 1U << 22U;
constexpr std::uint64_t kMaxHoles = 1U << 16U;  // ids without a token
constexpr std::size_t kMaxTokenBytes = 1U << 16U;

std::uint64_t pair_of(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) |
         static_cast<std::uint32_t>(right);
}

bool is_spaces(std::string_view text) {
  while (text.starts_with(kSpaceMark)) {
    text.remove_prefix(kSpaceMark.size());
  }
  return text.empty();
}

}  // namespace

std::string shown(std::string_view text) {
  return fmt::format("'{}'", sanitize_utf8(text.substr(0, 64)));
}

Status each_merge(const JsonValue& model, const TakeMerge& take) {
  BATON_ASSIGN(const auto merges, model.at("merges"));
  BATON_ASSIGN(const auto list, merges.to_array());
  std::size_t rank = 0;
  for (const auto item : list) {
    std::string_view left;
    std::string_view right;
    simdjson::dom::array pair;
    bool good = false;
    if (std::string_view text; item.get(text) == simdjson::SUCCESS) {
      const std::size_t space = text.find(' ');
      good = space != std::string_view::npos && text.find(' ', space + 1) == text.npos;
      left = text.substr(0, good ? space : 0);
      right = good ? text.substr(space + 1) : right;
    } else if (item.get(pair) == simdjson::SUCCESS) {
      good = pair.size() == 2 && pair.at(0).get(left) == simdjson::SUCCESS &&
             pair.at(1).get(right) == simdjson::SUCCESS;
    }
    if (!good || left.empty() || right.empty()) {
      return merges.bad(fmt::format("merge {} is not two texts", rank));
    }
    if (Status status = take(rank, left, right, merges); !status) {
      return status;
    }
    ++rank;
  }
  return {};
}

Status HfVocabulary::read(const JsonValue& model, const std::optional<JsonValue>& added) {
  BATON_TRY(tokens(model, added));
  return added ? added_tokens(*added) : Status();
}

Status HfVocabulary::tokens(const JsonValue& model, const std::optional<JsonValue>& added) {
  BATON_ASSIGN(const auto vocab, model.at("vocab"));
  BATON_ASSIGN(const auto entries, vocab.to_object());
  std::uint64_t count = 0;
  for (const auto entry : entries) {
    (void)entry;
    ++count;
  }
  if (added) {
    BATON_ASSIGN(const auto list, added->to_array());
    for (const auto item : list) {
      (void)item;
      ++count;
    }
  }
  if (count > kMaxTokens) {
    return vocab.bad(fmt::format("more than {} tokens", kMaxTokens));
  }
  // Ids run densely, but for a few holes, so that none sizes an absurd table.
  id_limit_ = count + kMaxHoles;
  for (const auto entry : entries) {
    std::uint64_t id = 0;
    if (entry.value.get(id) != simdjson::SUCCESS) {
      return vocab.bad(fmt::format("the id of {} is not a whole number", shown(entry.key)));
    }
    BATON_TRY(put(vocab, entry.key, id, TokenKind::Normal));
  }
  if (ids_.empty()) {
    return vocab.bad("is empty");
  }
  return {};
}

Status HfVocabulary::put(const JsonValue& place,
                         std::string_view text,
                         std::uint64_t id,
                         TokenKind kind) {
  if (id >= id_limit_ || text.size() > kMaxTokenBytes || text.empty()) {
    return place.bad(fmt::format(
        "{} has the id {} and {} bytes, which cannot be", shown(text), id, text.size()));
  }
  if (id >= spec_.tokens.size()) {
    spec_.tokens.resize(id + 1);
    spec_.kinds.resize(id + 1, TokenKind::Unused);
  }
  if (!spec_.tokens[id].empty() && spec_.tokens[id] != text) {
    return place.bad(
        fmt::format("{} and {} have the id {}", shown(spec_.tokens[id]), shown(text), id));
  }
  const auto [it, fresh] = ids_.try_emplace(std::string(text), static_cast<TokenId>(id));
  if (!fresh && it->second != static_cast<TokenId>(id)) {
    return place.bad(fmt::format("{} has the ids {} and {}", shown(text), it->second, id));
  }
  spec_.tokens[id] = text;
  spec_.kinds[id] = kind;
  return {};
}

Status HfVocabulary::added_tokens(const JsonValue& added) {
  BATON_ASSIGN(const auto list, added.to_array());
  for (const auto item : list) {
    const JsonValue token(item, added.place());
    BATON_ASSIGN(const auto content, token.at("content"));
    BATON_ASSIGN(const auto text, content.to_string());
    BATON_ASSIGN(const auto id_value, token.at("id"));
    BATON_ASSIGN(const auto id, id_value.to_uint(kMaxTokens));
    BATON_ASSIGN(const bool special, token.bool_or("special", false));
    BATON_ASSIGN(const bool left, token.bool_or("lstrip", false));
    BATON_ASSIGN(const bool right, token.bool_or("rstrip", false));
    BATON_ASSIGN(const bool single_word, token.bool_or("single_word", false));
    if (single_word) {
      return token.bad(fmt::format("{}: single_word is not supported", shown(text)));
    }
    // A token of "▁" stands for spaces: it is found by merging, after they were replaced.
    const bool spaces = !special && text.find(kSpaceMark) != std::string_view::npos;
    BATON_TRY(put(token,
                  text,
                  id,
                  special  ? TokenKind::Control
                  : spaces ? TokenKind::Normal
                           : TokenKind::UserDefined));
    added_.insert(static_cast<TokenId>(id));
    if (left) {
      spec_.strip_left.push_back(static_cast<TokenId>(id));
    }
    if (right) {
      spec_.strip_right.push_back(static_cast<TokenId>(id));
    }
  }
  return {};
}

TokenId HfVocabulary::id_of(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? TokenId{-1} : found->second;
}

// Such models were made from SentencePiece's: a token's score says when it is built, and every
// pair of tokens that makes it counts. A list of merges says the same when it holds every such
// pair, those of one token together; then rank and score agree. Runs of "▁" all have one score in
// Llama's vocabulary, so their merges lie among each other: only runs longer than the longest
// such token could be cut at another place.
Status HfVocabulary::scores_from_merges(const JsonValue& model) {
  const std::size_t count = spec_.tokens.size();
  // Tokens that no merge builds are single characters; they take part in no comparison.
  std::vector<std::uint32_t> first_rank(count, std::numeric_limits<std::uint32_t>::max());
  std::unordered_set<std::uint64_t> pairs;
  TokenId last = -1;
  std::string joined;
  BATON_TRY(each_merge(
      model,
      [&](std::size_t rank, std::string_view left, std::string_view right, const JsonValue& place)
          -> Status {
        joined.assign(left);
        joined.append(right);
        const TokenId l = id_of(left);
        const TokenId r = id_of(right);
        const TokenId product = id_of(joined);
        if (l < 0 || r < 0 || product < 0) {
          return place.bad(fmt::format(
              "merge {} of {} and {} is not in vocab", rank, shown(left), shown(right)));
        }
        auto& mine = first_rank[static_cast<std::size_t>(product)];
        if (mine == std::numeric_limits<std::uint32_t>::max()) {
          mine = static_cast<std::uint32_t>(rank);
        } else if (product != last && !added_.contains(product) && !is_spaces(joined)) {
          return place.bad(fmt::format(
              "merge {} builds {} again, after other tokens; only merges in the order of "
              "SentencePiece scores are supported",
              rank,
              shown(joined)));
        }
        last = product;
        pairs.insert(pair_of(l, r));
        return {};
      }));
  spec_.scores.assign(count, 0.0F);
  for (std::size_t i = 0; i < count; ++i) {
    if (first_rank[i] != std::numeric_limits<std::uint32_t>::max()) {
      spec_.scores[i] = -static_cast<float>(first_rank[i]);
    }
    if (spec_.kinds[i] == TokenKind::Normal && !added_.contains(static_cast<TokenId>(i))) {
      BATON_TRY(check_pairs(model, static_cast<TokenId>(i), pairs));
    }
  }
  return {};
}

Status HfVocabulary::check_pairs(const JsonValue& model,
                                 TokenId id,
                                 const std::unordered_set<std::uint64_t>& pairs) const {
  const std::string_view text = spec_.tokens[static_cast<std::size_t>(id)];
  const auto mergeable = [&](TokenId part) {
    return part >= 0 && (spec_.kinds[static_cast<std::size_t>(part)] == TokenKind::Normal ||
                         spec_.kinds[static_cast<std::size_t>(part)] == TokenKind::UserDefined);
  };
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    if ((static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) {
      continue;
    }
    const TokenId left = id_of(text.substr(0, cut));
    const TokenId right = mergeable(left) ? id_of(text.substr(cut)) : TokenId{-1};
    if (mergeable(left) && mergeable(right) && !pairs.contains(pair_of(left, right))) {
      return model.bad(fmt::format(
          "merges lack {} and {}, which make the token {}; only merges made from SentencePiece "
          "scores are supported",
          shown(text.substr(0, cut)),
          shown(text.substr(cut)),
          shown(text)));
    }
  }
  return {};
}

}  // namespace baton::engine

// The tokens and merges of a BPE model in tokenizer.json, with their ids: filled into the
// description of a tokenizer, and asked for by text while the rest of the file is read.
//
// Owner: the reader of the file; the description outlives it. Thread: one. Failure: InvalidModel
// with the file and the key.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "common/base/error.h"
#include "common/json/json_doc.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::engine {

// U+2581, which SentencePiece writes for a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Foreign text in a message: quoted, cut, valid UTF-8.
std::string shown(std::string_view text);

// With its rank, and the place of the list for messages.
using TakeMerge = std::function<Status(
    std::size_t rank, std::string_view left, std::string_view right, const JsonValue& place)>;
// Each merge, written "left right" or ["left", "right"]; ends with the first error of `take`.
Status each_merge(const JsonValue& model, const TakeMerge& take);

class HfVocabulary {
 public:
  explicit HfVocabulary(TokenizerSpec& spec) : spec_(spec) {}
  HfVocabulary(const HfVocabulary&) = delete;
  HfVocabulary& operator=(const HfVocabulary&) = delete;
  ~HfVocabulary() = default;

  // Tokens, kinds, strip_left and strip_right of the description. `added`: added_tokens.
  Status read(const JsonValue& model, const std::optional<JsonValue>& added);
  // -1: no token has this text.
  TokenId id_of(std::string_view text) const;
  // Scores of a SentencePiece model; refused where merges say something else than scores could.
  Status scores_from_merges(const JsonValue& model);

 private:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  Status tokens(const JsonValue& model, const std::optional<JsonValue>& added);
  Status added_tokens(const JsonValue& added);
  Status put(const JsonValue& place, std::string_view text, std::uint64_t id, TokenKind kind);
  Status check_pairs(const JsonValue& model,
                     TokenId id,
                     const std::unordered_set<std::uint64_t>& pairs) const;

  TokenizerSpec& spec_;
  std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>> ids_;
  std::unordered_set<TokenId> added_;
  std::uint64_t id_limit_ = 0;
};

}  // namespace baton::engine

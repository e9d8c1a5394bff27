#include "engine/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/json/json_doc.h"
#include "engine/tokenizer/sentencepiece_bpe.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

constexpr std::uint64_t kMaxTokens = 1U << 22U;
constexpr std::uint64_t kMaxHoles = 1U << 16U;  // ids without a token
constexpr std::size_t kMaxTokenBytes = 1U << 16U;
constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

// The ways in which the families' byte-level tokenizers cut text, and the names under which
// PreTokenizer knows each: with text as it is, with text brought to NFC first, and with words taken
// whole before any merge. "": no family does.
struct Cut {
  std::string_view regex;  // of a Split; "": ByteLevel's own
  bool digits;             // each digit is a word
  std::string_view plain, nfc, whole;
};
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::array kCuts{Cut{"", false, "gpt-2", "olmo", ""},
                           Cut{"", true, "smollm", "command-r", ""},
                           Cut{kLlama3, false, "smaug-bpe", "", "llama-bpe"},
                           Cut{kQwen2, false, "deepseek-r1-qwen", "qwen2", ""},
                           Cut{kQwen35, false, "", "qwen35", ""}};

std::uint64_t pair_of(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) |
         static_cast<std::uint32_t>(right);
}

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

bool is_spaces(std::string_view text) {
  while (text.starts_with(kSpace)) {
    text.remove_prefix(kSpace.size());
  }
  return text.empty();
}

bool is_byte_token(std::string_view text) {
  const auto hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
  };
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' && hex(text[3]) &&
         hex(text[4]);
}

// The parts of a Sequence, or the thing itself; absent: none.
Result<std::vector<JsonValue>> steps_of(const JsonValue& root,
                                        std::string_view key,
                                        std::string_view list) {
  std::vector<JsonValue> out;
  const auto value = root.find(key);
  if (!value) {
    return out;
  }
  BATON_ASSIGN(const auto type, value->string_or("type", ""));
  if (type != "Sequence") {
    out.push_back(*value);
    return out;
  }
  BATON_ASSIGN(const auto member, value->at(list));
  BATON_ASSIGN(const auto items, member.to_array());
  for (const auto item : items) {
    out.emplace_back(item, member.place());
  }
  return out;
}

class Reader {
 public:
  Reader(const HfTokenizerFiles& files, const JsonValue& root, std::optional<JsonValue> config)
      : files_(files), root_(root), config_(std::move(config)) {}

  Result<TokenizerSpec> read() {
    BATON_ASSIGN(const auto model, root_.at("model"));
    BATON_ASSIGN(const auto type, model.string_or("type", ""));
    if (type != "BPE") {
      return model.bad(fmt::format("type \"{}\" is not supported; known: BPE", type.substr(0, 32)));
    }
    BATON_TRY(refuse_variants(model));
    spec_.architecture = files_.architecture;
    BATON_TRY(vocabulary(model));
    BATON_TRY(added_tokens());
    BATON_ASSIGN(const bool fallback, model.bool_or("byte_fallback", false));
    if (fallback) {
      BATON_TRY(sentencepiece(model));
    } else {
      BATON_TRY(byte_level(model));
    }
    BATON_TRY(special_ids(model));
    BATON_TRY(chat_template());
    BATON_TRY(cut_to_embedding());
    return std::move(spec_);
  }

 private:
  Status refuse_variants(const JsonValue& model) const {
    BATON_ASSIGN(const double dropout, model.double_or("dropout", 0));
    if (dropout != 0) {
      return model.bad("dropout is not supported");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      BATON_ASSIGN(const auto text, model.string_or(key, ""));
      if (!text.empty()) {
        return model.bad(fmt::format("{} is not supported", key));
      }
    }
    return {};
  }

  Status vocabulary(const JsonValue& model) {
    BATON_ASSIGN(const auto vocab, model.at("vocab"));
    BATON_ASSIGN(const auto entries, vocab.to_object());
    const auto added = root_.find("added_tokens");
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

  static std::string shown(std::string_view text) {
    return fmt::format("'{}'", sanitize_utf8(text.substr(0, 64)));
  }

  Status put(const JsonValue& place, std::string_view text, std::uint64_t id, TokenKind kind) {
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

  Status added_tokens() {
    const auto added = root_.find("added_tokens");
    if (!added) {
      return {};
    }
    BATON_ASSIGN(const auto list, added->to_array());
    for (const auto item : list) {
      const JsonValue token(item, added->place());
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
      const bool spaces = !special && text.find(kSpace) != std::string_view::npos;
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

  TokenId id_of(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? TokenId{-1} : found->second;
  }

  // Calls `take(rank, left, right)` for each merge, written "left right" or ["left", "right"].
  template <class Take>
  Status each_merge(const JsonValue& model, Take take) const {
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

  Status byte_level(const JsonValue& model) {
    spec_.model = "gpt2";
    spec_.add_space_prefix = false;
    BATON_ASSIGN(const auto normalizers, steps_of(root_, "normalizer", "normalizers"));
    for (const JsonValue& step : normalizers) {
      BATON_ASSIGN(const auto type, step.string_or("type", ""));
      if (type != "NFC") {
        return step.bad(fmt::format("normalizer {} is not supported", shown(type)));
      }
    }
    BATON_ASSIGN(const bool ignore_merges, model.bool_or("ignore_merges", false));
    BATON_TRY(pre_tokenizer(ignore_merges, !normalizers.empty()));
    return each_merge(model,
                      [this](std::size_t,
                             std::string_view left,
                             std::string_view right,
                             const JsonValue& place) -> Status {
                        if (left.find(' ') != left.npos || right.find(' ') != right.npos) {
                          return place.bad("a merge of byte-level tokens holds a space");
                        }
                        spec_.merges.push_back(fmt::format("{} {}", left, right));
                        return {};
                      });
  }

  // The steps must be those of a known family, in its order.
  Status pre_tokenizer(bool ignore_merges, bool nfc) {
    BATON_ASSIGN(const auto steps, steps_of(root_, "pre_tokenizer", "pretokenizers"));
    if (steps.empty()) {
      return root_.bad("pre_tokenizer is missing");
    }
    const JsonValue& last = steps.back();
    BATON_ASSIGN(const auto last_type, last.string_or("type", ""));
    BATON_ASSIGN(const bool prefix, last.bool_or("add_prefix_space", false));
    BATON_ASSIGN(const bool by_gpt2, last.bool_or("use_regex", true));
    if (last_type != "ByteLevel" || prefix) {
      return last.bad("must end in ByteLevel without add_prefix_space");
    }
    if (steps.size() > 2) {
      return last.bad("more steps than those of the known families");
    }
    std::string_view regex;
    bool digits = false;
    if (steps.size() == 2) {
      BATON_TRY(first_cut(steps.front(), regex, digits));
    }
    for (const Cut& cut : kCuts) {
      if (cut.regex != regex || cut.digits != digits || by_gpt2 != cut.regex.empty()) {
        continue;
      }
      const std::string_view name = ignore_merges ? cut.whole : nfc ? cut.nfc : cut.plain;
      if (!name.empty() && !(ignore_merges && nfc)) {
        spec_.pre_tokenizer = name;
        return {};
      }
    }
    return steps.front().bad(
        "is not how a known family cuts text (gpt-2, smollm, llama 3, qwen 2, qwen 3.5), with its "
        "normalizer and ignore_merges");
  }

  // What comes before ByteLevel: a Split by a regular expression, or single digits.
  Status first_cut(const JsonValue& step, std::string_view& regex, bool& digits) const {
    BATON_ASSIGN(const auto type, step.string_or("type", ""));
    if (type == "Digits") {
      BATON_ASSIGN(digits, step.bool_or("individual_digits", false));
      return digits ? Status{} : step.bad("Digits is supported with individual_digits alone");
    }
    if (type != "Split") {
      return step.bad(fmt::format("pre-tokenizer {} is not supported here", shown(type)));
    }
    BATON_ASSIGN(const auto behaviour, step.string_or("behavior", ""));
    BATON_ASSIGN(const bool invert, step.bool_or("invert", false));
    BATON_ASSIGN(const auto pattern, step.at("pattern"));
    BATON_ASSIGN(regex, pattern.string_or("Regex", ""));
    if (behaviour != "Isolated" || invert || regex.empty()) {
      return step.bad("Split is supported with a Regex and the behavior Isolated");
    }
    return {};
  }

  Status sentencepiece(const JsonValue& model) {
    spec_.model = "llama";
    spec_.pre_tokenizer = "default";
    BATON_TRY(space_rules());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
      if (spec_.kinds[i] == TokenKind::Normal && is_byte_token(spec_.tokens[i])) {
        spec_.kinds[i] = TokenKind::Byte;
        ++bytes;
      }
    }
    if (bytes != 256) {
      return model.bad(
          fmt::format("byte_fallback needs 256 tokens like <0x0A>, there are {}", bytes));
    }
    return scores_from_merges(model);
  }

  // Spaces become "▁", by a Replace or a Metaspace, and one may be put before the text.
  Status space_rules() {
    spec_.add_space_prefix = false;
    bool replaced = false;
    BATON_ASSIGN(const auto normalizers, steps_of(root_, "normalizer", "normalizers"));
    for (const JsonValue& step : normalizers) {
      BATON_ASSIGN(const auto type, step.string_or("type", ""));
      if (type == "Prepend" && !replaced) {
        BATON_ASSIGN(const auto text, step.string_or("prepend", ""));
        if (text != kSpace) {
          return step.bad("only \"▁\" may be prepended");
        }
        spec_.add_space_prefix = true;
      } else if (type == "Replace" && !replaced) {
        BATON_ASSIGN(const auto pattern, step.at("pattern"));
        BATON_ASSIGN(const auto from, pattern.string_or("String", ""));
        BATON_ASSIGN(const auto to, step.string_or("content", ""));
        if (from != " " || to != kSpace) {
          return step.bad("only \" \" may be replaced, by \"▁\"");
        }
        replaced = true;
      } else {
        return step.bad(fmt::format("normalizer {} is not supported here", shown(type)));
      }
    }
    BATON_ASSIGN(const auto steps, steps_of(root_, "pre_tokenizer", "pretokenizers"));
    for (const JsonValue& step : steps) {
      BATON_ASSIGN(const auto type, step.string_or("type", ""));
      if (type == "Split" && replaced) {
        // No space is left to cut at.
        BATON_ASSIGN(const auto pattern, step.at("pattern"));
        BATON_ASSIGN(const auto text, pattern.string_or("String", ""));
        if (text != " ") {
          return step.bad("only a Split at \" \" is supported");
        }
        continue;
      }
      if (type != "Metaspace" || replaced) {
        return step.bad(fmt::format("pre-tokenizer {} is not supported here", shown(type)));
      }
      BATON_TRY(metaspace(step));
      replaced = true;
    }
    return replaced ? Status{} : root_.bad("nothing replaces spaces by \"▁\"");
  }

  Status metaspace(const JsonValue& step) {
    BATON_ASSIGN(const auto replacement, step.string_or("replacement", kSpace));
    BATON_ASSIGN(const bool split, step.bool_or("split", true));
    BATON_ASSIGN(const bool prefix, step.bool_or("add_prefix_space", true));
    BATON_ASSIGN(const auto scheme, step.string_or("prepend_scheme", prefix ? "always" : "never"));
    if (replacement != kSpace || split) {
      return step.bad("only replacement \"▁\" with split: false is supported");
    }
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      return step.bad(fmt::format("prepend_scheme {} is unknown", shown(scheme)));
    }
    spec_.add_space_prefix = scheme != "never";
    spec_.space_prefix_once = scheme == "first";
    spec_.pre_tokenizer = kMetaspace;
    return {};
  }

  // Such models were made from SentencePiece's: a token's score says when it is built, and every
  // pair of tokens that makes it counts. A list of merges says the same when it holds every such
  // pair, those of one token together; then rank and score agree. Runs of "▁" all have one score in
  // Llama's vocabulary, so their merges lie among each other: only runs longer than the longest
  // such token could be cut at another place.
  Status scores_from_merges(const JsonValue& model) {
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

  Status check_pairs(const JsonValue& model,
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

  // The text of a token in tokenizer_config.json, plain or as an object; "": none.
  Result<std::string_view> token_text(std::string_view key) const {
    const auto value = config_ ? config_->find(key) : std::nullopt;
    if (!value) {
      return std::string_view();
    }
    if (value->is_string()) {
      return value->to_string();
    }
    BATON_ASSIGN(const auto content, value->at("content"));
    return content.to_string();
  }

  Status special_ids(const JsonValue& model) {
    const auto named = [this](std::string_view key) -> Result<TokenId> {
      BATON_ASSIGN(const auto text, token_text(key));
      return text.empty() ? TokenId{-1} : id_of(text);
    };
    BATON_ASSIGN(spec_.bos, named("bos_token"));
    BATON_ASSIGN(spec_.eos, named("eos_token"));
    BATON_ASSIGN(const auto unknown, model.string_or("unk_token", ""));
    if (spec_.model == "llama" && !unknown.empty()) {
      spec_.unknown = id_of(unknown);
      if (spec_.unknown >= 0) {
        spec_.kinds[static_cast<std::size_t>(spec_.unknown)] = TokenKind::Unknown;
      }
    }
    BATON_TRY(ends());
    return frame();
  }

  // The ids that generation_config.json lists end an answer; the first stands for all.
  Status ends() {
    for (const std::uint64_t id : files_.eos_ids) {
      if (id >= spec_.tokens.size() || spec_.tokens[id].empty()) {
        return fail(
            ErrorCode::InvalidModel,
            fmt::format("{}: eos_token_id {} is no token of tokenizer.json", files_.folder, id));
      }
      const auto token = static_cast<TokenId>(id);
      if (spec_.eos < 0) {
        spec_.eos = token;
      } else if (token != spec_.eos) {
        spec_.more_stops.push_back(token);
      }
    }
    return {};
  }

  // What the post-processor puts around a text. tokenizer_config.json may overrule it.
  Status frame() {
    bool begins = false;
    bool ends = false;
    BATON_ASSIGN(const auto steps, steps_of(root_, "post_processor", "processors"));
    for (const JsonValue& step : steps) {
      BATON_ASSIGN(const auto type, step.string_or("type", ""));
      if (type == "ByteLevel") {
        continue;  // moves offsets only
      }
      if (type != "TemplateProcessing") {
        return step.bad(fmt::format("post-processor {} is not supported", shown(type)));
      }
      BATON_ASSIGN(const auto single, step.at("single"));
      BATON_ASSIGN(const auto parts, single.to_array());
      bool text_seen = false;
      for (const auto item : parts) {
        const JsonValue part(item, single.place());
        const auto special = part.find("SpecialToken");
        if (!special) {
          text_seen = true;
          continue;
        }
        BATON_ASSIGN(const auto name, special->string_or("id", ""));
        const TokenId id = id_of(name);
        TokenId& wanted = text_seen ? spec_.eos : spec_.bos;
        wanted = wanted < 0 ? id : wanted;
        bool& flag = text_seen ? ends : begins;
        if (id < 0 || id != wanted || flag) {
          return single.bad(fmt::format("{} is not the one BOS or EOS token", shown(name)));
        }
        flag = true;
      }
    }
    if (config_) {
      BATON_ASSIGN(begins, config_->bool_or("add_bos_token", begins));
      BATON_ASSIGN(ends, config_->bool_or("add_eos_token", ends));
    }
    spec_.add_bos = begins && spec_.bos >= 0;
    spec_.add_eos = ends && spec_.eos >= 0;
    return {};
  }

  Status chat_template() {
    if (files_.chat_template) {
      spec_.chat_template = *files_.chat_template;
      return {};
    }
    const auto value = config_ ? config_->find("chat_template") : std::nullopt;
    if (!value) {
      return {};
    }
    if (!value->is_array()) {
      BATON_ASSIGN(spec_.chat_template, value->to_string());
      return {};
    }
    BATON_ASSIGN(const auto list, value->to_array());
    for (const auto item : list) {
      const JsonValue named(item, value->place());
      BATON_ASSIGN(const auto name, named.string_or("name", ""));
      if (name == "default") {
        BATON_ASSIGN(spec_.chat_template, named.string_or("template", ""));
      }
    }
    return {};
  }

  // Ids beyond the embedding's rows (of pictures, say) can never be computed with.
  Status cut_to_embedding() {
    const std::size_t rows = files_.vocab_size;
    if (rows == 0 || spec_.tokens.size() <= rows) {
      return {};
    }
    const auto beyond = [rows](TokenId id) { return static_cast<std::uint64_t>(id) >= rows; };
    for (const TokenId id : {spec_.bos, spec_.eos, spec_.unknown}) {
      if (id >= 0 && beyond(id)) {
        return fail(ErrorCode::InvalidModel,
                    fmt::format("{}: token {} of tokenizer.json is beyond the {} rows of the "
                                "embedding",
                                files_.folder,
                                id,
                                rows));
      }
    }
    spec_.tokens.resize(rows);
    spec_.kinds.resize(rows);
    spec_.scores.resize(std::min(spec_.scores.size(), rows));
    std::erase_if(spec_.strip_left, beyond);
    std::erase_if(spec_.strip_right, beyond);
    std::erase_if(spec_.more_stops, beyond);
    return {};
  }

  const HfTokenizerFiles& files_;
  const JsonValue& root_;
  std::optional<JsonValue> config_;
  std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>> ids_;
  std::unordered_set<TokenId> added_;
  std::uint64_t id_limit_ = 0;
  TokenizerSpec spec_;
};

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(const HfTokenizerFiles& files) {
  BATON_ASSIGN(const auto doc, JsonDoc::parse(files.tokenizer, files.folder + "/tokenizer.json"));
  std::optional<JsonDoc> config_doc;
  std::optional<JsonValue> config;
  if (files.config) {
    BATON_ASSIGN(config_doc,
                 JsonDoc::parse(*files.config, files.folder + "/tokenizer_config.json"));
    config = config_doc->root();
  }
  const JsonValue root = doc.root();
  return Reader(files, root, std::move(config)).read();
}

}  // namespace baton::engine

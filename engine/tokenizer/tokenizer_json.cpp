#include "engine/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/json/json_doc.h"
#include "engine/tokenizer/hf_vocabulary.h"
#include "engine/tokenizer/sentencepiece_bpe.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

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
    BATON_TRY(vocabulary_.read(model, root_.find("added_tokens")));
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
    return vocabulary_.scores_from_merges(model);
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
        if (text != kSpaceMark) {
          return step.bad("only \"▁\" may be prepended");
        }
        spec_.add_space_prefix = true;
      } else if (type == "Replace" && !replaced) {
        BATON_ASSIGN(const auto pattern, step.at("pattern"));
        BATON_ASSIGN(const auto from, pattern.string_or("String", ""));
        BATON_ASSIGN(const auto to, step.string_or("content", ""));
        if (from != " " || to != kSpaceMark) {
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
    BATON_ASSIGN(const auto replacement, step.string_or("replacement", kSpaceMark));
    BATON_ASSIGN(const bool split, step.bool_or("split", true));
    BATON_ASSIGN(const bool prefix, step.bool_or("add_prefix_space", true));
    BATON_ASSIGN(const auto scheme, step.string_or("prepend_scheme", prefix ? "always" : "never"));
    if (replacement != kSpaceMark || split) {
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
      return text.empty() ? TokenId{-1} : vocabulary_.id_of(text);
    };
    BATON_ASSIGN(spec_.bos, named("bos_token"));
    BATON_ASSIGN(spec_.eos, named("eos_token"));
    BATON_ASSIGN(const auto unknown, model.string_or("unk_token", ""));
    if (spec_.model == "llama" && !unknown.empty()) {
      spec_.unknown = vocabulary_.id_of(unknown);
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
        const TokenId id = vocabulary_.id_of(name);
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
  TokenizerSpec spec_;
  HfVocabulary vocabulary_{spec_};
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

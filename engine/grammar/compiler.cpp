#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/json/json_escape.h"
#include "engine/grammar/compiled_grammar.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/messages.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/structural_tag.h"
#include "engine/grammar/text_check.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::engine {
namespace {

// The library guards its own recursion by this depth; more does not fit a thread's stack.
constexpr int kRecursion = 1000;
constexpr std::string_view kAnyObject = R"({"type":"object"})";
constexpr std::size_t kMessageBytes = 300;                  // of a message of the library
constexpr std::size_t kMaskBytes = std::size_t{256} << 10;  // of a grammar, as a rule

std::string_view title_of(Grammar::Kind kind) {
  switch (kind) {
    case Grammar::Kind::Regex:
      return "the regular expression";
    case Grammar::Kind::Ebnf:
      return "the grammar";
    case Grammar::Kind::StructuralTag:
      return "the structural tag";
    default:
      return "the schema";
  }
}

Error refused(Grammar::Kind kind, std::string_view why) {
  // The library prints the condition it checked before its sentence.
  if (const std::size_t at = why.find(") is false: "); at != std::string_view::npos) {
    why.remove_prefix(at + std::string_view(") is false: ").size());
  }
  return {ErrorCode::InvalidArgument,
          fmt::format("{} is not supported: {}", title_of(kind), why.substr(0, kMessageBytes))};
}

// Runs what may throw or warn; a warning says that something would be ignored.
template <class Function>
auto guarded(Grammar::Kind kind, Function function) -> Result<decltype(function())> {
  const WarningWatch watch;
  try {
    auto value = function();
    if (!watch.first().empty()) {
      return std::unexpected(refused(kind, watch.first()));
    }
    return value;
  } catch (const std::exception& error) {
    return std::unexpected(refused(kind, error.what()));
  }
}

xgrammar::Grammar from_schema(const std::string& schema) {
  return xgrammar::Grammar::FromJSONSchema(
      schema, /*any_whitespace=*/false, std::nullopt, std::nullopt, /*strict_mode=*/true);
}

xgrammar::Grammar from_tag(const std::string& tag) {
  auto parsed = xgrammar::Grammar::FromStructuralTag(tag);
  if (auto* grammar = std::get_if<xgrammar::Grammar>(&parsed)) {
    return std::move(*grammar);
  }
  throw std::runtime_error(std::visit([](const auto& error) { return std::string(error.what()); },
                                      std::get<xgrammar::StructuralTagError>(parsed)));
}

// An expression that is not read as one of the text within a JSON string would be one of bytes, and
// could end the string.
Status check_patterns(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    std::string schema = R"({"type":"string","pattern":)";
    append_json_string(schema, pattern);
    BATON_ASSIGN(const xgrammar::Grammar grammar,
                 guarded(Grammar::Kind::JsonSchema, [&] { return from_schema(schema + "}"); }));
    if (grammar.ToString().find("json_string=true)") == std::string::npos) {
      return fail(ErrorCode::InvalidArgument,
                  fmt::format("the pattern '{}' is not supported: no string of JSON matches it "
                              "without escapes",
                              pattern.substr(0, kMessageBytes)));
    }
  }
  return {};
}

// Checks the bounds, then reads the text.
Result<xgrammar::Grammar> parse(const Grammar& grammar) {
  NormalSchema normal{.text = grammar.text, .patterns = {}};
  if (grammar.kind == Grammar::Kind::Json) {
    BATON_ASSIGN(normal, normalise_schema(kAnyObject));
  } else if (grammar.kind == Grammar::Kind::JsonSchema) {
    BATON_ASSIGN(normal, normalise_schema(grammar.text));
  } else if (grammar.kind == Grammar::Kind::Regex) {
    BATON_TRY(check_regex(grammar.text, TextLimits::kRegexExpanded, title_of(grammar.kind)));
  } else if (grammar.kind == Grammar::Kind::Ebnf) {
    BATON_TRY(check_rules(grammar.text));
  } else if (grammar.kind == Grammar::Kind::StructuralTag) {
    BATON_ASSIGN(normal, normalise_structural_tag(grammar.text));
  }
  BATON_TRY(check_patterns(normal.patterns));
  return guarded(grammar.kind, [&] {
    switch (grammar.kind) {
      case Grammar::Kind::Regex:
        return xgrammar::Grammar::FromRegex(normal.text);
      case Grammar::Kind::Ebnf:
        return xgrammar::Grammar::FromEBNF(normal.text);
      case Grammar::Kind::StructuralTag:
        return from_tag(normal.text);
      default:
        return from_schema(normal.text);
    }
  });
}

Result<xgrammar::CompiledGrammar> compile_by(xgrammar::GrammarCompiler& compiler,
                                             const Grammar& grammar) {
  BATON_CHECK(grammar.kind != Grammar::Kind::None, "no grammar to compile");
  static const bool is_bounded = [] {
    xgrammar::SetMaxRecursionDepth(kRecursion);
    return true;
  }();
  BATON_CHECK(is_bounded, "set once");
  BATON_ASSIGN(const xgrammar::Grammar parsed, parse(grammar));
  return guarded(grammar.kind, [&] { return compiler.CompileGrammar(parsed); });
}

// One thread, ours: its errors come here. Masks are made when an output first needs them, so that
// what no output visits costs nothing. Masks of equal rules are shared between grammars; whole
// grammars we keep ourselves.
xgrammar::GrammarCompiler make_compiler(const xgrammar::TokenizerInfo& vocabulary,
                                        std::size_t cache_bytes) {
  return xgrammar::GrammarCompiler(vocabulary,
                                   /*max_threads=*/1,
                                   /*cache_enabled=*/cache_bytes > 0,
                                   static_cast<std::int64_t>(cache_bytes),
                                   /*enable_dynamic_compilation=*/true);
}

// A raw control character has no place in JSON, but the library lets most of them into strings with
// a length; a line break is kept for what stands around JSON in a structural tag.
bool fits_json(std::string_view token) {
  return std::ranges::none_of(
      token, [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; });
}

bool is_json(Grammar::Kind kind) {
  return kind != Grammar::Kind::Regex && kind != Grammar::Kind::Ebnf;
}

// Bytes of every token in running text; nothing for tokens that are no text.
Result<std::vector<std::string>> read_tokens(const Tokenizer& tokenizer, std::uint32_t vocab_size) {
  const std::vector<TokenKind>& kinds = tokenizer.spec().kinds;
  std::vector<std::string> tokens(std::min<std::size_t>(vocab_size, tokenizer.vocab_size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool is_text =
        i >= kinds.size() || (kinds[i] != TokenKind::Unused && kinds[i] != TokenKind::Unknown);
    if (is_text) {
      tokens[i] = tokenizer.token_bytes(static_cast<TokenId>(i), false);
    }
  }
  return tokens;
}

}  // namespace

Status check_grammar(const Grammar& grammar) {
  static const xgrammar::TokenizerInfo nothing(
      {}, xgrammar::VocabType::RAW, std::nullopt, std::vector<std::int32_t>{});
  xgrammar::GrammarCompiler compiler = make_compiler(nothing, 0);
  BATON_ASSIGN(const xgrammar::CompiledGrammar compiled, compile_by(compiler, grammar));
  BATON_ASSIGN(const std::size_t places, guarded(grammar.kind, [&] {
                 return count_places(xgrammar::GrammarMatcher(compiled));
               }));
  if (places > most_places(grammar.kind)) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} is too ambiguous: an output may begin at {} places in it; the "
                            "limit is {}",
                            title_of(grammar.kind),
                            places,
                            most_places(grammar.kind)));
  }
  return {};
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
CompiledGrammar::~CompiledGrammar() = default;

std::size_t CompiledGrammar::bytes() const {
  return impl_->bytes;
}

struct GrammarCompiler::Impl {
  using Compiled = std::shared_ptr<const CompiledGrammar>;
  struct Entry {
    std::string key;
    Compiled grammar;
  };

  // The two compilers, made when the first grammar comes.
  struct Compilers {
    xgrammar::GrammarCompiler json;
    xgrammar::GrammarCompiler text;
  };

  Status read_vocabulary() {
    BATON_ASSIGN(TokenizerSpec spec, TokenizerSpec::parse(tokenizer));
    BATON_ASSIGN(const auto built, Tokenizer::create(std::move(spec)));
    BATON_ASSIGN(std::vector<std::string> tokens, read_tokens(*built, vocab_size));
    const auto ends = built->stop_tokens();
    const std::vector<std::int32_t> stops(ends.begin(), ends.end());
    const auto compiler = [&] {
      return make_compiler(
          xgrammar::TokenizerInfo(
              tokens, xgrammar::VocabType::RAW, static_cast<int>(vocab_size), stops),
          limits.cache_bytes);
    };
    BATON_ASSIGN(compilers, guarded(Grammar::Kind::None, [&]() -> std::optional<Compilers> {
                   auto text = compiler();
                   for (std::string& token : tokens) {
                     token = fits_json(token) ? token : "";
                   }
                   return Compilers{.json = compiler(), .text = std::move(text)};
                 }));
    return {};
  }

  Result<xgrammar::CompiledGrammar> compile(const Grammar& grammar) {
    const std::lock_guard lock(compile_mutex);
    if (!compilers) {
      BATON_TRY(read_vocabulary());
    }
    return compile_by(is_json(grammar.kind) ? compilers->json : compilers->text, grammar);
  }

  Compiled find(const std::string& key) {
    const std::lock_guard lock(mutex);
    const auto found = by_key.find(key);
    if (found == by_key.end()) {
      return nullptr;
    }
    entries.splice(entries.begin(), entries, found->second);
    return found->second->grammar;
  }

  void keep(std::string key, Compiled grammar) {
    const std::lock_guard lock(mutex);
    if (by_key.contains(key)) {
      return;
    }
    bytes += grammar->bytes() + key.size();
    entries.push_front({std::move(key), std::move(grammar)});
    by_key[entries.front().key] = entries.begin();
    while (bytes > limits.cache_bytes && entries.size() > 1) {
      const Entry& oldest = entries.back();
      bytes -= oldest.grammar->bytes() + oldest.key.size();
      by_key.erase(oldest.key);
      entries.pop_back();
    }
  }

  const std::string_view tokenizer;
  const std::uint32_t vocab_size;
  const GrammarLimits limits;

  std::mutex compile_mutex;  // guards what follows
  std::optional<Compilers> compilers;

  std::mutex mutex;                                                         // guards what follows
  std::list<Entry> entries;                                                 // the last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key;  // keys of `entries`
  std::size_t bytes = 0;
};

namespace {

std::string key_of(const Grammar& grammar) {
  return std::to_string(static_cast<int>(grammar.kind)) + ":" + grammar.text;
}

}  // namespace

GrammarCompiler::GrammarCompiler(std::string_view tokenizer,
                                 std::uint32_t vocab_size,
                                 GrammarLimits limits)
    : impl_(new Impl{.tokenizer = tokenizer, .vocab_size = vocab_size, .limits = limits}) {}
GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<const CompiledGrammar> GrammarCompiler::find(const Grammar& grammar) {
  return impl_->find(key_of(grammar));
}

Result<std::shared_ptr<const CompiledGrammar>> GrammarCompiler::compile(const Grammar& grammar) {
  std::string key = key_of(grammar);
  if (auto found = impl_->find(key)) {
    return found;
  }
  BATON_ASSIGN(xgrammar::CompiledGrammar compiled, impl_->compile(grammar));
  // Its masks come later, as outputs visit its states.
  const std::size_t bytes = kMaskBytes + compiled.MemorySizeBytes();
  auto shared =
      std::make_shared<const CompiledGrammar>(std::make_unique<const CompiledGrammar::Impl>(
          CompiledGrammar::Impl{.grammar = std::move(compiled),
                                .bytes = bytes,
                                .most_places = most_places(grammar.kind)}));
  impl_->keep(std::move(key), shared);
  return shared;
}

}  // namespace baton::engine

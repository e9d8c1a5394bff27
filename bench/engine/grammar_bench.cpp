#include "bench/engine/grammar_bench.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <fstream>
#include <random>
#include <utility>

#include "engine/grammar/grammar.h"
#include "engine/model/model_file.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSchemas = std::to_array<const char*>({
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"]})",
    R"({"type": "array", "items": {"type": "object", "properties": {
        "id": {"type": "string", "format": "uuid"}, "tags": {"type": "array", "items":
        {"enum": ["red", "green", "blue"]}, "maxItems": 4}}, "required": ["id", "tags"]},
        "minItems": 1, "maxItems": 5})",
    R"({"type": "object", "properties": {"when": {"type": "string", "format": "date-time"},
        "price": {"type": "number", "minimum": 0, "maximum": 1000}, "code": {"type": "string",
        "pattern": "^[A-Z]{3}-[0-9]{4}$"}}, "required": ["when", "price", "code"]})",
    R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "value": {"type": "integer"}, "next": {"anyOf": [{"type": "null"},
        {"$ref": "#/$defs/node"}]}}, "required": ["value", "next"]}}})",
    R"({"type": "object"})",
});

class Samples {
 public:
  // Runs `function` and keeps its time.
  template <class Function>
  auto time(Function function) {
    const auto start = Clock::now();
    auto value = function();
    us_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    return value;
  }
  std::size_t size() const { return us_.size(); }
  Spread spread() const { return spread_of(us_); }

 private:
  std::vector<double> us_;
};

Result<std::vector<std::string>> read_schemas(const std::string& path) {
  if (path.empty()) {
    return std::vector<std::string>(kSchemas.begin(), kSchemas.end());
  }
  std::ifstream in(path);
  if (!in) {
    return fail(ErrorCode::NotFound, fmt::format("cannot open the file {}", path));
  }
  std::vector<std::string> schemas;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) {
      schemas.push_back(line);
    }
  }
  if (schemas.empty()) {
    return fail(ErrorCode::InvalidArgument, fmt::format("{} has no schema", path));
  }
  return schemas;
}

// Writes one random output. A model mostly takes a likely token, here the longest of some: so
// strings are words, and end.
class Walk {
 public:
  Walk(const engine::Tokenizer& tokenizer, std::uint64_t seed)
      : tokenizer_(tokenizer), random_(seed) {}

  void run(const std::shared_ptr<const engine::CompiledGrammar>& grammar,
           std::size_t longest,
           Samples& masks,
           Samples& accepts) {
    engine::GrammarMatcher matcher(grammar);
    std::vector<std::uint32_t> words(matcher.num_words());
    for (std::size_t i = 0; i < longest && !matcher.is_terminated(); ++i) {
      const bool is_masked = masks.time([&] { return matcher.fill(words); });
      const TokenId token = choose(words, is_masked);
      if (!accepts.time([&] { return matcher.accept(token); })) {
        return;
      }
    }
  }

 private:
  TokenId choose(const std::vector<std::uint32_t>& words, bool is_masked) {
    allowed_.clear();
    for (std::size_t token = 0; token < tokenizer_.vocab_size(); ++token) {
      if (!is_masked || (words[token / 32] >> (token % 32) & 1U) != 0) {
        allowed_.push_back(static_cast<TokenId>(token));
      }
    }
    TokenId best = allowed_.empty() ? 0 : allowed_[random_() % allowed_.size()];
    for (int i = 0; i < 3 && !allowed_.empty(); ++i) {
      const TokenId other = allowed_[random_() % allowed_.size()];
      const std::string_view bytes = tokenizer_.token_bytes(other, false);
      if (bytes.starts_with('"') || bytes.starts_with('}') || bytes.starts_with(']')) {
        best = other;
      }
    }
    if (random_() % 8 == 0) {
      for (const TokenId token : allowed_) {
        if (tokenizer_.token_bytes(token, false) == "\"") {
          best = token;
        }
      }
    }
    return best;
  }

  const engine::Tokenizer& tokenizer_;
  std::mt19937_64 random_;
  std::vector<TokenId> allowed_;
};

}  // namespace

Result<GrammarBenchResult> run_grammar_bench(const GrammarBenchOptions& options) {
  BATON_ASSIGN(const std::vector<std::string> schemas, read_schemas(options.schemas));
  BATON_ASSIGN(const auto file, engine::ModelFile::open(options.model));
  BATON_ASSIGN(engine::TokenizerSpec spec, file->tokenizer_spec());
  const std::string bytes = spec.serialize();
  BATON_ASSIGN(const auto tokenizer, engine::Tokenizer::create(std::move(spec)));
  GrammarBenchResult result;
  result.vocab_size = tokenizer->vocab_size();
  engine::GrammarCompiler compiler(bytes, static_cast<std::uint32_t>(result.vocab_size));
  Samples first;
  Samples compiles;
  Samples checks;
  Samples masks;
  Samples accepts;
  Walk walk(*tokenizer, 1);
  for (std::size_t i = 0; i < schemas.size(); ++i) {
    const Grammar grammar{.kind = Grammar::Kind::JsonSchema, .text = schemas[i]};
    if (const Status checked = checks.time([&] { return engine::check_grammar(grammar); });
        !checked) {
      return fail(checked.error().code, fmt::format("schema {}: {}", i, checked.error().message));
    }
    BATON_ASSIGN(const auto compiled,
                 (i == 0 ? first : compiles).time([&] { return compiler.compile(grammar); }));
    for (std::size_t output = 0; output < options.outputs; ++output) {
      walk.run(compiled, options.longest, masks, accepts);
    }
  }
  result.schemas = schemas.size();
  result.tokens = masks.size();
  result.first_ms = first.spread().p50 / 1e3;
  result.compile = compiles.spread();
  result.check = checks.spread();
  result.mask = masks.spread();
  result.accept = accepts.spread();
  return result;
}

std::string to_json(const GrammarBenchResult& result) {
  const auto object = [](const Spread& value) {
    return fmt::format(R"({{"p50_us":{:.1f},"p99_us":{:.1f},"largest_us":{:.1f}}})",
                       value.p50,
                       value.p99,
                       value.max);
  };
  return fmt::format(
      R"({{"vocab_size":{},"schemas":{},"tokens":{},"first_ms":{:.1f},"compile":{},"check":{},)"
      R"("mask":{},"accept":{}}})",
      result.vocab_size,
      result.schemas,
      result.tokens,
      result.first_ms,
      object(result.compile),
      object(result.check),
      object(result.mask),
      object(result.accept));
}

}  // namespace baton::bench

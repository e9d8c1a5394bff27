#include "bench/engine/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <vector>

#include "bench/engine/loaded_model.h"
#include "common/base/fixed_math.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::bench {
namespace {

// Rows of logits held at once: a row of a large vocabulary is a megabyte.
constexpr std::size_t kRows = 64;

Result<std::string> read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return fail(ErrorCode::NotFound, fmt::format("cannot open the text file {}", path));
  }
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) {
    return fail(ErrorCode::IoError, fmt::format("cannot read {}", path));
  }
  return text;
}

// Negative log-likelihoods, summed.
struct Score {
  double sum = 0;
  double squares = 0;
  std::size_t tokens = 0;

  double perplexity() const { return std::exp(sum / static_cast<double>(tokens)); }
  double standard_error() const {
    if (tokens < 2) {
      return 0;
    }
    const auto n = static_cast<double>(tokens);
    const double mean = sum / n;
    const double variance = squares / n - mean * mean;
    return variance > 0 ? std::sqrt(variance / (n - 1)) * perplexity() : 0;
  }
};

// Scores the second half of one chunk: [tokens].
void score_chunk(LoadedModel& model, std::span<const TokenId> chunk, Score& score) {
  const std::size_t vocab = model.runner().info().vocab_size;
  const std::size_t first = chunk.size() / 2;
  model.prefill(0, chunk.first(first), 0, nullptr);
  std::vector<float> weights(vocab);
  for (std::size_t at = first; at + 1 < chunk.size(); at += kRows) {
    const std::size_t count = std::min(kRows, chunk.size() - 1 - at);
    const std::vector<float> logits =
        model.runner().logits(model.slice(0, chunk.subspan(at, count), at), model.arena());
    for (std::size_t i = 0; i < count; ++i) {
      const float* row = logits.data() + i * vocab;
      const float best = *std::max_element(row, row + vocab);
      const double log_sum =
          static_cast<double>(best) + fixed_log(fixed_exp_row(row, vocab, -best, weights.data()));
      const double loss = log_sum - static_cast<double>(row[chunk[at + i + 1]]);
      score.sum += loss;
      score.squares += loss * loss;
      ++score.tokens;
    }
  }
}

}  // namespace

Result<PerplexityResult> run_perplexity(const PerplexityOptions& options) {
  if (options.context < 4) {
    return fail(ErrorCode::InvalidArgument, "the context must be at least 4 tokens");
  }
  BATON_ASSIGN(const auto text, read_text(options.text_file));
  BATON_ASSIGN(auto model,
               LoadedModel::load({.model = options.model,
                                  .backend = options.backend,
                                  .threads = options.threads,
                                  .float_path = options.float_path,
                                  .tokens = options.context,
                                  .kv_dtype = options.kv_dtype}));
  BATON_ASSIGN(auto spec, model.file().tokenizer_spec());
  const bool add_bos = spec.add_bos;
  const TokenId bos = spec.bos;
  BATON_ASSIGN(const auto tokenizer, engine::Tokenizer::create(std::move(spec)));
  const std::vector<TokenId> tokens = tokenizer->encode(text, false, true);
  const std::size_t context = options.context;
  if (tokens.size() < 2 * context) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} has {} tokens; at least two chunks of {} are needed",
                            options.text_file,
                            tokens.size(),
                            context));
  }
  auto chunks = static_cast<unsigned>(tokens.size() / context);
  if (options.chunks != 0) {
    chunks = std::min(chunks, options.chunks);
  }
  Score score;
  std::vector<TokenId> chunk;
  for (unsigned i = 0; i < chunks; ++i) {
    const auto start = tokens.begin() + static_cast<std::ptrdiff_t>(i * context);
    chunk.assign(start, start + static_cast<std::ptrdiff_t>(context));
    if (add_bos) {
      chunk[0] = bos;
    }
    score_chunk(model, chunk, score);
    if (options.progress) {
      options.progress(
          fmt::format("chunk {} of {}: perplexity {:.4f}", i + 1, chunks, score.perplexity()));
    }
  }
  return PerplexityResult{score.perplexity(), score.standard_error(), score.tokens, chunks};
}

}  // namespace baton::bench

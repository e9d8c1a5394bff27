#include "node/grammars.h"

#include <fmt/format.h>

#include <utility>

namespace baton::node {
namespace {

Result<std::shared_ptr<engine::GrammarMask>> make_mask(engine::GrammarCompiler& compiler,
                                                       const Grammar& grammar,
                                                       const std::vector<TokenId>& output,
                                                       std::chrono::nanoseconds quick) {
  BATON_ASSIGN(auto compiled, compiler.compile(grammar));
  auto mask = std::make_shared<engine::GrammarMask>(std::move(compiled), quick);
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (!mask->accept(output[i])) {
      return fail(
          ErrorCode::InvalidArgument,
          fmt::format("the request's grammar does not allow token {} of its output so far", i));
    }
  }
  mask->want();
  mask->fill_wanted();
  return mask;
}

}  // namespace

Grammars::Grammars(Executor& control,
                   Executor& compiling,
                   Executor& masks,
                   std::string_view tokenizer,
                   std::uint32_t vocab_size,
                   std::chrono::nanoseconds quick)
    : control_(control),
      compiling_(compiling),
      masks_(masks),
      quick_(quick),
      compiler_(std::make_shared<engine::GrammarCompiler>(tokenizer, vocab_size)) {}

void Grammars::warm(const Grammar& grammar) {
  if (grammar.kind == Grammar::Kind::None || compiler_->find(grammar) != nullptr) {
    return;
  }
  compiling_.post([compiler = compiler_, grammar] { (void)compiler->compile(grammar); });
}

void Grammars::make(const Grammar& grammar, std::vector<TokenId> output, Made made) {
  compiling_.post([&control = control_,
                   compiler = compiler_,
                   grammar,
                   output = std::move(output),
                   quick = quick_,
                   made = std::move(made)]() mutable {
    auto mask = make_mask(*compiler, grammar, output, quick);
    control.post(
        [mask = std::move(mask), made = std::move(made)]() mutable { made(std::move(mask)); });
  });
}

void Grammars::prepare(const std::shared_ptr<engine::GrammarMask>& mask) {
  if (!mask->is_ready()) {
    mask->want();
    lane_of(*mask).post([mask] { mask->fill_wanted(); });
  }
}

void Grammars::when_ready(const std::shared_ptr<engine::GrammarMask>& mask, Task ready) {
  // Behind the task that makes it, whose lane it has as long as that has not ended.
  lane_of(*mask).post([&control = control_, mask, ready = std::move(ready)]() mutable {
    mask->fill_wanted();
    control.post(std::move(ready));
  });
}

}  // namespace baton::node

// The grammars of a node's requests: compiled off the strand, shared by requests that ask for the
// same, and their masks made off the engine thread; hard ones beside the compilations, so that
// others' masks do not wait for them.
//
// Owner: the host; roles borrow it. Thread: control strand; compiling and masks run on executors of
// their own, so that a quick mask never waits for a compilation. Failure: InvalidArgument for a
// grammar that does not compile, or does not fit the output that a request brings along.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "common/exec/executor.h"
#include "common/types/request.h"
#include "engine/grammar/grammar.h"
#include "engine/step/grammar_mask.h"

namespace baton::node {

class Grammars {
 public:
  using Made = std::move_only_function<void(Result<std::shared_ptr<engine::GrammarMask>>)>;

  // `tokenizer` and `vocab_size`: see GrammarCompiler; `quick`: see GrammarMask.
  Grammars(Executor& control,
           Executor& compiling,
           Executor& masks,
           std::string_view tokenizer,
           std::uint32_t vocab_size,
           std::chrono::nanoseconds quick = engine::kQuickMask);
  Grammars(const Grammars&) = delete;
  Grammars& operator=(const Grammars&) = delete;
  ~Grammars() = default;

  // Compiles what will be asked for soon. No-op for no grammar.
  void warm(const Grammar& grammar);
  // A mask that has accepted `output` and is ready for what follows; `made` runs on the strand,
  // later. REQUIRES: there is a grammar.
  void make(const Grammar& grammar, std::vector<TokenId> output, Made made);
  // Makes the mask of the next step while its pass runs, unless it is ready.
  void prepare(const std::shared_ptr<engine::GrammarMask>& mask);
  // A mask that was prepared was late: `ready` runs on the strand once it is there.
  void when_ready(const std::shared_ptr<engine::GrammarMask>& mask, Task ready);

 private:
  Executor& lane_of(const engine::GrammarMask& mask) {
    return mask.is_hard() ? compiling_ : masks_;
  }

  Executor& control_;
  Executor& compiling_;
  Executor& masks_;
  const std::chrono::nanoseconds quick_;
  // Tasks on their way share it.
  const std::shared_ptr<engine::GrammarCompiler> compiler_;
};

}  // namespace baton::node

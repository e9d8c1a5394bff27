// One client of a gateway, which keeps what it was given and knows what it should be given: the
// tokens of an undisturbed run. It may stop early, or leave.
//
// Owner: the cluster, shared with the tracker. Thread: the simulation's; called on its gateway's
// strand. Failure: a wrong, repeated or late token, or a second end, fails the world.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gateway/requests/answer_sink.h"
#include "tests/sim/plan.h"
#include "tests/sim/world.h"

namespace baton::sim {

enum class ClientEnd : std::uint8_t {
  None,       // not over
  Whole,      // every token
  Stopped,    // stopped by itself, with a part
  Error,      // the gateway said so
  Cancelled,  // it left
  Lost,       // its gateway died
};
std::string_view to_string(ClientEnd end);

class Client final : public gateway::AnswerSink {
 public:
  // What it may ask of its gateway, later, on the gateway's strand.
  struct Wishes {
    std::function<void(bool want_figures)> stop;
    std::function<void()> cancel;
  };
  Client(World& world, ClientPlan plan, std::vector<TokenId> expected);

  void start(Wishes wishes);
  void leave();         // as a client that closes its connection
  void gateway_died();  // if it is not over yet

  void on_tokens(TokenEvent event) override;
  void on_end(gateway::AnswerEnd end) override;

  const ClientPlan& plan() const { return plan_; }
  ClientEnd end() const { return end_; }
  bool is_over() const { return end_ != ClientEnd::None; }
  bool has_started() const { return wishes_.has_value(); }
  TimePoint started() const { return started_; }
  TimePoint ended() const { return ended_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  // With ClientEnd::Error.
  const gateway::ApiError& error() const { return *error_; }
  const gateway::AnswerFigures& figures() const { return figures_; }

 private:
  void finish(ClientEnd end);
  void broken(const std::string& what);

  World& world_;
  const ClientPlan plan_;
  const std::vector<TokenId> expected_;
  std::optional<Wishes> wishes_;
  TimePoint started_{};
  TimePoint ended_{};
  bool has_stopped_ = false;
  ClientEnd end_ = ClientEnd::None;
  std::vector<TokenId> tokens_;
  std::optional<gateway::ApiError> error_;
  gateway::AnswerFigures figures_;
};

}  // namespace baton::sim

#include "tests/sim/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace baton::sim {

std::string_view to_string(ClientEnd end) {
  switch (end) {
    case ClientEnd::None:
      return "not over";
    case ClientEnd::Whole:
      return "whole";
    case ClientEnd::Stopped:
      return "stopped";
    case ClientEnd::Error:
      return "error";
    case ClientEnd::Cancelled:
      return "cancelled";
    case ClientEnd::Lost:
      return "lost";
  }
  return "unknown";
}

Client::Client(World& world, ClientPlan plan, std::vector<TokenId> expected)
    : world_(world), plan_(std::move(plan)), expected_(std::move(expected)) {}

void Client::broken(const std::string& what) {
  world_.fail(fmt::format("request {}: {}", plan_.request.id.value, what));
}

void Client::start(Wishes wishes) {
  wishes_ = std::move(wishes);
  started_ = world_.now();
}

void Client::leave() {
  if (!is_over()) {
    finish(ClientEnd::Cancelled);
    wishes_->cancel();
  }
}

void Client::gateway_died() {
  if (has_started() && !is_over()) {
    finish(ClientEnd::Lost);
  }
}

void Client::finish(ClientEnd end) {
  end_ = end;
  ended_ = world_.now();
  if (world_.is_verbose()) {
    world_.note(fmt::format("request {} is over: {}, {} of {} tokens{}",
                            plan_.request.id.value,
                            to_string(end),
                            tokens_.size(),
                            expected_.size(),
                            error_ ? fmt::format(", {}: {}", error_->code, error_->message) : ""));
  }
}

void Client::on_tokens(TokenEvent event) {
  if (end_ == ClientEnd::Cancelled) {
    return;  // on its way when it left
  }
  if (is_over()) {
    return broken("tokens after the end");
  }
  if (event.index != tokens_.size()) {
    return broken(fmt::format(
        "{} tokens are out and the next event begins at {}", tokens_.size(), event.index));
  }
  for (const TokenId token : event.tokens) {
    if (tokens_.size() >= expected_.size() || expected_[tokens_.size()] != token) {
      return broken(fmt::format("token {} is {}, and {} in an undisturbed run",
                                tokens_.size(),
                                token,
                                tokens_.size() < expected_.size()
                                    ? fmt::to_string(expected_[tokens_.size()])
                                    : "beyond the end"));
    }
    tokens_.push_back(token);
  }
  if (plan_.stop_after > 0 && tokens_.size() >= plan_.stop_after && !has_stopped_) {
    has_stopped_ = true;
    wishes_->stop(plan_.wants_figures);
  }
  if (plan_.cancel_after_tokens > 0 && tokens_.size() >= plan_.cancel_after_tokens) {
    leave();
  }
}

void Client::on_end(gateway::AnswerEnd end) {
  if (end_ == ClientEnd::Cancelled) {
    return;
  }
  if (is_over()) {
    return broken("a second end");
  }
  figures_ = end.figures;
  if (end.error) {
    error_ = std::move(end.error);
    return finish(ClientEnd::Error);
  }
  if (tokens_.size() == expected_.size()) {
    return finish(ClientEnd::Whole);
  }
  if (!has_stopped_) {
    broken(fmt::format("it ended well with {} of {} tokens", tokens_.size(), expected_.size()));
  }
  finish(ClientEnd::Stopped);
}

}  // namespace baton::sim

#include "common/rpc/handshake.h"

#include <fmt/format.h>

#include <utility>

#include "common/wire/convert.h"

namespace baton {
namespace {

constexpr std::chrono::seconds kTellEvery{10};

}  // namespace

Greeter::Greeter(Executor& executor,
                 HelloHandler on_hello,
                 AcceptHandler on_accept,
                 std::chrono::milliseconds timeout,
                 std::size_t max_pending,
                 RefusedProbe refused,
                 const Logger* log)
    : executor_(executor),
      on_hello_(std::move(on_hello)),
      on_accept_(std::move(on_accept)),
      timeout_(timeout),
      max_pending_(max_pending),
      refused_(refused),
      log_(log) {}

void Greeter::add(std::unique_ptr<Channel> channel) {
  if (stopped_) {
    return;
  }
  if (pending_.size() >= max_pending_) {
    turn_oldest_away();
  }
  ++stats_.accepted;
  const auto number = ++last_;
  const auto self = weak_from_this();
  channel->set_handlers(
      [self, number](wire::Frame frame) {
        if (const auto greeter = self.lock()) {
          greeter->first_frame(number, std::move(frame));
        }
      },
      [self, number](const Error& error) {
        if (const auto greeter = self.lock()) {
          greeter->lost(number, error);
        }
      });
  auto& pending = pending_[number];
  pending.channel = std::move(channel);
  pending.timer = executor_.call_after(timeout_, [self, number] {
    if (const auto greeter = self.lock()) {
      ++greeter->stats_.timed_out;
      greeter->refused_.late.add();
      if (const auto late = greeter->take(number)) {
        greeter->tell(late->remote(), "it did not say who it is in time");
      }
    }
  });
}

// Before its Hello.
void Greeter::lost(std::uint64_t number, const Error& error) {
  const auto channel = take(number);
  const bool is_malformed = error.code == ErrorCode::ProtocolError;
  if (!is_malformed && error.code != ErrorCode::Unauthorized) {
    return;  // it left
  }
  ++(is_malformed ? stats_.malformed : stats_.untrusted);
  (is_malformed ? refused_.malformed : refused_.untrusted).add();
  if (channel != nullptr) {
    tell(channel->remote(), error.message);
  }
}

void Greeter::turn_oldest_away() {
  const auto oldest = take(pending_.begin()->first);
  ++stats_.turned_away;
  refused_.crowd.add();
  tell(oldest->remote(), "others came, and too many have not said yet who they are");
  oldest->abort({ErrorCode::Busy, "no place without a Hello"});  // at once, not after a linger
}

void Greeter::tell(const std::string& remote, const std::string& why) {
  ++untold_;
  if (log_ == nullptr || (told_ != TimePoint{} && executor_.now() - told_ < kTellEvery)) {
    return;
  }
  told_ = executor_.now();
  log_->warn("control connections turned away: {}, the last from {}: {}",
             std::exchange(untold_, 0),
             remote,
             why);
}

void Greeter::first_frame(std::uint64_t number, wire::Frame frame) {
  auto channel = take(number);
  if (channel == nullptr) {
    return;
  }
  if (!frame.has_hello()) {
    ++stats_.malformed;
    refused_.malformed.add();
    tell(channel->remote(), "its first frame is no Hello");
    return;
  }
  auto answer = on_hello_(frame.hello());
  wire::Frame reply;
  if (auto* const refusal = std::get_if<wire::Refusal>(&answer)) {
    ++stats_.refused;
    refused_.hello.add();
    *reply.mutable_refusal() = std::move(*refusal);
    channel->send(std::move(reply));
    return;  // dropping the channel closes it once the refusal is out
  }
  ++stats_.welcomed;
  *reply.mutable_welcome() = std::move(std::get<wire::Welcome>(answer));
  channel->send(std::move(reply));
  channel->set_handlers({}, {});
  on_accept_(std::move(channel), std::move(*frame.mutable_hello()));
}

void Greeter::stop() {
  stopped_ = true;
  const auto dropped = std::exchange(pending_, {});
}

std::unique_ptr<Channel> Greeter::take(std::uint64_t number) {
  const auto found = pending_.find(number);
  if (found == pending_.end()) {
    return nullptr;
  }
  auto channel = std::move(found->second.channel);
  pending_.erase(found);
  return channel;
}

std::shared_ptr<HelloExchange> HelloExchange::start(std::unique_ptr<Channel> channel,
                                                    wire::Hello hello,
                                                    DialHandler done) {
  auto exchange = std::make_shared<HelloExchange>();
  exchange->channel_ = std::move(channel);
  exchange->done_ = std::move(done);
  const std::weak_ptr<HelloExchange> weak = exchange;
  exchange->channel_->set_handlers(
      [weak](wire::Frame frame) {
        if (const auto self = weak.lock()) {
          self->answered(std::move(frame));
        }
      },
      [weak](Error error) {
        if (const auto self = weak.lock()) {
          error.message =
              fmt::format("{} before its Welcome: {}", self->channel_->remote(), error.message);
          if (error.code == ErrorCode::PeerDead) {
            error.message += " (it ends so where one side alone has cluster.tls)";
          }
          self->finish(std::unexpected(std::move(error)));
        }
      });
  wire::Frame frame;
  *frame.mutable_hello() = std::move(hello);
  exchange->channel_->send(std::move(frame));
  return exchange;
}

void HelloExchange::cancel() {
  done_ = {};
  channel_.reset();
}

void HelloExchange::answered(wire::Frame frame) {
  if (frame.has_refusal()) {
    auto error = from_refusal(frame.refusal());
    error.message = fmt::format("{} refused: {}", channel_->remote(), error.message);
    finish(std::unexpected(std::move(error)));
  } else if (frame.has_welcome()) {
    channel_->set_handlers({}, {});
    finish(Dialed{std::move(channel_), std::move(*frame.mutable_welcome())});
  } else {
    finish(fail(
        ErrorCode::ProtocolError,
        fmt::format("{} answered Hello with neither Welcome nor Refusal", channel_->remote())));
  }
}

void HelloExchange::finish(Result<Dialed> result) {
  const auto done = std::exchange(done_, {});
  channel_.reset();
  if (done) {
    done(std::move(result));
  }
}

}  // namespace baton

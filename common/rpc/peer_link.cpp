#include "common/rpc/peer_link.h"

#include <algorithm>
#include <utility>

namespace baton {

PeerLink::PeerLink(Executor& executor,
                   Network& network,
                   RandomSource random,
                   PeerLinkOptions options,
                   PeerLinkHandlers handlers)
    : executor_(executor),
      network_(network),
      random_(std::move(random)),
      options_(std::move(options)),
      handlers_(std::move(handlers)) {}

PeerLink::~PeerLink() {
  stop();
}

void PeerLink::start() {
  if (!running_) {
    running_ = true;
    dial();
  }
}

void PeerLink::stop() {
  running_ = false;
  timer_.cancel();
  dial_.reset();
  channel_.reset();
}

void PeerLink::reset(const Error& why) {
  if (channel_ != nullptr) {
    channel_->abort(why);
  }
}

void PeerLink::dial() {
  dial_ = network_.dial(options_.address,
                        handlers_.make_hello(),
                        options_.dial_timeout,
                        [this](Result<Dialed> result) { dialed(std::move(result)); });
}

void PeerLink::dialed(Result<Dialed> result) {
  dial_.reset();
  if (!result) {
    const auto& error = result.error();
    const bool refused = error.code == ErrorCode::Mismatch || error.code == ErrorCode::Unauthorized;
    dial_later(refused);
    if (handlers_.on_failed) {
      handlers_.on_failed(error);
    }
    return;
  }
  failures_ = 0;
  channel_ = std::move(result->channel);
  channel_->set_handlers(
      [this](wire::Frame frame) { handlers_.on_frame(*channel_, std::move(frame)); },
      [this](const Error& error) { lost(error); });
  handlers_.on_up(*channel_, result->welcome);
}

void PeerLink::lost(const Error& why) {
  const Error error = why;  // `why` may live in the channel
  channel_.reset();
  dial_later(false);
  handlers_.on_down(error);
}

void PeerLink::dial_later(bool longest) {
  if (!running_) {
    return;
  }
  constexpr std::uint32_t kDoublings = 16;
  auto pause = options_.longest_pause;
  if (!longest) {
    pause = std::min(pause, options_.first_pause * (1U << std::min(failures_, kDoublings)));
  }
  ++failures_;
  // Between half and all of the pause, so that nodes that lost one peer together return apart.
  const auto full = static_cast<std::uint64_t>(std::max<std::int64_t>(pause.count(), 2));
  const std::chrono::milliseconds jittered(full / 2 + random_() % (full - full / 2 + 1));
  timer_ = executor_.call_after(jittered, [this] { dial(); });
}

}  // namespace baton

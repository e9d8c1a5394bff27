#include "transfer/entries.h"

namespace baton::transfer {

void LeaseEntry::expect(const Sent& sent, Complete complete) {
  if (is_expected_) {
    complete(fail(ErrorCode::ProtocolError, "the lease has been committed before"));
    return;
  }
  is_expected_ = true;
  complete_ = std::move(complete);
  session.expect(sent);
  notify();
}

void LeaseEntry::revoke(std::function<void()> fenced) {
  session.revoke();
  if (fenced) {
    fenced_.push_back(std::move(fenced));
  }
  notify();
}

void LeaseEntry::notify() {
  if (complete_ && session.state() != ReceiverState::Open) {
    const auto complete = std::exchange(complete_, nullptr);
    switch (session.state()) {
      case ReceiverState::Complete:
        complete(LeaseReceiver::Done{
            session.bytes_landed(),
            session.bytes_landed() == 0 ? "none" : std::string(to_string(session.lane())),
            session.digest_mode()});
        break;
      case ReceiverState::Failed:
        complete(std::unexpected(*session.error()));
        break;
      default:
        complete(fail(ErrorCode::GrantRevoked, "the lease was revoked before its bytes landed"));
    }
  }
  if (session.is_fenced()) {
    for (const auto& fenced : std::exchange(fenced_, {})) {
      fenced();
    }
  }
}

void SendEntry::finish(Flushed flushed) {
  if (flushed_) {
    flushed(fail(ErrorCode::InvalidArgument, "a send is finished once"));
    return;
  }
  flushed_ = std::move(flushed);
  session.finish();
  notify();
}

void SendEntry::abort(std::function<void()> quiesced) {
  session.abort();
  if (quiesced) {
    quiesced_.push_back(std::move(quiesced));
  }
  notify();
}

void SendEntry::notify() {
  *moves_ += session.bytes_sent() - std::exchange(counted_, session.bytes_sent());
  is_waiting_ = session.is_waiting();
  if (flushed_ && session.is_over()) {
    const auto flushed = std::exchange(flushed_, nullptr);
    switch (session.state()) {
      case SenderState::Flushed:
        flushed(session.sent());
        break;
      case SenderState::Failed:
        flushed(std::unexpected(*session.error()));
        break;
      default:
        flushed(session.error() ? Result<Sent>(std::unexpected(*session.error()))
                                : fail(ErrorCode::Cancelled, "the send was aborted"));
    }
  }
  if (session.state() == SenderState::Quiesced) {
    for (const auto& quiesced : std::exchange(quiesced_, {})) {
      quiesced();
    }
  }
}

}  // namespace baton::transfer

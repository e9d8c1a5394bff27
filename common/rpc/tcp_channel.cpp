#include "common/rpc/tcp_channel.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "common/base/host_port.h"
#include "common/rpc/control_tls.h"
#include "common/wire/convert.h"

namespace baton {
namespace {

using boost::system::error_code;

constexpr std::chrono::seconds kLinger{1};
constexpr std::size_t kKeptCapacity = std::size_t{1} << 20;

void set_option(int socket, int level, int name, int value) {
  // Each makes a broken peer show sooner; a system without one works all the same.
  (void)::setsockopt(socket, level, name, &value, sizeof(value));
}

// Small frames leave at once; a host that vanished without a word is noticed within about 10 s.
void set_socket_options(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 10'000);
}

// A side that does not trust our certificate says so in place of its first bytes. `tls`: null in
// plain TCP, and once the other side has been heard. One that dies does not say goodbye in TLS.
Error ended_by(const std::string& remote, const error_code& error, ssl_st* tls) {
  const bool is_tls = error.category() == boost::asio::error::get_ssl_category() ||
                      error.category() == boost::asio::ssl::error::get_stream_category();
  if (tls == nullptr || !is_tls || error == boost::asio::ssl::error::stream_truncated) {
    return {ErrorCode::PeerDead, fmt::format("{} is gone: {}", remote, error.message())};
  }
  // What is wrong with the other side's certificate, where that is it.
  const long verdict = SSL_get_verify_result(tls);
  return {
      ErrorCode::Unauthorized,
      fmt::format(
          "{}: TLS failed: {}{}; both sides need cluster.tls with certificates of the "
          "same authority",
          remote,
          error.message(),
          verdict == X509_V_OK ? "" : fmt::format(": {}", X509_verify_cert_error_string(verdict)))};
}

}  // namespace

std::string endpoint_text(const boost::asio::ip::tcp::endpoint& endpoint) {
  return HostPort{endpoint.address().to_string(), endpoint.port()}.to_string();
}

struct TcpConnection::Tls {
  boost::asio::ssl::stream<Socket&> stream;
};

TcpConnection::TcpConnection(AsioExecutor& executor,
                             Socket socket,
                             Side side,
                             const RpcOptions& options)
    : executor_(executor),
      executor_alive_(executor.alive()),
      socket_(std::move(socket)),
      side_(side),
      tls_(options.tls ? std::make_unique<Tls>(Tls{{socket_, options.tls->context()}}) : nullptr),
      max_queued_bytes_(options.max_queued_bytes),
      calls_(executor) {
  error_code error;
  const auto endpoint = socket_.remote_endpoint(error);
  remote_ = error ? "a closed socket" : endpoint_text(endpoint);
}

TcpConnection::~TcpConnection() = default;

ssl_st* TcpConnection::native_tls() {
  return tls_ != nullptr ? tls_->stream.native_handle() : nullptr;
}

void TcpConnection::start() {
  set_socket_options(socket_.native_handle());
  error_code ignored;
  socket_.non_blocking(true, ignored);
  if (tls_ != nullptr) {
    return shake_hands();
  }
  executor_.post([self = shared_from_this()] { self->read(); });
}

template <class Handler>
void TcpConnection::async_read(Handler handler) {
  if (tls_ != nullptr) {
    tls_->stream.async_read_some(boost::asio::buffer(input_), std::move(handler));
  } else {
    socket_.async_read_some(boost::asio::buffer(input_), std::move(handler));
  }
}

// Of `writing_`.
template <class Handler>
void TcpConnection::async_write(std::size_t from, Handler handler) {
  const auto bytes = boost::asio::buffer(writing_) + from;
  if (tls_ != nullptr) {
    boost::asio::async_write(tls_->stream, bytes, std::move(handler));
  } else {
    boost::asio::async_write(socket_, bytes, std::move(handler));
  }
}

void TcpConnection::shake_hands() {
  writing_now_ = true;  // what is sent meanwhile waits
  tls_->stream.async_handshake(side_ == Side::Dialled ? boost::asio::ssl::stream_base::client
                                                      : boost::asio::ssl::stream_base::server,
                               [self = shared_from_this()](const error_code& error) {
                                 const AsioExecutor::Turn turn(self->executor_);
                                 self->writing_now_ = false;
                                 if (error) {
                                   self->lose(ended_by(self->remote_, error, self->native_tls()));
                                   return;
                                 }
                                 self->write();
                                 self->read();
                               });
}

void TcpConnection::set_handlers(Channel::FrameHandler on_frame, Channel::ClosedHandler on_closed) {
  // The old pair may be running: whoever runs it holds a share.
  handlers_ = std::make_shared<const Handlers>(Handlers{std::move(on_frame), std::move(on_closed)});
}

void TcpConnection::send(const wire::Frame& frame) {
  if (state_ != State::Open) {
    return;
  }
  if (auto status = enqueue(frame); !status) {
    lose(std::move(status).error());
  }
}

Status TcpConnection::enqueue(const wire::Frame& frame) {
  BATON_TRY(encode_frame(frame, queued_));
  if (queued_bytes() > max_queued_bytes_) {
    lose(Error{ErrorCode::PeerStalled,
               fmt::format("{} does not read: {} bytes wait for it", remote_, queued_bytes())});
  } else {
    flush_soon();
  }
  return {};
}

void TcpConnection::call(wire::Frame frame,
                         std::chrono::milliseconds timeout,
                         Channel::AnswerHandler handler) {
  if (state_ == State::Open) {
    const auto number = calls_.open(timeout, std::move(handler));
    frame.set_call(number);
    if (auto status = enqueue(frame); !status) {
      executor_.post([self = shared_from_this(), number, error = std::move(status).error()] {
        self->calls_.fail_one(number, error);
      });
    }
    return;
  }
  executor_.post([self = shared_from_this(), handler = std::move(handler)] {
    if (self->handlers_ != nullptr) {
      handler(
          fail(ErrorCode::PeerDead, fmt::format("the connection to {} is closed", self->remote_)));
    }
  });
}

void TcpConnection::close() {
  handlers_ = nullptr;
  calls_.forget_all();
  if (state_ != State::Open) {
    return;
  }
  if (executor_alive_.expired()) {
    close_socket();
    return;
  }
  state_ = State::Lingering;
  linger_ = executor_.call_after(kLinger, [this] { close_socket(); });
  if (!writing_now_) {
    write();
  }
}

void TcpConnection::lose(Error why) {
  if (state_ != State::Open) {
    close_socket();
    return;
  }
  close_socket();
  executor_.post([self = shared_from_this(), why = std::move(why)] {
    self->calls_.fail_all(why);
    if (const auto handlers = self->handlers_; handlers != nullptr && handlers->on_closed) {
      handlers->on_closed(why);
    }
  });
}

void TcpConnection::read() {
  if (state_ == State::Closed) {
    return;
  }
  async_read([self = shared_from_this()](const error_code& error, std::size_t bytes) {
    const AsioExecutor::Turn turn(self->executor_);
    if (error) {
      self->lose(ended_by(self->remote_, error, self->greeted_ ? nullptr : self->native_tls()));
      return;
    }
    self->received(bytes);
    self->read();
  });
}

void TcpConnection::received(std::size_t bytes) {
  if (state_ != State::Open) {
    return;
  }
  decoder_.feed(std::span(input_.data(), bytes));
  while (state_ == State::Open) {
    auto next = decoder_.next();
    if (!next) {
      auto error = std::move(next).error();
      error.message = fmt::format("{}: {}", remote_, error.message);
      lose(std::move(error));
      return;
    }
    if (!*next) {
      return;
    }
    if (!std::exchange(greeted_, true)) {
      decoder_.set_limit(kMaxFrameBytes);
    }
    auto frame = std::move(**next);
    if (frame.answers() != 0) {
      calls_.finish(std::move(frame));
    } else if (const auto handlers = handlers_; handlers->on_frame) {
      handlers->on_frame(std::move(frame));
    }
  }
}

void TcpConnection::flush_soon() {
  if (!writing_now_ && !std::exchange(flush_posted_, true)) {
    // At the end of this turn, so that all frames of one turn share a write.
    executor_.post([self = shared_from_this()] {
      self->flush_posted_ = false;
      if (!self->writing_now_) {
        self->write();
      }
    });
  }
}

void TcpConnection::write() {
  if (state_ == State::Closed) {
    return;
  }
  if (queued_.empty()) {
    if (state_ == State::Lingering) {
      finish_sending();
    }
    return;
  }
  writing_.swap(queued_);
  // Mostly the socket takes all of it at once. An error comes again below.
  error_code error;
  const std::size_t taken =
      tls_ == nullptr ? socket_.write_some(boost::asio::buffer(writing_), error) : 0;
  if (!error && taken == writing_.size()) {
    written();
    if (state_ == State::Lingering) {
      finish_sending();
    }
    return;
  }
  writing_now_ = true;
  async_write(taken, [self = shared_from_this()](const error_code& failed, std::size_t) {
    self->writing_now_ = false;
    self->written();
    if (failed) {
      self->lose(Error{ErrorCode::PeerDead,
                       fmt::format("{} is gone: {}", self->remote_, failed.message())});
      return;
    }
    self->write();
  });
}

void TcpConnection::written() {
  writing_.clear();
  if (writing_.capacity() > kKeptCapacity) {
    writing_.shrink_to_fit();
  }
}

// The other side sees the end of the stream after the last frame; its own end, or the timer, closes
// the socket. Closing at once could reset the connection and lose what is on its way.
void TcpConnection::finish_sending() {
  if (!std::exchange(sending_over_, true)) {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
}

void TcpConnection::close_socket() {
  state_ = State::Closed;
  linger_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void TcpChannel::answer(const wire::Frame& question, wire::Frame reply) {
  if (question.call() != 0) {
    reply.set_answers(question.call());
    connection_->send(reply);
  }
}

void TcpChannel::answer_error(const wire::Frame& question, const Error& error) {
  wire::Frame reply;
  *reply.mutable_refusal() = to_refusal(error);
  answer(question, std::move(reply));
}

}  // namespace baton

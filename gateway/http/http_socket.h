// The socket of an HTTP connection: plain, or with a TLS session on it. The plain way is one branch
// away from the bare socket.
//
// Owner: its connection, which each handler keeps alive. Thread: the connection's I/O thread; a
// handler never runs inside the call that is given it. Failure: error codes, as of the socket; a
// broken TLS session is connection_aborted, its proper end is eof.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <span>
#include <utility>

#include "gateway/http/tls.h"

namespace baton::gateway {

class HttpSocket {
 public:
  using error_code = boost::system::error_code;

  // `certificates`: null for plain HTTP.
  HttpSocket(boost::asio::ip::tcp::socket socket, const TlsCertificates* certificates)
      : socket_(std::move(socket)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    if (certificates != nullptr) {
      tls_ = std::make_unique<TlsSession>(*certificates, socket_.native_handle());
    }
  }

  bool is_tls() const { return tls_ != nullptr; }
  template <class Option>
  void set_option(const Option& option) {
    error_code ignored;
    socket_.set_option(option, ignored);
  }

  // handler(error). REQUIRES: is_tls().
  template <class Handler>
  void async_handshake(Handler handler) {
    const auto again = [this](Handler next) { async_handshake(std::move(next)); };
    switch (tls_->handshake().outcome) {
      case TlsSession::Outcome::Done:
        return post(std::move(handler), error_code());
      case TlsSession::Outcome::WantRead:
        return wait(boost::asio::socket_base::wait_read, again, std::move(handler));
      case TlsSession::Outcome::WantWrite:
        return wait(boost::asio::socket_base::wait_write, again, std::move(handler));
      default:
        return post(std::move(handler), boost::asio::error::connection_aborted);
    }
  }

  // handler(error): `read_some` may have something.
  template <class Handler>
  void async_wait_readable(Handler handler) {
    if (tls_ && tls_->has_pending()) {
      return post(std::move(handler), error_code());
    }
    socket_.async_wait(boost::asio::socket_base::wait_read, std::move(handler));
  }

  // Does not wait: would_block when nothing is there.
  std::size_t read_some(boost::asio::mutable_buffer into, error_code& error) {
    if (!tls_) {
      return socket_.read_some(into, error);
    }
    const auto got = tls_->read({static_cast<char*>(into.data()), into.size()});
    switch (got.outcome) {
      case TlsSession::Outcome::Done:
        error = {};
        break;
      case TlsSession::Outcome::Ended:
        error = boost::asio::error::eof;
        break;
      case TlsSession::Outcome::Failed:
        error = boost::asio::error::connection_aborted;
        break;
      default:
        error = boost::asio::error::would_block;
    }
    return got.bytes;
  }

  // Does not wait: a part of `bytes` is written, or would_block; then the same bytes must come
  // again.
  std::size_t write_some(boost::asio::const_buffer bytes, error_code& error) {
    if (!tls_) {
      return socket_.write_some(bytes, error);
    }
    const auto put = tls_->write({static_cast<const char*>(bytes.data()), bytes.size()});
    switch (put.outcome) {
      case TlsSession::Outcome::Done:
        error = {};
        break;
      case TlsSession::Outcome::WantRead:
      case TlsSession::Outcome::WantWrite:
        error = boost::asio::error::would_block;
        break;
      default:
        error = boost::asio::error::connection_aborted;
    }
    return put.bytes;
  }

  // handler(error, bytes): a part of `bytes` is written. They stay where they are until then.
  template <class Handler>
  void async_write_some(boost::asio::const_buffer bytes, Handler handler) {
    if (!tls_) {
      return socket_.async_write_some(bytes, std::move(handler));
    }
    const auto again = [this, bytes](Handler next) { async_write_some(bytes, std::move(next)); };
    const auto put = tls_->write({static_cast<const char*>(bytes.data()), bytes.size()});
    switch (put.outcome) {
      case TlsSession::Outcome::Done:
        return post(std::move(handler), error_code(), put.bytes);
      case TlsSession::Outcome::WantRead:
        return wait(boost::asio::socket_base::wait_read, again, std::move(handler), std::size_t{0});
      case TlsSession::Outcome::WantWrite:
        return wait(
            boost::asio::socket_base::wait_write, again, std::move(handler), std::size_t{0});
      default:
        return post(std::move(handler), boost::asio::error::connection_aborted, std::size_t{0});
    }
  }

  // Says that nothing more comes; reading goes on.
  void shutdown_send() {
    if (tls_) {
      tls_->shutdown();
    }
    error_code ignored;
    socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  }
  void close() {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  template <class Handler, class... Values>
  void post(Handler handler, error_code error, Values... values) {
    boost::asio::post(
        socket_.get_executor(),
        [handler = std::move(handler), error, values...]() mutable { handler(error, values...); });
  }
  // `again` once the socket is ready, or the handler with the error and `values`.
  template <class Again, class Handler, class... Values>
  void wait(boost::asio::socket_base::wait_type what,
            Again again,
            Handler handler,
            Values... values) {
    socket_.async_wait(
        what, [this, again, handler = std::move(handler), values...](error_code error) mutable {
          // Closed meanwhile, the descriptor may be another connection's.
          if (error || !socket_.is_open()) {
            return handler(error ? error : boost::asio::error::operation_aborted, values...);
          }
          again(std::move(handler));
        });
  }

  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<TlsSession> tls_;  // gone before the socket
};

}  // namespace baton::gateway

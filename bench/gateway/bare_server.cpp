#include "bench/gateway/bare_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "bench/gateway/awake.h"
#include "common/exec/asio_executor.h"

namespace baton::bench {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kMaxBody = std::size_t{64} << 20;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const std::string& answer)
      : socket_(std::move(socket)), answer_(answer) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
  }
  void read() {
    parser_.emplace();
    parser_->body_limit(kMaxBody);
    http::async_read(
        socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, std::size_t) {
          if (!error) {
            self->write();
          }
        });
  }

 private:
  void write() {
    asio::async_write(
        socket_, asio::buffer(answer_), [self = shared_from_this()](error_code error, std::size_t) {
          if (!error) {
            self->read();
          }
        });
  }

  tcp::socket socket_;
  const std::string& answer_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
};

}  // namespace

Status run_bare_server(std::uint16_t port, const std::string& answer, bool awake) {
  asio::io_context context(1);
  tcp::acceptor acceptor(context);
  error_code error;
  const tcp::endpoint endpoint(asio::ip::make_address_v4("127.0.0.1"), port);
  acceptor.open(endpoint.protocol(), error);
  acceptor.set_option(asio::socket_base::reuse_address(true), error);
  acceptor.bind(endpoint, error);
  if (!error) {
    acceptor.listen(4096, error);
  }
  if (error) {
    return fail(ErrorCode::IoError, fmt::format("cannot listen on {}: {}", port, error.message()));
  }
  const std::function<void()> accept = [&] {
    acceptor.async_accept([&](error_code failed, tcp::socket socket) {
      if (!failed) {
        std::make_shared<Session>(std::move(socket), answer)->read();
        accept();
      }
    });
  };
  accept();
  AsioExecutor executor(context);
  if (awake) {
    executor.post([&] { keep_awake(executor); });
  }
  context.run();
  return {};
}

}  // namespace baton::bench

#include "common/rpc/tcp_network.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/host_port.h"
#include "common/rpc/handshake.h"
#include "common/rpc/tcp_channel.h"

namespace baton {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using Resolver = boost::asio::ip::basic_resolver<tcp, AsioExecutor::Strand>;
using Acceptor = boost::asio::basic_socket_acceptor<tcp, AsioExecutor::Strand>;

constexpr std::chrono::milliseconds kAcceptPause{50};

// resolve -> connect -> Hello -> Welcome, under one limit on time.
class TcpDialing : public std::enable_shared_from_this<TcpDialing> {
 public:
  TcpDialing(AsioExecutor& executor,
             const RpcOptions& options,
             std::string address,
             DialHandler done)
      : executor_(executor),
        options_(options),
        address_(std::move(address)),
        done_(std::move(done)),
        resolver_(executor.strand()),
        socket_(executor.strand()) {}

  void start(wire::Hello hello, std::chrono::milliseconds timeout) {
    const auto self = shared_from_this();
    timer_ = executor_.call_after(timeout, [this, timeout] {
      finish(fail(ErrorCode::Timeout,
                  fmt::format("{} did not answer within {} ms", address_, timeout.count())));
    });
    const auto parsed = HostPort::parse(address_);
    if (!parsed || parsed->port == 0) {
      executor_.post([self, parsed] {
        self->finish(parsed ? fail(ErrorCode::InvalidArgument,
                                   fmt::format("{} has no port to dial", self->address_))
                            : Result<Dialed>(std::unexpected(parsed.error())));
      });
      return;
    }
    error_code no_literal;
    const auto literal = boost::asio::ip::make_address(parsed->host, no_literal);
    if (!no_literal) {
      connect({tcp::endpoint(literal, parsed->port)}, std::move(hello));
      return;
    }
    resolver_.async_resolve(
        parsed->host,
        std::to_string(parsed->port),
        [self, hello = std::move(hello)](const error_code& error,
                                         const Resolver::results_type& found) mutable {
          if (error) {
            self->lost(error);
            return;
          }
          std::vector<tcp::endpoint> endpoints;
          for (const auto& entry : found) {
            endpoints.push_back(entry.endpoint());
          }
          self->connect(std::move(endpoints), std::move(hello));
        });
  }

  void cancel() {
    done_ = {};
    end();
  }

 private:
  void connect(std::vector<tcp::endpoint> endpoints, wire::Hello hello) {
    if (!done_) {
      return;
    }
    endpoints_ = std::move(endpoints);
    boost::asio::async_connect(socket_,
                               endpoints_,
                               [self = shared_from_this(), hello = std::move(hello)](
                                   const error_code& error, const tcp::endpoint&) mutable {
                                 if (error) {
                                   self->lost(error);
                                 } else {
                                   self->greet(std::move(hello));
                                 }
                               });
  }

  void greet(wire::Hello hello) {
    if (!done_) {
      return;
    }
    auto connection = std::make_shared<TcpConnection>(
        executor_, std::move(socket_), TcpConnection::Side::Dialled, options_);
    connection->start();
    const std::weak_ptr<TcpDialing> weak = weak_from_this();
    exchange_ = HelloExchange::start(std::make_unique<TcpChannel>(std::move(connection)),
                                     std::move(hello),
                                     [weak](Result<Dialed> result) {
                                       if (const auto self = weak.lock()) {
                                         self->finish(std::move(result));
                                       }
                                     });
  }

  void lost(const error_code& error) {
    finish(
        fail(ErrorCode::PeerDead, fmt::format("cannot reach {}: {}", address_, error.message())));
  }

  void finish(Result<Dialed> result) {
    const auto self = shared_from_this();  // the handler may drop the dial
    const auto done = std::exchange(done_, {});
    end();
    if (done) {
      done(std::move(result));
    }
  }

  void end() {
    timer_.cancel();
    resolver_.cancel();
    error_code ignored;
    socket_.close(ignored);
    if (const auto exchange = std::exchange(exchange_, nullptr)) {
      exchange->cancel();
    }
  }

  AsioExecutor& executor_;
  const RpcOptions options_;
  const std::string address_;
  DialHandler done_;  // empty once over
  Resolver resolver_;
  TcpConnection::Socket socket_;
  std::vector<tcp::endpoint> endpoints_;
  std::shared_ptr<HelloExchange> exchange_;
  TimerHandle timer_;
};

class TcpDial final : public Dial {
 public:
  explicit TcpDial(std::shared_ptr<TcpDialing> dialing) : dialing_(std::move(dialing)) {}
  TcpDial(const TcpDial&) = delete;
  TcpDial& operator=(const TcpDial&) = delete;
  ~TcpDial() override { dialing_->cancel(); }

 private:
  const std::shared_ptr<TcpDialing> dialing_;
};

class TcpAccepting : public std::enable_shared_from_this<TcpAccepting> {
 public:
  TcpAccepting(AsioExecutor& executor,
               const Logger& log,
               const RpcOptions& options,
               std::shared_ptr<Greeter> greeter)
      : executor_(executor),
        log_(log),
        options_(options),
        greeter_(std::move(greeter)),
        acceptor_(executor.strand()) {}

  Status open(const std::string& address) {
    BATON_ASSIGN(const auto parsed, HostPort::parse(address));
    const auto refused = [&](const error_code& error) {
      return fail(ErrorCode::IoError,
                  fmt::format("cannot listen on {}: {}", address, error.message()));
    };
    error_code error;
    boost::asio::ip::tcp::resolver resolver(executor_.context());
    const auto found =
        resolver.resolve(parsed.host, std::to_string(parsed.port), tcp::resolver::passive, error);
    if (error) {
      return refused(error);
    }
    const auto endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) {
      acceptor_.set_option(Acceptor::reuse_address(true), error);
    }
    if (!error) {
      acceptor_.bind(endpoint, error);
    }
    if (!error) {
      acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
    }
    if (error) {
      return refused(error);
    }
    const auto bound = acceptor_.local_endpoint(error);
    address_ = HostPort{parsed.host, bound.port()}.to_string();
    return {};
  }

  void accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](const error_code& error, TcpConnection::Socket socket) {
          self->accepted(error, std::move(socket));
        });
  }

  void stop() {
    stopped_ = true;
    timer_.cancel();
    error_code ignored;
    acceptor_.close(ignored);
    greeter_->stop();
  }

  const std::string& address() const { return address_; }
  ListenerStats stats() const { return greeter_->stats(); }

 private:
  void accepted(const error_code& error, TcpConnection::Socket socket) {
    if (stopped_) {
      return;
    }
    if (error) {
      // Out of file descriptors, mostly: try again when some may be free.
      log_.warn("cannot accept on {}: {}", address_, error.message());
      timer_ = executor_.call_after(kAcceptPause, [this] { accept(); });
      return;
    }
    auto connection = std::make_shared<TcpConnection>(
        executor_, std::move(socket), TcpConnection::Side::Accepted, options_);
    connection->start();
    greeter_->add(std::make_unique<TcpChannel>(std::move(connection)));
    accept();
  }

  AsioExecutor& executor_;
  const Logger& log_;
  const RpcOptions options_;
  const std::shared_ptr<Greeter> greeter_;
  Acceptor acceptor_;
  std::string address_;
  bool stopped_ = false;
  TimerHandle timer_;
};

class TcpListener final : public Listener {
 public:
  explicit TcpListener(std::shared_ptr<TcpAccepting> accepting)
      : accepting_(std::move(accepting)) {}
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;
  ~TcpListener() override { accepting_->stop(); }

  std::string address() const override { return accepting_->address(); }
  ListenerStats stats() const override { return accepting_->stats(); }
  void stop() override { accepting_->stop(); }

 private:
  const std::shared_ptr<TcpAccepting> accepting_;
};

}  // namespace

TcpNetwork::TcpNetwork(AsioExecutor& executor, const Logger& log, RpcOptions options)
    : executor_(executor), log_(log), options_(std::move(options)) {}

std::unique_ptr<Dial> TcpNetwork::dial(const std::string& address,
                                       wire::Hello hello,
                                       std::chrono::milliseconds timeout,
                                       DialHandler handler) {
  auto dialing = std::make_shared<TcpDialing>(executor_, options_, address, std::move(handler));
  dialing->start(std::move(hello), timeout);
  return std::make_unique<TcpDial>(std::move(dialing));
}

Result<std::unique_ptr<Listener>> TcpNetwork::listen(const std::string& address,
                                                     HelloHandler on_hello,
                                                     AcceptHandler on_accept) {
  auto greeter = std::make_shared<Greeter>(executor_,
                                           std::move(on_hello),
                                           std::move(on_accept),
                                           options_.hello_timeout,
                                           options_.max_handshakes,
                                           options_.refused,
                                           &log_);
  auto accepting = std::make_shared<TcpAccepting>(executor_, log_, options_, std::move(greeter));
  BATON_TRY(accepting->open(address));
  accepting->accept();
  return std::make_unique<TcpListener>(std::move(accepting));
}

}  // namespace baton

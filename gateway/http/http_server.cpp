#include "gateway/http/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <csignal>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/cores.h"
#include "common/base/host_port.h"
#include "common/exec/thread.h"
#include "gateway/http/http_connection.h"

namespace baton::gateway {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptPause{100};   // after running out of descriptors
constexpr std::size_t kTickConnections = 128;            // looked at in one go
constexpr std::chrono::milliseconds kLastWrites{1'000};  // for replies finished before a stop

// OpenSSL writes to sockets without MSG_NOSIGNAL; a client that has left is an error code here.
void block_broken_pipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace

struct HttpServer::Impl {
  // One I/O thread with its connections. All members but the contexts belong to that thread.
  struct Worker {
    Worker(Impl& server, std::uint32_t number, asio::io_context* shared)
        : own(shared == nullptr ? std::make_unique<asio::io_context>(1) : nullptr),
          context(own ? *own : *shared),
          thread{context,
                 server.options,
                 server.handler,
                 server.stats,
                 *server.cors,
                 [&server] { server.on_closed(); },
                 number},
          timer(context) {}

    void arm_tick() {
      if (stopped) {
        return;
      }
      const auto parts = static_cast<int>(connections.size() / kTickConnections + 1);
      timer.expires_after(asio::steady_timer::duration(thread.options.tick) / parts);
      timer.async_wait([this](boost::system::error_code error) {
        if (error) {
          return;
        }
        tick();
        arm_tick();
      });
    }
    // A part of the connections at a time: nobody waits until thousands have been looked at.
    void tick() {
      const auto now = std::chrono::steady_clock::now();
      for (auto left = std::min(connections.size(), kTickConnections); left > 0; --left) {
        next_tick = next_tick < connections.size() ? next_tick : 0;
        const auto connection = connections[next_tick].lock();
        if (connection && connection->tick(now)) {
          ++next_tick;
        } else {
          std::swap(connections[next_tick], connections.back());
          connections.pop_back();
        }
      }
    }
    void adopt(tcp::socket socket) {
      auto connection = std::make_shared<HttpConnection>(thread, std::move(socket));
      connections.push_back(connection);
      connection->start();
    }
    template <class Action>
    void for_each(Action action) {
      const auto all = connections;
      for (const auto& weak : all) {
        if (const auto connection = weak.lock()) {
          action(*connection);
        }
      }
    }

    void start() {
      if (own) {
        runner = std::jthread([this] {
          set_thread_name(fmt::format("http-{}", thread.number));
          prefer_short_turns();
          context.run();
        });
      }
      asio::post(context, [this] {
        block_broken_pipe();
        arm_tick();
      });
    }
    void stop() {
      stopped = true;
      timer.cancel();
      for_each([](HttpConnection& connection) { connection.close(); });
    }
    void join() {
      if (own) {
        context.stop();
        runner.join();
      }
    }

    const std::unique_ptr<asio::io_context> own;  // null: somebody else runs `context`
    asio::io_context& context;
    HttpThread thread;
    asio::steady_timer timer;
    std::vector<std::weak_ptr<HttpConnection>> connections;
    std::size_t next_tick = 0;  // of `connections`
    bool stopped = false;
    asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
    std::jthread runner;
  };

  Status open() {
    cors.emplace(options.cors_origins);
    const auto address = HostPort::parse(options.listen);
    if (!address) {
      return std::unexpected(address.error());
    }
    for (std::uint32_t i = 0; i < std::max(1U, options.io_threads); ++i) {
      workers.push_back(
          std::make_unique<Worker>(*this, i, i == 0 ? options.first_context : nullptr));
    }
    boost::system::error_code error;
    tcp::resolver resolver(workers[0]->context);
    const auto found = resolver.resolve(
        address->host, std::to_string(address->port), tcp::resolver::passive, error);
    if (error || found.empty()) {
      return fail(ErrorCode::InvalidArgument,
                  fmt::format("gateway.listen: cannot resolve '{}': {}",
                              options.listen,
                              error ? error.message() : "no address"));
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor.emplace(workers[0]->context);
    acceptor->open(endpoint.protocol(), error);
    if (!error) {
      acceptor->set_option(asio::socket_base::reuse_address(true), error);
    }
    if (!error) {
      acceptor->bind(endpoint, error);
    }
    if (!error) {
      acceptor->listen(4096, error);
    }
    if (error) {
      return fail(
          ErrorCode::IoError,
          fmt::format("gateway.listen: cannot listen on {}: {}", options.listen, error.message()));
    }
    local = HostPort{address->host, acceptor->local_endpoint().port()}.to_string();
    return {};
  }

  void accept() {
    Worker& worker = *workers[next_worker++ % workers.size()];
    acceptor->async_accept(worker.context,
                           [this, &worker](boost::system::error_code error, tcp::socket socket) {
                             on_accepted(worker, error, std::move(socket));
                           });
  }

  void on_accepted(Worker& worker, boost::system::error_code error, tcp::socket socket) {
    if (!acceptor->is_open()) {
      return;
    }
    if (error) {
      // Out of descriptors, most likely: accepting at once again would spin.
      accept_timer.emplace(workers[0]->context, kAcceptPause);
      accept_timer->async_wait([this](boost::system::error_code stopped) {
        if (!stopped && acceptor->is_open()) {
          accept();
        }
      });
      return;
    }
    stats.accepted.fetch_add(1, std::memory_order_relaxed);
    if (stats.open.load(std::memory_order_relaxed) >= options.max_connections) {
      stats.turned_away.fetch_add(1, std::memory_order_relaxed);
    } else if (&worker == workers[0].get()) {
      worker.adopt(std::move(socket));
    } else {
      asio::post(worker.context, [&worker, socket = std::move(socket)]() mutable {
        worker.adopt(std::move(socket));
      });
    }
    accept();
  }

  void run() {
    for (auto& worker : workers) {
      worker->start();
    }
    asio::post(workers[0]->context, [this] { accept(); });
  }

  // Runs on every I/O thread and returns when all are done.
  template <class Action>
  void on_all(Action action) {
    std::vector<std::future<void>> done;
    for (auto& worker : workers) {
      auto promise = std::make_shared<std::promise<void>>();
      done.push_back(promise->get_future());
      asio::post(worker->context, [raw = worker.get(), action, promise] {
        action(*raw);
        promise->set_value();
      });
    }
    for (auto& future : done) {
      future.wait();
    }
  }

  void close_listener() {
    asio::post(workers[0]->context, [this] {
      boost::system::error_code ignored;
      acceptor->close(ignored);
      accept_timer.reset();
    });
  }

  // Until no connection is open or `limit` has passed.
  void wait_closed(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, limit, [this] { return stats.open.load() == 0; });
  }
  void on_closed() {
    {
      const std::lock_guard lock(mutex);
      stats.open.fetch_sub(1, std::memory_order_relaxed);
    }
    changed.notify_all();
  }

  HttpServerOptions options;
  HttpHandler handler;
  HttpServerStats stats;
  std::optional<Cors> cors;  // set before the workers
  std::mutex mutex;          // with `changed`, for `drain`
  std::condition_variable changed;
  std::vector<std::unique_ptr<Worker>> workers;
  std::optional<tcp::acceptor> acceptor;           // thread 0
  std::optional<asio::steady_timer> accept_timer;  // thread 0
  std::size_t next_worker = 0;                     // thread 0
  std::string local;
  bool running = false;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  stop();
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options,
                                                      HttpHandler handler) {
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  impl->handler = std::move(handler);
  BATON_TRY(impl->open());
  impl->run();
  impl->running = true;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::string HttpServer::address() const {
  return impl_->local;
}
const HttpServerStats& HttpServer::stats() const {
  return impl_->stats;
}

void HttpServer::drain(std::chrono::milliseconds limit) {
  if (!impl_->running) {
    return;
  }
  impl_->close_listener();
  impl_->on_all([](Impl::Worker& worker) {
    worker.thread.draining = true;
    worker.for_each([](HttpConnection& connection) { connection.drain(); });
  });
  impl_->wait_closed(limit);
}

void HttpServer::stop() {
  if (!std::exchange(impl_->running, false)) {
    return;
  }
  impl_->close_listener();
  impl_->on_all([](Impl::Worker& worker) {
    worker.for_each([](HttpConnection& connection) { connection.close_when_written(); });
  });
  impl_->wait_closed(kLastWrites);
  impl_->on_all([](Impl::Worker& worker) { worker.stop(); });
  impl_->wait_closed(kLastWrites);
  // What was cancelled has its last turn before us: it was queued at the end of that turn, so a
  // second one of ours is behind it for certain.
  impl_->on_all([](Impl::Worker&) {});
  impl_->on_all([](Impl::Worker&) {});
  for (auto& worker : impl_->workers) {
    worker->join();
  }
}

}  // namespace baton::gateway

// The public HTTP/1.1 listener: one io_context and thread for each of `io_threads`, no thread a
// connection; the first may be one that others use, too. Reads requests within limits, hands each
// to the handler, writes replies in order.
//
// Owner: the composition root. Thread: start, drain, stop from one thread that is no I/O thread;
// the handler runs on I/O threads. Failure: `start` gives an Error for a bad address or a busy
// port; whatever a client does ends in an error reply or a closed connection.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "gateway/http/api_error.h"
#include "gateway/http/http_exchange.h"
#include "gateway/http/tls.h"

namespace baton::gateway {

// Looks at a request whose body is still to come; an error refuses it with the body unread. Of the
// headers it has only `authorization`.
using HttpHeadCheck = std::function<std::optional<ApiError>(const HttpRequest& head)>;

struct HttpServerOptions {
  std::string listen = "127.0.0.1:0";
  std::uint32_t io_threads = 1;
  // Of the first I/O thread, which its owner runs until this server has stopped; null: all threads
  // are the server's own.
  boost::asio::io_context* first_context = nullptr;
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::size_t max_header_bytes = std::size_t{16} << 10;
  std::size_t max_unsent_bytes = std::size_t{1} << 20;      // of a slow reader, before it is cut
  std::size_t max_pipelined_bytes = std::size_t{64} << 10;  // read ahead while a reply is in work
  std::uint32_t max_connections = 20'000;
  std::vector<std::string> cors_origins{"*"};
  HttpHeadCheck check_head;                       // may be empty; runs on I/O threads
  std::shared_ptr<TlsCertificates> certificates;  // null: plain HTTP
  std::chrono::milliseconds handshake_timeout{10'000};
  std::uint32_t max_handshakes = 256;                // in work at once, over all threads
  int send_buffer_bytes = 0;                         // of a socket; 0: the system's
  std::chrono::milliseconds header_timeout{10'000};  // first byte to whole head
  std::chrono::milliseconds body_timeout{30'000};    // grace; each 16 KiB gives a second more
  std::chrono::milliseconds idle_timeout{75'000};    // between requests; above what proxies use
  std::chrono::milliseconds write_timeout{60'000};   // without progress of a write
  std::chrono::milliseconds linger_timeout{2'000};   // reading on after a reply that closes
  std::chrono::milliseconds tick{500};
};

struct HttpServerStats {
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> turned_away{0};  // above max_connections or max_handshakes
  std::atomic<std::uint64_t> open{0};
  std::atomic<std::uint64_t> handshaking{0};  // TLS handshakes in work
  std::atomic<std::uint64_t> malformed{0};    // TLS handshakes that failed included
  std::atomic<std::uint64_t> too_large{0};
  std::atomic<std::uint64_t> timed_out{0};
  std::atomic<std::uint64_t> slow_cut{0};  // readers that were cut
  std::atomic<std::uint64_t> gone{0};      // clients that left before their reply was finished
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, HttpHandler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  // host:port with the real port.
  std::string address() const;
  const HttpServerStats& stats() const;
  // No new connections; idle ones close, each other one after its reply. Returns when none is left
  // or `limit` has passed.
  void drain(std::chrono::milliseconds limit);
  // Closes everything and joins the threads. Idempotent.
  void stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::gateway

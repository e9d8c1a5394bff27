// One HTTP request and its reply, as a handler sees it.
//
// Sequence of events: handler(exchange) -> respond, or start_stream -> write* -> finish. While the
// reply is not finished `on_silence` may run, and `on_gone` runs once when the client has left or
// was cut; afterwards writes do nothing.
//
// Owner: shared by the connection and the handler's work; the connection lets go when the reply is
// finished or the client gone. Thread: the connection's I/O thread, except `post` (any thread).
// Failure: none to handle.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/exec/executor.h"

namespace baton::gateway {

struct HttpRequest {
  std::string method;
  std::string path;                                          // decoded, without query
  std::string query;                                         // raw
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  TimePoint received;  // when the whole body was there

  // The first header of that lower-case name, or empty.
  std::string_view header(std::string_view name) const;
};

using HttpHeaders = std::vector<std::pair<std::string_view, std::string>>;

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  // For whatever reply comes, errors included. REQUIRES: nothing sent yet.
  virtual void add_headers(const HttpHeaders& headers) = 0;
  // Gives the body away; it is large and read once.
  virtual std::string take_body() = 0;

  // The whole reply. REQUIRES: nothing sent yet.
  virtual void respond(int status, HttpHeaders headers, std::string body) = 0;
  // Head of a reply of unknown length. REQUIRES: nothing sent yet.
  virtual void start_stream(int status, HttpHeaders headers) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;
  virtual bool is_started() const = 0;
  // False once the client has left or was cut.
  virtual bool is_open() const = 0;

  virtual void set_on_gone(std::function<void()> on_gone) = 0;
  // Runs whenever nothing has been written for `limit`, give or take half a second.
  virtual void set_on_silence(Duration limit, std::function<void()> on_silence) = 0;
  // Runs `task` on the I/O thread of this exchange, inside this call where this is it. What it
  // writes goes out at its end.
  virtual void post(Task task) = 0;
  // The number of that thread, from 0.
  virtual std::uint32_t io_thread() const = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace baton::gateway

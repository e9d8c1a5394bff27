// A blocking HTTP client that shows the bytes: for tests that send broken, slow, split or pipelined
// requests and look at exact replies.
//
// Owner: a test. Thread: one. Failure: reads give up after a limit and return what came.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace baton::testing {

struct RawReply {
  int status = 0;
  std::string head;  // with the status line
  std::string body;  // chunks joined
  bool complete = false;
  std::string header(std::string_view name) const;  // empty when absent
};

class RawHttpClient {
 public:
  // `address`: host:port. `receive_buffer`: of the socket, 0: the system's.
  explicit RawHttpClient(const std::string& address, int receive_buffer = 0);
  RawHttpClient(const RawHttpClient&) = delete;
  RawHttpClient& operator=(const RawHttpClient&) = delete;
  ~RawHttpClient();

  bool is_connected() const { return socket_ >= 0; }
  void send(std::string_view bytes);
  // The next reply, with all of its body.
  RawReply read_reply(std::chrono::milliseconds limit = std::chrono::seconds(10));
  // Reads until `text` has come in the raw bytes; what came is kept for read_reply. False: it did
  // not come.
  bool wait_for(std::string_view text, std::chrono::milliseconds limit = std::chrono::seconds(10));
  // True once the other side has closed, with what came before thrown away.
  bool wait_closed(std::chrono::milliseconds limit = std::chrono::seconds(10));
  void shutdown_send();
  void close();
  const std::string& raw() const { return buffer_; }

 private:
  // False at the end of the connection or of time.
  bool fill(std::chrono::steady_clock::time_point until);

  int socket_ = -1;
  bool ended_ = false;
  std::string buffer_;
};

// A request with Content-Length and Host.
std::string http_request(std::string_view method,
                         std::string_view path,
                         std::string_view body = {},
                         std::string_view more_headers = {});
RawReply http_call(const std::string& address,
                   std::string_view method,
                   std::string_view path,
                   std::string_view body = {},
                   std::string_view more_headers = {});
// The `data: ` payloads of a stream.
std::vector<std::string> sse_events(std::string_view body);

}  // namespace baton::testing

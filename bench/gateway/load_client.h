// An HTTP client that loads a server: many connections on one thread, requests sent when they are
// due whether earlier ones were answered or not (an open loop), times taken by the kernel that got
// the bytes, so that a busy client does not count as a slow server.
//
// Thread: one. Failure: Unavailable when the server cannot be reached; a broken or missing answer
// is an answer with `is_whole` false.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cluster/stamped_socket.h"
#include "common/base/error.h"
#include "common/base/host_port.h"
#include "common/base/random.h"

namespace baton::bench {

struct LoadAnswer {
  std::uint64_t tag = 0;  // as given to `send`
  int status = 0;         // 0: none came
  Nanoseconds due = 0;    // when it should have been sent
  Nanoseconds sent = 0;
  Nanoseconds first = 0;    // the first byte of the body
  Nanoseconds last = 0;     // the last one
  std::uint64_t marks = 0;  // times the mark was seen in the body
  bool has_retry_after = false;
  bool is_whole = false;

  // Microseconds.
  double first_us() const { return static_cast<double>(first - sent) * 1e-3; }
  double late_us() const { return static_cast<double>(sent - due) * 1e-3; }
};

class LoadClient {
 public:
  // `mark`: text that is counted in bodies; empty: nothing is.
  LoadClient(HostPort server, std::string mark);
  ~LoadClient();
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Sends one request on an idle connection, or on a new one.
  Status send(std::string request, std::uint64_t tag, Nanoseconds due);
  // Receives until `until`; with `until_idle` at most until every answer is there.
  Status receive(Nanoseconds until, bool until_idle = false);
  // Requests at random moments, `rate` a second on average, for `seconds`; then waits up to
  // `patience_s` for what is out. `make` gives the request of a tag, from 0.
  Status open_loop(double rate,
                   double seconds,
                   double patience_s,
                   const RandomSource& random,
                   const std::function<std::string(std::uint64_t)>& make);
  // Keeps `width` requests out for `seconds`, then waits for the rest.
  Status closed_loop(unsigned width,
                     double seconds,
                     double patience_s,
                     const std::function<std::string(std::uint64_t)>& make);

  std::size_t in_flight() const { return busy_; }
  // Seen in bodies so far, those of unfinished answers included.
  std::uint64_t marks() const { return marks_; }
  // What was answered since the last call; requests in flight are not in it.
  std::vector<LoadAnswer> take_answers();
  // Ends requests in flight: each becomes an answer that is not whole.
  void give_up();
  // Raw bytes of the last answer, head and body, for a server that repeats them.
  const std::string& last_bytes() const { return last_bytes_; }
  void keep_bytes(bool keep) { keep_bytes_ = keep; }

 private:
  struct Connection;

  Result<Connection*> open();
  void read(Connection& connection);
  void write(Connection& connection);
  void finish(Connection& connection, bool is_whole);

  const HostPort server_;
  const std::string mark_;
  int epoll_ = -1;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> idle_;
  std::size_t busy_ = 0;
  std::uint64_t marks_ = 0;
  bool keep_bytes_ = false;
  std::string last_bytes_;
  std::vector<LoadAnswer> answers_;
};

// POST of a JSON body to /v1/chat/completions on a connection that stays.
std::string chat_post(const HostPort& server, std::string_view body);

}  // namespace baton::bench

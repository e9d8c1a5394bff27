// Many streamed answers of an OpenAI server at once, driven by one thread that does next to
// nothing: it keeps the bytes and the time at which the kernel got them, and understands them
// afterwards. So a busy machine's late scheduling of the client does not count as a late token.
//
// Thread: one. Failure: Unavailable when nobody answers; an answer that is not a stream of tokens
// gives an Error with what it says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/cluster/stamped_socket.h"
#include "common/base/error.h"
#include "common/base/host_port.h"

namespace baton::bench {

// An event of a stream that brought text or tokens.
struct StreamEvent {
  Nanoseconds at = 0;
  std::string text;
  std::vector<std::int64_t> token_ids;  // where the server tells them
};

struct StreamAnswer {
  Nanoseconds sent = 0;
  std::vector<StreamEvent> events;
  Nanoseconds ended = 0;  // when the last byte came
  bool is_whole = false;  // it came to its end
  // As the server's usage says; 0: it does not.
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
};

class StreamClient {
 public:
  // `path`: completions or chat completions; `bearer`: API key, may be empty.
  explicit StreamClient(HostPort server,
                        std::string path = "/v1/completions",
                        std::string bearer = "");
  ~StreamClient();
  StreamClient(const StreamClient&) = delete;
  StreamClient& operator=(const StreamClient&) = delete;

  // Posts `body`; gives the stream's number.
  Result<std::size_t> start(const std::string& body);
  // Receives until `until`, or until every open stream has ended.
  Status run_until(Nanoseconds until);
  // Receives until stream `number` has brought `events` events or ended. Timeout after `limit`.
  Status wait_for(std::size_t number, std::size_t events, Nanoseconds limit);
  // Leaves the stream: the server sees its client go.
  void leave(std::size_t number);
  Result<StreamAnswer> answer(std::size_t number) const;
  // Of HTTP; 0 while none has come.
  int status(std::size_t number) const;
  bool has_ended(std::size_t number) const;
  // Drops what the stream has kept; it has no answer from then on.
  void forget(std::size_t number);

 private:
  struct Stream;

  Status receive(Nanoseconds until);

  const HostPort server_;
  const std::string path_;
  const std::string bearer_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace baton::bench

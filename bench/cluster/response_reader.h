// Reads one HTTP/1.1 response from bytes as they come: head, then a body of known length, in
// chunks, or up to the end of the connection. It keeps nothing of the body; what belongs to it is
// handed on.
//
// Thread: one owner. Failure: bytes that are no such response make it `broken`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace baton::bench {

class ResponseReader {
 public:
  using OnBody = std::function<void(std::string_view)>;

  // Takes bytes up to the end of the response and gives how many; the rest is of the next one.
  std::size_t feed(std::string_view bytes, const OnBody& on_body);
  // The server has closed: a body whose length nobody told is whole.
  void end() { state_ = state_ == State::BodyToEnd ? State::Done : state_; }
  void reset() { *this = ResponseReader(); }

  bool is_done() const { return state_ == State::Done; }
  bool is_broken() const { return state_ == State::Broken; }
  bool has_head() const { return status_ != 0; }
  int status() const { return status_; }
  bool has_retry_after() const { return retry_after_; }

 private:
  enum class State : std::uint8_t {
    Head,
    Body,
    BodyToEnd,
    ChunkSize,
    ChunkData,
    ChunkEnd,
    Trailer,
    Done,
    Broken
  };

  void read_head();
  // The whole line in `line_`, without its end, once it has come; what was used of `bytes`.
  bool take_line(std::string_view bytes, std::size_t& used);

  State state_ = State::Head;
  int status_ = 0;
  bool retry_after_ = false;
  std::uint64_t left_ = 0;  // of the body or the chunk
  std::string line_;        // head, or a chunk's size
};

}  // namespace baton::bench

#include "bench/cluster/response_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

namespace baton::bench {
namespace {

constexpr std::size_t kMostHead = 64 * 1024;

// The value of a header in a head whose names were made lower case; empty when it is not there.
std::string_view value_of(std::string_view head, std::string_view name) {
  const std::string key = "\r\n" + std::string(name) + ":";
  const std::size_t at = head.find(key);
  if (at == std::string_view::npos) {
    return {};
  }
  std::string_view rest = head.substr(at + key.size());
  rest = rest.substr(0, rest.find("\r\n"));
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

template <class Number>
bool to_number(std::string_view text, Number& value, int base) {
  return std::from_chars(text.data(), text.data() + text.size(), value, base).ec == std::errc();
}

}  // namespace

void ResponseReader::read_head() {
  std::ranges::transform(
      line_, line_.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view head = line_;
  const bool is_http = head.starts_with("http/1.") && head.size() > 12;
  if (!is_http || !to_number(head.substr(9, 3), status_, 10)) {
    state_ = State::Broken;
    return;
  }
  retry_after_ = !value_of(head, "retry-after").empty();
  const std::string_view length = value_of(head, "content-length");
  if (value_of(head, "transfer-encoding") == "chunked") {
    state_ = State::ChunkSize;
  } else if (length.empty()) {
    left_ = std::numeric_limits<std::uint64_t>::max();
    state_ = State::BodyToEnd;
  } else {
    state_ = !to_number(length, left_, 10) ? State::Broken : left_ == 0 ? State::Done : State::Body;
  }
  line_.clear();
}

bool ResponseReader::take_line(std::string_view bytes, std::size_t& used) {
  const std::size_t end = bytes.find('\n', used);
  const std::size_t stop = end == std::string_view::npos ? bytes.size() : end;
  line_ += bytes.substr(used, stop - used);
  used = std::min(stop + 1, bytes.size());
  if (end == std::string_view::npos) {
    return false;
  }
  if (line_.ends_with('\r')) {
    line_.pop_back();
  }
  return true;
}

std::size_t ResponseReader::feed(std::string_view bytes, const OnBody& on_body) {
  std::size_t used = 0;
  while (used < bytes.size() && state_ != State::Done && state_ != State::Broken) {
    switch (state_) {
      case State::Head: {
        const std::size_t before = line_.size();
        line_ += bytes.substr(used);
        const std::size_t end = line_.find("\r\n\r\n", before < 3 ? 0 : before - 3);
        if (end == std::string::npos) {
          used = bytes.size();
          state_ = line_.size() > kMostHead ? State::Broken : State::Head;
          break;
        }
        used += end + 4 - before;
        line_.resize(end + 2);
        read_head();
        break;
      }
      case State::Body:
      case State::BodyToEnd:
      case State::ChunkData: {
        const auto count =
            static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size() - used));
        on_body(bytes.substr(used, count));
        used += count;
        left_ -= count;
        if (left_ == 0) {
          state_ = state_ == State::Body ? State::Done : State::ChunkEnd;
        }
        break;
      }
      case State::ChunkSize:
        if (take_line(bytes, used)) {
          state_ = !to_number(line_, left_, 16) ? State::Broken
                   : left_ == 0                 ? State::Trailer
                                                : State::ChunkData;
          line_.clear();
        }
        break;
      case State::ChunkEnd:
        if (take_line(bytes, used)) {
          state_ = line_.empty() ? State::ChunkSize : State::Broken;
          line_.clear();
        }
        break;
      case State::Trailer:
        if (take_line(bytes, used)) {
          state_ = line_.empty() ? State::Done : State::Trailer;
          line_.clear();
        }
        break;
      case State::Done:
      case State::Broken:
        break;
    }
  }
  return used;
}

}  // namespace baton::bench

#include "bench/cluster/stream_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <string_view>

#include "bench/cluster/response_reader.h"

namespace baton::bench {
namespace {

namespace json = boost::json;

constexpr std::size_t kReceive = 64 * 1024;
constexpr std::size_t kShown = 300;

// The text an event brought, whichever field it is in.
std::string text_of(const json::value& event) {
  json::error_code bad;
  for (const char* place :
       {"/choices/0/text", "/choices/0/delta/content", "/choices/0/delta/reasoning_content"}) {
    const json::value* words = event.find_pointer(place, bad);
    if (words != nullptr && words->is_string() && !words->as_string().empty()) {
      return std::string(words->as_string());
    }
  }
  return {};
}

std::uint32_t count_at(const json::value& event, const char* place) {
  json::error_code bad;
  const json::value* number = event.find_pointer(place, bad);
  if (number == nullptr || !number->is_number()) {
    return 0;
  }
  const auto count = number->to_number<std::uint32_t>(bad);
  return bad ? 0 : count;
}

}  // namespace

struct StreamClient::Stream {
  struct Piece {
    std::size_t end = 0;  // in bytes
    Nanoseconds at = 0;
  };
  int fd = -1;
  Nanoseconds sent = 0;
  std::string bytes;
  std::vector<Piece> pieces;
  std::size_t events = 0;  // "data:" seen; cheap, for wait_for
  std::size_t looked = 0;  // bytes searched for them
  bool has_ended = false;  // by the server

  ~Stream() { close(); }
  void close() {
    if (fd >= 0) {
      ::close(fd);
      fd = -1;
    }
  }
  void count() {
    constexpr std::string_view kMark = "data: {";
    for (std::size_t at = bytes.find(kMark, looked); at != std::string::npos;
         at = bytes.find(kMark, looked)) {
      ++events;
      looked = at + kMark.size();
    }
    looked = std::max(looked, bytes.size() - std::min(bytes.size(), kMark.size() - 1));
  }
};

StreamClient::StreamClient(HostPort server, std::string path, std::string bearer)
    : server_(std::move(server)), path_(std::move(path)), bearer_(std::move(bearer)) {}
StreamClient::~StreamClient() = default;

Result<std::size_t> StreamClient::start(const std::string& body) {
  auto stream = std::make_unique<Stream>();
  BATON_ASSIGN(stream->fd, connect_to(server_));
  const std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{}"
      "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
      path_,
      server_.to_string(),
      bearer_.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", bearer_),
      body.size(),
      body);
  stream->sent = now_ns();
  for (std::size_t at = 0; at < request.size();) {
    const ssize_t count =
        ::send(stream->fd, request.data() + at, request.size() - at, MSG_NOSIGNAL);
    if (count < 0) {
      return fail(ErrorCode::Unavailable, "cannot send a request: " + reason(errno));
    }
    at += static_cast<std::size_t>(count);
  }
  streams_.push_back(std::move(stream));
  return streams_.size() - 1;
}

Status StreamClient::receive(Nanoseconds until) {
  std::vector<pollfd> watched;
  std::vector<Stream*> streams;
  for (const auto& stream : streams_) {
    if (stream->fd >= 0) {
      watched.push_back({stream->fd, POLLIN, 0});
      streams.push_back(stream.get());
    }
  }
  const Nanoseconds left = std::max<Nanoseconds>(0, until - now_ns());
  const timespec limit{left / kSecond, left % kSecond};
  if (::ppoll(watched.data(), watched.size(), &limit, nullptr) < 0 && errno != EINTR) {
    return fail(ErrorCode::IoError, "waiting for answers: " + reason(errno));
  }
  std::array<char, kReceive> buffer;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if (watched[i].revents == 0) {
      continue;
    }
    Stream& stream = *streams[i];
    Nanoseconds at = 0;
    const ssize_t count = receive_stamped(stream.fd, buffer, at);
    if (count <= 0) {
      stream.has_ended = count == 0;
      stream.close();
      continue;
    }
    stream.bytes.append(buffer.data(), static_cast<std::size_t>(count));
    stream.pieces.push_back({stream.bytes.size(), at});
    stream.count();
  }
  return {};
}

Status StreamClient::run_until(Nanoseconds until) {
  const auto any_open = [this] {
    return std::ranges::any_of(streams_, [](const auto& stream) { return stream->fd >= 0; });
  };
  while (now_ns() < until && any_open()) {
    BATON_TRY(receive(until));
  }
  return {};
}

Status StreamClient::wait_for(std::size_t number, std::size_t events, Nanoseconds limit) {
  const Nanoseconds until = now_ns() + limit;
  Stream& stream = *streams_[number];
  while (stream.events < events && stream.fd >= 0) {
    if (now_ns() >= until) {
      return fail(
          ErrorCode::Timeout,
          fmt::format(
              "a stream brought {} of {} events in {} s", stream.events, events, limit / kSecond));
    }
    BATON_TRY(receive(until));
  }
  return {};
}

void StreamClient::leave(std::size_t number) {
  streams_[number]->close();
}

int StreamClient::status(std::size_t number) const {
  ResponseReader reader;
  reader.feed(streams_[number]->bytes, [](std::string_view) {});
  return reader.status();
}

bool StreamClient::has_ended(std::size_t number) const {
  return streams_[number]->fd < 0;
}

void StreamClient::forget(std::size_t number) {
  leave(number);
  streams_[number]->bytes = {};
  streams_[number]->pieces = {};
}

Result<StreamAnswer> StreamClient::answer(std::size_t number) const {
  const Stream& stream = *streams_[number];
  const std::string_view bytes = stream.bytes;
  ResponseReader reader;
  std::string body;
  std::vector<Stream::Piece> places;  // end in the body, and when
  std::size_t from = 0;
  for (const Stream::Piece& piece : stream.pieces) {
    reader.feed(bytes.substr(from, piece.end - from), [&](std::string_view part) {
      body += part;
      places.push_back({body.size(), piece.at});
    });
    from = piece.end;
  }
  if (stream.has_ended) {
    reader.end();
  }
  if (reader.status() != 200) {
    return fail(
        ErrorCode::Unavailable,
        fmt::format("no stream came from {}: {}", server_.to_string(), bytes.substr(0, kShown)));
  }
  StreamAnswer out;
  out.sent = stream.sent;
  out.ended = stream.pieces.back().at;
  out.is_whole = reader.is_done();
  auto place = places.begin();
  const std::string_view text = body;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) {
      break;
    }
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with("data: {")) {
      continue;
    }
    json::error_code bad;
    const json::value event = json::parse(line.substr(6), bad);
    if (bad) {
      return fail(ErrorCode::ProtocolError,
                  fmt::format("not an event: {}", line.substr(0, kShown)));
    }
    if (event.find_pointer("/error", bad) != nullptr) {
      return fail(ErrorCode::Unavailable, fmt::format("the stream failed: {}", line));
    }
    out.prompt_tokens = std::max(out.prompt_tokens, count_at(event, "/usage/prompt_tokens"));
    out.completion_tokens =
        std::max(out.completion_tokens, count_at(event, "/usage/completion_tokens"));
    StreamEvent got;
    got.text = text_of(event);
    if (const json::value* ids = event.find_pointer("/choices/0/token_ids", bad);
        ids != nullptr && ids->is_array()) {
      for (const json::value& id : ids->as_array()) {
        got.token_ids.push_back(id.to_number<std::int64_t>());
      }
    }
    if (got.text.empty() && got.token_ids.empty()) {
      continue;
    }
    while (place->end < at) {
      ++place;
    }
    got.at = place->at;
    out.events.push_back(std::move(got));
  }
  return out;
}

}  // namespace baton::bench

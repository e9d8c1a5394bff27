// Frames as bytes: 4 bytes of length, little-endian, then that many bytes of a protobuf Frame.
//
// Thread: one at a time. Failure: foreign bytes give ProtocolError; after one the decoder is spent,
// since nobody knows where the next frame begins.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "common/base/error.h"
#include "common/wire/control.pb.h"

namespace baton {

inline constexpr std::size_t kMaxFrameBytes = std::size_t{4} << 20;   // without the length
inline constexpr std::size_t kMaxHelloBytes = std::size_t{64} << 10;  // the first frame
inline constexpr std::size_t kFrameHeaderBytes = 4;

// Appends the frame to `out`. InvalidArgument when it is over the limit; `out` is unchanged then.
Status encode_frame(const wire::Frame& frame, std::string& out);

// Takes bytes as they come, in any pieces, and gives whole frames. Holds at most one frame and what
// was fed with it.
class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t max_frame_bytes = kMaxFrameBytes) : max_(max_frame_bytes) {}

  void feed(std::span<const char> bytes) { buffer_.append(bytes.data(), bytes.size()); }
  // The next whole frame; nothing when more bytes are needed.
  Result<std::optional<wire::Frame>> next();
  // Bytes of an unfinished frame.
  std::size_t pending_bytes() const { return buffer_.size() - start_; }

  // For frames to come: before the handshake a small limit holds.
  void set_limit(std::size_t max_frame_bytes) { max_ = max_frame_bytes; }

 private:
  void compact();

  std::size_t max_;
  std::string buffer_;
  std::size_t start_ = 0;  // bytes of buffer_ already given
  bool broken_ = false;
};

}  // namespace baton

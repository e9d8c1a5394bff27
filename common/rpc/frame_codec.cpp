#include "common/rpc/frame_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace baton {

Status encode_frame(const wire::Frame& frame, std::string& out) {
  const std::size_t size = frame.ByteSizeLong();
  if (size > kMaxFrameBytes) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format("a control frame of {} bytes is over the limit of {}", size, kMaxFrameBytes));
  }
  for (std::size_t i = 0; i < kFrameHeaderBytes; ++i) {
    out.push_back(static_cast<char>((size >> (8 * i)) & 0xffU));
  }
  // Sizes are known by now; AppendToString would count them all again.
  const std::size_t begin = out.size();
  out.resize_and_overwrite(begin + size, [&](char* bytes, std::size_t) {  // libstdc++ 12 says more
    frame.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(bytes + begin));
    return begin + size;
  });
  return {};
}

Result<std::optional<wire::Frame>> FrameDecoder::next() {
  if (broken_) {
    return fail(ErrorCode::ProtocolError, "bytes after a broken frame");
  }
  if (pending_bytes() < kFrameHeaderBytes) {
    compact();
    return std::nullopt;
  }
  std::size_t size = 0;
  for (std::size_t i = 0; i < kFrameHeaderBytes; ++i) {
    size |= std::size_t{static_cast<unsigned char>(buffer_[start_ + i])} << (8 * i);
  }
  if (size > max_) {
    broken_ = true;
    return fail(ErrorCode::ProtocolError,
                fmt::format("a frame announces {} bytes, at most {} are allowed", size, max_));
  }
  if (pending_bytes() < kFrameHeaderBytes + size) {
    compact();
    return std::nullopt;
  }
  std::optional<wire::Frame> frame{std::in_place};
  if (!frame->ParseFromArray(buffer_.data() + start_ + kFrameHeaderBytes, static_cast<int>(size))) {
    broken_ = true;
    return fail(ErrorCode::ProtocolError, fmt::format("a frame of {} bytes is no message", size));
  }
  start_ += kFrameHeaderBytes + size;
  return frame;
}

void FrameDecoder::compact() {
  buffer_.erase(0, start_);
  start_ = 0;
}

}  // namespace baton

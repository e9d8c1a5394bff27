// What a gateway may take from a node: the tokenizer (with chat template) as bytes, piece by piece.
//
// Thread: const after building. Failure: NotFound for another name, InvalidArgument for an offset
// beyond the end.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/rpc/channel.h"
#include "common/wire/control.pb.h"

namespace baton::node {

class Artifacts {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{512} << 10;  // below the frame limit

  void add(std::string name, std::string bytes) { bytes_[std::move(name)] = std::move(bytes); }
  // Stays as long as this object. REQUIRES: it was added.
  std::string_view bytes(const std::string& name) const { return bytes_.at(name); }
  Result<wire::ArtifactChunk> piece(const wire::ArtifactRequest& request) const;
  // Answers an ArtifactRequest that came on `channel`. REQUIRES: `frame` carries one.
  void answer(Channel& channel, const wire::Frame& frame) const;

 private:
  std::map<std::string, std::string> bytes_;
};

}  // namespace baton::node

#include "node/artifacts.h"

#include <fmt/format.h>

#include <utility>

namespace baton::node {

Result<wire::ArtifactChunk> Artifacts::piece(const wire::ArtifactRequest& request) const {
  const auto found = bytes_.find(request.name());
  if (found == bytes_.end()) {
    return fail(ErrorCode::NotFound, "this node has no artifact of that name");
  }
  const std::string& bytes = found->second;
  if (request.offset() > bytes.size()) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("offset {} is beyond the end of {} at {}",
                            request.offset(),
                            found->first,
                            bytes.size()));
  }
  wire::ArtifactChunk chunk;
  chunk.set_name(found->first);
  chunk.set_offset(request.offset());
  chunk.set_total(bytes.size());
  chunk.set_data(bytes.substr(request.offset(), kPieceBytes));
  return chunk;
}

void Artifacts::answer(Channel& channel, const wire::Frame& frame) const {
  auto found = piece(frame.artifact_request());
  if (!found) {
    channel.answer_error(frame, found.error());
    return;
  }
  wire::Frame answer;
  *answer.mutable_artifact_chunk() = std::move(*found);
  channel.answer(frame, std::move(answer));
}

}  // namespace baton::node

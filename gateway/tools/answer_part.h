// An answer as its client sees it: parts in the order in which the model wrote them, and their JSON
// in a message or in the deltas of a stream.
//
// Thread: plain values and functions. Failure: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace baton::gateway {

struct AnswerPart {
  enum class Kind : std::uint8_t { Content, Reasoning, CallBegin, CallArguments };
  Kind kind = Kind::Content;
  std::uint32_t call = 0;  // which call, from 0
  std::string text;        // of CallBegin the function's name
  std::string id;          // CallBegin alone
  bool operator==(const AnswerPart&) const = default;
};

using AnswerParts = std::vector<AnswerPart>;

// Adds text to the last part when it is of this kind and call, else as a new part.
void add_part(AnswerParts& parts, AnswerPart::Kind kind, std::uint32_t call, std::string_view text);

// The value of "delta" in a chunk that carries this part.
void append_delta(std::string& out, const AnswerPart& part);
// The keys "content", "refusal" and, where there are such parts, "reasoning_content" and
// "tool_calls" of a whole message; content is null beside calls when no text was written.
void append_message_fields(std::string& out, std::span<const AnswerPart> parts);

}  // namespace baton::gateway

#include "gateway/tools/answer_text.h"

#include <fmt/format.h>

namespace baton::gateway {

AnswerText::AnswerText(const AnswerTextOptions& options, RequestId request, std::uint32_t choice)
    : finish_as_calls_(options.finish_as_calls),
      short_ids_(options.tools == ToolFormat::Mistral),
      request_(request),
      choice_(choice) {
  if (options.reasoning) {
    splitter_.emplace(options.reasoning_open);
  }
  if (options.tools) {
    parser_.emplace(*options.tools, options.calls);
  }
}

void AnswerText::push(std::string_view text) {
  if (!splitter_) {
    return push_content(text);
  }
  std::string reasoning;
  std::string content;
  splitter_->push(text, reasoning, content);
  add_part(parts_, AnswerPart::Kind::Reasoning, 0, reasoning);
  push_content(content);
}

void AnswerText::flush(bool is_cut) {
  if (splitter_) {
    std::string reasoning;
    std::string content;
    splitter_->flush(reasoning, content);
    add_part(parts_, AnswerPart::Kind::Reasoning, 0, reasoning);
    push_content(content);
  }
  if (parser_) {
    parser_->flush(parts_, is_cut);
    name_calls();
  }
}

void AnswerText::push_content(std::string_view text) {
  if (!parser_) {
    return add_part(parts_, AnswerPart::Kind::Content, 0, text);
  }
  parser_->push(text, parts_);
  name_calls();
}

void AnswerText::name_calls() {
  for (AnswerPart& part : parts_) {
    if (part.kind == AnswerPart::Kind::CallBegin && part.id.empty()) {
      part.id = fmt::format("call_{:016x}{:02x}{:04x}", request_.value, choice_, part.call);
      if (short_ids_) {
        part.id = short_call_id(part.id);
      }
    }
  }
}

std::string short_call_id(std::string_view id) {
  constexpr std::size_t kLength = 9;
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  if (id.size() == kLength) {
    return std::string(id);
  }
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : id) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  std::string out;
  for (std::size_t i = 0; i < kLength; ++i, hash /= kDigits.size()) {
    out += kDigits[hash % kDigits.size()];
  }
  return out;
}

}  // namespace baton::gateway

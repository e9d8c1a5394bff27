// Takes the reasoning between <think> tags out of an answer's text. Reasoning is only what the
// answer begins with; the prompt may have opened the tag already. White space next to the tags
// belongs to neither side.
//
// Thread: one owner. Failure: none; text without tags passes as it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace baton::gateway {

class ReasoningSplitter {
 public:
  // `open`: the prompt ends inside of a <think> tag.
  explicit ReasoningSplitter(bool open) : open_(open) {}

  // Appends what is decided to either text. A tag that is not whole yet is held back.
  void push(std::string_view text, std::string& reasoning, std::string& content);
  // What is left when the answer ends.
  void flush(std::string& reasoning, std::string& content);

  // Whether text pushed so far ends inside of reasoning.
  bool is_inside() const { return state_ == State::Inside || (state_ == State::Start && open_); }

 private:
  enum class State : std::uint8_t { Start, Inside, Gap, Outside };

  bool at_start();  // true: the state has changed
  bool inside(std::string& reasoning);

  State state_ = State::Start;
  const bool open_;
  bool begun_ = false;  // some reasoning was given
  std::string held_;    // not given yet
};

}  // namespace baton::gateway

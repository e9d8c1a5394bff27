#include "gateway/tools/call_parser.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "gateway/tools/text_scan.h"

namespace baton::gateway {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";
constexpr std::size_t kMaxHead = 160;  // name, id and marks before the arguments

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

// Of "f", "f[ARGS]" or "f[CALL_ID]x[ARGS]".
std::string_view name_of(std::string_view head) {
  if (head.ends_with(kArgs)) {
    head.remove_suffix(kArgs.size());
  }
  return head.substr(0, head.find(kCallId));
}

}  // namespace

CallParser::CallParser(ToolFormat format, CallOptions options)
    : syntax_(syntax_of(format)), options_(std::move(options)) {}

void CallParser::push(std::string_view text, AnswerParts& out) {
  if (is_finished()) {
    return;
  }
  text_ += text;
  run(out, false);
}

void CallParser::flush(AnswerParts& out) {
  run(out, true);
  while (!text_.empty()) {
    if (state_ == State::Content || state_ == State::Done) {
      take(text_.size(), out);
    } else if (call_open_) {
      text_.clear();  // cut off inside of its arguments, which went out as far as they got
    } else {
      no_call(out);
      run(out, true);
    }
  }
}

void CallParser::run(AnswerParts& out, bool at_end) {
  while (!is_finished()) {
    Step step = Step::Wait;
    switch (state_) {
      case State::Content:
        step = content(out, at_end) ? Step::Again : Step::Wait;
        break;
      case State::Opened:
        step = opened();
        break;
      case State::Named:
        step = named();
        break;
      case State::NamedObject:
      case State::Object:
        step = object(out);
        break;
      case State::Done:
        step = done(out);
        break;
    }
    if (step == Step::Wait) {
      return;
    }
    if (step == Step::NoCall) {
      no_call(out);
    }
  }
}

void CallParser::take(std::size_t count, AnswerParts& out) {
  add_part(out, Kind::Content, 0, std::string_view(text_).substr(0, count));
  text_.erase(0, count);
}

// Gives text up to where a call may begin.
bool CallParser::content(AnswerParts& out, bool at_end) {
  if (after_call_) {
    text_.erase(0, leading_space(text_));
    after_call_ = text_.empty();
  }
  const std::size_t first = leading_space(text_);
  if (first == text_.size()) {
    return false;
  }
  const char c = text_[first];
  if (is_start_ && (syntax_.bare || options_.bare) && (c == '{' || (c == '[' && syntax_.list))) {
    is_start_ = false;
    at_ = first;
    retry_ = first + 1;
    state_ = State::Opened;
    return true;
  }
  std::size_t where = std::string::npos;
  std::size_t length = 0;
  std::size_t held = 0;  // may yet become an opener
  for (const std::string_view opener : syntax_.openers) {
    const std::size_t found = text_.find(opener);
    if (found < where) {
      where = found;
      length = opener.size();
    }
    held = std::max(held, partial_tail(text_, opener));
  }
  const std::string_view before =
      std::string_view(text_).substr(0, where == std::string::npos ? text_.size() - held : where);
  const std::size_t end = before.size() - trailing_space(before);
  is_start_ = is_start_ && end == 0;
  take(end, out);
  if (where == std::string::npos) {
    if (at_end) {
      take(text_.size(), out);
    }
    return false;
  }
  is_start_ = false;
  at_ = retry_ = where - end + length;
  state_ = State::Opened;
  return true;
}

CallParser::Step CallParser::opened() {
  at_ += leading_space(rest());
  if (at_ == text_.size()) {
    return Step::Wait;
  }
  const char c = text_[at_];
  if (c == '{') {
    return begin_object();
  }
  if (c == '[' && syntax_.list && !in_list_) {
    in_list_ = true;
    ++at_;
    return Step::Again;
  }
  if (syntax_.named && !in_list_ && is_name_char(c)) {
    state_ = State::Named;
    return Step::Again;
  }
  return Step::NoCall;
}

CallParser::Step CallParser::begin_object() {
  call_ = CallObject();
  state_ = State::Object;
  return Step::Again;
}

CallParser::Step CallParser::named() {
  const std::string_view head = rest().substr(0, rest().find('{'));
  if (head.size() > kMaxHead) {
    return Step::NoCall;
  }
  if (head.size() == rest().size()) {
    return Step::Wait;
  }
  const std::string_view name = name_of(head.substr(0, head.size() - trailing_space(head)));
  if (std::ranges::find(options_.names, name) == options_.names.end()) {
    return Step::NoCall;
  }
  at_ += head.size();
  call_ = CallObject::arguments_of(std::string(name));
  state_ = State::NamedObject;
  return Step::Again;
}

CallParser::Step CallParser::object(AnswerParts& out) {
  for (; at_ < text_.size(); ++at_) {
    const auto progress = call_.push(text_[at_], at_, options_.names);
    if (progress == CallObject::Progress::More) {
      continue;
    }
    if (progress == CallObject::Progress::Bad) {
      if (!options_.hold) {
        give_call(out, false);
      }
      return Step::NoCall;
    }
    ++at_;
    give_call(out, true);
    text_.erase(0, at_);
    at_ = given_ = 0;
    call_open_ = false;
    ++complete_;
    state_ = State::Done;
    if (is_finished()) {
      text_.clear();
    }
    return Step::Again;
  }
  if (!options_.hold) {
    give_call(out, false);
  }
  return Step::Wait;
}

// The call's begin, and its arguments as far as they are there.
void CallParser::give_call(AnswerParts& out, bool whole) {
  const std::size_t begin = call_.arguments_begin();
  const std::size_t end = call_.arguments_end();
  if (!call_.has_name() || (!whole && end <= begin)) {
    return;
  }
  if (!std::exchange(call_open_, true)) {
    add_part(out, Kind::CallBegin, begun_++, call_.name());
    given_ = begin;
  }
  add_part(
      out, Kind::CallArguments, begun_ - 1, std::string_view(text_).substr(given_, end - given_));
  given_ = end;
}

// After a call: its closer, or another call that shares the opener.
CallParser::Step CallParser::done(AnswerParts& out) {
  text_.erase(0, leading_space(text_));
  if (text_.empty()) {
    return Step::Wait;
  }
  const char c = text_[0];
  at_ = retry_ = 1;
  if (in_list_) {
    if (c == ',') {
      state_ = State::Opened;
      return Step::Again;
    }
    in_list_ = false;
    if (c == ']') {
      text_.erase(0, 1);
      return Step::Again;
    }
  } else if (syntax_.separator != 0 && c == syntax_.separator) {
    state_ = State::Opened;
    return Step::Again;
  } else if (c == '{') {
    at_ = 0;
    return begin_object();
  }
  if (!syntax_.closer.empty()) {
    if (text_.size() < syntax_.closer.size() && syntax_.closer.starts_with(text_)) {
      return Step::Wait;
    }
    if (text_.starts_with(syntax_.closer)) {
      text_.erase(0, syntax_.closer.size());
    }
  }
  after_call_ = true;
  state_ = State::Content;
  return content(out, false) ? Step::Again : Step::Wait;
}

void CallParser::no_call(AnswerParts& out) {
  if (call_open_) {
    text_.erase(0, given_);  // the rest of a call that broke is content
  } else {
    take(retry_, out);
  }
  call_open_ = false;
  in_list_ = false;
  given_ = at_ = 0;
  state_ = State::Content;
}

}  // namespace baton::gateway

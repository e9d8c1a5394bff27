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
  buffer_ += text;
  run(out, false);
}

void CallParser::flush(AnswerParts& out, bool is_cut) {
  run(out, true);
  if (is_cut || options_.only_calls) {
    end_cut(out);
  }
  while (!text().empty()) {
    if (state_ == State::Content || state_ == State::Done) {
      take(text().size(), out);
    } else if (call_open_) {
      drop(text().size());  // cut off inside of its arguments, which went out as far as they got
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

bool CallParser::is_in_call() const {
  return state_ != State::Content && state_ != State::Done;
}

// The text ends where the model would have gone on.
void CallParser::end_cut(AnswerParts& out) {
  if (is_in_call() && (is_sure_ || options_.only_calls || call_.has_name())) {
    is_cut_ = true;
    if (state_ == State::Object || state_ == State::NamedObject) {
      give_call(out, true);
    }
    drop(text().size());
  } else if (state_ == State::Done && syntax_.closer.starts_with(text())) {
    drop(text().size());
  }
}

void CallParser::take(std::size_t count, AnswerParts& out) {
  if (!options_.only_calls) {
    add_part(out, Kind::Content, 0, text().substr(0, count));
  }
  drop(count);
}

void CallParser::drop(std::size_t count) {
  dropped_ += count;
  if (dropped_ > buffer_.size() / 2) {
    buffer_.erase(0, std::exchange(dropped_, 0));
  }
}

// Where the first opener stands, and how long it is. One pass: what comes after it is not read.
std::pair<std::size_t, std::size_t> CallParser::first_opener(std::string_view text) const {
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const std::string_view opener : syntax_.openers) {
      if (text.substr(at).starts_with(opener)) {
        return {at, opener.size()};
      }
    }
  }
  return {std::string::npos, 0};
}

// Gives text up to where a call may begin.
bool CallParser::content(AnswerParts& out, bool at_end) {
  if (after_call_) {
    drop(leading_space(text()));
    after_call_ = text().empty();
  }
  const std::size_t first = leading_space(text());
  if (first == text().size()) {
    return false;
  }
  const char c = text()[first];
  if (is_start_ && (syntax_.bare || options_.bare) && (c == '{' || (c == '[' && syntax_.list))) {
    is_start_ = false;
    at_ = first;
    retry_ = first + 1;
    open(false);
    return true;
  }
  const auto [where, length] = first_opener(text());
  std::size_t held = 0;  // may yet become an opener
  for (const std::string_view opener : syntax_.openers) {
    held = std::max(held, partial_tail(text(), opener));
  }
  const std::string_view before =
      text().substr(0, where == std::string::npos ? text().size() - held : where);
  const std::size_t end = before.size() - trailing_space(before);
  is_start_ = is_start_ && end == 0;
  take(end, out);
  if (where == std::string::npos) {
    if (at_end) {
      take(text().size(), out);
    }
    return false;
  }
  is_start_ = false;
  at_ = retry_ = where - end + length;
  open(syntax_.sure_openers);
  return true;
}

void CallParser::open(bool is_sure) {
  call_ = CallObject();
  is_sure_ = is_sure;
  state_ = State::Opened;
}

CallParser::Step CallParser::opened() {
  at_ += leading_space(rest());
  if (at_ == text().size()) {
    return Step::Wait;
  }
  const char c = text()[at_];
  if (c == '{') {
    state_ = State::Object;
    return Step::Again;
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
  const std::string_view text = this->text();
  for (; at_ < text.size(); ++at_) {
    const auto progress = call_.push(text[at_], at_, options_.names);
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
    drop(at_);
    at_ = given_ = 0;
    call_open_ = false;
    ++complete_;
    state_ = State::Done;
    if (is_finished()) {
      drop(this->text().size());
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
  add_part(out, Kind::CallArguments, begun_ - 1, text().substr(given_, end - given_));
  given_ = end;
}

// After a call: its closer, or another call that shares the opener.
CallParser::Step CallParser::done(AnswerParts& out) {
  drop(leading_space(text()));
  if (text().empty()) {
    return Step::Wait;
  }
  const char c = text()[0];
  at_ = retry_ = 1;
  if (in_list_) {
    if (c == ',') {
      open(true);
      return Step::Again;
    }
    in_list_ = false;
    if (c == ']') {
      drop(1);
      return Step::Again;
    }
  } else if (syntax_.separator != 0 && c == syntax_.separator) {
    open(true);
    return Step::Again;
  } else if (c == '{') {
    at_ = 0;
    open(true);
    return Step::Again;
  }
  if (!syntax_.closer.empty()) {
    if (text().size() < syntax_.closer.size() && syntax_.closer.starts_with(text())) {
      return Step::Wait;
    }
    if (text().starts_with(syntax_.closer)) {
      drop(syntax_.closer.size());
    }
  }
  after_call_ = true;
  state_ = State::Content;
  return content(out, false) ? Step::Again : Step::Wait;
}

void CallParser::no_call(AnswerParts& out) {
  if (call_open_) {
    drop(given_);  // the rest of a call that broke is content
  } else {
    take(retry_, out);
  }
  call_open_ = false;
  in_list_ = false;
  given_ = at_ = 0;
  state_ = State::Content;
}

}  // namespace baton::gateway

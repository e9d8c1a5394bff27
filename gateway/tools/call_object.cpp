#include "gateway/tools/call_object.h"

#include <algorithm>
#include <utility>

#include "gateway/tools/text_scan.h"

namespace baton::gateway {
namespace {

constexpr std::size_t kMaxWord = 64;  // of keys, names and ids

}  // namespace

CallObject CallObject::arguments_of(std::string name) {
  CallObject call;
  call.name_ = std::move(name);
  call.has_name_ = true;
  call.alone_ = true;
  return call;
}

CallObject::Progress CallObject::push(char c, std::size_t at, std::span<const std::string> names) {
  switch (state_) {
    case State::Open:
      if (alone_) {
        begin_ = at;
        state_ = State::Arguments;
        return push_arguments(c, at);
      }
      state_ = State::KeyOrEnd;
      return c == '{' ? Progress::More : Progress::Bad;
    case State::InKey:
    case State::InName:
    case State::InOther:
      return in_text(c, names);
    case State::Arguments:
      return push_arguments(c, at);
    default:
      break;
  }
  if (kSpace.find(c) != std::string_view::npos) {
    return Progress::More;
  }
  switch (state_) {
    case State::KeyOrEnd:
    case State::Key:
      state_ = State::InKey;
      word_.clear();
      return c == '"' ? Progress::More : Progress::Bad;
    case State::Colon:
      state_ = State::Value;
      return c == ':' ? Progress::More : Progress::Bad;
    case State::Value:
      return begin_value(c, at);
    default:  // After
      if (c == ',') {
        state_ = State::Key;
        return Progress::More;
      }
      return c == '}' && has_name_ && end_ > begin_ ? Progress::Done : Progress::Bad;
  }
}

CallObject::Progress CallObject::in_text(char c, std::span<const std::string> names) {
  if (c != '"') {
    // Nothing that may stand here needs an escape.
    if (c == '\\' || static_cast<unsigned char>(c) < 0x20 || word_.size() == kMaxWord) {
      return Progress::Bad;
    }
    word_ += c;
    return Progress::More;
  }
  if (state_ == State::InKey) {
    return end_key();
  }
  if (state_ == State::InName) {
    if (std::ranges::find(names, word_) == names.end()) {
      return Progress::Bad;
    }
    name_ = word_;
    has_name_ = true;
  }
  state_ = State::After;
  return Progress::More;
}

CallObject::Progress CallObject::end_key() {
  if (word_ == "name") {
    field_ = Field::Name;
  } else if (word_ == "arguments" || word_ == "parameters") {
    field_ = Field::Arguments;
  } else if (word_ == "id") {
    field_ = Field::Id;
  } else if (word_ == "type") {
    field_ = Field::Type;
  } else {
    return Progress::Bad;
  }
  const auto bit = static_cast<std::uint8_t>(1U << static_cast<unsigned>(field_));
  if ((seen_ & bit) != 0) {
    return Progress::Bad;
  }
  seen_ |= bit;
  state_ = State::Colon;
  return Progress::More;
}

CallObject::Progress CallObject::begin_value(char c, std::size_t at) {
  if (field_ == Field::Arguments) {
    begin_ = at;
    state_ = State::Arguments;
    return push_arguments(c, at);
  }
  word_.clear();
  state_ = field_ == Field::Name ? State::InName : State::InOther;
  return c == '"' ? Progress::More : Progress::Bad;
}

CallObject::Progress CallObject::push_arguments(char c, std::size_t at) {
  const Progress progress = cursor_.push(c);
  if (progress == Progress::Bad) {
    return progress;
  }
  end_ = at + 1;
  if (progress == Progress::More) {
    return progress;
  }
  state_ = State::After;
  return alone_ ? Progress::Done : Progress::More;
}

}  // namespace baton::gateway

// Reads one call of a tool, byte by byte: {"name": "f", "arguments": {…}}, keys in any order, also
// "parameters" for "arguments", also with a string "id" or "type"; or the arguments alone when the
// name stood before them.
//
// Thread: one owner. Failure: Bad, for good, at the first byte that no such object can have there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gateway/tools/json_cursor.h"

namespace baton::gateway {

class CallObject {
 public:
  using Progress = JsonCursor::Progress;

  CallObject() = default;
  // The name is known: what follows is the arguments.
  static CallObject arguments_of(std::string name);

  // The first byte is the '{'. `at`: where the byte stands in the text.
  Progress push(char c, std::size_t at, std::span<const std::string> names);

  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  // Where the arguments stand in the text so far: [begin, end). Empty before they begin.
  std::size_t arguments_begin() const { return begin_; }
  std::size_t arguments_end() const { return end_; }

 private:
  enum class State : std::uint8_t {
    Open,
    KeyOrEnd,
    Key,
    InKey,
    Colon,
    Value,
    InName,
    InOther,
    Arguments,
    After
  };
  enum class Field : std::uint8_t { Name, Arguments, Id, Type };

  Progress in_text(char c, std::span<const std::string> names);
  Progress end_key();
  Progress begin_value(char c, std::size_t at);
  Progress push_arguments(char c, std::size_t at);

  State state_ = State::Open;
  Field field_ = Field::Name;
  std::string word_;  // key or value that is being read
  std::string name_;
  bool has_name_ = false;
  bool alone_ = false;     // the arguments are all there is
  std::uint8_t seen_ = 0;  // a bit for each field
  JsonCursor cursor_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace baton::gateway

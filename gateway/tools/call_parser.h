// Finds calls of tools in an answer's text as it arrives, in pieces of any size: what it gives does
// not depend on where the text was cut.
//
// A call is an object with a name that was offered and arguments that are a JSON object; "id" and
// "type" may stand beside them, nothing else. All other text is content, just as it was written,
// also what only began like a call. White space next to a call belongs to the format and is
// dropped.
//
// What turns out to be no call is looked at again behind its opener. That is linear: an opener has
// letters, so that only an object with a string open there lives on, and the object behind it has
// the other parity of quotes; at the next opener one of the two is broken.
//
// Streamed arguments go out as the model writes them. When they then turn out to be no JSON, they
// stay as they are and the rest is content; with CallOptions::hold a call is given whole or not at
// all.
//
// An answer that was cut, by its length or by a stop string, may end inside of a call. That call is
// given with what there is of its arguments; before its name is known nothing of it is given, and
// no mark of the format becomes content. Where a grammar lets the answer be calls alone nothing is
// content.
//
// Thread: one owner. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/tools/answer_part.h"
#include "gateway/tools/call_object.h"
#include "gateway/tools/tool_format.h"

namespace baton::gateway {

struct CallOptions {
  std::vector<std::string> names;  // of the functions that may be called
  bool hold = false;
  bool one_call = false;    // what follows the first call is dropped
  bool bare = false;        // a grammar makes calls begin the answer, whatever the format's opener
  bool only_calls = false;  // a grammar makes the answer calls and nothing else
};

class CallParser {
 public:
  CallParser(ToolFormat format, CallOptions options);

  void push(std::string_view text, AnswerParts& out);
  // `is_cut`: the model would have written more.
  void flush(AnswerParts& out, bool is_cut);

  // The answer has calls, and was not cut inside of one.
  bool has_calls() const { return begun_ > 0 && !is_cut_; }
  // No more is wanted: the one call is there.
  bool is_finished() const { return options_.one_call && complete_ > 0; }

 private:
  enum class State : std::uint8_t {
    Content,
    Opened,       // after an opener, or where a bare call may begin
    Named,        // in the name after an opener (CallSyntax::named)
    NamedObject,  // in the arguments that follow it
    Object,       // in a call
    Done          // after a call
  };
  enum class Step : std::uint8_t { Again, Wait, NoCall };

  void run(AnswerParts& out, bool at_end);
  bool content(AnswerParts& out, bool at_end);  // true: something may follow at once
  std::pair<std::size_t, std::size_t> first_opener(std::string_view text) const;
  Step opened();
  Step named();
  Step object(AnswerParts& out);
  Step done(AnswerParts& out);
  void open(bool is_sure);  // a call may begin
  void give_call(AnswerParts& out, bool whole);
  void no_call(AnswerParts& out);
  bool is_in_call() const;
  void end_cut(AnswerParts& out);
  void take(std::size_t count, AnswerParts& out);  // as content
  void drop(std::size_t count);                    // has been dealt with
  // Not given yet, or part of the call that is being read.
  std::string_view text() const { return std::string_view(buffer_).substr(dropped_); }
  std::string_view rest() const { return text().substr(at_); }

  const CallSyntax& syntax_;
  const CallOptions options_;

  State state_ = State::Content;
  std::string buffer_;
  std::size_t dropped_ = 0;  // of its bytes
  std::size_t at_ = 0;       // next byte of text() to look at
  std::size_t retry_ = 0;    // bytes that are content if this is no call
  std::size_t given_ = 0;    // of the arguments' text, what went out already, as an end in text()
  bool is_start_ = true;     // nothing but white space so far
  bool in_list_ = false;
  bool call_open_ = false;   // its begin went out
  bool after_call_ = false;  // white space belongs to the call before it
  bool is_sure_ = false;     // this is a call, or a broken one: its opener stands in no other text
  bool is_cut_ = false;      // inside of a call
  CallObject call_;
  std::uint32_t begun_ = 0;
  std::uint32_t complete_ = 0;
};

}  // namespace baton::gateway

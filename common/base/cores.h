// Where and how threads run: sets of processors, as "0" or "0-3,8", keeping a process on one, and
// turns on a processor that others use, too.
//
// Thread: `stay_on` before other threads are made. Failure: InvalidConfig with a sentence.
#pragma once

#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton {

// Ascending, each once; empty text: none.
Result<std::vector<unsigned>> parse_cores(std::string_view text);

// The calling thread, and those it makes from then on, run on these processors alone. Empty: no
// change.
Status stay_on(const std::vector<unsigned>& cores);

// For a calling thread that waits most of the time and passes things on: when it wakes it gets the
// processor at once from a thread that computes, in return for short turns. Its share stays what it
// is. Linux before 6.12 takes no notice.
void prefer_short_turns();

}  // namespace baton

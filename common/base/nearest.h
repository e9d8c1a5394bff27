// What somebody may have meant who wrote a word wrong.
//
// Thread: pure function. Failure: none.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace baton {

// The likeliest of `valid`, the first of several; empty: none is near.
std::string_view nearest(std::string_view wrong, std::span<const std::string> valid);

}  // namespace baton

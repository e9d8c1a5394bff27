// What is wrong with a text of the configuration, by the rule of its key.
//
// Thread: pure functions. Failure: none; the sentence is for the person who wrote the text.
#pragma once

#include <optional>
#include <string>

#include "common/config/schema.h"

namespace baton {

// Nothing when it is good.
std::optional<std::string> fault_of(const std::string& value, const TextRule& rule);

}  // namespace baton

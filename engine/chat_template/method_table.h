// Tables of functions by name: the methods of each kind of value, the filters, the tests.
//
// Thread: as the interpreter. Failure: an absent name gives null.
#pragma once

#include <string_view>

#include "engine/chat_template/builtins.h"

namespace baton::engine::jinja {

using TextMethod = Result<Value> (*)(Interpreter&, const Text&, const Arguments&);
using ListMethod = Result<Value> (*)(Interpreter&, List&, const Arguments&);
using DictMethod = Result<Value> (*)(Interpreter&, Dict&, const Arguments&);

template <class Method>
struct Named {
  std::string_view name;
  Method call;
};

template <class Method, std::size_t N>
Method find_in(const Named<Method> (&table)[N], std::string_view name) {
  for (const auto& entry : table) {
    if (entry.name == name) {
      return entry.call;
    }
  }
  return nullptr;
}

TextMethod find_text_method(std::string_view name);

}  // namespace baton::engine::jinja

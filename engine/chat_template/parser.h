// Template source to a syntax tree: the statements and expressions of Jinja2 that stand alone in
// one file (no include, import, extends or block).
//
// Thread: pure. Failure: InvalidArgument with line and sentence; trees that nest too deeply are
// refused, so that walking them never exhausts the stack.
#pragma once

#include <string_view>

#include "common/base/error.h"
#include "engine/chat_template/ast.h"

namespace baton::engine::jinja {

Result<NodePtr> parse_template(std::string_view source);

}  // namespace baton::engine::jinja

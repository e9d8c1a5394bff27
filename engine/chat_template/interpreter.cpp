// Statements of the template language. Expressions: evaluate.cpp.
#include "engine/chat_template/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/chat_template/operators.h"

namespace baton::engine::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, held] : names) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

// Counts a level of evaluation while it lives.
class Interpreter::Entered {
 public:
  explicit Entered(Interpreter& owner) : owner_(&owner) { ++owner_->calls_; }
  ~Entered() { --owner_->calls_; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Interpreter* owner_;
};

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) {
    space->clear();
  }
}

Error Interpreter::at_line(Error error, int line) {
  if (!error.message.starts_with("chat template")) {
    error.message = fmt::format("chat template, line {}: {}", line, error.message);
  }
  return error;
}

Status Interpreter::charge(std::size_t work) {
  work_ += work;
  if (work_ > kMaxWork) {
    return template_error("the template does too much work");
  }
  return {};
}

Status Interpreter::charge_text(std::size_t bytes) {
  if (bytes > kMaxTextBytes) {
    return template_error(fmt::format("a text of {} bytes is too large", bytes));
  }
  return charge(1 + bytes / kWeightBytes);
}

Result<Text> Interpreter::run(const Node& root) {
  Text out;
  out_ = &out;
  BATON_TRY(execute(root, root_));
  return out;
}

Result<Interpreter::Flow> Interpreter::execute(const Node& node, Scope& scope) {
  const Entered entered(*this);
  Status paid = calls_ > kMaxCalls ? template_error("calls nest too deeply") : charge(1);
  if (!paid) {
    return std::unexpected(at_line(std::move(paid.error()), node.line));
  }
  auto flow = run_statement(node, scope);
  if (!flow) {
    return std::unexpected(at_line(std::move(flow.error()), node.line));
  }
  return flow;
}

Status Interpreter::print(const Value& value) {
  const Text made = value.text() == nullptr ? value.str() : Text();
  const Text& text = value.text() == nullptr ? made : *value.text();
  BATON_TRY(charge_text(text.size()));
  if (out_->size() + text.size() > kMaxTextBytes) {
    return template_error("the output is too large");
  }
  out_->append(text);
  return {};
}

Result<std::optional<Value>> Interpreter::print_sum(const Node& node, Scope& scope) {
  Value made;
  if (node.kind != NodeKind::Binary || node.name != "+") {
    BATON_ASSIGN(const Value* value, operand(node, scope, made));
    if (value->text() == nullptr) {
      return *value;
    }
    BATON_TRY(print(*value));
    return std::nullopt;
  }
  BATON_ASSIGN(std::optional<Value> left, print_sum(*node.kids[0], scope));
  BATON_ASSIGN(const Value* right, operand(*node.kids[1], scope, made));
  if (!left && right->text() != nullptr) {
    BATON_TRY(print(*right));
    return std::nullopt;
  }
  // Of numbers or lists; to a text nothing else can be added.
  auto sum = binary_operator(*this, node.name, std::move(left).value_or(Text()), *right);
  if (!sum) {
    return std::unexpected(at_line(std::move(sum).error(), node.line));
  }
  return std::move(*sum);
}

Result<Interpreter::Flow> Interpreter::run_statement(const Node& node, Scope& scope) {
  switch (node.kind) {
    case NodeKind::Data:
      BATON_TRY(print(node.constant));
      return Flow::Next;
    case NodeKind::Print:
      for (const NodePtr& kid : node.kids) {
        BATON_ASSIGN(const std::optional<Value> rest, print_sum(*kid, scope));
        if (rest) {
          BATON_TRY(print(*rest));
        }
      }
      return Flow::Next;
    case NodeKind::Sequence:
      for (const NodePtr& kid : node.kids) {
        BATON_ASSIGN(const Flow flow, execute(*kid, scope));
        if (flow != Flow::Next) {
          return flow;
        }
      }
      return Flow::Next;
    case NodeKind::If:
      for (std::size_t i = 0; i + 1 < node.kids.size(); i += 2) {
        BATON_ASSIGN(const Value when, evaluate(*node.kids[i], scope));
        if (when.truthy()) {
          return execute(*node.kids[i + 1], scope);
        }
      }
      return node.kids.size() % 2 == 1 ? execute(*node.kids.back(), scope)
                                       : Result<Flow>(Flow::Next);
    case NodeKind::For:
      return run_for(node, scope);
    case NodeKind::Set: {
      BATON_ASSIGN(const Value value, evaluate(*node.kids[1], scope));
      BATON_TRY(assign(*node.kids[0], value, scope));
      return Flow::Next;
    }
    case NodeKind::SetBlock: {
      Scope inner{&scope, {}};
      BATON_ASSIGN(Text text, capture(*node.kids[1], inner));
      Value value(std::move(text));
      if (node.kids[2]) {
        BATON_ASSIGN(value, filter_node(*node.kids[2], value, scope));
      }
      BATON_TRY(assign(*node.kids[0], value, scope));
      return Flow::Next;
    }
    case NodeKind::Macro:
      scope.set(node.name, make_macro(node, nullptr, nullptr));
      return Flow::Next;
    case NodeKind::CallBlock:
      BATON_TRY(run_call_block(node, scope));
      return Flow::Next;
    case NodeKind::FilterBlock: {
      Scope inner{&scope, {}};
      BATON_ASSIGN(Text text, capture(*node.kids[1], inner));
      BATON_ASSIGN(const Value value, filter_node(*node.kids[0], Value(std::move(text)), scope));
      BATON_TRY(print(value));
      return Flow::Next;
    }
    case NodeKind::With: {
      Scope inner{&scope, {}};
      for (std::size_t i = 0; i + 2 < node.kids.size(); i += 2) {
        BATON_ASSIGN(Value value, evaluate(*node.kids[i + 1], scope));
        inner.set(node.kids[i]->name, std::move(value));
      }
      return execute(*node.kids.back(), inner);
    }
    case NodeKind::Scope: {
      Scope inner{&scope, {}};
      return execute(*node.kids[0], inner);
    }
    case NodeKind::Break:
      return Flow::Break;
    case NodeKind::Continue:
      return Flow::Continue;
    default:
      return template_error("an expression stands where a statement should");
  }
}

Result<std::shared_ptr<List>> Interpreter::loop_items(const Node& node, Scope& scope) {
  BATON_ASSIGN(const Value source, evaluate(*node.kids[1], scope));
  BATON_TRY(charge(1 + (source.text() != nullptr ? source.text()->size() : 0)));
  BATON_ASSIGN(std::shared_ptr<List> items, iterate(source));
  if (!node.kids[2]) {
    return items;
  }
  auto kept = std::make_shared<List>();
  const std::vector<Value> all = items->items;
  for (const Value& item : all) {
    Scope inner{&scope, {}};
    BATON_TRY(assign(*node.kids[0], item, inner));
    BATON_ASSIGN(const Value wanted, evaluate(*node.kids[2], inner));
    if (wanted.truthy()) {
      kept->items.push_back(item);
    }
  }
  return kept;
}

Result<Interpreter::Flow> Interpreter::run_for(const Node& node, Scope& scope) {
  auto loop = std::make_shared<Loop>();
  BATON_ASSIGN(loop->items, loop_items(node, scope));
  if (loop->items->items.empty()) {
    return node.kids[4] ? execute(*node.kids[4], scope) : Result<Flow>(Flow::Next);
  }
  loop->level = ++loops_;
  // The list may change while the body runs, so its size is asked again each time.
  for (; loop->index < loop->items->items.size(); ++loop->index) {
    Scope inner{&scope, {}};
    const Value item = loop->items->items[loop->index];
    inner.set("loop", Value(loop));
    BATON_TRY(assign(*node.kids[0], item, inner));
    BATON_ASSIGN(const Flow flow, execute(*node.kids[3], inner));
    if (flow == Flow::Break) {
      break;
    }
  }
  --loops_;
  return Flow::Next;
}

Result<Text> Interpreter::capture(const Node& body, Scope& scope) {
  Text text;
  Text* const outer = std::exchange(out_, &text);
  const auto flow = execute(body, scope);
  out_ = outer;
  if (!flow) {
    return std::unexpected(flow.error());
  }
  return text;
}

Status Interpreter::assign(const Node& target, const Value& value, Scope& scope) {
  if (target.kind == NodeKind::Name) {
    scope.set(target.name, value);
    return {};
  }
  if (target.kind == NodeKind::NamespaceSet) {
    BATON_ASSIGN(const Value object, lookup(target, scope));
    Dict* space = object.dict();
    if (space == nullptr || !space->is_namespace) {
      return template_error(
          fmt::format("'{}' is no namespace; only those can be assigned to", target.name));
    }
    return space->set(target.constant, value);
  }
  BATON_ASSIGN(const std::shared_ptr<List> items, iterate(value));
  if (items->items.size() != target.kids.size()) {
    return template_error(fmt::format(
        "cannot unpack {} values into {} names", items->items.size(), target.kids.size()));
  }
  for (std::size_t i = 0; i < target.kids.size(); ++i) {
    BATON_TRY(assign(*target.kids[i], items->items[i], scope));
  }
  return {};
}

// A macro sees the names of the whole template, a call block's body also those around it. `alive`
// guards the latter: it turns false when that scope ends.
Value Interpreter::make_macro(const Node& node, Scope* scope, std::shared_ptr<const bool> alive) {
  auto made = std::make_shared<Callable>();
  made->name = scope != nullptr ? "caller" : node.name;
  made->call = [&node, scope, alive = std::move(alive)](
                   Interpreter& self, const Arguments& arguments) -> Result<Value> {
    if (alive && !*alive) {
      return template_error("caller() is used after its call block");
    }
    return self.call_macro(node, scope != nullptr ? *scope : self.root_, arguments);
  };
  return Value(std::shared_ptr<const Callable>(std::move(made)));
}

Result<Value> Interpreter::call_macro(const Node& node, Scope& parent, const Arguments& arguments) {
  Scope scope{&parent, {}};
  const auto& parameters = node.keywords;
  if (arguments.positional.size() > parameters.size()) {
    return template_error(
        fmt::format("macro '{}' takes not more than {} argument(s)", node.name, parameters.size()));
  }
  for (const auto& [name, value] : arguments.keywords) {
    const bool known = std::any_of(
        parameters.begin(), parameters.end(), [&](const auto& each) { return each.first == name; });
    if (!known && name != "caller") {
      return template_error(fmt::format("macro '{}' takes no argument '{}'", node.name, name));
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, default_value] = parameters[i];
    if (const Value* given = arguments.find(i, name)) {
      scope.set(name, *given);
    } else if (default_value) {
      BATON_ASSIGN(Value value, evaluate(*default_value, scope));
      scope.set(name, std::move(value));
    } else {
      scope.set(name, Undefined{fmt::format("parameter '{}' was not provided", name)});
    }
  }
  if (const Value* caller = arguments.find(arguments.positional.size(), "caller")) {
    scope.set("caller", *caller);
  }
  const Node& body = node.kind == NodeKind::CallBlock ? *node.kids[1] : *node.kids[0];
  BATON_ASSIGN(Text text, capture(body, scope));
  return Value(std::move(text));
}

Status Interpreter::run_call_block(const Node& node, Scope& scope) {
  const Node& called = *node.kids[0];
  BATON_ASSIGN(const Value callee, evaluate(*called.kids[0], scope));
  BATON_ASSIGN(Arguments arguments, arguments_of(called, scope));
  auto alive = std::make_shared<bool>(true);
  arguments.keywords.emplace_back("caller", make_macro(node, &scope, alive));
  auto value = call(callee, arguments);
  *alive = false;
  if (!value) {
    return std::unexpected(std::move(value.error()));
  }
  return print(*value);
}

}  // namespace baton::engine::jinja

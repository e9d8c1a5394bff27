#include "engine/chat_template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/chat_template/python_text.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine::jinja {
namespace {

constexpr std::size_t kFewEntries = 6;
constexpr std::size_t kLinear = 12;  // entries up to which a dict is searched one by one
constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);

Text repr_list(const List& list) {
  Text out(list.tuple ? "(" : "[", false);
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    out.append(i > 0 ? ", " : "", false);
    out.append(list.items[i].repr());
  }
  out.append(list.tuple ? (list.items.size() == 1 ? ",)" : ")") : "]", false);
  return out;
}

Text repr_dict(const Dict& dict) {
  if (dict.is_namespace) {
    return Text("<Namespace>", false);
  }
  Text out("{", false);
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    out.append(first ? "" : ", ", false);
    first = false;
    out.append(key.repr());
    out.append(": ", false);
    out.append(value.repr());
  }
  out.append("}", false);
  return out;
}

}  // namespace

List* Value::list() const {
  const auto* held = as<std::shared_ptr<List>>();
  return held != nullptr ? held->get() : nullptr;
}

Dict* Value::dict() const {
  const auto* held = as<std::shared_ptr<Dict>>();
  return held != nullptr ? held->get() : nullptr;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) {
    return false;
  }
  if (is_number()) {
    return number() != 0;
  }
  if (text() != nullptr) {
    return !text()->empty();
  }
  if (list() != nullptr) {
    return !list()->items.empty();
  }
  if (dict() != nullptr) {
    return dict()->is_namespace || !dict()->entries().empty();
  }
  return true;
}

Text Value::str() const {
  if (is_undefined()) {
    return {};
  }
  if (text() != nullptr) {
    return *text();
  }
  return repr();
}

Text Value::repr() const {
  if (is_undefined()) {
    return Text("Undefined", false);
  }
  if (is_none()) {
    return Text("None", false);
  }
  if (const auto* flag = as<bool>()) {
    return Text(*flag ? "True" : "False", false);
  }
  if (const auto* integer = as<std::int64_t>()) {
    return Text(std::to_string(*integer), false);
  }
  if (const auto* real = as<double>()) {
    return Text(float_repr(*real), false);
  }
  if (text() != nullptr) {
    return Text(string_repr(text()->view()), text()->any_foreign());
  }
  if (list() != nullptr) {
    return repr_list(*list());
  }
  if (dict() != nullptr) {
    return repr_dict(*dict());
  }
  if (const auto* callable = as<std::shared_ptr<const Callable>>()) {
    return Text("<function " + (*callable)->name + ">", false);
  }
  return Text("<LoopContext>", false);
}

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {
      "Undefined", "NoneType", "bool", "int", "float", "str", "list", "dict", "loop", "function"};
  if (list() != nullptr && list()->tuple) {
    return "tuple";
  }
  if (dict() != nullptr && dict()->is_namespace) {
    return "Namespace";
  }
  return kNames[held_.index()];
}

bool Value::is_number() const {
  return as<bool>() != nullptr || as<std::int64_t>() != nullptr || as<double>() != nullptr;
}

double Value::number() const {
  if (const auto* flag = as<bool>()) {
    return *flag ? 1 : 0;
  }
  if (const auto* integer = as<std::int64_t>()) {
    return static_cast<double>(*integer);
  }
  const auto* real = as<double>();
  return real != nullptr ? *real : 0;
}

bool Value::is_integer() const {
  return as<std::int64_t>() != nullptr || as<bool>() != nullptr;
}

std::int64_t Value::integer() const {
  const auto* held = as<std::int64_t>();
  return held != nullptr ? *held : *as<bool>() ? 1 : 0;
}

int Value::depth() const {
  if (list() != nullptr) {
    return list()->depth;
  }
  return dict() != nullptr ? dict()->depth() : 0;
}

std::size_t Value::weight() const {
  if (list() != nullptr) {
    return list()->weight;
  }
  if (dict() != nullptr) {
    return dict()->weight();
  }
  return text() != nullptr ? 1 + text()->size() / kWeightBytes : 1;
}

namespace {

// Counts a part into its holder.
Status count_in(const Value& part, int& depth, std::size_t& weight) {
  depth = std::max(depth, part.depth() + 1);
  weight += part.weight();
  if (depth > kMaxNesting) {
    return template_error(fmt::format("values nest more than {} levels deep", kMaxNesting));
  }
  if (weight > kMaxWeight) {
    return template_error("a list or dict grows too large");
  }
  return {};
}

}  // namespace

Status List::insert(std::size_t at, Value item) {
  BATON_ASSIGN(Value held, freeze(std::move(item)));
  BATON_TRY(count_in(held, depth, weight));
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), std::move(held));
  return {};
}

std::size_t Dict::index_of(const Value& key) const {
  if (key.text() != nullptr && entries_.size() > kLinear) {
    const auto found = by_text_.find(key.text()->str());
    return found == by_text_.end() ? kAbsent : found->second;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (equal(entries_[i].first, key)) {
      return i;
    }
  }
  return kAbsent;
}

const Value* Dict::find(const Value& key) const {
  const std::size_t index = index_of(key);
  return index == kAbsent ? nullptr : &entries_[index].second;
}

const Value* Dict::find(std::string_view key) const {
  if (entries_.size() > kLinear) {
    const auto found = by_text_.find(std::string(key));
    return found == by_text_.end() ? nullptr : &entries_[found->second].second;
  }
  for (const auto& [name, value] : entries_) {
    if (name.text() != nullptr && name.text()->view() == key) {
      return &value;
    }
  }
  return nullptr;
}

Status Dict::set(Value key, Value value) {
  if (key.list() != nullptr || key.dict() != nullptr) {
    return template_error(fmt::format("a {} cannot be a key", key.type_name()));
  }
  if (!is_namespace) {
    BATON_ASSIGN(value, freeze(std::move(value)));
    BATON_TRY(count_in(key, depth_, weight_));
    BATON_TRY(count_in(value, depth_, weight_));
  }
  const std::size_t index = index_of(key);
  if (index != kAbsent) {
    entries_[index].second = std::move(value);
    return {};
  }
  if (entries_.empty()) {
    entries_.reserve(kFewEntries);
  }
  entries_.emplace_back(std::move(key), std::move(value));
  const std::size_t first = entries_.size() == kLinear + 1 ? 0 : entries_.size() - 1;
  for (std::size_t i = first; entries_.size() > kLinear && i < entries_.size(); ++i) {
    if (entries_[i].first.text() != nullptr) {
      by_text_.emplace(entries_[i].first.text()->str(), i);
    }
  }
  return {};
}

void Dict::clear() {
  entries_.clear();
  by_text_.clear();
}

bool Dict::erase(const Value& key) {
  const std::size_t index = index_of(key);
  if (index == kAbsent) {
    return false;
  }
  auto rest = std::move(entries_);
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(index));
  entries_.clear();
  by_text_.clear();
  for (auto& [kept, value] : rest) {
    // Cannot fail: each was accepted before.
    (void)set(std::move(kept), std::move(value));
  }
  return true;
}

const Value* Arguments::find(std::size_t position, std::string_view name) const {
  if (position < positional.size()) {
    return &positional[position];
  }
  for (const auto& [key, value] : keywords) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

Result<Value> make_list(std::vector<Value> items, bool tuple) {
  auto list = std::make_shared<List>();
  for (Value& item : items) {
    BATON_ASSIGN(item, freeze(std::move(item)));
    BATON_TRY(count_in(item, list->depth, list->weight));
  }
  list->items = std::move(items);
  list->tuple = tuple;
  return Value(std::move(list));
}

Result<Value> freeze(Value value) {
  if (const List* list = value.list()) {
    if (list->frozen) {
      return Result<Value>(std::move(value));  // GCC 12 would copy a long text
    }
    auto copy = std::make_shared<List>(*list);
    copy->frozen = true;
    return Value(std::move(copy));
  }
  if (const Dict* dict = value.dict(); dict != nullptr && !dict->is_namespace) {
    if (dict->frozen) {
      return Result<Value>(std::move(value));
    }
    auto copy = std::make_shared<Dict>(*dict);
    copy->frozen = true;
    return Value(std::move(copy));
  }
  if (value.dict() != nullptr || value.as<std::shared_ptr<Loop>>() != nullptr ||
      value.as<std::shared_ptr<const Callable>>() != nullptr) {
    return template_error(fmt::format("a {} cannot be put into a list or dict", value.type_name()));
  }
  return Result<Value>(std::move(value));
}

bool equal(const Value& left, const Value& right) {
  if (left.text() != nullptr && right.text() != nullptr) {
    return left.text()->view() == right.text()->view();
  }
  if (left.is_number() && right.is_number()) {
    const auto* a = left.as<std::int64_t>();
    const auto* b = right.as<std::int64_t>();
    return a != nullptr && b != nullptr ? *a == *b : left.number() == right.number();
  }
  if (left.held().index() != right.held().index()) {
    return false;
  }
  if (left.list() != nullptr) {
    const List& a = *left.list();
    const List& b = *right.list();
    return a.tuple == b.tuple &&
           std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal);
  }
  if (left.dict() != nullptr) {
    const Dict& a = *left.dict();
    const Dict& b = *right.dict();
    if (&a == &b) {
      return true;
    }
    return !a.is_namespace && !b.is_namespace && a.entries().size() == b.entries().size() &&
           std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
             const Value* other = b.find(entry.first);
             return other != nullptr && equal(entry.second, *other);
           });
  }
  if (const auto* loop = left.as<std::shared_ptr<Loop>>()) {
    return *loop == *right.as<std::shared_ptr<Loop>>();
  }
  if (const auto* callable = left.as<std::shared_ptr<const Callable>>()) {
    return *callable == *right.as<std::shared_ptr<const Callable>>();
  }
  return true;  // both none or both undefined
}

Result<int> compare(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    const auto* a = left.as<std::int64_t>();
    const auto* b = right.as<std::int64_t>();
    if (a != nullptr && b != nullptr) {
      return *a < *b ? -1 : *a > *b ? 1 : 0;
    }
    return left.number() < right.number() ? -1 : left.number() > right.number() ? 1 : 0;
  }
  if (left.text() != nullptr && right.text() != nullptr) {
    return left.text()->view().compare(right.text()->view());
  }
  if (left.list() != nullptr && right.list() != nullptr) {
    const auto& a = left.list()->items;
    const auto& b = right.list()->items;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!equal(a[i], b[i])) {
        return compare(a[i], b[i]);
      }
    }
    return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
  }
  if (const auto* undefined = left.as<Undefined>()) {
    return template_error(undefined->what);
  }
  return template_error(
      fmt::format("'{}' and '{}' have no order", left.type_name(), right.type_name()));
}

Result<bool> contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      return template_error(fmt::format("'in' a string needs a string, not {}", item.type_name()));
    }
    return text->view().find(item.text()->view()) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    return dict->find(item) != nullptr;
  }
  BATON_ASSIGN(const std::shared_ptr<List> list, iterate(container));
  return std::any_of(
      list->items.begin(), list->items.end(), [&](const Value& each) { return equal(each, item); });
}

Result<std::shared_ptr<List>> iterate(const Value& value) {
  if (const auto* list = value.as<std::shared_ptr<List>>()) {
    return *list;
  }
  auto items = std::make_shared<List>();
  if (value.is_undefined()) {
    return items;
  }
  if (const Text* text = value.text()) {
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t size = decode_utf8(text->view(), at).size;
      items->items.emplace_back(text->slice(at, at + size));
      at += size;
    }
    return items;
  }
  if (const Dict* dict = value.dict(); dict != nullptr && !dict->is_namespace) {
    for (const auto& entry : dict->entries()) {
      items->items.push_back(entry.first);
    }
    return items;
  }
  return template_error(fmt::format("'{}' cannot be iterated", value.type_name()));
}

Result<std::int64_t> length(const Value& value) {
  if (const Text* text = value.text()) {
    return static_cast<std::int64_t>(count_chars(text->view()));
  }
  if (const auto* loop = value.as<std::shared_ptr<Loop>>()) {
    return static_cast<std::int64_t>((*loop)->items->items.size());
  }
  BATON_ASSIGN(const std::shared_ptr<List> list, iterate(value));
  return static_cast<std::int64_t>(list->items.size());
}

}  // namespace baton::engine::jinja

#include "common/config/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace baton {
namespace {

// Leaves the parser; caught in parse_yaml.
struct Refused : std::runtime_error {
  Refused(int line_number, const std::string& why) : std::runtime_error(why), line(line_number) {}
  int line;
};

// Builds the tree from the parser's events.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(std::string name) : name_(std::move(name)) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, {}, anchor, YamlNode::Kind::Null);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refused(line_of(mark), "anchors and aliases are not supported");
  }
  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                const std::string& value) override {
    auto& node = add(mark, tag, anchor, YamlNode::Kind::Scalar);
    node.text = value;
    node.quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::List);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark,
                  const std::string& tag,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::Map);
  }
  void OnMapEnd() override { close(); }

 private:
  static int line_of(const YAML::Mark& mark) { return mark.line + 1; }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      throw Refused(line_of(mark), "anchors and aliases are not supported");
    }
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused(line_of(mark), fmt::format("tags are not supported: {}", tag));
    }
    if (++count_ > YamlLimits::kNodes) {
      throw Refused(line_of(mark), fmt::format("more than {} values", YamlLimits::kNodes));
    }
  }

  // Where the next value goes; a map's key is kept aside first.
  YamlNode& add(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                YamlNode::Kind kind) {
    check(mark, tag, anchor);
    const auto where = fmt::format("{}:{}", name_, line_of(mark));
    if (path_.empty()) {
      root_.kind = kind;
      root_.where = where;
      return root_;
    }
    auto& parent = *path_.back().node;
    if (parent.kind == YamlNode::Kind::List) {
      auto& item = parent.items.emplace_back();
      item.kind = kind;
      item.where = where;
      return item;
    }
    if (auto& key = path_.back().key; !path_.back().has_key) {
      if (kind != YamlNode::Kind::Scalar) {
        throw Refused(line_of(mark), "a key must be a text; is a bracket left open?");
      }
      path_.back().has_key = true;
      key = {};
      key.where = where;
      return key;
    }
    const auto key = path_.back().key;
    path_.back().has_key = false;
    if (const auto* const twice = parent.find(key.text); twice != nullptr) {
      throw Refused(line_of(mark), fmt::format("key '{}' is given twice", key.text));
    }
    auto& entry = parent.entries.emplace_back();
    entry.key = key.text;
    entry.where = key.where;
    entry.value.kind = kind;
    entry.value.where = kind == YamlNode::Kind::Null ? key.where : where;  // not the next line's
    return entry.value;
  }

  void open(const YAML::Mark& mark,
            const std::string& tag,
            YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    auto& node = add(mark, tag, anchor, kind);
    if (path_.size() >= YamlLimits::kDepth) {
      throw Refused(line_of(mark), fmt::format("nested deeper than {}", YamlLimits::kDepth));
    }
    // Stays valid: a parent gets no new child before this one is closed.
    path_.push_back({&node, false, {}});
  }

  void close() { path_.pop_back(); }

  struct Level {
    YamlNode* node;
    bool has_key;
    YamlNode key;
  };
  const std::string name_;
  YamlNode root_;
  std::vector<Level> path_;
  std::size_t count_ = 0;
};

bool is_index(std::string_view text) {
  return !text.empty() && text.size() < 6 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Of `line`, counted from 0: does a tab stand before its first word?
bool is_indented_by_tab(std::string_view text, int line) {
  for (; line > 0 && !text.empty(); --line) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  const std::string_view indentation = text.substr(0, text.find_first_not_of(" \t"));
  return indentation.find('\t') != std::string_view::npos;
}

}  // namespace

YamlNode* YamlNode::find(std::string_view key) {
  for (auto& entry : entries) {
    if (entry.key == key) {
      return &entry.value;
    }
  }
  return nullptr;
}

const YamlNode* YamlNode::find(std::string_view key) const {
  return const_cast<YamlNode*>(this)->find(key);
}

std::string YamlNode::describe() const {
  switch (kind) {
    case Kind::Null:
      return "nothing";
    case Kind::Scalar:
      return fmt::format("{}'{}'", quoted ? "the text " : "", text.substr(0, 80));
    case Kind::List:
      return "a list";
    case Kind::Map:
      return "a map";
  }
  return "nothing";
}

Result<YamlNode> parse_yaml(const std::string& text, const std::string& name) {
  if (text.size() > YamlLimits::kBytes) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("{}: the file has {} bytes, at most {} are allowed",
                            name,
                            text.size(),
                            YamlLimits::kBytes));
  }
  Builder builder(name);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    Builder rest(name);
    if (parser && parser.HandleNextDocument(rest)) {
      return fail(ErrorCode::InvalidConfig,
                  fmt::format("{}: holds more than one YAML document", name));
    }
  } catch (const Refused& refused) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("{}:{}: {}", name, refused.line, refused.what()));
  } catch (const YAML::Exception& broken) {
    if (is_indented_by_tab(text, broken.mark.line)) {
      return fail(ErrorCode::InvalidConfig,
                  fmt::format("{}:{}: a tab stands in the indentation, where YAML allows spaces "
                              "alone",
                              name,
                              broken.mark.line + 1));
    }
    return fail(ErrorCode::InvalidConfig,
                fmt::format("{}:{}: not valid YAML: {}", name, broken.mark.line + 1, broken.msg));
  }
  return builder.take();
}

bool is_before(const std::string& place, const std::string& other) {
  const auto order = [](std::string_view text) {
    const bool is_override = text.starts_with("--set ");
    const auto colon = text.rfind(':');
    auto line = std::numeric_limits<unsigned>::max();
    if (colon != std::string_view::npos) {
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), line);
    }
    return std::tuple(is_override, text.substr(0, colon), line);
  };
  return order(place) < order(other);
}

Status apply_override(YamlNode& root, const std::string& assignment) {
  const auto equals = assignment.find('=');
  const auto path = assignment.substr(0, equals);
  const auto where = fmt::format("--set {}", path);
  const auto wrong = [&](const std::string& why) {
    return fail(ErrorCode::InvalidConfig, fmt::format("{}: {}", where, why));
  };
  if (equals == std::string::npos || path.empty()) {
    return wrong("an override has the form key=value, such as kv.arena_mb=256");
  }
  auto* node = &root;
  std::size_t depth = 0;
  for (std::size_t at = 0; at <= path.size();) {
    const auto dot = std::min(path.find('.', at), path.size());
    const auto part = path.substr(at, dot - at);
    at = dot + 1;
    if (part.empty()) {
      return wrong("a name between the dots is missing");
    }
    if (++depth > YamlLimits::kDepth) {
      return wrong(fmt::format("nested deeper than {}", YamlLimits::kDepth));
    }
    if (node->kind == YamlNode::Kind::Null) {
      node->kind = is_index(part) ? YamlNode::Kind::List : YamlNode::Kind::Map;
      node->where = where;
    }
    if (node->kind == YamlNode::Kind::List) {
      std::size_t index = 0;
      if (!is_index(part)) {
        return wrong(fmt::format("'{}' is no index of a list", part));
      }
      std::from_chars(part.data(), part.data() + part.size(), index);
      if (index > node->items.size()) {
        return wrong(fmt::format("the list has {} entries", node->items.size()));
      }
      if (index == node->items.size()) {
        node->items.emplace_back();
      }
      node = &node->items[index];
    } else if (node->kind == YamlNode::Kind::Map) {
      if (auto* const found = node->find(part); found != nullptr) {
        node = found;
      } else {
        node->entries.push_back({part, where, {}});
        node = &node->entries.back().value;
      }
    } else {
      return wrong(fmt::format("'{}' lies inside a plain value", part));
    }
  }
  auto value = parse_yaml(assignment.substr(equals + 1), where);
  if (!value) {
    return std::unexpected(std::move(value).error());
  }
  // One place for the whole value: lines inside an override help nobody.
  const auto mark = [&](const auto& self, YamlNode& part) -> void {
    part.where = where;
    for (auto& item : part.items) {
      self(self, item);
    }
    for (auto& entry : part.entries) {
      entry.where = where;
      self(self, entry.value);
    }
  };
  mark(mark, *value);
  if (value->kind == YamlNode::Kind::Null) {
    value->kind = YamlNode::Kind::Scalar;  // "model.path=" sets the empty text
  }
  *node = std::move(*value);
  return {};
}

Result<YamlNode> parse_yaml(const std::string& text,
                            const std::string& name,
                            const std::vector<std::string>& overrides) {
  BATON_ASSIGN(auto root, parse_yaml(text, name));
  for (const auto& assignment : overrides) {
    BATON_TRY(apply_override(root, assignment));
  }
  return root;
}

Result<YamlNode> load_yaml(const std::string& path, const std::vector<std::string>& overrides) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail(
        ErrorCode::InvalidConfig,
        fmt::format("cannot open the configuration file {}; name yours by --config (examples: "
                    "configs/, every key: baton check --describe)",
                    path));
  }
  // One byte over the limit is enough for the parser to refuse it.
  std::string text(YamlLimits::kBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    return fail(ErrorCode::IoError, fmt::format("cannot read the configuration file {}", path));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_yaml(text, path, overrides);
}

std::string place_in(const YamlNode& root, const std::string& key, const std::string& name) {
  const YamlNode* node = &root;
  std::string where = name;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t dot = std::min(key.find('.', at), key.size());
    const std::string part = key.substr(at, dot - at);
    at = dot + 1;
    if (node->kind == YamlNode::Kind::List) {
      const std::size_t index = is_index(part) ? std::stoul(part) : node->items.size();
      node = index < node->items.size() ? &node->items[index] : nullptr;
    } else {
      node = node->find(part);
    }
    if (node == nullptr) {
      break;
    }
    where = node->where.empty() ? where : node->where;
  }
  return where;
}

}  // namespace baton

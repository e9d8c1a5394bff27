#include "gateway/tools/tool_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/json/json_escape.h"
#include "gateway/tools/tool_fields.h"

namespace baton::gateway {
namespace {

constexpr std::size_t kMaxNameBytes = 64;
constexpr std::string_view kNoParameters = R"({"type":"object","properties":{}})";

constexpr auto kToolFields = std::to_array<std::string_view>({"function", "type"});
constexpr auto kFlatFields =
    std::to_array<std::string_view>({"description", "name", "parameters", "strict", "type"});
constexpr auto kChoiceFields =
    std::to_array<std::string_view>({"allowed_tools", "function", "mode", "name", "tools", "type"});

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

// The part of a tool that says which function it is, and where it stands.
struct FunctionPart {
  simdjson::dom::object object;
  std::string path;
};

// REQUIRES: `value` at `path` is a tool of this shape, with whatever fields.
ApiResult<FunctionPart> function_part(const std::optional<JsonElement>& value,
                                      const std::string& path,
                                      ToolShape shape) {
  const auto object = object_at(value, path);
  if (!object) {
    return std::unexpected(object.error());
  }
  JsonFields fields(*object, kToolFields, path + ".");
  if (auto checked = check_function_type(fields, path); !checked) {
    return std::unexpected(std::move(checked).error());
  }
  if (shape == ToolShape::Flat) {
    return FunctionPart{*object, path};
  }
  const std::string at = path + ".function";
  const auto function = object_at(fields.get("function"), at);
  if (!function) {
    return std::unexpected(function.error());
  }
  return FunctionPart{*function, at};
}

ApiResult<std::string> read_name(JsonFields& function, const std::string& path) {
  if (!function.has("name")) {
    return std::unexpected(missing_field(path + ".name"));
  }
  std::string name;
  function.read("name", name);
  if (function.error()) {
    return std::unexpected(*function.error());
  }
  return name;
}

// The name in a tool of which nothing else counts.
ApiResult<std::string> name_in(const std::optional<JsonElement>& value,
                               const std::string& path,
                               ToolShape shape) {
  const auto part = function_part(value, path, shape);
  if (!part) {
    return std::unexpected(part.error());
  }
  JsonFields function(part->object, kFlatFields, part->path + ".");
  return read_name(function, part->path);
}

ApiResult<std::string> parameters_of(const JsonFields& fields, const std::string& path) {
  const auto parameters = fields.get("parameters");
  if (!parameters) {
    return std::string(kNoParameters);
  }
  const auto object = object_at(parameters, path);
  if (!object) {
    return std::unexpected(object.error());
  }
  std::string_view type = "object";
  const auto given = (*object)["type"];
  if (given.error() == simdjson::SUCCESS &&
      (given.get(type) != simdjson::SUCCESS || type != "object")) {
    return std::unexpected(
        out_of_range(path + ".type", "the schema of a function's parameters must be an object's"));
  }
  return object->size() == 0 ? std::string(kNoParameters) : simdjson::minify(*parameters);
}

ApiResult<FunctionTool> read_tool(const JsonElement& value,
                                  const std::string& path,
                                  ToolShape shape) {
  const auto part = function_part(value, path, shape);
  if (!part) {
    return std::unexpected(part.error());
  }
  const std::string& at = part->path;
  JsonFields inner(part->object, kFlatFields, at + ".");
  FunctionTool tool;
  auto name = read_name(inner, at);
  if (!name) {
    return std::unexpected(std::move(name).error());
  }
  tool.name = std::move(*name);
  std::string description;
  inner.read("description", description);
  inner.read("strict", tool.strict);
  if (inner.error()) {
    return std::unexpected(*inner.error());
  }
  if (!is_name(tool.name)) {
    return std::unexpected(out_of_range(
        at + ".name",
        fmt::format("must be 1 to {} of the characters a-z, A-Z, 0-9, _ and -", kMaxNameBytes)));
  }
  auto parameters = parameters_of(inner, at + ".parameters");
  if (!parameters) {
    return std::unexpected(std::move(parameters).error());
  }
  tool.parameters_json = std::move(*parameters);
  tool.json = "{\"type\":\"function\",\"function\":{\"name\":";
  append_json_string(tool.json, tool.name);
  tool.json += ",\"description\":";
  append_json_string(tool.json, description);
  tool.json += ",\"parameters\":" + tool.parameters_json + "}}";
  return tool;
}

bool has_tool(const ToolRequest& request, std::string_view name) {
  return std::ranges::any_of(request.tools,
                             [&](const FunctionTool& tool) { return tool.name == name; });
}

void keep_only(ToolRequest& request, const std::vector<std::string>& names) {
  std::erase_if(request.tools, [&](const FunctionTool& tool) {
    return std::ranges::find(names, tool.name) == names.end();
  });
}

ApiError not_offered(const std::string& path, std::string_view name) {
  return bad_request("invalid_value",
                     path,
                     fmt::format("Tool choice '{}' is not among the functions in 'tools'.", name));
}

void read_list(JsonFields& fields, ToolShape shape, ToolRequest& request) {
  const auto tools = fields.get("tools");
  if (!tools) {
    return;
  }
  simdjson::dom::array array;
  if (tools->get(array) != simdjson::SUCCESS) {
    return fields.fail(wrong_type("tools", "an array", *tools));
  }
  for (const JsonElement item : array) {
    const std::string path = fmt::format("tools[{}]", request.tools.size());
    if (request.tools.size() == kMaxTools) {
      return fields.fail(out_of_range("tools", fmt::format("at most {} are allowed", kMaxTools)));
    }
    auto tool = read_tool(item, path, shape);
    if (!tool) {
      return fields.fail(std::move(tool).error());
    }
    if (has_tool(request, tool->name)) {
      return fields.fail(
          out_of_range(path + (shape == ToolShape::Flat ? ".name" : ".function.name"),
                       fmt::format("'{}' is there already", tool->name)));
    }
    request.tools.push_back(std::move(*tool));
  }
}

void read_allowed(JsonFields& fields,
                  const JsonElement& choice,
                  ToolShape shape,
                  ToolRequest& request) {
  const bool flat = shape == ToolShape::Flat;
  const std::string path = flat ? "tool_choice" : "tool_choice.allowed_tools";
  std::optional<JsonElement> list = choice;
  if (!flat) {
    JsonElement nested;
    list = choice["allowed_tools"].get(nested) == simdjson::SUCCESS ? std::optional(nested)
                                                                    : std::nullopt;
  }
  const auto object = object_at(list, path);
  if (!object) {
    return fields.fail(object.error());
  }
  JsonFields inner(*object, kChoiceFields, path + ".");
  std::string mode = "auto";
  inner.read("mode", mode);
  if (inner.error()) {
    return fields.fail(*inner.error());
  }
  if (mode != "auto" && mode != "required") {
    return fields.fail(out_of_range(path + ".mode", "must be 'auto' or 'required'"));
  }
  const auto tools = inner.get("tools");
  simdjson::dom::array array;
  if (!tools) {
    return fields.fail(missing_field(path + ".tools"));
  }
  if (tools->get(array) != simdjson::SUCCESS || array.size() == 0) {
    return fields.fail(wrong_type(path + ".tools", "an array of at least one tool", *tools));
  }
  std::vector<std::string> names;
  for (const JsonElement item : array) {
    const std::string at = fmt::format("{}.tools[{}]", path, names.size());
    auto name = name_in(item, at, shape);
    if (!name) {
      return fields.fail(std::move(name).error());
    }
    if (!has_tool(request, *name)) {
      return fields.fail(not_offered(at, *name));
    }
    names.push_back(std::move(*name));
  }
  keep_only(request, names);
  request.choice = mode == "auto" ? ToolChoice::Auto : ToolChoice::Required;
}

void read_choice_object(JsonFields& fields,
                        const JsonElement& value,
                        ToolShape shape,
                        ToolRequest& request) {
  const auto object = object_at(value, "tool_choice");
  if (!object) {
    return fields.fail(wrong_type("tool_choice", "a string or an object", value));
  }
  JsonFields choice(*object, kChoiceFields, "tool_choice.");
  std::string type;
  choice.read("type", type);
  if (choice.error()) {
    return fields.fail(*choice.error());
  }
  if (type == "allowed_tools") {
    return read_allowed(fields, value, shape, request);
  }
  auto name = name_in(value, "tool_choice", shape);
  if (!name) {
    return fields.fail(std::move(name).error());
  }
  if (!has_tool(request, *name)) {
    return fields.fail(not_offered("tool_choice", *name));
  }
  keep_only(request, {*name});
  request.choice = ToolChoice::Named;
}

void read_choice(JsonFields& fields, ToolShape shape, ToolRequest& request) {
  request.choice = request.tools.empty() ? ToolChoice::None : ToolChoice::Auto;
  const auto value = fields.get("tool_choice");
  if (!value) {
    return;
  }
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) {
    return read_choice_object(fields, *value, shape, request);
  }
  if (text == "none") {
    request.choice = ToolChoice::None;
    request.tools.clear();
  } else if (text == "required") {
    if (request.tools.empty()) {
      return fields.fail(bad_request(
          "invalid_value", "tool_choice", "'tool_choice' needs 'tools' to choose from."));
    }
    request.choice = ToolChoice::Required;
  } else if (text != "auto") {
    fields.fail(out_of_range("tool_choice",
                             "must be 'none', 'auto', 'required' or an object that names a tool"));
  }
}

}  // namespace

std::string ToolRequest::tools_json() const {
  std::string out;
  for (const FunctionTool& tool : tools) {
    out += out.empty() ? '[' : ',';
    out += tool.json;
  }
  return out.empty() ? out : out + ']';
}

void refuse_tools(JsonFields& fields) {
  for (const std::string_view name : {"tools", "functions"}) {
    simdjson::dom::array array;
    const auto value = fields.get(name);
    if (value && !(value->get(array) == simdjson::SUCCESS && array.size() == 0)) {
      fields.fail(bad_request(
          "unsupported_parameter",
          std::string(name),
          fmt::format("Unsupported parameter: '{}'. Use /v1/chat/completions for tools.", name)));
    }
  }
}

void read_tools(JsonFields& fields, ToolShape shape, ToolRequest& request) {
  for (const auto& [older, newer] :
       {std::pair("functions", "tools"), std::pair("function_call", "tool_choice")}) {
    if (fields.has(older)) {
      return fields.fail(
          bad_request("unsupported_parameter",
                      older,
                      fmt::format("Unsupported parameter: '{}'. Use '{}'.", older, newer)));
    }
  }
  read_list(fields, shape, request);
  if (fields.error()) {
    return;
  }
  fields.read("parallel_tool_calls", request.parallel);
  read_choice(fields, shape, request);
}

}  // namespace baton::gateway

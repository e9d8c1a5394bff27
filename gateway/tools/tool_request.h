// The tools of a chat request, checked: which functions there are and which of them may or must be
// called.
//
// Thread: plain values; reading is a pure function. Failure: an ApiError in `fields` that names the
// field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gateway/openai/json_fields.h"

namespace baton::gateway {

struct FunctionTool {
  std::string name;
  std::string json;             // as templates take it: {"type":"function","function":{…}}
  std::string parameters_json;  // the schema of its arguments
  bool strict = false;          // a schema that no grammar can hold to is refused
};

enum class ToolChoice : std::uint8_t { None, Auto, Required, Named };

struct ToolRequest {
  std::vector<FunctionTool> tools;  // that may be called; empty with ToolChoice::None
  ToolChoice choice = ToolChoice::None;
  bool parallel = true;  // several calls in one answer

  bool is_used() const { return choice != ToolChoice::None; }
  bool is_forced() const { return choice == ToolChoice::Required || choice == ToolChoice::Named; }
  // The array for a chat template; empty without tools.
  std::string tools_json() const;
};

inline constexpr std::size_t kMaxTools = 1024;

// How a tool is written: {"type":"function","function":{"name":…}}, as in chats, or flat,
// {"type":"function","name":…}, as in /v1/responses.
enum class ToolShape : std::uint8_t { Nested, Flat };

// Reads `tools`, `tool_choice` and `parallel_tool_calls`; refuses the older `functions` and
// `function_call`.
void read_tools(JsonFields& fields, ToolShape shape, ToolRequest& request);
// For an endpoint without messages.
void refuse_tools(JsonFields& fields);

}  // namespace baton::gateway

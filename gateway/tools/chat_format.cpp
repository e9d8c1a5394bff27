#include "gateway/tools/chat_format.h"

#include "gateway/tools/tool_prompt.h"

namespace baton::gateway {
namespace {

ApiError not_here(std::string_view why) {
  return bad_request(
      "unsupported_parameter", "tools", "Unsupported parameter: 'tools'. " + std::string(why));
}

}  // namespace

ApiResult<void> write_messages(const ApiRequest& api,
                               const ServedModel& model,
                               engine::ChatTemplateInput& input) {
  input.messages = api.messages;
  const ToolFormat format = model.tool_format;
  if (format == ToolFormat::Off || format == ToolFormat::Unknown) {
    if (api.tools.is_used()) {
      return std::unexpected(not_here(
          format == ToolFormat::Off ? "Tools are switched off for this model."
                                    : "How this model writes calls is not known to this server."));
    }
    return {};
  }
  if (api.tools.is_forced()) {
    return std::unexpected(bad_request(
        "unsupported_value", "tool_choice", "This server supports only 'auto' and 'none' yet."));
  }
  if (!model.artifacts->format.template_has_tools) {
    write_tools_as_text(format, api.tools, input.messages);
    return {};
  }
  if (format == ToolFormat::Mistral) {
    shorten_call_ids(input.messages);
  }
  input.tools_json = api.tools.tools_json();
  return {};
}

AnswerTextOptions answer_options(const ApiRequest& api,
                                 const ServedModel& model,
                                 std::span<const TokenId> prompt) {
  AnswerTextOptions options;
  if (api.endpoint != Endpoint::Chat) {
    return options;
  }
  const ModelFormat& format = model.artifacts->format;
  if (model.has_reasoning) {
    options.reasoning = true;
    options.reasoning_open = opens_reasoning(*model.artifacts->tokenizer, prompt);
    options.shown = format.reasoning_tokens;
  }
  const ToolRequest& tools = api.tools;
  if (tools.is_used()) {
    options.tools = model.tool_format;
    for (const FunctionTool& tool : tools.tools) {
      options.calls.names.push_back(tool.name);
    }
    options.calls.hold = !api.stream;
    options.calls.one_call =
        !tools.parallel || format.one_call || tools.choice == ToolChoice::Named;
    options.finish_as_calls = tools.choice != ToolChoice::Named;
    options.shown.insert(options.shown.end(), format.tool_tokens.begin(), format.tool_tokens.end());
  }
  return options;
}

}  // namespace baton::gateway

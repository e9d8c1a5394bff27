#include "gateway/tools/chat_format.h"

#include <fmt/format.h>

#include "gateway/tools/call_grammar.h"
#include "gateway/tools/tool_prompt.h"

namespace baton::gateway {
namespace {

ApiError not_here(std::string_view why) {
  return bad_request(
      "unsupported_parameter", "tools", "Unsupported parameter: 'tools'. " + std::string(why));
}

// The tools with the schemas that a grammar holds to.
ApiResult<ToolRequest> held_tools(ToolRequest tools, GrammarChecker& grammars) {
  for (FunctionTool& tool : tools.tools) {
    const Status checked = grammars.check({Grammar::Kind::JsonSchema, tool.parameters_json});
    if (!checked && tool.strict) {
      return std::unexpected(bad_request(
          "invalid_function_parameters",
          "tools",
          fmt::format(
              "Invalid schema for function '{}': {}.", tool.name, checked.error().message)));
    }
    if (!checked) {
      tool.parameters_json = R"({"type":"object"})";
    }
  }
  return tools;
}

}  // namespace

ApiResult<void> write_messages(ApiRequest& api,
                               const ServedModel& model,
                               engine::ChatTemplateInput& input) {
  input.messages = std::move(api.messages);
  const ToolFormat format = model.tool_format;
  if (format == ToolFormat::Off || format == ToolFormat::Unknown) {
    if (api.tools.is_used()) {
      return std::unexpected(not_here(
          format == ToolFormat::Off ? "Tools are switched off for this model."
                                    : "How this model writes calls is not known to this server."));
    }
    return {};
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

ApiResult<Grammar> answer_grammar(const ApiRequest& api,
                                  const ServedModel& model,
                                  std::span<const TokenId> prompt,
                                  GrammarChecker& grammars) {
  const bool forced = api.tools.is_forced();
  if (!api.tools.is_used() || (!forced && api.output.grammar.kind == Grammar::Kind::None)) {
    return api.output.grammar;
  }
  // A whole answer must be able to end, and must not have to go on.
  if (api.ignore_eos || api.min_tokens > 0) {
    return std::unexpected(
        bad_request("invalid_value",
                    "tool_choice",
                    "A forced call cannot be combined with 'ignore_eos' or 'min_tokens'."));
  }
  auto tools = held_tools(api.tools, grammars);
  if (!tools) {
    return std::unexpected(std::move(tools).error());
  }
  const AnswerTextOptions answer = answer_options(api, model, prompt);
  Grammar grammar{Grammar::Kind::StructuralTag,
                  call_grammar(model.tool_format,
                               *tools,
                               {answer.calls.one_call,
                                answer.reasoning,
                                answer.reasoning_open,
                                forced ? Grammar{} : api.output.grammar})};
  if (const Status checked = grammars.check(grammar); !checked) {
    return std::unexpected(bad_request(
        "invalid_value",
        "tools",
        fmt::format("No answer can be held to these tools: {}.", checked.error().message)));
  }
  return grammar;
}

AnswerTextOptions answer_options(const ApiRequest& api,
                                 const ServedModel& model,
                                 std::span<const TokenId> prompt) {
  AnswerTextOptions options;
  if (!api.is_chat()) {
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
    options.calls.only_calls = tools.is_forced();
    options.calls.bare = tools.is_forced() || api.output.grammar.kind != Grammar::Kind::None;
    options.finish_as_calls = tools.choice != ToolChoice::Named;
    options.shown.insert(options.shown.end(), format.tool_tokens.begin(), format.tool_tokens.end());
  }
  return options;
}

}  // namespace baton::gateway

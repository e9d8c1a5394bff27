#include "gateway/tools/tool_format.h"

#include <algorithm>
#include <array>
#include <string>

namespace baton::gateway {
namespace {

constexpr auto kHermesOpeners = std::to_array<std::string_view>({"<tool_call>"});
constexpr auto kLlama3Openers = std::to_array<std::string_view>({"<|python_tag|>"});
constexpr auto kMistralOpeners = std::to_array<std::string_view>({"[TOOL_CALLS]"});
constexpr auto kGemmaOpeners =
    std::to_array<std::string_view>({"```tool_code", "```tool_call", "```json"});

constexpr CallSyntax kHermes{kHermesOpeners, "</tool_call>", false, true};
constexpr CallSyntax kLlama3{kLlama3Openers, {}, true, false, false, ';'};
constexpr CallSyntax kMistral{kMistralOpeners, {}, false, true, true};
constexpr CallSyntax kGemma{kGemmaOpeners, "```", true, true, false, 0, false};

constexpr auto kToolMarks = std::to_array<std::string_view>(
    {"<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"});
constexpr auto kReasoningMarks = std::to_array<std::string_view>({"<think>", "</think>"});
constexpr std::string_view kThink = "<think>";

// Tried in this order; the first text that the template holds decides.
struct Sign {
  std::string_view text;
  ToolFormat format;
};
constexpr auto kSigns = std::to_array<Sign>({
    {"<function=", ToolFormat::Unknown},  // calls as XML, inside of the same tags as Hermes'
    {"<arg_key>", ToolFormat::Unknown},
    {"invoke name=", ToolFormat::Unknown},
    {"<tool_call>", ToolFormat::Hermes},
    {"[TOOL_CALLS]", ToolFormat::Mistral},
    {"<|python_tag|>", ToolFormat::Llama3},
    {"<|start_header_id|>", ToolFormat::Llama3},
});

std::vector<TokenId> special_tokens(const engine::TokenizerSpec& spec,
                                    std::span<const std::string_view> texts) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (i < spec.kinds.size() && spec.kinds[i] == engine::TokenKind::Control &&
        std::ranges::find(texts, spec.tokens[i]) != texts.end()) {
      ids.push_back(static_cast<TokenId>(i));
    }
  }
  return ids;
}

constexpr std::string_view kProbe = "name_of_a_probe";
constexpr std::string_view kProbeTools =
    R"([{"type":"function","function":{"name":"name_of_a_probe","description":"d",)"
    R"("parameters":{"type":"object","properties":{"a":{"type":"string","description":"d"}},)"
    R"("required":["a"]}}}])";

// What the template makes of a user's message and an answer with that many calls; empty when it
// refuses them.
std::string probe(const engine::ChatTemplate& chat_template, int num_calls) {
  engine::ChatTemplateInput input;
  input.messages = {{"user", "Hello", "", ""}};
  std::string calls;
  std::vector<engine::ChatMessage> results;
  for (int i = 0; i < num_calls; ++i) {
    const std::string id = "probe000" + std::to_string(i);
    calls += (calls.empty() ? "" : ",") + (R"({"id":")" + id) +
             R"(","type":"function","function":{"name":"name_of_a_probe","arguments":{"a":"b"}}})";
    results.push_back({"tool", "c", std::string(kProbe), R"({"tool_call_id":")" + id + "\"}"});
  }
  if (num_calls > 0) {
    input.messages.push_back({"assistant", "", "", R"({"tool_calls":[)" + calls + "]}"});
    input.messages.insert(input.messages.end(), results.begin(), results.end());
  }
  input.tools_json = kProbeTools;
  std::string text;
  if (const auto pieces = chat_template.render(input)) {
    for (const engine::PromptPiece& piece : *pieces) {
      text += piece.text;
    }
  }
  return text;
}

}  // namespace

const CallSyntax& syntax_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::Llama3:
      return kLlama3;
    case ToolFormat::Mistral:
      return kMistral;
    case ToolFormat::Gemma:
      return kGemma;
    default:
      return kHermes;
  }
}

ModelFormat detect_format(const engine::TokenizerSpec& spec,
                          const engine::ChatTemplate* chat_template) {
  ModelFormat format;
  format.tool_tokens = special_tokens(spec, kToolMarks);
  format.reasoning_tokens = special_tokens(spec, kReasoningMarks);
  format.has_reasoning = spec.chat_template.find(kThink) != std::string::npos;
  // A template knows tools when the name of one shows up in the prompt.
  format.template_has_tools =
      chat_template != nullptr && probe(*chat_template, 0).find(kProbe) != std::string::npos;
  if (!format.template_has_tools) {
    format.tools = spec.architecture.starts_with("gemma") ? ToolFormat::Gemma : ToolFormat::Hermes;
    return format;
  }
  const auto sign = std::ranges::find_if(kSigns, [&](const Sign& known) {
    return spec.chat_template.find(known.text) != std::string::npos;
  });
  format.tools = sign == kSigns.end() ? ToolFormat::Unknown : sign->format;
  format.one_call = probe(*chat_template, 2).empty() && !probe(*chat_template, 1).empty();
  return format;
}

ToolFormat tool_format_of(const ModelFormat& detected, FormatOverride choice) {
  const std::string_view name = choice.tool_parser;
  return name == "off"       ? ToolFormat::Off
         : name == "hermes"  ? ToolFormat::Hermes
         : name == "llama3"  ? ToolFormat::Llama3
         : name == "mistral" ? ToolFormat::Mistral
         : name == "gemma"   ? ToolFormat::Gemma
                             : detected.tools;
}

bool has_reasoning(const ModelFormat& detected, FormatOverride choice) {
  return choice.reasoning_parser == "auto" ? detected.has_reasoning
                                           : choice.reasoning_parser == "think";
}

bool opens_reasoning(const engine::Tokenizer& tokenizer, std::span<const TokenId> prompt) {
  std::string tail;
  // A line's end may follow the tag, as tokens of its own.
  constexpr std::size_t kEnough = 2 * kThink.size();
  for (auto id = prompt.rbegin(); id != prompt.rend() && tail.size() < kEnough; ++id) {
    tail.insert(0, tokenizer.token_bytes(*id, true));
  }
  const std::size_t end = tail.find_last_not_of(" \n\r\t");
  return end != std::string::npos && std::string_view(tail).substr(0, end + 1).ends_with(kThink);
}

}  // namespace baton::gateway

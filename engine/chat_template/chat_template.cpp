#include "engine/chat_template/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/chat_template/interpreter.h"
#include "engine/chat_template/json.h"
#include "engine/chat_template/parser.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

using jinja::Dict;
using jinja::Text;
using jinja::Value;

constexpr std::size_t kMaxSourceBytes = 1U << 20;

// Gemma's turns. The system text goes before the first user text; the assistant is "model".
constexpr std::string_view kGemmaTemplate = R"({{ bos_token }}
{%- if messages and messages[0].role in ['system', 'developer'] %}
  {%- set system_text = messages[0].content | trim + '\n\n' %}
  {%- set turns = messages[1:] %}
{%- else %}
  {%- set system_text = '' %}
  {%- set turns = messages %}
{%- endif %}
{%- for message in turns %}
  {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
  {%- endif %}
  {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
  {{- system_text if loop.first else '' }}
  {{- message.content | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<start_of_turn>model\n' }}
{%- endif %})";

// Names of roles are the one part of a request that templates build markers from ('<|' + role +
// '|>'), so these, and no others, count as the template's own text.
constexpr std::array<std::string_view, 8> kRoles = {
    "system", "user", "assistant", "tool", "developer", "function", "model", "ipython"};

// Texts that every rendering is given: made once, shared by all.
struct CommonTexts {
  CommonTexts() {
    std::ranges::transform(
        kRoles, roles.begin(), [](std::string_view role) { return Value::own(std::string(role)); });
  }
  std::array<Value, kRoles.size()> roles;  // beside kRoles
  Value role = Value::own("role");
  Value content = Value::own("content");
  Value name = Value::own("name");
  Value messages = Value::own("messages");
  Value add_generation_prompt = Value::own("add_generation_prompt");
  Value bos_token = Value::own("bos_token");
  Value eos_token = Value::own("eos_token");
  Value tools = Value::own("tools");
};

const CommonTexts& common_texts() {
  static const CommonTexts kTexts;
  return kTexts;
}

Text foreign(std::string text) {
  return Text(sanitize_utf8(std::move(text)), true);
}

Value role_value(std::string role) {
  const auto known = std::ranges::find(kRoles, role);
  return known != kRoles.end()
             ? common_texts().roles[static_cast<std::size_t>(known - kRoles.begin())]
             : Value(foreign(std::move(role)));
}

Result<Value> message_value(ChatMessage message) {
  const CommonTexts& texts = common_texts();
  auto dict = std::make_shared<Dict>();
  const bool has_content = !message.content.empty();
  BATON_TRY(dict->set(texts.role, role_value(std::move(message.role))));
  BATON_TRY(dict->set(texts.content, Value(foreign(std::move(message.content)))));
  if (!message.name.empty()) {
    BATON_TRY(dict->set(texts.name, Value(foreign(std::move(message.name)))));
  }
  dict->frozen = true;  // as the list of messages would make a copy of it
  if (message.extra_json.empty()) {
    return Value(std::move(dict));
  }
  BATON_ASSIGN(const Value extra, jinja::parse_json(message.extra_json, "a message"));
  if (extra.dict() == nullptr) {
    return fail(ErrorCode::InvalidArgument, "a message's further fields must be a JSON object");
  }
  for (const auto& [key, value] : extra.dict()->entries()) {
    // The role is decided above; content may come in parts, or be null beside tool calls.
    if (key.text()->view() == "role" || (key.text()->view() == "content" && has_content)) {
      continue;
    }
    BATON_TRY(dict->set(key, value));
  }
  return Value(std::move(dict));
}

Result<Dict> globals_of(ChatTemplateInput input) {
  Dict globals;
  std::vector<Value> messages;
  messages.reserve(input.messages.size());
  for (ChatMessage& message : input.messages) {
    BATON_ASSIGN(Value value, message_value(std::move(message)));
    messages.push_back(std::move(value));
  }
  if (!input.kwargs_json.empty()) {
    BATON_ASSIGN(const Value extra, jinja::parse_json(input.kwargs_json, "chat_template_kwargs"));
    if (extra.dict() == nullptr) {
      return fail(ErrorCode::InvalidArgument, "chat_template_kwargs must be a JSON object");
    }
    for (const auto& [key, value] : extra.dict()->entries()) {
      BATON_TRY(globals.set(key, value));
    }
  }
  // A namespace alone holds the list itself, so that templates may take messages off it.
  globals.is_namespace = true;
  BATON_ASSIGN(Value list, jinja::make_list(std::move(messages)));
  const CommonTexts& texts = common_texts();
  BATON_TRY(globals.set(texts.messages, std::move(list)));
  BATON_TRY(globals.set(texts.add_generation_prompt, Value(input.add_generation_prompt)));
  BATON_TRY(globals.set(texts.bos_token, Value::own(std::move(input.bos_token))));
  BATON_TRY(globals.set(texts.eos_token, Value::own(std::move(input.eos_token))));
  Value tools = jinja::None{};
  if (!input.tools_json.empty()) {
    BATON_ASSIGN(tools, jinja::parse_json(input.tools_json, "tools"));
    if (tools.list() == nullptr) {
      return fail(ErrorCode::InvalidArgument, "tools must be a JSON array");
    }
  }
  BATON_TRY(globals.set(texts.tools, std::move(tools)));
  return globals;
}

class JinjaTemplate final : public ChatTemplate {
 public:
  explicit JinjaTemplate(jinja::NodePtr root) : root_(std::move(root)) {}

  Result<std::vector<PromptPiece>> render(ChatTemplateInput input) const override {
    const std::int64_t unix_seconds = input.unix_seconds;
    BATON_ASSIGN(const Dict globals, globals_of(std::move(input)));
    jinja::Interpreter interpreter(globals, unix_seconds);
    BATON_ASSIGN(const Text text, interpreter.run(*root_));
    std::vector<PromptPiece> pieces;
    pieces.reserve(text.runs().size());
    std::size_t begin = 0;
    for (const Text::Run& run : text.runs()) {
      pieces.push_back({text.str().substr(begin, run.end - begin), !run.foreign});
      begin = run.end;
    }
    return pieces;
  }

 private:
  jinja::NodePtr root_;
};

}  // namespace

Result<std::unique_ptr<const ChatTemplate>> ChatTemplate::create(std::string source,
                                                                 std::string_view architecture) {
  if (source.empty()) {
    if (!architecture.starts_with("gemma")) {
      return fail(ErrorCode::NotFound,
                  fmt::format("the model file has no chat template, and none is built in for '{}'",
                              architecture));
    }
    source = kGemmaTemplate;
  }
  if (source.size() > kMaxSourceBytes) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format(
            "the chat template has {} bytes, more than {}", source.size(), kMaxSourceBytes));
  }
  BATON_ASSIGN(jinja::NodePtr root, jinja::parse_template(sanitize_utf8(source)));
  return std::make_unique<const JinjaTemplate>(std::move(root));
}

}  // namespace baton::engine

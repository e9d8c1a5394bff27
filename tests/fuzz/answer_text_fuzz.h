// Text of an answer as reasoning, content and calls of tools: where the text is cut changes
// nothing, text without calls comes out as it went in, and a call that is given whole has a JSON
// object as its arguments.
//
// The first byte chooses format and options, the second how the text comes in pieces; its highest
// bit says that the answer is calls alone. The rest is the text.
#pragma once

#include <simdjson.h>

#include <algorithm>

#include "gateway/tools/answer_text.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton::fuzz {

struct AnswerTextFuzz {
  static constexpr std::string_view kName = "answer_text";

  static void run(std::span<const std::uint8_t> bytes) {
    if (bytes.size() < 2) {
      return;
    }
    gateway::AnswerTextOptions options = options_of(bytes[0]);
    options.calls.only_calls = options.calls.bare = (bytes[1] & 128U) != 0;
    const bool is_cut = (bytes[0] & 128U) != 0;
    const std::string_view text = as_text(bytes.subspan(2));
    const gateway::AnswerParts whole = parse(options, text, text.size(), is_cut);
    fuzz_check(whole == parse(options, text, 1, is_cut));
    fuzz_check(whole == parse(options, text, 2 + bytes[1] % 30, is_cut));
    check_calls(options, whole, is_cut || options.calls.only_calls);
    const bool has_calls = std::ranges::any_of(whole, [](const gateway::AnswerPart& part) {
      return part.kind == gateway::AnswerPart::Kind::CallBegin;
    });
    if (options.tools && options.calls.only_calls) {
      fuzz_check(std::ranges::none_of(whole, [](const gateway::AnswerPart& part) {
        return part.kind == gateway::AnswerPart::Kind::Content;
      }));
    } else if (!has_calls && !options.reasoning) {
      fuzz_check(is_cut ? text.starts_with(text_of(whole)) : text_of(whole) == text);
    }
  }

  static std::vector<std::string> seeds() {
    return {
        std::string("\x00\x01", 2) +
            "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, -2.5e3, true, "
            "null]}}\n</tool_call>\n<tool_call>\n{\"arguments\": {}, \"name\": \"g_2\"}\n"
            "</tool_call>",
        std::string("\x11\x02", 2) +
            "{\"name\": \"f\", \"parameters\": {\"s\": \"\\u00e9\\n\"}}; {\"name\": \"g_2\", "
            "\"parameters\": {}}",
        std::string("\x01\x02", 2) +
            "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", "
            "\"parameters\": {}}",
        std::string("\x12\x03", 2) +
            "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g_2\", "
            "\"arguments\": {\"x\": {\"y\": []}}, \"id\": \"abcdefghi\"}]",
        std::string("\x02\x05", 2) +
            "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}[TOOL_CALLS]"
            "g_2{}",
        std::string("\x13\x04", 2) +
            "Well:\n```json\n[{\"name\": \"f\", \"parameters\": {\"a\": 0.5}}]\n```\nDone.",
        std::string("\x24\x04", 2) +
            "<think>\n a < b \n</think>\n\n<tool_call>{\"name\": \"f\", "
            "\"arguments\": {}}</tool_call>",
        std::string("\x4c\x07", 2) + "because </thi </think> so",
        std::string("\x80\x03", 2) + "So <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"lo",
        std::string("\x91\x83", 2) + "{\"name\": \"f\", \"parameters\": {}}; {\"na",
    };
  }

 private:
  static gateway::AnswerTextOptions options_of(std::uint8_t choice) {
    using gateway::ToolFormat;
    static constexpr ToolFormat kFormats[] = {
        ToolFormat::Hermes, ToolFormat::Llama3, ToolFormat::Mistral, ToolFormat::Gemma};
    gateway::AnswerTextOptions options;
    options.tools = kFormats[choice & 3U];
    options.reasoning = (choice & 4U) != 0;
    options.reasoning_open = (choice & 8U) != 0;
    options.calls.names = {"f", "g_2"};
    options.calls.hold = (choice & 16U) != 0;
    options.calls.one_call = (choice & 32U) != 0;
    if ((choice & 64U) != 0) {
      options.tools.reset();
    }
    return options;
  }

  // The parts after pushing pieces of this size; neighbours of one kind are joined as they come.
  static gateway::AnswerParts parse(const gateway::AnswerTextOptions& options,
                                    std::string_view text,
                                    std::size_t piece,
                                    bool is_cut) {
    gateway::AnswerText answer(options, RequestId{7}, 0);
    for (std::size_t at = 0; at < text.size(); at += piece) {
      answer.push(text.substr(at, piece));
    }
    answer.flush(is_cut);
    return answer.parts();
  }

  static std::string text_of(const gateway::AnswerParts& parts) {
    std::string text;
    for (const gateway::AnswerPart& part : parts) {
      text += part.text;
    }
    return text;
  }

  static void check_calls(const gateway::AnswerTextOptions& options,
                          const gateway::AnswerParts& parts,
                          bool may_be_cut) {
    std::uint32_t begun = 0;
    simdjson::dom::parser parser;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const gateway::AnswerPart& part = parts[i];
      if (part.kind == gateway::AnswerPart::Kind::CallBegin) {
        fuzz_check(part.call == begun++);
        fuzz_check(!part.id.empty());
        fuzz_check(part.text == "f" || part.text == "g_2");
        const bool is_last = i + 1 == parts.size();
        fuzz_check(is_last ? may_be_cut
                           : parts[i + 1].kind == gateway::AnswerPart::Kind::CallArguments);
      } else if (part.kind == gateway::AnswerPart::Kind::CallArguments) {
        fuzz_check(i > 0 && parts[i - 1].kind == gateway::AnswerPart::Kind::CallBegin);
        simdjson::dom::element root;
        const auto fault = parser.parse(part.text).get(root);
        const bool is_whole = options.calls.hold && !(may_be_cut && i + 1 == parts.size());
        // Bytes that are no UTF-8 cannot come out of a detokenizer; numbers may be beyond a double.
        fuzz_check(!is_whole || fault == simdjson::UTF8_ERROR || fault == simdjson::STRING_ERROR ||
                   fault == simdjson::NUMBER_ERROR ||
                   (fault == simdjson::SUCCESS && root.is_object()));
      }
    }
    fuzz_check(!options.calls.one_call || !options.calls.hold || begun <= 1);
  }
};

}  // namespace baton::fuzz

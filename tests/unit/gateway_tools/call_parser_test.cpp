#include "gateway/tools/call_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/fuzz/answer_text_fuzz.h"

namespace baton::gateway {
namespace {

using Kind = AnswerPart::Kind;

// One word a part: "text", "#0 name", "#0<arguments".
std::string written(const AnswerParts& parts) {
  std::string out;
  for (const AnswerPart& part : parts) {
    out.append(out.empty() ? "" : "|");
    if (part.kind != Kind::Content) {
      out.append("#").append(std::to_string(part.call));
      out.append(part.kind == Kind::CallBegin ? " " : "<");
    }
    out.append(part.text);
  }
  return out;
}

std::string parsed(ToolFormat format,
                   const std::vector<std::string>& pieces,
                   bool hold = false,
                   bool one_call = false) {
  CallParser parser(format, {{"get_weather", "now"}, hold, one_call});
  AnswerParts parts;
  for (const std::string& piece : pieces) {
    parser.push(piece, parts);
  }
  parser.flush(parts, false);
  return written(parts);
}

TEST(CallParser, HermesCallsAmongText) {
  const std::string text =
      "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
      "\"Köln\"}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n";
  const std::string expected = "Let me look.|#0 get_weather|#0<{\"city\": \"Köln\"}|#1 now|#1<{}";
  EXPECT_EQ(parsed(ToolFormat::Hermes, {text}), expected);
  EXPECT_EQ(parsed(ToolFormat::Hermes, {text}, true), expected);
}

TEST(CallParser, ArgumentsAreStreamedAsTheyAreWritten) {
  CallParser parser(ToolFormat::Hermes, {{"now"}});
  const auto push = [&](const char* piece) {
    AnswerParts parts;
    parser.push(piece, parts);
    return written(parts);
  };
  EXPECT_EQ(push("Hi\n<tool"), "Hi");
  EXPECT_EQ(push("_call>{\"name\": \"no"), "");
  EXPECT_EQ(push("w\", \"arguments\": "), "");
  EXPECT_EQ(push("{\"a\""), "#0 now|#0<{\"a\"");
  EXPECT_EQ(push(": 1"), "#0<: 1");
  EXPECT_EQ(push("}} "), "#0<}");
  EXPECT_EQ(push("</tool_call>\n"), "");
  EXPECT_EQ(push("Bye"), "Bye");
}

TEST(CallParser, KeysMayComeInAnyOrder) {
  EXPECT_EQ(parsed(ToolFormat::Hermes,
                   {"<tool_call>{\"arguments\": {\"a\": 1}, \"id\": \"x\", \"name\": \"now\"}"}),
            "#0 now|#0<{\"a\": 1}");
}

TEST(CallParser, WhatIsNoCallIsContentAsItWasWritten) {
  for (const std::string text : {
           "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>",
           "<tool_call> not JSON </tool_call>",
           "<tool_call>{\"name\": \"now\"}</tool_call>",
           "<tool_call>{\"name\": \"now\", \"arguments\": \"{}\"}",
           "<tool_call>{\"name\": \"now\", \"more\": 1, \"arguments\": {}}",
           "<tool_call>{\"name\": \"now\", \"name\": \"now\", \"arguments\": {}}",
           "<tool_call>{\"name\": \"now\", \"arguments\": ",
           "a <tool_ca",
           " \n <tool_call>\n\n",
           "plain {\"name\": \"now\", \"arguments\": {}} text\n",
       }) {
    EXPECT_EQ(parsed(ToolFormat::Hermes, {text}), text);
    EXPECT_EQ(parsed(ToolFormat::Hermes, {text}, true), text);
  }
}

TEST(CallParser, ACallAfterABrokenOneIsFound) {
  EXPECT_EQ(parsed(ToolFormat::Hermes,
                   {"<tool_call><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"}),
            "<tool_call>|#0 now|#0<{}");
}

TEST(CallParser, BrokenArgumentsAreContentWhenHeldAndStayWhenStreamed) {
  const std::string text = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": x}}</tool_call>";
  EXPECT_EQ(parsed(ToolFormat::Hermes, {text}, true), text);
  EXPECT_EQ(parsed(ToolFormat::Hermes, {text}), "#0 now|#0<{\"a\": |x}}</tool_call>");
  const std::string cut = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"long";
  EXPECT_EQ(parsed(ToolFormat::Hermes, {cut}, true), cut);
  EXPECT_EQ(parsed(ToolFormat::Hermes, {cut}), "#0 now|#0<{\"a\": \"long");
}

TEST(CallParser, OneCallEndsIt) {
  const std::string text =
      "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"
      "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> and more";
  EXPECT_EQ(parsed(ToolFormat::Hermes, {text}, false, true), "#0 now|#0<{}");
}

TEST(CallParser, LlamaCallsStandAloneOrAfterThePythonTag) {
  const std::string two =
      "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"get_weather\", \"parameters\": "
      "{\"city\": "
      "\"Bonn\"}}";
  const std::string expected = "#0 now|#0<{}|#1 get_weather|#1<{\"city\": \"Bonn\"}";
  EXPECT_EQ(parsed(ToolFormat::Llama3, {two}), expected);
  EXPECT_EQ(parsed(ToolFormat::Llama3, {" \n", two}), expected);
  EXPECT_EQ(parsed(ToolFormat::Llama3, {"<|python_tag|>" + two}), expected);
  for (const std::string text : {"Say {\"name\": \"now\", \"parameters\": {}}",
                                 "{\"name\": \"Ada\", \"born\": 1815}",
                                 "{\"name\": \"Ada\"",
                                 "  {",
                                 "<|python_tag|>print(1)"}) {
    EXPECT_EQ(parsed(ToolFormat::Llama3, {text}), text);
  }
}

TEST(CallParser, MistralListsAndNames) {
  EXPECT_EQ(
      parsed(ToolFormat::Mistral,
             {"[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"get_weather\", "
              "\"arguments\": {\"city\": \"Bonn\"}, \"id\": \"123456789\"}]"}),
      "#0 now|#0<{}|#1 get_weather|#1<{\"city\": \"Bonn\"}");
  EXPECT_EQ(parsed(ToolFormat::Mistral, {"Hm.[TOOL_CALLS]now[ARGS]{\"a\": 1}[TOOL_CALLS]now{}"}),
            "Hm.|#0 now|#0<{\"a\": 1}|#1 now|#1<{}");
  EXPECT_EQ(parsed(ToolFormat::Mistral, {"[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}"}),
            "#0 now|#0<{}");
  for (const std::string text : {"[TOOL_CALLS] later[ARGS]{}", "[TOOL_CALLS][]", "[1, 2]"}) {
    EXPECT_EQ(parsed(ToolFormat::Mistral, {text}), text);
  }
}

TEST(CallParser, AGrammarMayMakeMistralsListBare) {
  CallParser parser(ToolFormat::Mistral, {.names = {"now"}, .bare = true});
  AnswerParts parts;
  parser.push(R"([{"name": "now", "arguments": {}}, {"name": "now", "arguments": {"a": 1}}])",
              parts);
  parser.flush(parts, false);
  EXPECT_EQ(written(parts), "#0 now|#0<{}|#1 now|#1<{\"a\": 1}");
}

struct Forced {
  ToolFormat format;
  std::string answer;  // two whole calls, as a grammar makes them
};
const std::vector<Forced>& forced() {
  static const std::vector<Forced> all = {
      {ToolFormat::Hermes,
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"1\"}}\n</tool_call>\n"
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>"},
      {ToolFormat::Llama3,
       "{\"name\": \"now\", \"parameters\": {\"a\": \"1\"}}; "
       "{\"name\": \"get_weather\", \"parameters\": {}}"},
      {ToolFormat::Mistral,
       "[{\"name\": \"now\", \"arguments\": {\"a\": \"1\"}}, "
       "{\"name\": \"get_weather\", \"arguments\": {}}]"},
      {ToolFormat::Gemma,
       "{\"name\": \"now\", \"parameters\": {\"a\": \"1\"}}\n"
       "{\"name\": \"get_weather\", \"parameters\": {}}"}};
  return all;
}

// Wherever max_tokens cuts a forced answer: what comes is a beginning of the calls' names and
// arguments, whole or streamed, and no byte of it is content.
TEST(CallParser, ACutForcedCallGivesItsArgumentsAndNoContent) {
  const std::string whole = "#0 now|#0<{\"a\": \"1\"}|#1 get_weather|#1<{}";
  for (const Forced& one : forced()) {
    for (std::size_t end = 0; end <= one.answer.size(); ++end) {
      for (const bool hold : {false, true}) {
        CallParser parser(
            one.format,
            {.names = {"now", "get_weather"}, .hold = hold, .bare = true, .only_calls = true});
        AnswerParts parts;
        parser.push(one.answer.substr(0, end), parts);
        parser.flush(parts, end < one.answer.size());
        EXPECT_TRUE(whole.starts_with(written(parts))) << one.answer.substr(0, end);
        const bool has_name = one.answer.substr(0, end).find("now\"") != std::string::npos;
        EXPECT_EQ(!parts.empty(), has_name) << one.answer.substr(0, end);
        if (end == one.answer.size()) {
          EXPECT_EQ(written(parts), whole);
          EXPECT_TRUE(parser.has_calls());
        }
      }
    }
  }
}

// The same where the model was free to call: its own words stay, those of the call do not come.
TEST(CallParser, ACutCallOfAFreeAnswerIsNoContent) {
  const std::string call = "{\"name\": \"now\", \"arguments\": {\"a\": \"1\"}}";
  struct Case {
    ToolFormat format;
    std::string text;
    std::string begin;  // after which a cut is one inside of a call for certain
  };
  for (const Case& one : {
           Case{ToolFormat::Hermes, "Hm.\n<tool_call>" + call + "\n</tool_call>", "<tool_call>"},
           Case{ToolFormat::Llama3, "<|python_tag|>" + call + "; " + call, "<|python_tag|>"},
           Case{ToolFormat::Llama3, call, "now\""},
           Case{ToolFormat::Mistral, "Hm.[TOOL_CALLS][" + call + ", " + call, "[TOOL_CALLS]"},
           Case{ToolFormat::Mistral, "Hm.[TOOL_CALLS]now[ARGS]{\"a\": \"1\"}", "[TOOL_CALLS]"},
           Case{ToolFormat::Gemma, "Hm.\n```json\n" + call + "\n```", "now\""},
       }) {
    const std::string content = one.text.starts_with("Hm.") ? "Hm." : "";
    for (std::size_t end = one.text.find(one.begin) + one.begin.size(); end < one.text.size();
         ++end) {
      for (const bool hold : {false, true}) {
        CallParser parser(one.format, {.names = {"now"}, .hold = hold});
        AnswerParts parts;
        parser.push(one.text.substr(0, end), parts);
        parser.flush(parts, true);
        std::string given;
        for (const AnswerPart& part : parts) {
          given += part.kind == Kind::Content ? part.text : "";
        }
        EXPECT_EQ(given, content) << one.text.substr(0, end);
      }
    }
  }
}

TEST(CallParser, ACutAnswerThatMayBeOtherTextStaysContent) {
  for (const auto& [format, text] : {
           std::pair{ToolFormat::Hermes, "a <tool_ca"},
           std::pair{ToolFormat::Hermes, "<tool_call> not JSON"},
           std::pair{ToolFormat::Llama3, "{\"name\": \"Ad"},
           std::pair{ToolFormat::Gemma, "```json\n{\"na"},
       }) {
    CallParser parser(format, {.names = {"now"}});
    AnswerParts parts;
    parser.push(text, parts);
    parser.flush(parts, true);
    EXPECT_EQ(written(parts), text);
  }
}

TEST(CallParser, AnAnswerCutInsideOfACallHasNotEndedWithCalls) {
  CallParser parser(ToolFormat::Hermes, {.names = {"now"}});
  AnswerParts parts;
  parser.push("<tool_call>{\"name\": \"now\", \"arguments\": {\"a", parts);
  EXPECT_TRUE(parser.has_calls());
  parser.flush(parts, true);
  EXPECT_FALSE(parser.has_calls());
}

TEST(CallParser, GemmaCallsMayStandInAFence) {
  const std::string call = "{\"name\": \"now\", \"parameters\": {}}";
  EXPECT_EQ(parsed(ToolFormat::Gemma, {call}), "#0 now|#0<{}");
  EXPECT_EQ(parsed(ToolFormat::Gemma, {"```json\n" + call + "\n```\n"}), "#0 now|#0<{}");
  EXPECT_EQ(parsed(ToolFormat::Gemma, {"So:\n```tool_code\n[" + call + ", " + call + "]\n```"}),
            "So:|#0 now|#0<{}|#1 now|#1<{}");
  for (const std::string text :
       {"```json\n{\"a\": 1}\n```", "```tool_code\nnow()\n```", "[] is empty"}) {
    EXPECT_EQ(parsed(ToolFormat::Gemma, {text}), text);
  }
}

// A call that is cut inside of a string, in which many others seem to begin: each is looked at, and
// what was looked at is not moved about for each. That would cost the square of 8 MB: minutes.
TEST(CallParser, ManyBeginningsInACallThatIsCutCostNoSquare) {
  const auto repeated = [](const std::string& part) {
    std::string text;
    while (text.size() < (std::size_t{8} << 20)) {
      text += part;
    }
    return text;
  };
  const std::string cut = "[TOOL_CALLS]now{\"a\":\"" + repeated("[TOOL_CALLS]now{");
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < cut.size(); at += 1000) {
    pieces.push_back(cut.substr(at, 1000));
  }
  EXPECT_TRUE(parsed(ToolFormat::Mistral, pieces, true) == cut);
  EXPECT_TRUE(parsed(ToolFormat::Mistral, {cut}, true) == cut);
  const std::string marks = repeated("[TOOL_CALLS]!");
  EXPECT_TRUE(parsed(ToolFormat::Mistral, {marks}) == marks);
}

// Texts of fragments that matter, in pieces of every size: fuzz::AnswerTextFuzz has the promises.
TEST(CallParser, CutsAnywhereChangeNothing) {
  const std::vector<std::string> fragments = {"<tool_call>",
                                              "</tool_call>",
                                              "<|python_tag|>",
                                              "[TOOL_CALLS]",
                                              "[ARGS]",
                                              "```json",
                                              "```tool_code",
                                              "```",
                                              "<think>",
                                              "</think>",
                                              "{\"name\": \"f\", ",
                                              "\"arguments\": ",
                                              "\"parameters\": ",
                                              "\"name\": \"g_2\"",
                                              "{\"a\": [1, -2.5e3, {\"b\": null}]}",
                                              "{}",
                                              "{",
                                              "}",
                                              "[",
                                              "]",
                                              ",",
                                              ";",
                                              "\n",
                                              " ",
                                              "f",
                                              "é",
                                              "\"",
                                              "\\u00e9",
                                              "\"id\": \"x\", ",
                                              "text"};
  std::mt19937_64 random(20260801);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    bytes += static_cast<char>(random() % 256);
    bytes += static_cast<char>(random() % 256);
    for (std::size_t left = 1 + random() % 14; left > 0; --left) {
      bytes += fragments[random() % fragments.size()];
    }
    SCOPED_TRACE(bytes.substr(2));
    fuzz::AnswerTextFuzz::run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  }
}

}  // namespace
}  // namespace baton::gateway

// The exact bytes of streams and whole answers.
#include "gateway/openai/responses.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace baton::gateway {
namespace {

ResponseWriter chat_writer(ResponseOptions options = {}) {
  return ResponseWriter({Endpoint::Chat, "chatcmpl-1", 7, "m", "fp_1"}, options);
}

constexpr const char* kHead =
    R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m",)"
    R"("system_fingerprint":"fp_1")";
constexpr const char* kUsage =
    R"({"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,)"
    R"("prompt_tokens_details":{"cached_tokens":1,"audio_tokens":0},)"
    R"("completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,)"
    R"("accepted_prediction_tokens":0,"rejected_prediction_tokens":0}})";

TEST(Responses, ChatStreamWithUsage) {
  ResponseOptions options;
  options.include_usage = true;
  ResponseWriter writer = chat_writer(options);
  std::string out;
  writer.begin(out, 0, {});
  writer.chunk(out, ChoiceText{"a\"\n", {}, 0, {}}, {});
  writer.close(out, {}, {FinishReason::Stop}, {}, "");
  writer.finish(out, Usage{3, 2, 1});
  const std::string head = kHead;
  EXPECT_EQ(
      out,
      head +
          R"(,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
          R"("finish_reason":null}],"usage":null})" +
          "\n\n" + head +
          R"(,"choices":[{"index":0,"delta":{"content":"a\"\n"},"logprobs":null,)"
          R"("finish_reason":null}],"usage":null})" +
          "\n\n" + head +
          R"(,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null}],)"
          R"("usage":null})" +
          "\n\n" + head + R"(,"choices":[],"usage":)" + kUsage + "}\n\ndata: [DONE]\n\n");
}

TEST(Responses, ChoicesHaveTheirIndex) {
  ResponseWriter writer = chat_writer();
  std::string out;
  writer.begin(out, 1, {});
  writer.chunk(out, {.text = "a", .index = 2}, {});
  writer.close(out, {.text = "b", .index = 3}, {FinishReason::Length}, {}, "");
  for (const char* start : {R"("index":1,"delta":{"role")",
                            R"("index":2,"delta":{"content":"a"})",
                            R"("index":3,"delta":{"content":"b"})",
                            R"("index":3,"delta":{},"logprobs":null,"finish_reason":"length")"}) {
    EXPECT_NE(out.find(start), std::string::npos) << start << "\n" << out;
  }
  const std::string whole = writer.whole(
      std::vector<WholeChoice>{{{.text = "x"}, {FinishReason::Stop}, {}, {}},
                               {{.text = "y", .index = 1}, {FinishReason::Length}, {}, {}}},
      {},
      "");
  EXPECT_NE(
      whole.find(
          R"("finish_reason":"stop","stop_reason":null},{"index":1,"message":{"role":"assistant",)"
          R"("content":"y")"),
      std::string::npos)
      << whole;
}

TEST(Responses, StopReasonNamesTheStringOrTheToken) {
  ResponseWriter writer = chat_writer();
  std::string out;
  writer.close(out, {}, {FinishReason::Stop, "a\"b", std::nullopt}, {}, "");
  EXPECT_NE(out.find(R"("finish_reason":"stop","stop_reason":"a\"b"})"), std::string::npos) << out;
  out.clear();
  writer.close(out, {}, {FinishReason::Stop, {}, 7}, {}, "");
  EXPECT_NE(out.find(R"("finish_reason":"stop","stop_reason":7})"), std::string::npos) << out;
}

TEST(Responses, AnEchoedPromptsFirstTokenHasNoLogprob) {
  ResponseOptions options;
  options.logprobs = true;
  ResponseWriter writer({Endpoint::Completions, "cmpl-1", 7, "m", "fp_1"}, options);
  const std::vector<TextLogprob> entries{{.bytes = "ab", .is_known = false}, {"c", -2.0F, {}}};
  std::string out;
  writer.chunk(out, ChoiceText{"abc", entries, 0, {}}, {});
  EXPECT_NE(out.find(R"("logprobs":{"tokens":["ab","c"],"token_logprobs":[null,-2],)"
                     R"("top_logprobs":[null,{}],"text_offset":[0,2]})"),
            std::string::npos)
      << out;
}

TEST(Responses, NoUsageUnlessAsked) {
  ResponseWriter writer = chat_writer();
  std::string out;
  writer.chunk(out, ChoiceText{"a", {}, 0, {}}, {});
  writer.finish(out, Usage{3, 2, 1});
  EXPECT_EQ(out.find("usage"), std::string::npos);
}

TEST(Responses, HeldBackTextComesBeforeTheEmptyClosingDelta) {
  ResponseWriter writer = chat_writer();
  std::string out;
  writer.close(out, ChoiceText{"tail", {}, 0, {}}, {FinishReason::Length}, {}, "");
  const std::string head = kHead;
  EXPECT_EQ(
      out,
      head +
          R"(,"choices":[{"index":0,"delta":{"content":"tail"},"logprobs":null,)"
          R"("finish_reason":null}]})" +
          "\n\n" + head +
          R"(,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length","stop_reason":null}]})" +
          "\n\n");
}

TEST(Responses, WholeChat) {
  ResponseWriter writer = chat_writer();
  EXPECT_EQ(
      writer.whole(std::vector<WholeChoice>{{{"hi", {}, 0, {}}, {FinishReason::Stop}, {}, {}}},
                   Usage{3, 2, 1},
                   ""),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":7,"model":"m",)"
      R"("system_fingerprint":"fp_1","choices":[{"index":0,"message":{"role":"assistant",)"
      R"("content":"hi","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":)" +
          std::string(kUsage) + "}");
}

TEST(Responses, WholeCompletionWithTokenIdsAndFigures) {
  ResponseOptions options;
  options.token_ids = true;
  ResponseWriter writer({Endpoint::Completions, "cmpl-1", 7, "m", "fp_1"}, options);
  const TokenId prompt[] = {1, 2, 3};
  const TokenId answer[] = {4, 5};
  EXPECT_EQ(
      writer.whole(
          std::vector<WholeChoice>{{{"hi", {}, 0, answer}, {FinishReason::Length}, prompt, {}}},
          Usage{3, 2, 1},
          R"({"chunks":1})"),
      R"({"id":"cmpl-1","object":"text_completion","created":7,"model":"m",)"
      R"("system_fingerprint":"fp_1","choices":[{"index":0,"text":"hi","logprobs":null,)"
      R"("finish_reason":"length","stop_reason":null,"token_ids":[4,5],"prompt_token_ids":[1,2,3]}],"usage":)" +
          std::string(kUsage) + R"(,"baton":{"chunks":1}})");
}

TEST(Responses, ChatLogprobsShowBytesOfHalfCharacters) {
  ResponseOptions options;
  options.logprobs = true;
  ResponseWriter writer = chat_writer(options);
  const std::vector<TextLogprob> entries{
      {"\xf0\x9f", -std::numeric_limits<float>::infinity(), {{"a", -0.5F}}}};
  std::string out;
  writer.chunk(out, ChoiceText{"x", entries, 0, {}}, {});
  EXPECT_NE(out.find(R"("logprobs":{"content":[{"token":")"
                     "\xef\xbf\xbd\xef\xbf\xbd"
                     R"(","logprob":-9999,"bytes":[240,159],)"
                     R"("top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]}],)"
                     R"("refusal":null})"),
            std::string::npos)
      << out;
}

TEST(Responses, CompletionLogprobs) {
  ResponseOptions options;
  options.logprobs = true;
  ResponseWriter writer({Endpoint::Completions, "cmpl-1", 7, "m", "fp_1"}, options);
  const std::vector<TextLogprob> entries{{"ab", -1.0F, {{"ab", -1.0F}}}, {"c", -2.0F, {}}};
  std::string out;
  writer.chunk(out, ChoiceText{"abc", entries, 10, {}}, {});
  EXPECT_NE(out.find(R"("logprobs":{"tokens":["ab","c"],"token_logprobs":[-1,-2],)"
                     R"("top_logprobs":[{"ab":-1},{}],"text_offset":[10,12]})"),
            std::string::npos)
      << out;
}

TEST(Responses, ErrorEventHasFourKeys) {
  std::string out;
  ResponseWriter writer = chat_writer();
  writer.fail(out, bad_request("c", "", "m"));
  EXPECT_EQ(out,
            R"(data: {"error":{"message":"m","type":"invalid_request_error","param":null,)"
            R"("code":"c"}})"
            "\n\ndata: [DONE]\n\n");
}

TEST(Responses, FiguresAreMilliseconds) {
  AnswerFigures figures;
  figures.prefill_node = std::string("p0");
  figures.decode_node = std::string("d0");
  figures.kv_bytes_moved = 10;
  figures.kv_transport = std::string("tcp");
  figures.queue = std::chrono::microseconds(1500);
  EXPECT_EQ(
      figures_json(figures),
      R"({"prefill_node":"p0","decode_node":"d0","kv_transport":"tcp","kv_bytes_moved":10,)"
      R"("prefix_blocks_held":0,"cached_tokens":0,"pulled_tokens":0,"queue_ms":1.500,"prefill_ms":0.000,)"
      R"("transfer_ms":0.000,"max_batch":0,"chunks":0,"drafted_tokens":0,"accepted_tokens":0,"attempts":0,"failovers":0})");
}

}  // namespace
}  // namespace baton::gateway

// What is told of prompts and of the end: echo, log-probabilities of the prompt, stop_reason; and
// the fields that change what nodes compute.

#include "common/wire/convert.h"
#include "tests/unit/gateway/gateway_fixture.h"

namespace baton::gateway {
namespace {

TEST_F(GatewayTest, EchoPutsThePromptBeforeTheText) {
  start_pair();
  const RawReply whole =
      post("/v1/completions",
           R"({"model":"scripted","prompt":["Say. ",[72,105]],"echo":true,"stop":"Say"})");
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(at(whole.body, "/choices/0/text"), "Say. Hello world");  // stops look at the answer
  EXPECT_EQ(at(whole.body, "/choices/1/text"), "HiHello world");
  EXPECT_EQ(at(whole.body, "/choices/0/prompt_logprobs"), "absent");
  const RawReply streamed =
      post("/v1/completions", R"({"model":"scripted","prompt":"Say. ","echo":true,"stream":true})");
  std::string text;
  for (const std::string& event : sse_events(streamed.body)) {
    text += event == "[DONE]" ? "" : at(event, "/choices/0/text");
  }
  EXPECT_EQ(text, "Say. Hello world");
}

TEST_F(GatewayTest, EchoWithLogprobsScoresThePrompt) {
  start_pair();
  const RawReply reply = post("/v1/completions",
                              R"({"model":"scripted","prompt":"abc","echo":true,"logprobs":1,)"
                              R"("max_tokens":2})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/choices/0/text"), "abcHe");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs/tokens"), R"(["a","b","c","H","e"])");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs/token_logprobs"), "[null,-0.5,-0.5,-0.25,-0.25]");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs/top_logprobs/0"), "null");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs/top_logprobs/1"), R"({"b":-0.5})");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs/text_offset"), "[0,1,2,3,4]");
  EXPECT_EQ(at(reply.body, "/usage/completion_tokens"), "2");
}

TEST_F(GatewayTest, ThePromptAloneMayBeAskedFor) {
  start_pair();
  const RawReply reply = post("/v1/completions",
                              R"({"model":"scripted","prompt":"abc","echo":true,"logprobs":0,)"
                              R"("max_tokens":0})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/choices/0/text"), "abc");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs/token_logprobs"), "[null,-0.5,-0.5]");
  EXPECT_EQ(at(reply.body, "/choices/0/finish_reason"), "length");
  EXPECT_EQ(at(reply.body, "/usage/completion_tokens"), "0");
  EXPECT_EQ(at(reply.body, "/usage/total_tokens"), "3");
}

TEST_F(GatewayTest, PromptLogprobsInBothEndpoints) {
  start_pair();
  const RawReply reply =
      post("/v1/completions", R"({"model":"scripted","prompt":"abc","prompt_logprobs":2})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/choices/0/text"), "Hello world");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs"), "null");
  EXPECT_EQ(at(reply.body, "/choices/0/prompt_logprobs/0"), "null");
  EXPECT_EQ(at(reply.body, "/choices/0/prompt_logprobs/1"),
            R"({"98":{"logprob":-0.5,"rank":1,"decoded_token":"b"},)"
            R"("99":{"logprob":-1.5,"rank":2,"decoded_token":"c"}})");
  EXPECT_EQ(at(reply.body, "/choices/0/prompt_logprobs/3"), "absent");
  const RawReply own = post("/v1/chat/completions", chat(R"(,"prompt_logprobs":0)"));
  ASSERT_EQ(own.status, 200) << own.body;
  EXPECT_EQ(at(own.body, "/prompt_logprobs/0"), "null");
  EXPECT_THAT(at(own.body, "/prompt_logprobs/1"), HasSubstr(R"("rank":null)"));
}

TEST_F(GatewayTest, APromptTooLongToBeToldOfIsRefused) {
  start_pair();
  const std::size_t most = max_scored_prompt(20);
  ASSERT_LT(most, 4000U);  // else the context is what ends it
  const auto ask = [&](std::size_t tokens) {
    return post("/v1/completions",
                R"({"model":"scripted","prompt_logprobs":20,"max_tokens":1,"prompt":")" +
                    std::string(tokens, 'x') + "\"}");
  };
  EXPECT_EQ(ask(most).status, 200);
  const RawReply reply = ask(most + 1);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(at(reply.body, "/error/param"), "prompt");
  EXPECT_THAT(reply.body, HasSubstr(std::to_string(most)));
}

TEST_F(GatewayTest, StopReasonSaysWhatStopped) {
  start_pair();
  const auto reason = [&](const std::string& more) {
    return at(post("/v1/completions", completion(more)).body, "/choices/0/stop_reason");
  };
  EXPECT_EQ(reason(R"(,"stop":["x","o w"])"), "o w");
  EXPECT_EQ(reason(""), "null");
  EXPECT_EQ(reason(R"(,"stop_token_ids":[5])"), "null");
  EXPECT_EQ(reason(fmt::format(R"(,"ignore_eos":true,"stop_token_ids":[{}])", testing::kByteEnd)),
            std::to_string(testing::kByteEnd));
}

TEST_F(GatewayTest, BiasReachesTheNodesAndIsChecked) {
  start_pair();
  EXPECT_EQ(post("/v1/completions", completion(R"(,"logit_bias":{"72":-100,"5":1.5})")).status,
            200);
  const GenerateRequest request = last_request("d0");
  ASSERT_EQ(request.sampling.logit_bias.size(), 2U);
  EXPECT_EQ(request.sampling.logit_bias[1], (LogitBias{72, -100.0F}));
  const RawReply reply = post("/v1/completions", completion(R"(,"logit_bias":{"259":1})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(at(reply.body, "/error/param"), "logit_bias");
  EXPECT_THAT(reply.body, HasSubstr("259"));
}

TEST_F(GatewayTest, TheFinalMessageIsContinued) {
  start_pair();
  const RawReply reply =
      post("/v1/chat/completions",
           R"({"model":"scripted","continue_final_message":true,"messages":[)"
           R"({"role":"user","content":"hi"},{"role":"assistant","content":"Sure, "}]})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const GenerateRequest request = last_request("d0");
  std::string end;
  for (std::size_t i = request.prompt.size() - 6; i < request.prompt.size(); ++i) {
    end += static_cast<char>(request.prompt[i]);
  }
  EXPECT_EQ(end, "Sure, ");
  const RawReply empty = post("/v1/chat/completions",
                              R"({"model":"scripted","continue_final_message":true,"messages":[)"
                              R"({"role":"assistant","content":""}]})");
  EXPECT_EQ(empty.status, 400);
}

TEST_F(GatewayTest, SuffixIsRefusedByName) {
  start_pair();
  const RawReply reply = post("/v1/completions", completion(R"(,"suffix":"end")"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(at(reply.body, "/error/param"), "suffix");
  EXPECT_EQ(at(reply.body, "/error/code"), "unsupported_parameter");
}

}  // namespace
}  // namespace baton::gateway

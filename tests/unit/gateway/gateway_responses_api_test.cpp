// /v1/responses, /tokenize and /detokenize over HTTP, against scripted nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/access/key_ring.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/gateway/gateway_fixture.h"

namespace baton::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ask(const std::string& more = "") {
  return R"({"model":"scripted","input":"hi")" + more + "}";
}

TEST_F(GatewayTest, WholeResponse) {
  start_pair();
  const RawReply reply = post("/v1/responses", ask(R"(,"instructions":"be brief")"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/object"), "response");
  EXPECT_EQ(at(reply.body, "/status"), "completed");
  EXPECT_EQ(at(reply.body, "/output/0/content/0/text"), "Hello world");
  EXPECT_EQ(at(reply.body, "/instructions"), "be brief");
  EXPECT_EQ(at(reply.body, "/usage/output_tokens"), "12");
  EXPECT_EQ(at(reply.body, "/usage/input_tokens_details/cached_tokens"), "3");
  std::string prompt;
  for (const TokenId id : last_request("d0").prompt) {
    prompt += id < 256 ? static_cast<char>(id) : '|';
  }
  EXPECT_EQ(prompt, "|system\nbe brief|\n|user\nhi|\n|assistant\n");
}

TEST_F(GatewayTest, StreamedResponse) {
  start_pair();
  const RawReply reply = post("/v1/responses", ask(R"(,"stream":true,"max_output_tokens":5)"));
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.complete);
  EXPECT_THAT(reply.body, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(reply.body, HasSubstr("event: response.created\n"));
  EXPECT_THAT(reply.body, HasSubstr("event: response.incomplete\n"));
  EXPECT_THAT(reply.body, HasSubstr("\"text\":\"Hello\""));
}

TEST_F(GatewayTest, AResponseThatFailsInTheStreamSaysSo) {
  config.gateway.max_node_losses = 1;
  NodeScript dying;
  dying.die_at = 5;
  start_pair({}, dying);
  const RawReply reply = post("/v1/responses", ask(R"(,"stream":true)"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body, HasSubstr("event: response.failed\n"));
  EXPECT_THAT(reply.body, HasSubstr("\"code\":\"upstream_unreachable\""));
}

TEST_F(GatewayTest, AResponseCallsToolsAndGoesOnWithTheirOutput) {
  config.gateway.store_responses_mb = 1;
  NodeScript calling;
  calling.answer = [](const GenerateRequest&) {
    return testing::byte_tokens(
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>");
  };
  start_pair(calling, calling);
  const std::string tools =
      R"(,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"store":true)";
  const RawReply reply = post("/v1/responses", ask(tools));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/output/0/type"), "function_call");
  EXPECT_EQ(at(reply.body, "/output/0/name"), "f");
  EXPECT_EQ(at(reply.body, "/output/0/arguments"), R"({"a": 1})");
  EXPECT_EQ(at(reply.body, "/tools/0/name"), "f");
  const RawReply next =
      post("/v1/responses",
           ask(tools + R"(,"input":[{"type":"function_call_output","output":"forty","call_id":")" +
               at(reply.body, "/output/0/call_id") + R"("}],"previous_response_id":")" +
               at(reply.body, "/id") + "\""));
  ASSERT_EQ(next.status, 200) << next.body;
  std::string prompt;
  for (const TokenId token : last_request("d0").prompt) {
    prompt += token < 256 ? static_cast<char>(token) : '|';
  }
  EXPECT_THAT(prompt, HasSubstr("forty"));
  EXPECT_THAT(prompt, HasSubstr("tool_call")) << "the call itself, of the kept response";
}

TEST_F(GatewayTest, AResponseIsHeldToItsFormat) {
  start_pair();
  const RawReply reply = post(
      "/v1/responses",
      ask(R"(,"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}})"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(last_request("d0").grammar.kind, Grammar::Kind::JsonSchema);
  EXPECT_EQ(at(reply.body, "/text/format/name"), "n");
  const RawReply bad = post(
      "/v1/responses",
      ask(R"(,"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"objekt"}}})"));
  EXPECT_EQ(bad.status, 400) << bad.body;
  EXPECT_EQ(at(bad.body, "/error/param"), "text.format");
}

TEST_F(GatewayTest, NothingIsKeptUnlessSwitchedOn) {
  start_pair();
  const RawReply store = post("/v1/responses", ask(R"(,"store":true)"));
  EXPECT_EQ(store.status, 400);
  EXPECT_EQ(at(store.body, "/error/param"), "store");
  const RawReply previous = post("/v1/responses", ask(R"(,"previous_response_id":"resp_1")"));
  EXPECT_EQ(previous.status, 400);
  EXPECT_EQ(at(previous.body, "/error/param"), "previous_response_id");
  EXPECT_THAT(previous.body, HasSubstr("gateway.store_responses_mb"));
  const std::string id = at(post("/v1/responses", ask()).body, "/id");
  EXPECT_EQ(get("/v1/responses/" + id).status, 404);
}

TEST_F(GatewayTest, AKeptResponseIsFoundContinuedAndDeleted) {
  config.gateway.store_responses_mb = 1;
  start_pair();
  const RawReply first = post("/v1/responses", ask(R"(,"store":true,"instructions":"not kept")"));
  ASSERT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(at(first.body, "/store"), "true");
  const std::string id = at(first.body, "/id");
  EXPECT_EQ(get("/v1/responses/" + id).body, first.body);
  const RawReply second = post(
      "/v1/responses",
      ask(R"(,"input":"more","stream":true,"store":true,"previous_response_id":")" + id + "\""));
  ASSERT_EQ(second.status, 200) << second.body;
  std::string prompt;
  for (const TokenId token : last_request("d0").prompt) {
    prompt += token < 256 ? static_cast<char>(token) : '|';
  }
  EXPECT_EQ(prompt, "|user\nhi|\n|assistant\nHello world|\n|user\nmore|\n|assistant\n");
  const RawReply unkept = post("/v1/responses", ask());
  EXPECT_EQ(get("/v1/responses/" + at(unkept.body, "/id")).status, 404);
  const auto erase = [&] {
    return http_call(gateway->http_address(), "DELETE", "/v1/responses/" + id);
  };
  const RawReply erased = erase();
  EXPECT_EQ(erased.status, 200);
  EXPECT_EQ(at(erased.body, "/deleted"), "true");
  EXPECT_EQ(erase().status, 404);
  EXPECT_EQ(get("/v1/responses/" + id).status, 404);
  const RawReply gone = post("/v1/responses", ask(R"(,"previous_response_id":")" + id + "\""));
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(at(gone.body, "/error/code"), "previous_response_not_found");
  EXPECT_EQ(get("/v1/responses").status, 405);
  EXPECT_EQ(get("/v1/responses/" + id + "/input_items").status, 404);
}

TEST_F(GatewayTest, AKeptResponseIsOfTheKeyThatAskedForIt) {
  config.gateway.store_responses_mb = 1;
  for (const char* name : {"ada", "bob"}) {
    ApiKeyEntry& key = config.gateway.keys.emplace_back();
    key.name = name;
    key.sha256 = to_hex(sha256(std::string("key-") + name));
  }
  start_pair();
  const std::string ada = "Authorization: Bearer key-ada\r\n";
  const std::string bob = "Authorization: Bearer key-bob\r\n";
  const RawReply kept = post("/v1/responses", ask(R"(,"store":true)"), ada);
  ASSERT_EQ(kept.status, 200) << kept.body;
  const std::string path = "/v1/responses/" + at(kept.body, "/id");
  const auto call = [&](const char* method, const std::string& key) {
    return http_call(gateway->http_address(), method, path, "", key).status;
  };
  EXPECT_EQ(call("GET", ""), 401);
  EXPECT_EQ(call("GET", bob), 404);
  EXPECT_EQ(call("DELETE", bob), 404);
  const std::string next = ask(R"(,"previous_response_id":")" + at(kept.body, "/id") + "\"");
  EXPECT_EQ(post("/v1/responses", next, bob).status, 404);
  EXPECT_EQ(post("/v1/responses", next, ada).status, 200);
  EXPECT_EQ(call("GET", ada), 200);
}

TEST_F(GatewayTest, APromptTooLongNamesTheInput) {
  start_pair();
  const RawReply reply =
      post("/v1/responses", R"({"model":"scripted","input":")" + std::string(4097, 'x') + "\"}");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(at(reply.body, "/error/param"), "input");
  EXPECT_EQ(at(reply.body, "/error/code"), "context_length_exceeded");
}

// ---- /tokenize, /detokenize

TEST_F(GatewayTest, TokenizesPromptsAndChats) {
  start_pair();
  for (const char* path : {"/tokenize", "/v1/tokenize"}) {
    const RawReply reply = post(path, R"({"model":"scripted","prompt":"hi"})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.body,
              R"({"count":2,"max_model_len":4096,"tokens":[104,105],"token_strs":null})");
  }
  // Without a model: the only one.
  const RawReply chat_reply =
      post("/tokenize", R"({"messages":[{"role":"user","content":"a"}],"return_token_strs":true})");
  ASSERT_EQ(chat_reply.status, 200) << chat_reply.body;
  EXPECT_EQ(at(chat_reply.body, "/token_strs/0"), "<|im_start|>");
  EXPECT_EQ(at(chat_reply.body, "/token_strs/6"), "a");
  const RawReply bare = post(
      "/tokenize", R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false})");
  EXPECT_LT(std::stoi(at(bare.body, "/count")), std::stoi(at(chat_reply.body, "/count")));
}

TEST_F(GatewayTest, DetokenizesWhatItHasTokenized) {
  start_pair();
  const std::string tokens =
      at(post("/tokenize", R"({"prompt":"h\u00e9 <|im_end|>"})").body, "/tokens");
  const RawReply reply = post("/detokenize", R"({"model":"scripted","tokens":)" + tokens + "}");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/prompt"), "h\xc3\xa9 <|im_end|>");
}

TEST_F(GatewayTest, TokenizingNamesWhatIsWrong) {
  start_pair();
  const auto param = [&](const char* path, const char* body) {
    const RawReply reply = post(path, body);
    EXPECT_EQ(reply.status, 400) << body;
    return at(reply.body, "/error/param");
  };
  EXPECT_EQ(param("/tokenize", "{}"), "prompt");
  EXPECT_EQ(param("/tokenize", R"({"prompt":[1]})"), "prompt");
  EXPECT_EQ(param("/tokenize", R"({"prompt":"a","messages":[]})"), "prompt");
  EXPECT_EQ(param("/tokenize", R"({"messages":[{"role":"x","content":""}]})"), "messages[0].role");
  EXPECT_EQ(param("/tokenize", R"({"prompt":"a","add_special_tokens":1})"), "add_special_tokens");
  EXPECT_EQ(param("/detokenize", R"({"tokens":"a"})"), "tokens");
  EXPECT_EQ(param("/detokenize", R"({})"), "tokens");
  EXPECT_EQ(param("/detokenize", R"({"tokens":[1,300]})"), "tokens[1]");
  EXPECT_EQ(post("/tokenize", R"({"model":"x","prompt":"a"})").status, 404);
  EXPECT_EQ(get("/tokenize").status, 405);
}

}  // namespace
}  // namespace baton::gateway

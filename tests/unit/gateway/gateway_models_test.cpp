// Several models behind one gateway, each with nodes of its own, and a name that two of them serve.
#include "tests/unit/gateway/gateway_fixture.h"

namespace baton::gateway {
namespace {

class GatewayModelsTest : public GatewayTest {
 protected:
  // A pair of its own for each model, whose answer is the model's name.
  void add_pair(const std::string& model) {
    for (const char* role : {"prefill", "decode"}) {
      ScriptedNodeOptions options;
      options.name = std::string(role) + "-" + model;
      options.role = role;
      options.model = model;
      options.weights_hash = std::hash<std::string>{}(model);
      options.gateway = gateway->control_address();
      options.token = "secret";
      NodeScript script;
      script.answer = [model](const GenerateRequest&) { return testing::byte_tokens(model); };
      nodes.run_and_wait([&] { cluster->add(options, std::move(script)); });
    }
    while (get("/v1/models/" + model).status != 200 || ask(model).status != 200) {
      std::this_thread::yield();
    }
  }
  RawReply ask(const std::string& model, const std::string& session = "") {
    return post("/v1/chat/completions",
                fmt::format(R"({{"model":"{}","prompt_cache_key":"{}",)"
                            R"("messages":[{{"role":"user","content":"hi"}}]}})",
                            model,
                            session));
  }
  std::string answer(const std::string& model, const std::string& session = "") {
    const RawReply reply = ask(model, session);
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(at(reply.body, "/model"), model) << "clients see the name they asked for";
    return at(reply.body, "/choices/0/message/content");
  }
};

TEST_F(GatewayModelsTest, EachModelHasItsOwnNodes) {
  start();
  add_pair("small");
  add_pair("large");
  const RawReply list = get("/v1/models");
  EXPECT_EQ(at(list.body, "/data/0/id"), "large");
  EXPECT_EQ(at(list.body, "/data/1/id"), "small");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(answer("small"), "small");
    EXPECT_EQ(answer("large"), "large");
  }
  EXPECT_EQ(ask("medium").status, 404);
}

TEST_F(GatewayModelsTest, ANameIsServedByItsRevisionsByWeightAndSession) {
  config.gateway.models = {{.id = "chat", .revisions = {{"one", 50}, {"two", 50}, {"off", 0}}}};
  start();
  EXPECT_EQ(ask("chat").status, 503) << "known, and nobody serves it yet";
  add_pair("one");
  EXPECT_EQ(answer("chat", "a"), "one");
  add_pair("two");
  add_pair("off");
  EXPECT_THAT(get("/v1/models").body, HasSubstr(R"("id":"chat")"));
  EXPECT_EQ(get("/v1/models/chat").status, 200);
  std::map<std::string, int> taken;
  for (int i = 0; i < 20; ++i) {
    const std::string session = std::to_string(i);
    const std::string revision = answer("chat", session);
    EXPECT_EQ(answer("chat", session), revision);
    ++taken[revision];
  }
  EXPECT_GT(taken["one"], 2);
  EXPECT_GT(taken["two"], 2);
  EXPECT_EQ(taken["off"], 0);
  // One revision's nodes go: the other takes all.
  nodes.run_and_wait([this] {
    cluster->remove("prefill-two");
    cluster->remove("decode-two");
  });
  while (get("/v1/models/two").status != 404) {
    std::this_thread::yield();
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(answer("chat", std::to_string(i)), "one");
  }
}

}  // namespace
}  // namespace baton::gateway

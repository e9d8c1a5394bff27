// Whole requests through a prefill and a decode node, over the in-memory data plane.
#include <gtest/gtest.h>

#include "common/wire/convert.h"
#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

class NodesTest : public NodesFixture {
 protected:
  using NodesFixture::NodesFixture;
};

TEST_F(NodesTest, DisaggregatedTokensEqualASingleProcess) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest request = make_request(1, 100, 20);
  cluster_.start(request, "p0", "d0");
  const Answer& answer = cluster_.finish(request);
  expect_same(request);
  EXPECT_EQ(answer.finish, FinishReason::Length);
  // Seven blocks of sixteen tokens, the partial one included.
  const KvLayout& layout = cluster_.node("d0").kv().layout();
  EXPECT_EQ(answer.figures.at("d0").kv_bytes_moved, 7 * layout.block_bytes_all_layers());
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 0U);
  EXPECT_EQ(answer.figures.at("p0").chunks, 1U);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesTest, ManyAtOnceShareStepsAndKeepTheirTokens) {
  cluster_.add("decode", "d0", 200);
  cluster_.add("prefill", "p0", 200);
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i) {
    requests.push_back(make_request(10 + i, 20 + 37 * i, 10 + 5 * i, i));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    requests.back().sampling.seed = i;
    cluster_.start(requests.back(), "p0", "d0");
  }
  for (const GenerateRequest& request : requests) {
    cluster_.finish(request);
    expect_same(request);
  }
  EXPECT_GT(cluster_.node("d0").runner().max_slices(), 1U);
  EXPECT_GT(cluster_.node("p0").runner().max_slices(), 1U);
  EXPECT_GT(cluster_.answer(requests[3]).figures.at("d0").max_batch, 1U);
  cluster_.settle();
}

TEST_F(NodesTest, PrefixIsNeitherComputedNorSentTwice) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest first = make_request(1, 100, 6);
  cluster_.start(first, "p0", "d0");
  cluster_.finish(first);
  cluster_.settle();
  const std::uint64_t computed = cluster_.node("p0").runner().num_tokens();

  GenerateRequest second = make_request(2, 100, 9);
  second.prompt.insert(second.prompt.end(), {5, 6, 7});
  cluster_.start(second, "p0", "d0");
  const Answer& answer = cluster_.finish(second);
  expect_same(second);
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 96U);
  EXPECT_EQ(answer.figures.at("d0").prefix_blocks_held, 6U);
  EXPECT_EQ(answer.figures.at("d0").kv_bytes_moved,
            cluster_.node("d0").kv().layout().block_bytes_all_layers());
  EXPECT_EQ(cluster_.node("p0").runner().num_tokens() - computed, 7U);
  cluster_.settle();
  cluster_.executor().advance(std::chrono::seconds(1));  // metrics are told with heartbeats
  for (const auto& [name, role] : {std::pair{"p0", "prefill"}, std::pair{"d0", "decode"}}) {
    const std::string labels = std::string(R"({model_name="scripted",role=")") + role + R"("})";
    EXPECT_EQ(cluster_.node(name).metric("vllm:prefix_cache_queries_total" + labels), 203);
    EXPECT_EQ(cluster_.node(name).metric("vllm:prefix_cache_hits_total" + labels), 96);
  }
}

TEST_F(NodesTest, PrefixThatOnlyPrefillHoldsIsSent) {
  cluster_.add("decode", "d0");
  cluster_.add("decode", "d1");
  cluster_.add("prefill", "p0");
  const GenerateRequest first = make_request(1, 100, 6);
  cluster_.start(first, "p0", "d0");
  cluster_.finish(first);
  GenerateRequest second = make_request(2, 100, 6);
  cluster_.start(second, "p0", "d1");
  const Answer& answer = cluster_.finish(second);
  expect_same(second);
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 96U);
  EXPECT_EQ(answer.figures.at("d1").kv_bytes_moved,
            7 * cluster_.node("d1").kv().layout().block_bytes_all_layers());
  cluster_.settle();
}

TEST_F(NodesTest, NothingToSendStillCommits) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest first = make_request(1, 96, 6);  // whole blocks
  cluster_.start(first, "p0", "d0");
  cluster_.finish(first);
  cluster_.settle();
  GenerateRequest again = first;
  again.id = RequestId{2};
  cluster_.start(again, "p0", "d0");
  const Answer& answer = cluster_.finish(again);
  expect_same(again);
  EXPECT_EQ(answer.figures.at("d0").kv_bytes_moved, 0U);
  EXPECT_EQ(answer.figures.at("d0").kv_transport, "none");
  // At least the last token is always computed.
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 80U);
  cluster_.settle();
}

TEST_F(NodesTest, FirstTokenThatEndsTheRequestNeverReachesDecode) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  GenerateRequest one = make_request(1, 40, 1);
  cluster_.start(one, "p0", "d0");
  EXPECT_EQ(cluster_.finish(one).finish, FinishReason::Length);
  expect_same(one);
  GenerateRequest stop = make_request(2, 41, 9, 3);
  stop.stop_tokens = {scripted_output(model_, stop).front()};
  cluster_.start(stop, "p0", "d0");
  EXPECT_EQ(cluster_.finish(stop).finish, FinishReason::Stop);
  expect_same(stop);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
  EXPECT_EQ(cluster_.node("d0").runner().num_steps(), 0U);
}

TEST_F(NodesTest, StopTokenIsBarredBeforeMinTokens) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  GenerateRequest request = make_request(1, 40, 12);
  const auto free_run = scripted_output(model_, request);
  request.stop_tokens = {free_run[0], free_run[3]};
  request.min_tokens = 6;
  cluster_.start(request, "p0", "d0");
  EXPECT_GE(cluster_.finish(request).output().size(), 6U);
  expect_same(request);
  cluster_.settle();
}

TEST_F(NodesTest, ReplayedOutputGoesOnWithTheSameTokens) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest whole = make_request(1, 50, 20);
  const auto expected = scripted_output(model_, whole);
  GenerateRequest resumed = whole;
  resumed.attempt = Attempt{1};
  resumed.output.assign(expected.begin(), expected.begin() + 7);
  cluster_.start(resumed, "p0", "d0");
  const Answer& answer = cluster_.finish(resumed);
  EXPECT_EQ(answer.tokens.begin()->first, 7U);
  EXPECT_EQ(answer.output(), std::vector<TokenId>(expected.begin() + 7, expected.end()));
  cluster_.settle();
}

TEST_F(NodesTest, TokenizerComesInPieces) {
  cluster_.add("decode", "d0");
  std::string bytes;
  bool done = false;
  while (!done) {
    wire::Frame frame;
    frame.mutable_artifact_request()->set_name("tokenizer");
    frame.mutable_artifact_request()->set_offset(bytes.size());
    bool answered = false;
    cluster_.channel("d0")->call(
        frame, std::chrono::seconds(5), [&](const Result<wire::Frame>& answer) {
          answered = true;
          ASSERT_TRUE(answer);
          const wire::ArtifactChunk& chunk = answer->artifact_chunk();
          bytes += chunk.data();
          done = bytes.size() == chunk.total();
        });
    ASSERT_TRUE(cluster_.run_until([&] { return answered; }));
  }
  EXPECT_EQ(bytes, std::string(1'300'000, 't'));
}

class SmallChunks : public NodesTest {
 protected:
  SmallChunks() : NodesTest(small_chunks()) {}
};

TEST_F(SmallChunks, ChunksDoNotChangeTokens) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest a = make_request(1, 100, 8);
  const GenerateRequest b = make_request(2, 61, 8, 2);
  cluster_.start(a, "p0", "d0");
  cluster_.start(b, "p0", "d0");
  EXPECT_EQ(cluster_.finish(a).figures.at("p0").chunks, 15U);
  cluster_.finish(b);
  expect_same(a);
  expect_same(b);
  cluster_.settle();
}

class LocalPrefill : public NodesTest {
 protected:
  LocalPrefill()
      : NodesTest([] {
          ClusterConfig config;
          config.decode.local_prefill_max_tokens = 64;
          config.decode.local_prefill_chunk = 24;
          config.decode.max_batch = 3;
          return config;
        }()) {}
};

TEST_F(LocalPrefill, DecodeNodeAloneGivesTheSameTokens) {
  cluster_.add("decode", "d0");
  const GenerateRequest a = make_request(1, 60, 20);
  const GenerateRequest b = make_request(2, 30, 20, 2);
  cluster_.start(a, "", "d0");
  cluster_.start(b, "", "d0");
  EXPECT_EQ(cluster_.finish(a).figures.at("d0").kv_transport, "none");
  EXPECT_EQ(cluster_.answer(a).figures.at("d0").chunks, 3U);
  cluster_.finish(b);
  expect_same(a);
  expect_same(b);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(LocalPrefill, LongPromptIsRefusedUnlessItsPrefixIsCached) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest request = make_request(1, 100, 8);
  cluster_.start(request, "", "d0");
  ASSERT_TRUE(cluster_.finish(request).error);
  EXPECT_EQ(cluster_.answer(request).error->code, ErrorCode::InvalidArgument);
  GenerateRequest warm = make_request(2, 100, 8);
  cluster_.start(warm, "p0", "d0");
  cluster_.finish(warm);
  GenerateRequest again = make_request(3, 100, 8);
  cluster_.start(again, "", "d0");
  EXPECT_EQ(cluster_.finish(again).figures.at("d0").cached_tokens, 96U);
  expect_same(again);
  cluster_.settle();
}

TEST_F(LocalPrefill, FullBatchIsBusy) {
  cluster_.add("decode", "d0");
  for (std::uint64_t i = 0; i < 3; ++i) {
    cluster_.start(make_request(10 + i, 20, 200, i), "", "d0");
  }
  const GenerateRequest late = make_request(1, 20, 4);
  cluster_.start(late, "", "d0");
  ASSERT_TRUE(cluster_.finish(late).error);
  EXPECT_EQ(cluster_.answer(late).error->code, ErrorCode::Busy);
  // Whoever was refused is told at once when there is room, not at the next heartbeat.
  const TimePoint before = cluster_.executor().now();
  cluster_.cancel(make_request(10, 20, 200));
  EXPECT_TRUE(cluster_.run_until([&] {
    const auto& beat = cluster_.last_beat("d0");
    return beat && beat->load().running() == 2;
  }));
  EXPECT_EQ(cluster_.executor().now(), before);
}

}  // namespace
}  // namespace baton::testing

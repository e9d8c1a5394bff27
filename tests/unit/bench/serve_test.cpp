// The parts of `bench serve`: loads, figures, advice, and a run against a server that streams.
#include "bench/serve/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <boost/json.hpp>
#include <mutex>
#include <thread>

#include "bench/serve/advise.h"
#include "bench/serve/figures.h"
#include "bench/serve/load.h"

namespace baton::bench {
namespace {

namespace json = boost::json;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Lengths, AreFixedUniformOrLognormal) {
  const RandomSource random = seeded_random(1);
  EXPECT_EQ(Lengths::parse("200")->draw(random), 200U);
  const auto uniform = Lengths::parse("3-5");
  const auto lognormal = Lengths::parse("lognormal:200,0.5");
  ASSERT_TRUE(uniform);
  ASSERT_TRUE(lognormal);
  std::array<int, 6> seen{};
  std::vector<std::uint32_t> drawn;
  for (int i = 0; i < 3000; ++i) {
    const std::uint32_t length = uniform->draw(random);
    ASSERT_GE(length, 3U);
    ASSERT_LE(length, 5U);
    ++seen[length];
    drawn.push_back(lognormal->draw(random));
  }
  for (const int length : {3, 4, 5}) {
    EXPECT_NEAR(seen[static_cast<std::size_t>(length)], 1000, 150);
  }
  std::ranges::sort(drawn);
  EXPECT_NEAR(drawn[1500], 200, 10);
  EXPECT_NEAR(drawn[2524], 200 * 1.6487, 25);  // one sigma above
  for (const char* bad : {"", "0", "-3", "5-3", "1-", "x", "lognormal:5", "1.5e9", "3-4-5"}) {
    EXPECT_FALSE(Lengths::parse(bad)) << bad;
  }
}

TEST(ServeLoad, PoissonArrivalsHaveTheRateAndRepeat) {
  const auto lengths = Lengths::parse("10");
  const Load load = poisson_load(4, 4000, *lengths, *lengths, 7);
  EXPECT_NEAR(load.back().at_s, 1000, 60);
  double squares = 0;
  for (std::size_t i = 1; i < load.size(); ++i) {
    ASSERT_GE(load[i].at_s, load[i - 1].at_s);
    const double gap = load[i].at_s - load[i - 1].at_s;
    squares += gap * gap / static_cast<double>(load.size());
  }
  EXPECT_NEAR(squares, 2.0 / 16, 0.02);  // of exponential gaps: twice the square of the mean
  EXPECT_EQ(poisson_load(4, 3, *lengths, *lengths, 7)[2].at_s, load[2].at_s);
}

TEST(ServeLoad, ATraceKeepsItsTimes) {
  const auto trace = parse_trace(
      "{\"timestamp\": 1000, \"input_length\": 5, \"output_length\": 2, \"hash_ids\": []}\n"
      "{\"timestamp\": 3000, \"input_length\": 7, \"output_length\": 4, \"hash_ids\": []}\n");
  ASSERT_TRUE(trace);
  const Load load = load_of(*trace, 4);
  EXPECT_EQ(load[0].at_s, 0);
  EXPECT_EQ(load[1].at_s, 0.5);
  EXPECT_EQ(mean_lengths(load).input, 6);
  EXPECT_EQ(mean_lengths(load).output, 3);
}

TEST(ServeFigures, PercentilesAreNearestRanks) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) {
    values.push_back(i);
  }
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.p50, 50);
  EXPECT_EQ(spread.p90, 90);
  EXPECT_EQ(spread.p99, 99);
  EXPECT_EQ(spread.max, 100);
  EXPECT_NEAR(spread.mean, 50.5, 1e-9);
  EXPECT_EQ(spread_of({3}).p99, 3);
  EXPECT_EQ(spread_of({}).count, 0U);
}

Served served(double ttft, double tpot, int status = 200) {
  Served one;
  one.status = status;
  one.is_whole = status == 200;
  one.input_tokens = 10;
  one.output_tokens = 5;
  one.ttft_s = ttft;
  one.e2e_s = ttft + 4 * tpot;
  one.gaps_s = {tpot, tpot, tpot, tpot};
  return one;
}

TEST(ServeFigures, GoodAnswersKeepBothTargets) {
  const ServeFigures figures = figures_of(
      {served(0.1, 0.01), served(3, 0.01), served(0.1, 0.2), served(0, 0, 429), served(0, 0, 500)},
      {.ttft_s = 1, .itl_s = 0.05});
  EXPECT_EQ(figures.requests, 5U);
  EXPECT_EQ(figures.whole, 3U);
  EXPECT_EQ(figures.refused, 1U);
  EXPECT_EQ(figures.failed, 1U);
  EXPECT_EQ(figures.kept_ttft, 2U);
  EXPECT_EQ(figures.kept_itl, 2U);
  EXPECT_EQ(figures.good, 1U);
  EXPECT_NEAR(figures.seconds, 3.04, 1e-9);
  EXPECT_NEAR(figures.output_rate, 15 / 3.04, 1e-9);
  EXPECT_EQ(figures.itl_s.count, 12U);
  const json::value back = json::parse(to_json(figures));
  EXPECT_EQ(back.at("good").to_number<int>(), 1);
  EXPECT_NEAR(back.at("ttft_ms").at("max").to_number<double>(), 3000, 1e-6);
  EXPECT_THAT(to_text(figures), HasSubstr("1 of 5 (20 %)"));
  EXPECT_THAT(to_text(figures), Not(HasSubstr("the client itself was late")));
  const std::string page = to_html(figures, {served(0.1, 0.01)}, "a <b>");
  EXPECT_THAT(page, HasSubstr("<h1>a &lt;b></h1>"));
  EXPECT_THAT(page, HasSubstr("<polyline"));
}

TEST(Lengths, SaysThatTheClientWasLate) {
  Served late = served(0.5, 0.01);
  late.late_s = 0.2;
  const ServeFigures figures = figures_of({late, late}, {.ttft_s = 1, .itl_s = 0.05});
  EXPECT_TRUE(figures.client_was_late());
  EXPECT_THAT(to_text(figures),
              HasSubstr("the client itself was late: one request in ten left 200 ms"));
}

TEST(Advise, NodesGoWhereTheyAreShort) {
  EXPECT_EQ(best_prefill_nodes(1, 1, 8), 4U);
  EXPECT_EQ(best_prefill_nodes(0.1, 1, 8), 7U);
  EXPECT_EQ(best_prefill_nodes(10, 1, 8), 1U);
  EXPECT_EQ(best_prefill_nodes(1, 3, 8), 6U);
  EXPECT_EQ(best_prefill_nodes(1, 5, 2), 1U);
}

TEST(Advise, AWinnerHasMoreThanChanceExplains) {
  ServeFigures split;
  ServeFigures colocated;
  split.requests = colocated.requests = 100;
  split.good = 90;
  colocated.good = 86;
  EXPECT_EQ(winner_of(split, colocated), Winner::Neither);
  colocated.good = 80;
  EXPECT_EQ(winner_of(split, colocated), Winner::Split);
  split.good = 70;
  EXPECT_EQ(winner_of(split, colocated), Winner::Colocated);
}

TEST(Advise, SaysWhatWasMeasured) {
  Advice advice;
  advice.workload = "4000/100";
  advice.prompts_per_s = 0.5;
  advice.answers_per_s = 2;
  advice.decode_steps = {{.streams = 4, .tpot_s = 0.02, .answers_per_s = 2, .keeps_target = true}};
  advice.prefill_nodes = 6;
  advice.decode_nodes = 2;
  advice.winner = Winner::Split;
  const std::string text = to_text(advice);
  for (const char* part : {"0.500 prompts a second",
                           "4 streams:   20.0 ms a token, 2.000 answers",
                           "4.00 prefill nodes to a decode node; of 8 nodes, 6 prefill and 2",
                           "split the phases"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const json::value back = json::parse(to_json({advice, advice}));
  EXPECT_EQ(back.at("workloads").as_array().size(), 2U);
  EXPECT_EQ(back.at("workloads").at(1).at("winner").as_string(), "split");
  EXPECT_TRUE(parse_workload("200/100-300", 5));
  for (const char* bad : {"200", "200/", "/5", "a/b"}) {
    EXPECT_FALSE(parse_workload(bad, 5)) << bad;
  }
}

TEST(Serve, TargetsAreHttpAddresses) {
  const auto target = parse_target("http://[::1]:8000/v1/");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->server.port, 8000);
  EXPECT_EQ(target->base_path, "/v1");
  EXPECT_EQ(parse_target("http://host")->server.port, 80);
  EXPECT_THAT(parse_target("https://host/v1").error().message, HasSubstr("TLS"));
}

// An OpenAI server of three words an answer; every third request is refused.
class WordServer {
 public:
  WordServer() {
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      bodies_.push_back(json::parse(request.body));
      keys_.push_back(request.get_header_value("Authorization"));
      if (bodies_.size() % 3 == 0) {
        response.status = 429;
        response.set_content(R"({"error":{"message":"full"}})", "application/json");
        return;
      }
      const bool is_chat = request.path.find("chat") != std::string::npos;
      response.set_chunked_content_provider(
          "text/event-stream", [is_chat](std::size_t, httplib::DataSink& sink) {
            for (const char* word : {"a", "b", "c"}) {
              const std::string field =
                  is_chat ? fmt(R"("delta":{"content":")", word) : fmt(R"("text":"x)", word);
              const std::string event =
                  "data: {\"choices\":[{" + field + (is_chat ? "}" : "") + "}]}\n\n";
              sink.write(event.data(), event.size());
            }
            const std::string usage =
                "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n"
                "data: [DONE]\n\n";
            sink.write(usage.data(), usage.size());
            sink.done();
            return true;
          });
    };
    server_.Post("/v1/completions", answer);
    server_.Post("/v1/chat/completions", answer);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::jthread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) {
      std::this_thread::yield();
    }
  }
  ~WordServer() { server_.stop(); }
  WordServer(const WordServer&) = delete;
  WordServer& operator=(const WordServer&) = delete;

  HostPort address() const { return {"localhost", static_cast<std::uint16_t>(port_)}; }
  std::vector<json::value> bodies() {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  std::vector<std::string> keys() {
    const std::lock_guard lock(mutex_);
    return keys_;
  }

 private:
  static std::string fmt(const char* head, const char* word) {
    return std::string(head) + word + "\"";
  }

  httplib::Server server_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<json::value> bodies_;
  std::vector<std::string> keys_;
  std::jthread thread_;
};

ServeOptions options_for(const WordServer& server, std::size_t requests) {
  ServeOptions options;
  options.target.server = server.address();
  options.target.model = "m";
  options.target.api_key = "secret";
  const auto lengths = Lengths::parse("9");
  options.load = poisson_load(500, requests, *lengths, *lengths, 1);
  return options;
}

TEST(Serve, CountsWhatCameAndWhatWasRefused) {
  WordServer server;
  ServeOptions options = options_for(server, 6);
  std::size_t ended = 0;
  options.progress = [&](const ServeProgress& at) { ended = at.ended; };
  const auto served = serve_load(options);
  ASSERT_TRUE(served) << served.error().message;
  const ServeFigures figures = figures_of(*served, {});
  EXPECT_EQ(figures.whole, 4U);
  EXPECT_EQ(figures.refused, 2U);
  EXPECT_EQ(ended, 6U);
  for (const Served& one : *served) {
    if (one.is_whole) {
      EXPECT_EQ(one.input_tokens, 9U);
      EXPECT_EQ(one.output_tokens, 4U);  // as the usage says, not as events came
      EXPECT_EQ(one.gaps_s.size(), 2U);
      EXPECT_GT(one.ttft_s, 0);
      EXPECT_GE(one.e2e_s, one.ttft_s);
    } else {
      EXPECT_THAT(one.error, HasSubstr("429"));
    }
  }
  EXPECT_THAT(server.keys(), Each(std::string("Bearer secret")));
  for (const json::value& body : server.bodies()) {
    EXPECT_EQ(body.at("prompt").as_array().size(), 9U);
    EXPECT_TRUE(body.at("ignore_eos").as_bool());
  }
  EXPECT_NE(server.bodies()[0].at("prompt"), server.bodies()[1].at("prompt"));
}

TEST(Serve, ChatSendsWordsAndAWidthIsKept) {
  WordServer server;
  ServeOptions options = options_for(server, 5);
  options.width = 1;
  options.target.chat = true;
  options.target.ignore_eos = false;
  options.same_prompt = true;
  const auto served = serve_load(options);
  ASSERT_TRUE(served);
  EXPECT_EQ(figures_of(*served, {}).whole, 4U);
  const auto bodies = server.bodies();
  EXPECT_EQ(bodies[0].at("messages"), bodies[4].at("messages"));
  EXPECT_EQ(bodies[0].as_object().if_contains("ignore_eos"), nullptr);
  double end = 0;
  for (const Served& one : *served) {
    EXPECT_GE(one.due_s, end) << "the one before was still out";
    end = one.due_s + one.e2e_s;
  }
}

TEST(Serve, NobodyThereIsAnError) {
  ServeOptions options;
  options.target.server = {"127.0.0.1", 1};
  options.load = {{0, 1, 1}};
  const auto served = serve_load(options);
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().code, ErrorCode::Unavailable);
}

}  // namespace
}  // namespace baton::bench

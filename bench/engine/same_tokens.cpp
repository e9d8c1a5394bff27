#include "bench/engine/same_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "bench/engine/prompt_pass.h"
#include "cli/cluster/local_cluster.h"
#include "common/config/catalogue.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::chrono::seconds kReadyLimit{120};
constexpr std::chrono::seconds kStopGrace{10};
constexpr std::uint32_t kSmallChunk = 16;
constexpr std::uint32_t kBigChunk = 512;

struct Variant {
  std::string name;
  std::string transport;  // empty: colocated
  unsigned threads = 2;
  std::uint32_t chunk = kBigChunk;
  bool prefix_cache = false;
  std::string speculation = "off";
};

struct PassPlan {
  std::string name;
  bool seeded = false;
  bool one_by_one = false;
  bool penalties = false;
};

struct ClusterPlan {
  Variant variant;
  std::vector<PassPlan> passes;
};

struct Pass {
  bool seeded = false;
  std::vector<Answer> answers;
  Evidence evidence;
};

using Passes = std::map<std::string, Pass>;

std::vector<ClusterPlan> plan() {
  return {{{"colocated", "", 1, kBigChunk, false},
           {{"colocated greedy", false, false}, {"colocated seeded", true, false}}},
          {{"tcp", "tcp", 2, kBigChunk, true},
           {{"tcp greedy", false, false},
            {"tcp greedy warm", false, false},
            {"tcp seeded", true, false},
            {"tcp greedy one by one", false, true},
            {"tcp seeded one by one", true, true}}},
          {{"shm", "shm", 2, kSmallChunk, false},
           {{"shm greedy", false, false}, {"shm seeded", true, false}}}};
}

std::vector<ClusterPlan> speculation_plan(const std::string& mode) {
  return {{{"plain", "", 1, kBigChunk, false},
           {{"plain greedy", false, false},
            {"plain seeded", true, false},
            {"plain penalties", true, false, true}}},
          {{"speculative", "tcp", 2, kBigChunk, true, mode},
           {{"speculative greedy", false, true},
            {"speculative seeded", true, true},
            {"speculative penalties", true, true, true}}}};
}

std::string configuration(const Variant& variant, const SameTokensOptions& options) {
  const bool path = is_model_path(options.model);
  std::string text = fmt::format(
      "cluster:\n  name: same-tokens\n  token: same-tokens-{0}\n  gateways: [\"127.0.0.1:0\"]\n"
      "model:\n  id: {1}\n{2}  partial_sums: {6}\n"
      "kv:\n  arena_mb: {3}\n  prefix_cache: {4}\n  dtype: {5}\n"
      "gateway:\n  listen: 127.0.0.1:0\n  control_listen: 127.0.0.1:0\n",
      variant.name,
      path ? model_name_of(options.model) : options.model,
      path ? fmt::format("  path: {}\n", fs::absolute(options.model).string()) : std::string(),
      options.arena_mb,
      variant.prefix_cache,
      options.kv_dtype,
      options.tensor_parallel > 1 ? 4 : 1);
  const std::string speculation =
      fmt::format(R"({{mode: "{}", draft_model: "{}"}})",
                  variant.speculation,
                  is_model_path(options.draft_model) ? fs::absolute(options.draft_model).string()
                                                     : options.draft_model);
  const auto engine = [&](bool several_ranks) {
    return fmt::format("  engine:\n    threads: {}\n    tensor_parallel: {}\n",
                       variant.threads * (several_ranks ? options.tensor_parallel : 1),
                       several_ranks ? options.tensor_parallel : 1);
  };
  if (variant.transport.empty()) {
    text += fmt::format(
        "decode:\n  max_batch: 32\n  speculation: {}\n  local_prefill_max_tokens: 1000000\n  "
        "local_prefill_chunk: {}\n"
        "{}  pool:\n    - name: both-0\n",
        speculation,
        variant.chunk,
        engine(false));
  } else {
    text += fmt::format("transfer:\n  transport: {}\n", variant.transport);
    text += fmt::format(
        "prefill:\n  chunk_tokens: {}\n  credits: 8\n{}  pool:\n    - name: prefill-0\n",
        variant.chunk,
        engine(variant.transport == "tcp"));
    text += fmt::format(
        "decode:\n  max_batch: 32\n  speculation: {}\n{}  pool:\n    - name: decode-0\n",
        speculation,
        engine(variant.transport == "shm"));
  }
  return text;
}

Evidence evidence_of(const std::vector<Answer>& answers) {
  Evidence seen;
  std::set<std::string> lanes;
  for (const Answer& answer : answers) {
    seen.min_batch =
        seen.requests == 0 ? answer.max_batch : std::min(seen.min_batch, answer.max_batch);
    ++seen.requests;
    seen.max_batch = std::max(seen.max_batch, answer.max_batch);
    seen.max_chunks = std::max(seen.max_chunks, answer.chunks);
    seen.prompt_tokens += answer.prompt_tokens;
    seen.cached_tokens += answer.cached_tokens;
    seen.cache_hits += answer.cached_tokens > 0 ? 1 : 0;
    seen.drafted_tokens += answer.drafted_tokens;
    seen.accepted_tokens += answer.accepted_tokens;
    seen.ucx_bytes += answer.kv_bytes_moved;
    if (answer.kv_bytes_moved > 0) {
      lanes.insert(answer.kv_transport);
    }
  }
  seen.transports = fmt::format("{}", fmt::join(lanes, "+"));
  return seen;
}

// Engine threads of the nodes, from the line each logs at start ("cpu avx512, 2 threads"); distinct
// values joined by +.
std::string threads_of(const cli::LocalCluster& cluster) {
  std::set<std::string> seen;
  for (const auto& member : cluster.members()) {
    std::ifstream log(member.log);
    const std::regex pattern("([0-9]+) threads?");
    std::string line;
    std::smatch match;
    while (member.role != "gateway" && std::getline(log, line)) {
      if (std::regex_search(line, match, pattern)) {
        seen.insert(match[1]);
        break;
      }
    }
  }
  return fmt::format("{}", fmt::join(seen, "+"));
}

Status run_cluster(const ClusterPlan& cluster_plan,
                   const std::vector<Prompt>& prompts,
                   const SameTokensOptions& options,
                   Passes& passes) {
  const Variant& variant = cluster_plan.variant;
  const std::string folder = fmt::format("{}/{}", options.run_folder, variant.name);
  std::error_code error;
  fs::create_directories(folder, error);
  const std::string file = fmt::format("{}/cluster.yaml", folder);
  std::ofstream(file) << configuration(variant, options);
  const auto say = [&](const std::string& line) {
    if (options.progress) {
      options.progress(line);
    }
  };
  say(fmt::format("{}: starting ({} threads, chunks of {}; logs in {})",
                  variant.name,
                  variant.threads,
                  variant.chunk,
                  folder));
  cli::LocalClusterOptions up;
  up.config_file = file;
  up.bin_folder = options.bin_folder;
  up.run_folder = folder;
  up.free_ports = true;
  BATON_ASSIGN(const auto cluster, cli::LocalCluster::start(up));
  BATON_TRY(cluster->wait_ready(kReadyLimit, [](const std::string&) { return false; }));
  for (const PassPlan& pass_plan : cluster_plan.passes) {
    PassOptions pass_options;
    pass_options.base_url = cluster->base_url();
    pass_options.model =
        is_model_path(options.model) ? model_name_of(options.model) : options.model;
    pass_options.seeded = pass_plan.seeded;
    pass_options.penalties = pass_plan.penalties;
    // Some more than the batch, since requests also spend time in prefill.
    pass_options.concurrency = pass_plan.one_by_one ? 1 : options.batch + options.batch / 2;
    const auto from = std::chrono::steady_clock::now();
    Result<std::vector<Answer>> answers = run_pass(prompts, pass_options);
    if (!answers) {
      std::string message = fmt::format("pass {}: {}", pass_plan.name, answers.error().message);
      for (const auto* dead : cluster->newly_dead()) {
        message += fmt::format("\n{}", cli::LocalCluster::obituary(*dead));
      }
      return fail(answers.error().code, message);
    }
    Pass& pass = passes[pass_plan.name];
    pass.seeded = pass_plan.seeded;
    pass.answers = std::move(*answers);
    pass.evidence = evidence_of(pass.answers);
    say(fmt::format(
        "{}: {} answers in {:.1f} s",
        pass_plan.name,
        pass.answers.size(),
        std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count()));
  }
  const std::string threads = threads_of(*cluster);
  for (const PassPlan& pass_plan : cluster_plan.passes) {
    passes[pass_plan.name].evidence.threads = threads;
  }
  cluster->stop(kStopGrace);
  return {};
}

// The first difference of each pair of answers.
std::vector<Difference> compare(const std::vector<Answer>& left, const std::vector<Answer>& right) {
  std::vector<Difference> differences;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto& a = left[i].token_ids;
    const auto& b = right[i].token_ids;
    const auto place = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (place.first == a.end() && place.second == b.end()) {
      continue;
    }
    differences.push_back({i + 1,
                           static_cast<std::size_t>(place.first - a.begin()),
                           place.first == a.end() ? -1 : *place.first,
                           place.second == b.end() ? -1 : *place.second});
  }
  return differences;
}

// Why the named case did not happen in `pass`; empty when it did.
using Proof = std::function<std::string(const Evidence& pass, const Evidence& other)>;

struct CheckPlan {
  std::string name;
  std::string greedy, seeded;              // the pass of each kind
  std::string greedy_other, seeded_other;  // compared with
  Proof proof;
};

std::string need(bool holds, const std::string& otherwise) {
  return holds ? "" : otherwise;
}

std::vector<CheckPlan> checks(unsigned batch) {
  const auto over = [](const std::string& lane) {
    return [lane](const Evidence& seen, const Evidence&) {
      return need(seen.transports == lane && seen.ucx_bytes > 0,
                  fmt::format("the blocks went over '{}'", seen.transports));
    };
  };
  const Proof together = [](const Evidence& seen, const Evidence& other) {
    return need(seen.ucx_bytes == 0 && other.ucx_bytes > 0,
                fmt::format("{} and {} bytes moved", seen.ucx_bytes, other.ucx_bytes));
  };
  const Proof batches = [batch](const Evidence& seen, const Evidence& other) {
    return need(seen.max_batch == 1 && other.max_batch >= batch,
                fmt::format("largest batches were {} and {}", seen.max_batch, other.max_batch));
  };
  const Proof chunks = [](const Evidence& seen, const Evidence& other) {
    return need(other.max_chunks > 1 && seen.max_chunks > 8 * other.max_chunks,
                fmt::format("most chunks were {} and {}", seen.max_chunks, other.max_chunks));
  };
  const Proof warm = [](const Evidence& seen, const Evidence& other) {
    return need(seen.cached_tokens * 2 > seen.prompt_tokens && other.cached_tokens == 0,
                fmt::format("cached {} of {} warm and {} of {} cold tokens",
                            seen.cached_tokens,
                            seen.prompt_tokens,
                            other.cached_tokens,
                            other.prompt_tokens));
  };
  const Proof threads = [](const Evidence& seen, const Evidence& other) {
    return need(seen.threads == "1" && other.threads == "2",
                fmt::format("engines had '{}' and '{}' threads", seen.threads, other.threads));
  };
  // Seeded passes on the tcp cluster come after greedy ones, so they are warm.
  return {{"(a) prefill and decode nodes over tcp, and one process",
           "tcp greedy",
           "tcp seeded",
           "colocated greedy",
           "colocated seeded",
           over("tcp")},
          {"(b) over shared memory, and over tcp",
           "shm greedy",
           "shm seeded",
           "tcp greedy",
           "tcp seeded",
           over("shm")},
          {"(c) one colocated process, and over shared memory",
           "colocated greedy",
           "colocated seeded",
           "shm greedy",
           "shm seeded",
           together},
          {"(d) batch of 1 and of many",
           "tcp greedy one by one",
           "tcp seeded one by one",
           "tcp greedy warm",
           "tcp seeded",
           batches},
          {"(e) prefill chunk 16 and 512",
           "shm greedy",
           "shm seeded",
           "colocated greedy",
           "colocated seeded",
           chunks},
          {"(f) warm and cold prefix cache",
           "tcp greedy warm",
           "tcp seeded",
           "colocated greedy",
           "colocated seeded",
           warm},
          {"(g) 1 and 2 threads",
           "colocated greedy",
           "colocated seeded",
           "tcp greedy",
           "tcp seeded",
           threads}};
}

SameTokensCheck run_check(const std::string& name,
                          const Pass& pass,
                          const Pass& other,
                          const Proof& proof) {
  SameTokensCheck check;
  check.name = name;
  check.answers = pass.answers.size();
  check.evidence = pass.evidence;
  check.other = other.evidence;
  check.not_exercised = proof(pass.evidence, other.evidence);
  check.differences = compare(pass.answers, other.answers);
  check.passed = check.not_exercised.empty() && check.differences.empty();
  return check;
}

Result<std::vector<SameTokensCheck>> run_speculation(const std::vector<Prompt>& prompts,
                                                     const SameTokensOptions& options) {
  Passes passes;
  for (const ClusterPlan& cluster_plan : speculation_plan(options.speculation)) {
    BATON_TRY(run_cluster(cluster_plan, prompts, options, passes));
  }
  std::vector<SameTokensCheck> made;
  for (const std::string kind : {"greedy", "seeded", "penalties"}) {
    // Penalties keep answers from repeating, so that guesses may all be wrong; and a draft model
    // that is found not to pay is asked no more.
    const bool may_be_none = kind != "greedy" && options.speculation == "draft";
    const bool may_be_wrong = kind == "penalties";
    const Proof guessed = [=](const Evidence& seen, const Evidence& other) {
      const auto right = may_be_wrong ? seen.drafted_tokens : seen.accepted_tokens;
      return need((may_be_none || right > 0) && other.drafted_tokens == 0,
                  fmt::format("{} and {} tokens were guessed, {} and {} right",
                              seen.drafted_tokens,
                              other.drafted_tokens,
                              seen.accepted_tokens,
                              other.accepted_tokens));
    };
    made.push_back(
        run_check(fmt::format("(s) speculation {} and off, {}", options.speculation, kind),
                  passes.at("speculative " + kind),
                  passes.at("plain " + kind),
                  guessed));
  }
  return made;
}

}  // namespace

std::string Evidence::to_string() const {
  return fmt::format(
      "batch {} to {}, up to {} chunks, {} threads, {} cache hits ({} of {} tokens), "
      "{} of {} guessed tokens right, {} UCX bytes{}{}",
      min_batch,
      max_batch,
      max_chunks,
      threads,
      cache_hits,
      cached_tokens,
      prompt_tokens,
      accepted_tokens,
      drafted_tokens,
      ucx_bytes,
      transports.empty() ? "" : " over ",
      transports);
}

std::string SameTokensCheck::to_string() const {
  std::string line = fmt::format("{} {}: {} answers; {}; against {}",
                                 passed ? "PASS" : "FAIL",
                                 name,
                                 answers,
                                 evidence.to_string(),
                                 other.to_string());
  if (!not_exercised.empty()) {
    line += fmt::format("; NOT EXERCISED: {}", not_exercised);
  }
  if (!differences.empty()) {
    line += fmt::format("; {} answers differ", differences.size());
  }
  return line;
}

Result<std::vector<SameTokensCheck>> run_same_tokens(const SameTokensOptions& options) {
  BATON_ASSIGN(const std::vector<Prompt> prompts, read_prompts(options.prompts_file));
  if (!options.speculation.empty()) {
    return run_speculation(prompts, options);
  }
  Passes passes;
  for (const ClusterPlan& cluster_plan : plan()) {
    BATON_TRY(run_cluster(cluster_plan, prompts, options, passes));
  }
  std::vector<SameTokensCheck> made;
  for (const CheckPlan& check_plan : checks(options.batch)) {
    for (const bool seeded : {false, true}) {
      made.push_back(
          run_check(fmt::format("{}, {}", check_plan.name, seeded ? "seeded" : "greedy"),
                    passes.at(seeded ? check_plan.seeded : check_plan.greedy),
                    passes.at(seeded ? check_plan.seeded_other : check_plan.greedy_other),
                    check_plan.proof));
    }
  }
  return made;
}

std::string to_json(const std::vector<SameTokensCheck>& checks) {
  const auto evidence = [](const Evidence& seen) {
    return json::object{{"min_batch", seen.min_batch},
                        {"max_batch", seen.max_batch},
                        {"max_chunks", seen.max_chunks},
                        {"threads", seen.threads},
                        {"cache_hits", seen.cache_hits},
                        {"cached_tokens", seen.cached_tokens},
                        {"prompt_tokens", seen.prompt_tokens},
                        {"drafted_tokens", seen.drafted_tokens},
                        {"accepted_tokens", seen.accepted_tokens},
                        {"ucx_bytes", seen.ucx_bytes},
                        {"transports", seen.transports}};
  };
  json::array list;
  for (const SameTokensCheck& check : checks) {
    json::array differences;
    for (const Difference& difference : check.differences) {
      differences.push_back(json::object{{"prompt", difference.prompt},
                                         {"position", difference.position},
                                         {"left", difference.left},
                                         {"right", difference.right}});
    }
    list.push_back(json::object{{"name", check.name},
                                {"passed", check.passed},
                                {"answers", check.answers},
                                {"seen", evidence(check.evidence)},
                                {"other", evidence(check.other)},
                                {"not_exercised", check.not_exercised},
                                {"differences", differences}});
  }
  return json::serialize(json::object{{"checks", list}});
}

}  // namespace baton::bench

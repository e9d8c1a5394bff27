#include "gateway/cluster/artifact_fetcher.h"

#include <fmt/format.h>

namespace baton::gateway {
namespace {

constexpr std::chrono::milliseconds kChunkTimeout{5'000};
constexpr std::chrono::milliseconds kRetryPause{500};

}  // namespace

Result<std::shared_ptr<const ModelArtifacts>> build_artifacts(std::string_view bytes,
                                                              std::uint64_t expected_hash,
                                                              const PromptCost& cost) {
  auto spec = engine::TokenizerSpec::parse(bytes);
  if (!spec) {
    return std::unexpected(spec.error());
  }
  if (spec->hash() != expected_hash) {
    return fail(ErrorCode::Mismatch, "the tokenizer's hash is not the one the node announced");
  }
  auto artifacts = std::make_shared<ModelArtifacts>();
  artifacts->tokenizer_hash = expected_hash;
  auto chat_template = engine::ChatTemplate::create(spec->chat_template, spec->architecture);
  if (chat_template) {
    artifacts->chat_template = counted(std::move(*chat_template), cost);
  } else if (chat_template.error().code != ErrorCode::NotFound) {
    return std::unexpected(chat_template.error());
  }
  artifacts->format = detect_format(*spec, artifacts->chat_template.get());
  BATON_ASSIGN(auto tokenizer, engine::Tokenizer::create(std::move(*spec)));
  artifacts->tokenizer = counted(std::move(tokenizer), cost);
  return artifacts;
}

ArtifactFetcher::ArtifactFetcher(Executor& executor,
                                 Membership& membership,
                                 WorkPool& pool,
                                 const Logger& log,
                                 std::function<void()> on_ready,
                                 PromptCost cost)
    : executor_(executor),
      membership_(membership),
      pool_(pool),
      log_(log),
      on_ready_(std::move(on_ready)),
      cost_(cost) {}

ArtifactFetcher::~ArtifactFetcher() = default;

std::shared_ptr<const ModelArtifacts> ArtifactFetcher::find(std::uint64_t hash) const {
  const auto found = ready_.find(hash);
  return found == ready_.end() ? nullptr : found->second;
}

void ArtifactFetcher::need(Node& node) {
  const std::uint64_t hash = node.model.tokenizer_hash();
  if (ready_.contains(hash) || pauses_.contains(hash)) {
    return;
  }
  if (const auto fetch = fetches_.find(hash);
      fetch != fetches_.end() &&
      (fetch->second.building || membership_.find(fetch->second.node) != nullptr)) {
    return;
  }
  fetches_[hash] = Fetch{node.handle, {}, false};
  ask(hash);
}

void ArtifactFetcher::on_node_down(const Node& node) {
  const auto fetch = fetches_.find(node.model.tokenizer_hash());
  if (fetch != fetches_.end() && fetch->second.node == node.handle && !fetch->second.building) {
    retry(fetch->first, Error{ErrorCode::PeerDead, "the node has gone"});
  }
}

void ArtifactFetcher::ask(std::uint64_t hash) {
  Fetch& fetch = fetches_[hash];
  Node* node = membership_.find(fetch.node);
  if (node == nullptr) {
    return retry(hash, Error{ErrorCode::PeerDead, "the node has gone"});
  }
  wire::Frame frame;
  frame.mutable_artifact_request()->set_name("tokenizer");
  frame.mutable_artifact_request()->set_offset(fetch.bytes.size());
  node->channel->call(
      std::move(frame),
      kChunkTimeout,
      [this, alive = std::weak_ptr(alive_), hash, handle = fetch.node](Result<wire::Frame> answer) {
        if (!alive.expired()) {
          on_chunk(hash, handle, std::move(answer));
        }
      });
}

void ArtifactFetcher::on_chunk(std::uint64_t hash, NodeHandle node, Result<wire::Frame> answer) {
  const auto at = fetches_.find(hash);
  if (at == fetches_.end() || at->second.node != node || at->second.building) {
    return;
  }
  Fetch& fetch = at->second;
  if (!answer) {
    return retry(hash, answer.error());
  }
  const wire::ArtifactChunk& chunk = answer->artifact_chunk();
  if (!answer->has_artifact_chunk() || chunk.offset() != fetch.bytes.size() ||
      chunk.data().empty() || chunk.total() > kMaxBytes ||
      fetch.bytes.size() + chunk.data().size() > chunk.total()) {
    return retry(hash, Error{ErrorCode::ProtocolError, "a piece of the tokenizer does not fit"});
  }
  fetch.bytes += chunk.data();
  if (fetch.bytes.size() < chunk.total()) {
    return ask(hash);
  }
  build(hash);
}

void ArtifactFetcher::build(std::uint64_t hash) {
  Fetch& fetch = fetches_[hash];
  fetch.building = true;
  pool_.run([this, alive = std::weak_ptr(alive_), hash, bytes = std::move(fetch.bytes)] {
    auto built = build_artifacts(bytes, hash, cost_);
    executor_.post([this, alive, hash, built = std::move(built)]() mutable {
      if (!alive.expired()) {
        on_built(hash, std::move(built));
      }
    });
  });
}

void ArtifactFetcher::on_built(std::uint64_t hash,
                               Result<std::shared_ptr<const ModelArtifacts>> built) {
  if (!built) {
    return retry(hash, built.error());
  }
  fetches_.erase(hash);
  ready_[hash] = std::move(*built);
  log_.info("tokenizer {:016x} is here: {} tokens", hash, ready_[hash]->tokenizer->vocab_size());
  on_ready_();
}

void ArtifactFetcher::retry(std::uint64_t hash, const Error& why) {
  log_.warn("fetching tokenizer {:016x} failed: {}", hash, why.message);
  const NodeHandle failed = fetches_[hash].node;
  fetches_.erase(hash);
  pauses_[hash] = executor_.call_after(kRetryPause, [this, hash, failed] {
    const auto pause = pauses_.extract(hash);
    Node* next = nullptr;
    for (const Node* node : membership_.nodes()) {
      if (node->model.tokenizer_hash() == hash && (next == nullptr || next->handle == failed)) {
        next = membership_.find(node->handle);
      }
    }
    if (next != nullptr) {
      need(*next);
    }
  });
}

}  // namespace baton::gateway

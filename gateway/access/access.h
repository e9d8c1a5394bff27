// Who asks, and what they may have: bearer keys, tiers, models, limits.
//
// Thread: any. Failure: ApiError, 401 without a valid key, 403 for what the key does not cover, 429
// above its limits.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "common/config/gateway_section.h"
#include "gateway/access/key_ring.h"
#include "gateway/http/api_error.h"
#include "gateway/http/http_exchange.h"
#include "gateway/requests/answer_sink.h"

namespace baton::gateway {

enum class Access : std::uint8_t { Anybody, Key, Admin };
// Health needs no key; status and draining need one marked admin.
Access access_of(std::string_view path);

class Caller {
 public:
  Caller() = default;  // there are no keys: may do everything
  explicit Caller(std::shared_ptr<const ApiKey> key) : key_(std::move(key)) {}

  // Of the key; empty without one.
  std::string name() const { return key_ == nullptr ? std::string() : key_->name; }
  bool may_use_model(std::string_view model) const {
    return key_ == nullptr || key_->may_use_model(model);
  }
  // `asked`: nothing for auto.
  ApiResult<Tier> tier(std::optional<Tier> asked) const;
  // The rate limits as they stand; none without a key.
  HttpHeaders limit_headers() const;
  // One more request. Null: nothing is counted.
  ApiResult<std::shared_ptr<LimitLease>> begin() const;

 private:
  std::shared_ptr<const ApiKey> key_;
};

// With no keys configured everybody is let in.
ApiResult<Caller> authenticate(const KeyRing& keys, const HttpRequest& request, Access need);
ApiError to_api_error(const LimitRefusal& refusal);

// Counts the tokens of one answer for its lease, and holds the lease until the end.
class MeteredSink final : public AnswerSink {
 public:
  MeteredSink(std::shared_ptr<AnswerSink> sink,
              std::shared_ptr<LimitLease> lease,
              std::uint64_t prompt_tokens);

  void on_tokens(TokenEvent event) override;
  void on_end(AnswerEnd end) override;

 private:
  const std::shared_ptr<AnswerSink> sink_;
  std::shared_ptr<LimitLease> lease_;
  std::uint64_t prompt_tokens_;  // not counted yet: a request that gives no token costs none
};

}  // namespace baton::gateway

#include "gateway/access/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace baton::gateway {
namespace {

ApiError invalid_key(std::string message) {
  ApiError error = bad_request("invalid_api_key", "", std::move(message));
  error.status = 401;
  return error;
}

// The key of "Authorization: Bearer KEY"; the scheme's case does not matter.
std::string_view bearer_of(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  if (header.size() <= kScheme.size()) {
    return {};
  }
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    const char c = header[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) != kScheme[i]) {
      return {};
    }
  }
  header.remove_prefix(kScheme.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

}  // namespace

Access access_of(std::string_view path) {
  if (path == "/health" || path == "/livez" || path == "/readyz") {
    return Access::Anybody;
  }
  const bool is_admin = path.starts_with("/baton/") || path.starts_with("/v1/baton/");
  return is_admin ? Access::Admin : Access::Key;
}

ApiResult<Caller> authenticate(const KeyRing& keys, const HttpRequest& request, Access need) {
  if (need == Access::Anybody || keys.is_open()) {
    return Caller();
  }
  const std::string_view shown = bearer_of(request.header("authorization"));
  if (shown.empty()) {
    return std::unexpected(
        invalid_key("No API key was given. Send it in the header 'Authorization: Bearer KEY'."));
  }
  auto key = keys.find(shown);
  if (key == nullptr) {
    return std::unexpected(invalid_key("The API key is not valid."));
  }
  if (need == Access::Admin && !key->is_admin) {
    ApiError error = bad_request("forbidden", "", "This needs a key that is marked admin.");
    error.status = 403;
    return std::unexpected(std::move(error));
  }
  return Caller(std::move(key));
}

ApiResult<Tier> Caller::tier(std::optional<Tier> asked) const {
  if (key_ == nullptr) {
    return asked.value_or(Tier::Default);
  }
  if (!asked) {
    return key_->tiers.empty() ? Tier::Default : key_->tiers.front();
  }
  if (!key_->may_use(*asked)) {
    ApiError error =
        bad_request("tier_not_allowed",
                    "service_tier",
                    fmt::format("This key may not ask for service_tier '{}'.", to_string(*asked)));
    error.status = 403;
    return std::unexpected(std::move(error));
  }
  return *asked;
}

HttpHeaders Caller::limit_headers() const {
  return key_ == nullptr ? HttpHeaders() : key_->limits->headers();
}

ApiResult<std::shared_ptr<LimitLease>> Caller::begin() const {
  if (key_ == nullptr) {
    return nullptr;
  }
  auto lease = LimitLease::begin(key_->limits);
  if (!lease) {
    return std::unexpected(to_api_error(lease.error()));
  }
  return std::move(*lease);
}

ApiError to_api_error(const LimitRefusal& refusal) {
  ApiError error = to_api_error(Error{ErrorCode::Busy, refusal.message});
  if (refusal.retry.count() == 0) {
    error.retry_after_s = 0;
    error.should_retry = false;
    return error;
  }
  error.retry_after_ms = static_cast<std::uint32_t>(refusal.retry.count());
  error.retry_after_s = (error.retry_after_ms + 999) / 1000;
  return error;
}

MeteredSink::MeteredSink(std::shared_ptr<AnswerSink> sink,
                         std::shared_ptr<LimitLease> lease,
                         std::uint64_t prompt_tokens)
    : sink_(std::move(sink)), lease_(std::move(lease)), prompt_tokens_(prompt_tokens) {}

void MeteredSink::on_tokens(TokenEvent event) {
  lease_->use(std::exchange(prompt_tokens_, 0) + event.tokens.size());
  sink_->on_tokens(std::move(event));
}

void MeteredSink::on_end(AnswerEnd end) {
  lease_ = nullptr;  // settled before the client can hear of it
  sink_->on_end(std::move(end));
}

}  // namespace baton::gateway

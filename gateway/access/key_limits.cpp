#include "gateway/access/key_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton::gateway {
namespace {

using std::chrono::milliseconds;

constexpr double kMsPerMinute = 60'000;
constexpr milliseconds kParallelRetry{1'000};  // nobody knows when one of them ends

// As OpenAI writes it: 20ms, 1.5s, 6m0s.
std::string short_duration(milliseconds value) {
  if (value < std::chrono::seconds(1)) {
    return fmt::format("{}ms", value.count());
  }
  const auto minutes = value.count() / 60'000;
  const double seconds = static_cast<double>(value.count() % 60'000) / 1000.0;
  return minutes > 0 ? fmt::format("{}m{:g}s", minutes, seconds) : fmt::format("{:g}s", seconds);
}

void append_bucket(HttpHeaders& headers,
                   MinuteBucket& bucket,
                   TimePoint now,
                   std::string_view limit,
                   std::string_view remaining,
                   std::string_view reset) {
  if (bucket.limit() > 0) {
    headers.emplace_back(limit, std::to_string(bucket.limit()));
    headers.emplace_back(remaining, std::to_string(bucket.remaining(now)));
    headers.emplace_back(reset, short_duration(bucket.until_full(now)));
  }
}

}  // namespace

// ---- MinuteBucket

void MinuteBucket::set_limit(std::uint32_t per_minute, TimePoint now) {
  fill(now);
  level_ = limit_ == 0 ? per_minute : std::min<double>(level_, per_minute);
  limit_ = per_minute;
  filled_ = now;
}

void MinuteBucket::fill(TimePoint now) {
  const double passed = std::chrono::duration<double, std::milli>(now - filled_).count();
  level_ = std::min<double>(limit_, level_ + passed * limit_ / kMsPerMinute);
  filled_ = now;
}

bool MinuteBucket::has(double amount, TimePoint now) {
  fill(now);
  return limit_ == 0 || level_ >= amount;
}

void MinuteBucket::give_back(double amount) {
  level_ = std::min<double>(limit_, level_ + amount);
}

std::uint32_t MinuteBucket::remaining(TimePoint now) {
  fill(now);
  return static_cast<std::uint32_t>(std::max(0.0, std::floor(level_)));
}

milliseconds MinuteBucket::wait_for(double amount, TimePoint now) {
  fill(now);
  return limit_ == 0 || level_ >= amount
             ? milliseconds(0)
             : milliseconds(
                   static_cast<std::int64_t>(std::ceil((amount - level_) * kMsPerMinute / limit_)));
}

// ---- KeyLimits

KeyLimits::KeyLimits(KeyQuota quota, NowFunction now, KeyProbe probe) : now_(std::move(now)) {
  change(quota, probe);
}

void KeyLimits::change(KeyQuota quota, KeyProbe probe) {
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  quota_ = quota;
  probe_ = probe;
  requests_.set_limit(quota.requests_per_minute, now);
  tokens_.set_limit(quota.tokens_per_minute, now);
}

LimitRefusal KeyLimits::refuse(std::string message, milliseconds retry) const {
  probe_.refused.add();
  return {std::move(message), retry};
}

std::optional<LimitRefusal> KeyLimits::begin() {
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  probe_.requests.add();
  if (quota_.parallel > 0 && in_work_ >= quota_.parallel) {
    return refuse(fmt::format("Rate limit reached: this key may have {} requests in work at once.",
                              quota_.parallel),
                  kParallelRetry);
  }
  if (!requests_.has(1, now)) {
    return refuse(fmt::format("Rate limit reached: this key may send {} requests a minute.",
                              quota_.requests_per_minute),
                  requests_.wait_for(1, now));
  }
  requests_.take(1);
  ++in_work_;
  return std::nullopt;
}

std::optional<LimitRefusal> KeyLimits::reserve(std::uint64_t prompt,
                                               std::uint64_t tokens,
                                               double& reserved) {
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  const std::uint32_t limit = quota_.tokens_per_minute;
  if (limit == 0) {
    return std::nullopt;
  }
  if (prompt > limit) {
    return refuse(
        fmt::format("The prompt has {} tokens; this key may use {} a minute.", prompt, limit),
        milliseconds(0));
  }
  const auto wanted = static_cast<double>(std::min<std::uint64_t>(tokens, limit));
  if (!tokens_.has(wanted, now)) {
    return refuse(
        fmt::format("Rate limit reached: this key may use {} tokens a minute; the request may take "
                    "{}, and {} are left.",
                    limit,
                    tokens,
                    tokens_.remaining(now)),
        tokens_.wait_for(wanted, now));
  }
  tokens_.take(wanted);
  reserved = wanted;
  return std::nullopt;
}

void KeyLimits::end(double reserved, std::uint64_t used) {
  const std::lock_guard lock(mutex_);
  --in_work_;
  probe_.tokens.add(static_cast<double>(used));
  if (quota_.tokens_per_minute > 0) {
    tokens_.give_back(reserved - static_cast<double>(used));
  }
}

HttpHeaders KeyLimits::headers() {
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  HttpHeaders headers;
  append_bucket(headers,
                requests_,
                now,
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests");
  append_bucket(headers,
                tokens_,
                now,
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens");
  return headers;
}

// ---- LimitLease

std::expected<std::shared_ptr<LimitLease>, LimitRefusal> LimitLease::begin(
    std::shared_ptr<KeyLimits> limits) {
  if (auto refusal = limits->begin()) {
    return std::unexpected(std::move(*refusal));
  }
  return std::shared_ptr<LimitLease>(new LimitLease(std::move(limits)));
}

LimitLease::~LimitLease() {
  limits_->end(reserved_, used_.load(std::memory_order_relaxed));
}

std::optional<LimitRefusal> LimitLease::reserve(std::uint64_t prompt, std::uint64_t tokens) {
  return limits_->reserve(prompt, tokens, reserved_);
}

}  // namespace baton::gateway

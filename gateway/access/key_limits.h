// What the holder of one key may use: requests and tokens a minute, as buckets that fill steadily,
// and requests in work at once. Tokens are reserved at entry as prompt and longest answer, and
// settled at the end with what came; a bucket may be in debt then, and the next request waits.
//
// Owner: KeyRing and the leases. Thread: any. Failure: LimitRefusal says what is used up and when a
// retry can succeed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/exec/executor.h"
#include "common/obs/metrics.h"
#include "gateway/http/http_exchange.h"

namespace baton::gateway {

using NowFunction = std::function<TimePoint()>;  // from any thread

struct KeyQuota {  // 0: no limit
  std::uint32_t requests_per_minute = 0;
  std::uint32_t tokens_per_minute = 0;
  std::uint32_t parallel = 0;
};

// What the holder has used; a default one counts nothing.
struct KeyProbe {
  Counter requests, refused, tokens;
};

struct LimitRefusal {
  std::string message;
  std::chrono::milliseconds retry{0};  // 0: this request can never pass
};

// Fills by `per_minute` a minute up to that many.
class MinuteBucket {
 public:
  // A bucket that was unlimited before begins full.
  void set_limit(std::uint32_t per_minute, TimePoint now);
  std::uint32_t limit() const { return limit_; }
  bool has(double amount, TimePoint now);
  void take(double amount) { level_ -= amount; }
  void give_back(double amount);
  std::uint32_t remaining(TimePoint now);
  // Until `amount` is there.
  std::chrono::milliseconds wait_for(double amount, TimePoint now);
  std::chrono::milliseconds until_full(TimePoint now) { return wait_for(limit_, now); }

 private:
  void fill(TimePoint now);

  std::uint32_t limit_ = 0;
  double level_ = 0;
  TimePoint filled_{};
};

class KeyLimits {
 public:
  KeyLimits(KeyQuota quota, NowFunction now, KeyProbe probe = {});

  // Limits of a reloaded key; what was used stays used.
  void change(KeyQuota quota, KeyProbe probe);
  // x-ratelimit-{limit,remaining,reset}-{requests,tokens}, those that have a limit.
  HttpHeaders headers();

 private:
  friend class LimitLease;
  LimitRefusal refuse(std::string message, std::chrono::milliseconds retry) const;
  std::optional<LimitRefusal> begin();
  std::optional<LimitRefusal> reserve(std::uint64_t prompt, std::uint64_t tokens, double& reserved);
  void end(double reserved, std::uint64_t used);

  const NowFunction now_;
  std::mutex mutex_;  // guards what follows
  KeyQuota quota_;
  KeyProbe probe_;
  MinuteBucket requests_;
  MinuteBucket tokens_;
  std::uint32_t in_work_ = 0;
};

// One request's hold on the limits of its key; dropping it settles.
class LimitLease {
 public:
  static std::expected<std::shared_ptr<LimitLease>, LimitRefusal> begin(
      std::shared_ptr<KeyLimits> limits);
  LimitLease(const LimitLease&) = delete;
  LimitLease& operator=(const LimitLease&) = delete;
  ~LimitLease();

  // Once, when the prompt's tokens are known. `tokens`: prompt and longest answer; of more than a
  // minute's worth, a minute's worth is reserved.
  std::optional<LimitRefusal> reserve(std::uint64_t prompt, std::uint64_t tokens);
  // Tokens that were really used.
  void use(std::uint64_t tokens) { used_.fetch_add(tokens, std::memory_order_relaxed); }
  HttpHeaders headers() const { return limits_->headers(); }

 private:
  explicit LimitLease(std::shared_ptr<KeyLimits> limits) : limits_(std::move(limits)) {}

  const std::shared_ptr<KeyLimits> limits_;
  double reserved_ = 0;
  std::atomic<std::uint64_t> used_{0};
};

}  // namespace baton::gateway

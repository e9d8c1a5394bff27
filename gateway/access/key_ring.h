// The keys that clients may show, and what each holder may do. Keys are known by their SHA-256
// alone; the hash of what a client shows is compared with every one, in a time that does not depend
// on which matches.
//
// Owner: the composition root. Thread: any; `set` replaces all keys at once. Failure: an unknown
// key is a null pointer.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/gateway_section.h"
#include "gateway/access/key_limits.h"

namespace baton::gateway {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::string_view bytes);
std::string to_hex(const Sha256& hash);

struct ApiKey {
  std::string name;
  Sha256 hash{};
  bool is_admin = false;
  std::vector<Tier> tiers;          // empty: all
  std::vector<std::string> models;  // empty: all
  std::shared_ptr<KeyLimits> limits;

  bool may_use(Tier tier) const;
  bool may_use_model(std::string_view model) const;
};

class KeyRing {
 public:
  // `metrics`: null counts nothing; else it outlives the ring.
  explicit KeyRing(NowFunction now, Metrics* metrics = nullptr)
      : now_(std::move(now)), metrics_(metrics) {}

  // A key that stays keeps what it has used. REQUIRES: entries as the loader checks them.
  void set(const std::vector<ApiKeyEntry>& entries);
  // Without keys everybody may ask for everything.
  bool is_open() const { return keys_.load()->empty(); }
  // Null: no such key.
  std::shared_ptr<const ApiKey> find(std::string_view shown) const;

 private:
  using Keys = std::vector<std::shared_ptr<const ApiKey>>;
  KeyProbe probe_of(const std::string& name) const;

  const NowFunction now_;
  Metrics* const metrics_;
  std::mutex mutex_;  // one `set` at a time
  std::atomic<std::shared_ptr<const Keys>> keys_{std::make_shared<const Keys>()};
};

}  // namespace baton::gateway

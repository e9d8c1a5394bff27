#include "gateway/access/key_ring.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "common/base/check.h"

namespace baton::gateway {
namespace {

unsigned char hex_digit(char c) {
  return static_cast<unsigned char>(c <= '9' ? c - '0' : c - 'a' + 10);
}

Sha256 from_hex(std::string_view text) {
  Sha256 hash{};
  BATON_CHECK(text.size() == 2 * hash.size(), "the loader lets no other hash pass");
  for (std::size_t i = 0; i < hash.size(); ++i) {
    hash[i] = static_cast<unsigned char>(hex_digit(text[2 * i]) << 4U | hex_digit(text[2 * i + 1]));
  }
  return hash;
}

}  // namespace

Sha256 sha256(std::string_view bytes) {
  Sha256 hash{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), hash.data());
  return hash;
}

std::string to_hex(const Sha256& hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : hash) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

bool ApiKey::may_use(Tier tier) const {
  return tiers.empty() || std::find(tiers.begin(), tiers.end(), tier) != tiers.end();
}

bool ApiKey::may_use_model(std::string_view model) const {
  return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
}

void KeyRing::set(const std::vector<ApiKeyEntry>& entries) {
  const std::lock_guard lock(mutex_);
  const auto before = keys_.load();
  auto keys = std::make_shared<Keys>();
  for (const ApiKeyEntry& entry : entries) {
    auto key = std::make_shared<ApiKey>();
    key->name = entry.name;
    key->hash = from_hex(entry.sha256);
    key->is_admin = entry.admin;
    key->models = entry.models;
    for (const std::string& name : entry.tiers) {
      const auto at = std::find(kTierNames.begin(), kTierNames.end(), name);
      BATON_CHECK(at != kTierNames.end(), "the loader lets no other tier pass");
      key->tiers.push_back(static_cast<Tier>(at - kTierNames.begin()));
    }
    const KeyQuota quota{entry.requests_per_minute, entry.tokens_per_minute, entry.parallel};
    const auto old = std::find_if(before->begin(), before->end(), [&](const auto& known) {
      return known->hash == key->hash;
    });
    if (old != before->end()) {
      key->limits = (*old)->limits;
      key->limits->change(quota, probe_of(entry.name));
    } else {
      key->limits = std::make_shared<KeyLimits>(quota, now_, probe_of(entry.name));
    }
    keys->push_back(std::move(key));
  }
  keys_.store(std::move(keys));
}

KeyProbe KeyRing::probe_of(const std::string& name) const {
  if (metrics_ == nullptr) {
    return {};
  }
  const Metrics::Labels labels{{"key", name}};
  return {
      metrics_->counter("baton_key_requests_total", "Generation requests of a key", labels),
      metrics_->counter("baton_key_refused_total", "Requests above a limit of their key", labels),
      metrics_->counter(
          "baton_key_tokens_total", "Tokens of prompts and answers of a key", labels)};
}

std::shared_ptr<const ApiKey> KeyRing::find(std::string_view shown) const {
  const Sha256 hash = sha256(shown);
  const auto keys = keys_.load();
  std::shared_ptr<const ApiKey> found;
  for (const auto& key : *keys) {
    if (CRYPTO_memcmp(key->hash.data(), hash.data(), hash.size()) == 0) {
      found = key;
    }
  }
  return found;
}

}  // namespace baton::gateway

// TLS on a connection's own socket, over OpenSSL: certificates that can be read anew while
// connections run, and one session a connection. A session works on a non-blocking descriptor and
// says what it waits for; it has no buffer of its own between two reads, so that an idle connection
// stays small.
//
// Owner: TlsCertificates by the composition root, a session by its connection. Thread:
// TlsCertificates any; a session one. Failure: `load` names the file that is wrong; whatever a peer
// does ends its session with Failed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/error.h"

struct ssl_ctx_st;
struct ssl_st;

namespace baton::gateway {

class TlsCertificates {
 public:
  // TLS 1.2 and above. Both files are PEM; the first may hold a whole chain.
  static Result<std::shared_ptr<TlsCertificates>> load(std::string certificate, std::string key);

  // Reads both files again. What was there stays when they are wrong; running connections keep
  // theirs.
  Status reload();
  std::shared_ptr<ssl_ctx_st> current() const { return context_.load(); }

 private:
  TlsCertificates(std::string certificate, std::string key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}

  const std::string certificate_;
  const std::string key_;
  std::atomic<std::shared_ptr<ssl_ctx_st>> context_;
};

class TlsSession {
 public:
  enum class Outcome : std::uint8_t { Done, WantRead, WantWrite, Ended, Failed };
  struct Progress {
    Outcome outcome = Outcome::Failed;
    std::size_t bytes = 0;  // with Done
  };

  // The server's side. `descriptor` does not block and outlives the session.
  TlsSession(const TlsCertificates& certificates, int descriptor);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  Progress handshake();
  // Ended: the peer has said that nothing more comes, or its connection is over.
  Progress read(std::span<char> into);
  // Part of `bytes` may be written. After a Want the same bytes must come again.
  Progress write(std::span<const char> bytes);
  // Says that nothing more comes, as far as that goes without waiting.
  void shutdown();
  // Bytes were read from the socket that `read` has not given out.
  bool has_pending() const;

 private:
  struct Free {
    void operator()(ssl_st* session) const;
  };
  Progress progress(int result);

  std::unique_ptr<ssl_st, Free> session_;
};

}  // namespace baton::gateway

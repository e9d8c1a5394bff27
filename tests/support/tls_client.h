// A blocking TLS client that trusts anybody and shows the bytes, and certificates made on the spot.
//
// Owner: a test. Thread: one. Failure: reads give up after 10 s and return what came.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct ssl_st;
struct ssl_ctx_st;

namespace baton::testing {

// Writes a self-signed certificate for `common_name` and its key as PEM files.
void write_certificate(const std::string& certificate_path,
                       const std::string& key_path,
                       const std::string& common_name);

class TlsClient {
 public:
  // `max_version`: 0: the library's, else as TLS1_1_VERSION.
  explicit TlsClient(const std::string& address, int max_version = 0);
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;
  ~TlsClient();

  // The handshake was finished.
  bool is_connected() const { return connected_; }
  // Of the server's certificate.
  std::string common_name() const;
  std::string version() const;
  void send(std::string_view bytes);
  // Until `text` has come, or the end; all that came since the last call.
  std::string read_until(std::string_view text);
  void close();

 private:
  int socket_ = -1;
  bool connected_ = false;
  std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)> context_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> session_;
  std::string received_;
};

}  // namespace baton::testing

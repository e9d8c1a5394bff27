#include "gateway/http/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>

#include "common/base/check.h"

namespace baton::gateway {
namespace {

constexpr std::size_t kWriteAtOnce = 64 * 1024;  // before other connections have their turn

// The first of OpenSSL's pending errors, without file names of its own.
std::string last_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "the file cannot be read" : reason;
}

// A key with a passphrase is refused: there is nobody to ask.
int no_passphrase(char*, int, int, void*) {
  return 0;
}

constexpr std::array<unsigned char, 9> kHttp11{8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

int choose_protocol(ssl_st*,
                    const unsigned char** out,
                    unsigned char* out_size,
                    const unsigned char* in,
                    unsigned int in_size,
                    void*) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kHttp11.data(), kHttp11.size(), in, in_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Result<std::shared_ptr<ssl_ctx_st>> make_context(const std::string& certificate,
                                                 const std::string& key) {
  ERR_clear_error();
  const std::shared_ptr<ssl_ctx_st> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  BATON_CHECK(context != nullptr, "OpenSSL gives no context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                          SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                       SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(context.get(), no_passphrase);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("gateway.tls.certificate: {}: {}", certificate, last_error()));
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("gateway.tls.key: {}: {}", key, last_error()));
  }
  if (SSL_CTX_check_private_key(context.get()) != 1) {
    ERR_clear_error();
    return fail(
        ErrorCode::InvalidConfig,
        fmt::format("gateway.tls.key: {} is not the key of the certificate {}", key, certificate));
  }
  return context;
}

}  // namespace

Result<std::shared_ptr<TlsCertificates>> TlsCertificates::load(std::string certificate,
                                                               std::string key) {
  std::shared_ptr<TlsCertificates> loaded(
      new TlsCertificates(std::move(certificate), std::move(key)));
  BATON_TRY(loaded->reload());
  return loaded;
}

Status TlsCertificates::reload() {
  BATON_ASSIGN(auto context, make_context(certificate_, key_));
  context_.store(std::move(context));
  return {};
}

void TlsSession::Free::operator()(ssl_st* session) const {
  SSL_free(session);
}

TlsSession::TlsSession(const TlsCertificates& certificates, int descriptor)
    : session_(SSL_new(certificates.current().get())) {
  BATON_CHECK(session_ != nullptr && SSL_set_fd(session_.get(), descriptor) == 1,
              "OpenSSL gives no session");
  SSL_set_accept_state(session_.get());
}

TlsSession::Progress TlsSession::progress(int result) {
  if (result > 0) {
    return {Outcome::Done, static_cast<std::size_t>(result)};
  }
  const int reason = SSL_get_error(session_.get(), result);
  ERR_clear_error();
  switch (reason) {
    case SSL_ERROR_WANT_READ:
      return {Outcome::WantRead, 0};
    case SSL_ERROR_WANT_WRITE:
      return {Outcome::WantWrite, 0};
    case SSL_ERROR_ZERO_RETURN:
      return {Outcome::Ended, 0};
    default:
      return {Outcome::Failed, 0};
  }
}

TlsSession::Progress TlsSession::handshake() {
  ERR_clear_error();
  return progress(SSL_do_handshake(session_.get()));
}

TlsSession::Progress TlsSession::read(std::span<char> into) {
  ERR_clear_error();
  return progress(SSL_read(session_.get(), into.data(), static_cast<int>(into.size())));
}

TlsSession::Progress TlsSession::write(std::span<const char> bytes) {
  std::size_t written = 0;
  while (written < std::min(bytes.size(), kWriteAtOnce)) {
    ERR_clear_error();
    const auto rest = bytes.subspan(written);
    const int size = static_cast<int>(std::min(rest.size(), kWriteAtOnce));
    const Progress step = progress(SSL_write(session_.get(), rest.data(), size));
    if (step.outcome != Outcome::Done) {
      return written > 0 ? Progress{Outcome::Done, written} : step;
    }
    written += step.bytes;
  }
  return {Outcome::Done, written};
}

void TlsSession::shutdown() {
  ERR_clear_error();
  SSL_shutdown(session_.get());
  ERR_clear_error();
}

bool TlsSession::has_pending() const {
  return SSL_has_pending(session_.get()) == 1;
}

}  // namespace baton::gateway

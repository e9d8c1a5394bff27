#include "tests/support/tls_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "common/base/host_port.h"

namespace baton::testing {

void write_certificate(const std::string& certificate_path,
                       const std::string& key_path,
                       const std::string& common_name) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  ASSERT_TRUE(key && certificate);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86'400);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name,
                             "CN",
                             MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()),
                             -1,
                             -1,
                             0);
  X509_set_issuer_name(certificate.get(), name);
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const auto write = [](const std::string& path, auto put) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr) << path;
    EXPECT_EQ(put(file), 1);
    std::fclose(file);
  };
  write(certificate_path, [&](std::FILE* file) { return PEM_write_X509(file, certificate.get()); });
  write(key_path, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

TlsClient::TlsClient(const std::string& address, int max_version)
    : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free), session_(nullptr, SSL_free) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto where = HostPort::parse(address);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(where ? where->port : 0);
  inet_pton(AF_INET, where ? where->host.c_str() : "", &target.sin_addr);
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{10, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&target), sizeof target) != 0) {
    return;
  }
  if (max_version != 0) {
    SSL_CTX_set_min_proto_version(context_.get(), max_version);
    SSL_CTX_set_max_proto_version(context_.get(), max_version);
    SSL_CTX_set_security_level(context_.get(), 0);
  }
  session_.reset(SSL_new(context_.get()));
  SSL_set_fd(session_.get(), socket_);
  connected_ = SSL_connect(session_.get()) == 1;
}

TlsClient::~TlsClient() {
  close();
}

void TlsClient::close() {
  session_.reset();
  if (socket_ >= 0) {
    ::close(std::exchange(socket_, -1));
  }
}

std::string TlsClient::common_name() const {
  const std::unique_ptr<X509, void (*)(X509*)> peer(SSL_get1_peer_certificate(session_.get()),
                                                    X509_free);
  std::array<char, 256> text{};
  X509_NAME_get_text_by_NID(
      X509_get_subject_name(peer.get()), NID_commonName, text.data(), text.size());
  return text.data();
}

std::string TlsClient::version() const {
  return SSL_get_version(session_.get());
}

void TlsClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const int sent = SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size()));
    if (sent <= 0) {
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string TlsClient::read_until(std::string_view text) {
  std::array<char, 16'384> part;
  while (received_.find(text) == std::string::npos) {
    const int got = SSL_read(session_.get(), part.data(), part.size());
    if (got <= 0) {
      return std::exchange(received_, {});
    }
    received_.append(part.data(), static_cast<std::size_t>(got));
  }
  return std::exchange(received_, {});
}

}  // namespace baton::testing

#include "common/rpc/control_tls.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <string>
#include <utility>

namespace baton {
namespace {

using TlsContext = boost::asio::ssl::context;
using boost::system::error_code;

Status read_file(const char* key, const std::string& path, const error_code& error) {
  if (!error) {
    return {};
  }
  return fail(ErrorCode::InvalidConfig,
              fmt::format("cluster.tls.{}: {}: {}", key, path, error.message()));
}

}  // namespace

Result<std::shared_ptr<ControlTls>> ControlTls::load(ControlTlsFiles files, const Logger& log) {
  if (files.certificate.empty()) {
    return nullptr;
  }
  std::shared_ptr<ControlTls> tls(new ControlTls(std::move(files), log));
  BATON_TRY(tls->read());
  return tls;
}

ControlTls::Stamps ControlTls::stamps() const {
  Stamps out{};
  std::size_t i = 0;
  for (const std::string* path : {&files_.certificate, &files_.key, &files_.authority}) {
    struct stat found {};
    if (::stat(path->c_str(), &found) == 0) {
      out[i] = found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec;
    }
    ++i;
  }
  return out;
}

Status ControlTls::read() {
  read_at_ = stamps();
  auto fresh = std::make_unique<TlsContext>(TlsContext::tls);
  error_code error;
  SSL_CTX_set_min_proto_version(fresh->native_handle(), TLS1_3_VERSION);
  // A key with a passphrase is refused: there is nobody to ask.
  fresh->set_password_callback([](std::size_t, TlsContext::password_purpose) { return ""; }, error);
  fresh->use_certificate_chain_file(files_.certificate, error);
  BATON_TRY(read_file("certificate", files_.certificate, error));
  fresh->use_private_key_file(files_.key, TlsContext::pem, error);
  BATON_TRY(read_file("key", files_.key, error));
  fresh->load_verify_file(files_.authority, error);
  BATON_TRY(read_file("authority", files_.authority, error));
  fresh->set_verify_mode(
      boost::asio::ssl::verify_peer | boost::asio::ssl::verify_fail_if_no_peer_cert, error);
  context_ = std::move(fresh);
  return {};
}

boost::asio::ssl::context& ControlTls::context() {
  if (stamps() != read_at_) {
    if (const Status done = read(); !done) {
      log_.error("the certificates of the cluster stay as they were: {}", done.error().message);
    } else {
      log_.info("read the certificates of the cluster again");
    }
  }
  return *context_;
}

}  // namespace baton

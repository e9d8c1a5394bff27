// Certificates of the control connections: what this process shows, and the authority that whoever
// is at the other end must have one of (RFC 8446, both sides are asked). Changed files are taken
// for the next connection, so that certificates are renewed without a restart.
//
// Owner: shared by the networks of a process. Thread: the executor's. Failure: `load` names the key
// and the file; files that are wrong later are told in the log, and the old ones stay.
#pragma once

#include <array>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/obs/log.h"

namespace baton {

// PEM files: cluster.tls of the configuration.
struct ControlTlsFiles {
  std::string certificate;  // empty: plain TCP
  std::string key;
  std::string authority;
};

class ControlTls {
 public:
  // Null for plain TCP.
  static Result<std::shared_ptr<ControlTls>> load(ControlTlsFiles files, const Logger& log);

  // TLS 1.3 for either side, for one more connection.
  boost::asio::ssl::context& context();

 private:
  using Stamps = std::array<std::int64_t, 3>;  // times of the files

  ControlTls(ControlTlsFiles files, const Logger& log) : files_(std::move(files)), log_(log) {}
  Stamps stamps() const;
  Status read();

  const ControlTlsFiles files_;
  const Logger& log_;
  Stamps read_at_{};
  std::unique_ptr<boost::asio::ssl::context> context_;
};

}  // namespace baton

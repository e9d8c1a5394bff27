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

#include "common/base/error.h"
#include "common/config/cluster_config.h"
#include "common/obs/log.h"

namespace baton {

class ControlTls {
 public:
  // Null when the section names no files.
  static Result<std::shared_ptr<ControlTls>> load(const ControlTlsSection& files,
                                                  const Logger& log);

  // TLS 1.3 for either side, for one more connection.
  boost::asio::ssl::context& context();

 private:
  using Stamps = std::array<std::int64_t, 3>;  // times of the files

  ControlTls(ControlTlsSection files, const Logger& log) : files_(std::move(files)), log_(log) {}
  Stamps stamps() const;
  Status read();

  const ControlTlsSection files_;
  const Logger& log_;
  Stamps read_at_{};
  std::unique_ptr<boost::asio::ssl::context> context_;
};

}  // namespace baton

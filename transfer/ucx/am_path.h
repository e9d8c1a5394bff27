// The path of active messages: a header names lease, epoch, layer and runs, and the receiver checks
// it before a byte moves. Short runs share a message.
//
// Owner: UcxSender. Thread: the reactor. Failure: as data_path.h says.
#pragma once

#include "transfer/ucx/data_path.h"

namespace baton::transfer {

class UcxAmPath : public DataPath {
 public:
  using DataPath::DataPath;

  PathKind kind() const override { return PathKind::Am; }
  std::size_t pack_below(Lane lane) const override;
  bool is_open(const std::shared_ptr<Send>& /*send*/) override { return true; }
  void post(const std::shared_ptr<Send>& send, const Piece& piece) override;
  void flush(const std::shared_ptr<Send>& send) override;
  void on_over(Op& op, ucs_status_t status) override;
};

}  // namespace baton::transfer

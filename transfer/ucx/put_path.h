// The paths that put: the bytes go to their place without the receiver's help or knowledge, so it
// is asked before (Claim, Answer) and told after (Done, Released): put_message.h. Nothing is put
// before the answer, or without a claim, and a claim's end is told only after every put of it is
// flushed. One piece of a plan goes out only into the arena that the receiver offered.
//
//   None ─first piece─▶ Asked ─accepted─▶ Held ─all flushed, Done─▶ Over
//                         │ refused: the send fails     │ send ends without commit, Released
//                         └──▶ Over                     └──▶ Over
//
// Owner: UcxSender. Thread: the reactor. Failure: as data_path.h says. When a connection breaks the
// receiver may be left with a claim whose end it was not told; the next connection to the same
// process tells it.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transfer/ucx/data_path.h"

namespace baton::transfer {

class UcxPutPath : public DataPath {
 public:
  using DataPath::DataPath;

  bool is_open(const std::shared_ptr<Send>& send) override;
  void flush(const std::shared_ptr<Send>& send) override;
  void release(const std::shared_ptr<Send>& send) override;
  void on_over(Op& op, ucs_status_t status) override;
  // The receiver's answer has come.
  void answered(const LinkPtr& link, const PutMessage& answer);

 protected:
  // Where `count` blocks of a piece go, as an offset in the receiver's arena. Fails the send when
  // that is outside.
  std::optional<std::uint64_t> place_of(Send& send, std::uint32_t layer, const Segment& segment);
  void note(const LinkPtr& link,
            std::shared_ptr<Send> send,
            PutKind kind,
            LeaseId lease,
            Epoch epoch,
            std::uint64_t bytes);

  const ProcessIdentity self_ = own_identity();
};

// One-sided writes by a network device.
class UcxRdmaPutPath : public UcxPutPath {
 public:
  using UcxPutPath::UcxPutPath;

  PathKind kind() const override { return PathKind::RdmaPut; }
  std::size_t pack_below(Lane /*lane*/) const override { return 0; }
  void post(const std::shared_ptr<Send>& send, const Piece& piece) override;
  void end_turn() override;
  void on_over(Op& op, ucs_status_t status) override;

 private:
  void complete(const PutBatch& batch);
  std::vector<LinkPtr> open_;  // links with a batch that has no flush yet
};

// Copies into the mapped arena of a process of the same host.
class ShmPutPath : public UcxPutPath {
 public:
  using UcxPutPath::UcxPutPath;

  PathKind kind() const override { return PathKind::ShmPut; }
  std::size_t pack_below(Lane /*lane*/) const override { return std::size_t{64} << 10; }
  bool is_open(const std::shared_ptr<Send>& send) override;
  void post(const std::shared_ptr<Send>& send, const Piece& piece) override;
  // What was copied in the turn before is complete now, so that the thread does other things in
  // between.
  bool begin_turn() override;
  // A new link: tells the receiver of claims that earlier links left.
  void settle_claims(const LinkPtr& link);

 private:
  struct Asked {
    ProcessIdentity receiver;
    LeaseId lease;
    Epoch epoch{};
    std::weak_ptr<Send> send;
  };
  std::vector<PutBatch::Piece> copied_;
  std::deque<Asked> asked_;  // the latest claims, oldest first
};

}  // namespace baton::transfer

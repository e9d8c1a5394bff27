#include "transfer/receiver_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/check.h"

namespace baton::transfer {

std::string_view to_string(DropReason reason) {
  switch (reason) {
    case DropReason::None:
      return "none";
    case DropReason::Malformed:
      return "malformed";
    case DropReason::UnknownLease:
      return "unknown_lease";
    case DropReason::WrongEpoch:
      return "wrong_epoch";
    case DropReason::BadLayer:
      return "bad_layer";
    case DropReason::OutOfRange:
      return "out_of_range";
    case DropReason::WrongLength:
      return "wrong_length";
    case DropReason::Duplicate:
      return "duplicate";
    case DropReason::Ended:
      return "ended";
    case DropReason::Claimed:
      return "claimed";
    case DropReason::Unprovable:
      return "unprovable";
  }
  return "unknown";
}

std::string_view to_string(ReceiverState state) {
  switch (state) {
    case ReceiverState::Open:
      return "open";
    case ReceiverState::Complete:
      return "complete";
    case ReceiverState::Failed:
      return "failed";
    case ReceiverState::Revoked:
      return "revoked";
  }
  return "unknown";
}

std::optional<ReceiverState> next_state(ReceiverState state, ReceiverEvent event) {
  using enum ReceiverState;
  constexpr auto kStay = std::nullopt;
  using Row = std::array<std::optional<ReceiverState>, kReceiverEvents>;
  constexpr std::array<Row, kReceiverStates> kTable{{
      // Verified  Broken   Revoke
      {Complete, Failed, Revoked},  // Open
      {kStay, kStay, Revoked},      // Complete
      {kStay, kStay, Revoked},      // Failed
      {kStay, kStay, kStay},        // Revoked
  }};
  return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
}

ReceiverSession::ReceiverSession(LeaseId lease,
                                 Epoch epoch,
                                 const KvArenaView& arena,
                                 std::vector<BlockRun> runs,
                                 DigestMode digest)
    : lease_(lease),
      epoch_(epoch),
      arena_(arena),
      layers_(arena.layout.layers),
      block_bytes_(arena.layout.block_bytes()),
      digest_(lease, digest) {
  std::erase_if(runs, [](const BlockRun& run) { return run.count == 0; });
  struct Placed {
    BlockRun run;
    std::uint32_t index;  // of its first block in the grant
  };
  std::vector<Placed> placed;
  std::uint32_t next_index = 0;
  for (const BlockRun& run : runs) {
    placed.push_back({run, next_index});
    next_index += run.count;
  }
  std::ranges::sort(placed, {}, [](const Placed& one) { return one.run.first.value; });
  for (const auto& [run, index] : placed) {
    BATON_CHECK(
        run.first.value < arena.num_blocks && run.count <= arena.num_blocks - run.first.value,
        "a lease holds blocks of the own arena");
    for (std::uint32_t i = 0; i < run.count; ++i) {
      order_.push_back(index + i);
    }
    if (!spans_.empty()) {
      const std::uint32_t end = spans_.back().first + spans_.back().count;
      BATON_CHECK(run.first.value >= end, "a lease holds a block once");
      if (run.first.value == end) {
        spans_.back().count += run.count;
        num_blocks_ += run.count;
        continue;
      }
    }
    spans_.push_back(Span{run.first.value, run.count, num_blocks_});
    num_blocks_ += run.count;
  }
}

std::optional<std::uint32_t> ReceiverSession::index_of(BlockRun run) const {
  auto after = std::upper_bound(
      spans_.begin(), spans_.end(), run.first.value, [](std::uint32_t block, const Span& span) {
        return block < span.first;
      });
  if (after == spans_.begin()) {
    return std::nullopt;
  }
  const Span& span = *std::prev(after);
  const std::uint32_t skip = run.first.value - span.first;
  if (skip >= span.count || run.count > span.count - skip) {
    return std::nullopt;
  }
  return span.index + skip;
}

DropReason ReceiverSession::admit(const MessageHeader& header, std::uint64_t length) {
  if (header.epoch != epoch_) {
    return DropReason::WrongEpoch;
  }
  if (state_ != ReceiverState::Open) {
    return DropReason::Ended;
  }
  if (had_claim_) {
    return DropReason::Claimed;
  }
  if (header.layer >= layers_) {
    return DropReason::BadLayer;
  }
  admitted_.clear();
  for (const BlockRun& run : header.runs()) {
    const auto index = run.count == 0 ? std::nullopt : index_of(run);
    if (!index) {
      return DropReason::OutOfRange;
    }
    admitted_.push_back(*index);
  }
  if (length != header.num_blocks() * block_bytes_) {
    return DropReason::WrongLength;
  }
  if (marks_.empty()) {
    marks_.resize(std::size_t{layers_} * num_blocks_, Mark::Empty);
  }
  Mark* const row = marks_.data() + std::size_t{header.layer} * num_blocks_;
  for (std::size_t i = 0; i < admitted_.size(); ++i) {
    Mark* const begin = row + admitted_[i];
    Mark* const end = begin + header.runs()[i].count;
    // Marking as we go also finds a run that names a block twice within one message.
    if (std::any_of(begin, end, [](Mark mark) { return mark != Mark::Empty; })) {
      for (std::size_t done = 0; done < i; ++done) {
        std::fill_n(row + admitted_[done], header.runs()[done].count, Mark::Empty);
      }
      return DropReason::Duplicate;
    }
    std::fill(begin, end, Mark::Landing);
  }
  ++receiving_;
  lane_ = header.lane;
  return DropReason::None;
}

void ReceiverSession::mark(const MessageHeader& header, Mark from, Mark to) {
  BATON_CHECK(receiving_ > 0, "a message lands once");
  --receiving_;
  for (const BlockRun& run : header.runs()) {
    const auto index = index_of(run);
    BATON_CHECK(index && !marks_.empty(), "only an admitted message lands");
    Mark* const begin = marks_.data() + std::size_t{header.layer} * num_blocks_ + *index;
    BATON_CHECK(*begin == from, "only an admitted message lands");
    std::fill_n(begin, run.count, to);
  }
}

void ReceiverSession::landed(const MessageHeader& header) {
  mark(header, Mark::Landing, Mark::Landed);
  bytes_landed_ += header.num_blocks() * block_bytes_;
  if (digest_.is_on() && state_ == ReceiverState::Open) {
    for (const BlockRun& run : header.runs()) {
      digest_blocks(header.layer, *index_of(run), run);
    }
  }
  check_complete();
}

void ReceiverSession::failed(const MessageHeader& header) {
  mark(header, Mark::Landing, Mark::Empty);
}

void ReceiverSession::digest_blocks(std::uint32_t layer, std::uint32_t map_index, BlockRun run) {
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const std::byte* block = arena_.block(layer, BlockId{run.first.value + i});
    digest_.add(layer, order_[map_index + i], {block, block_bytes_});
  }
}

void ReceiverSession::digest_again(DigestMode mode) {
  digest_ = BlockDigest(lease_, mode);
  for (std::uint32_t layer = 0; layer < layers_ && !marks_.empty(); ++layer) {
    const Mark* const row = marks_.data() + std::size_t{layer} * num_blocks_;
    for (const Span& span : spans_) {
      for (std::uint32_t i = 0; i < span.count; ++i) {
        if (row[span.index + i] == Mark::Landed) {
          digest_blocks(layer, span.index + i, {BlockId{span.first + i}, 1});
        }
      }
    }
  }
}

DropReason ReceiverSession::claim(Epoch epoch) {
  if (epoch != epoch_) {
    return DropReason::WrongEpoch;
  }
  if (state_ != ReceiverState::Open) {
    return DropReason::Ended;
  }
  if (had_claim_ || !marks_.empty()) {
    return DropReason::Claimed;
  }
  is_claimed_ = true;
  had_claim_ = true;
  return DropReason::None;
}

void ReceiverSession::put_done(std::uint64_t bytes, Lane lane) {
  BATON_CHECK(is_claimed_, "only the holder of a claim ends it");
  is_claimed_ = false;
  lane_ = lane;
  if (state_ == ReceiverState::Open && bytes > capacity()) {
    fail(ErrorCode::ProtocolError,
         fmt::format("the writer put {} bytes into a lease that holds {}", bytes, capacity()));
    return;
  }
  bytes_landed_ = bytes;
  if (bytes == capacity()) {
    marks_.assign(std::size_t{layers_} * num_blocks_, Mark::Landed);
  }
  check_complete();
}

void ReceiverSession::unclaimed() {
  is_claimed_ = false;
  check_complete();
}

void ReceiverSession::expect(const Sent& sent) {
  if (state_ != ReceiverState::Open || expected_) {
    return;
  }
  expected_ = sent;
  if (sent.bytes > capacity()) {
    fail(ErrorCode::ProtocolError,
         fmt::format("commit speaks of {} bytes, the lease holds {}", sent.bytes, capacity()));
  } else if (sent.digest_mode < digest_.mode()) {
    fail(ErrorCode::ProtocolError,
         fmt::format("commit has a digest of mode {}, this side wants {}",
                     to_string(sent.digest_mode),
                     to_string(digest_.mode())));
  } else {
    check_complete();
  }
}

void ReceiverSession::check_complete() {
  if (state_ != ReceiverState::Open || !expected_) {
    return;
  }
  if (bytes_landed_ > expected_->bytes) {
    fail(ErrorCode::ProtocolError,
         fmt::format("commit speaks of {} bytes, {} have landed", expected_->bytes, bytes_landed_));
    return;
  }
  if (is_claimed_) {
    return;
  }
  if (had_claim_ && bytes_landed_ != expected_->bytes) {
    fail(ErrorCode::ProtocolError,
         fmt::format("commit speaks of {} bytes, the writer's last word was {}",
                     expected_->bytes,
                     bytes_landed_));
    return;
  }
  if (bytes_landed_ < expected_->bytes || receiving_ > 0) {
    return;
  }
  if (expected_->digest_mode != digest_.mode() || had_claim_) {
    digest_again(expected_->digest_mode);
  }
  if (digest_.is_on() && digest_.value() != expected_->digest) {
    fail(
        ErrorCode::ChecksumMismatch,
        fmt::format("the blocks that have landed have digest {:016x} and the writer's have {:016x} "
                    "(mode {}): memory, network or either node is at fault",
                    digest_.value(),
                    expected_->digest,
                    to_string(digest_.mode())));
    return;
  }
  apply(ReceiverEvent::Verified);
}

void ReceiverSession::revoke() {
  apply(ReceiverEvent::Revoke);
}

void ReceiverSession::apply(ReceiverEvent event) {
  if (const auto next = next_state(state_, event)) {
    state_ = *next;
  }
}

void ReceiverSession::fail(ErrorCode code, std::string message) {
  error_ = Error{code, std::move(message)};
  apply(ReceiverEvent::Broken);
}

}  // namespace baton::transfer

#include "transfer/sender_session.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "common/base/check.h"

namespace baton::transfer {

std::string_view to_string(SenderState state) {
  switch (state) {
    case SenderState::Open:
      return "open";
    case SenderState::Finishing:
      return "finishing";
    case SenderState::Flushing:
      return "flushing";
    case SenderState::Flushed:
      return "flushed";
    case SenderState::Aborting:
      return "aborting";
    case SenderState::Quiesced:
      return "quiesced";
    case SenderState::Failing:
      return "failing";
    case SenderState::Failed:
      return "failed";
  }
  return "unknown";
}

std::optional<SenderState> next_state(SenderState state, SenderEvent event) {
  using enum SenderState;
  constexpr auto kStay = std::nullopt;
  using Row = std::array<std::optional<SenderState>, kSenderEvents>;
  constexpr std::array<Row, kSenderStates> kTable{{
      // Finish   Drained   FlushDone  Abort     Fail
      {Finishing, kStay, kStay, Aborting, Failing},  // Open
      {kStay, Flushing, kStay, Aborting, Failing},   // Finishing
      {kStay, kStay, Flushed, Aborting, Failing},    // Flushing
      {kStay, kStay, kStay, Quiesced, kStay},        // Flushed
      {kStay, Quiesced, kStay, kStay, kStay},        // Aborting
      {kStay, kStay, kStay, kStay, kStay},           // Quiesced
      {kStay, Failed, kStay, Aborting, kStay},       // Failing
      {kStay, kStay, kStay, Quiesced, kStay},        // Failed
  }};
  return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
}

SenderSession::SenderSession(const KvGrant& grant,
                             std::uint32_t layers,
                             PlanLimits limits,
                             std::size_t window)
    : lease_(grant.lease),
      epoch_(grant.epoch),
      layers_(layers),
      limits_(limits),
      window_(window),
      targets_(expand(grant.runs)) {}

void SenderSession::use_digest(DigestMode mode, const KvArenaView& source) {
  BATON_CHECK(waiting_.empty() && outstanding_ == 0, "a digest begins before the first block");
  digest_ = BlockDigest(lease_, mode);
  source_ = source;
}

void SenderSession::add_layer(std::uint32_t layer,
                              std::uint32_t first,
                              std::span<const BlockId> blocks) {
  if (add(layer, first, blocks) && digest_.is_on()) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      digest_.add(layer,
                  first + static_cast<std::uint32_t>(i),
                  {source_.block(layer, blocks[i]), limits_.block_bytes});
    }
  }
}

bool SenderSession::add(std::uint32_t layer, std::uint32_t first, std::span<const BlockId> blocks) {
  if (state_ != SenderState::Open) {
    return false;
  }
  if (layer >= layers_ || first > targets_.size() || blocks.size() > targets_.size() - first) {
    fail(Error{ErrorCode::InvalidArgument,
               fmt::format("blocks {}..{} of layer {} are outside a grant of {} blocks, {} layers",
                           first,
                           first + blocks.size(),
                           layer,
                           targets_.size(),
                           layers_)});
    return false;
  }
  std::vector<Piece> pieces;
  plan_layer(layer, blocks, std::span(targets_).subspan(first, blocks.size()), limits_, pieces);
  for (Piece& piece : pieces) {
    waiting_.push_back(std::move(piece));
  }
  return true;
}

void SenderSession::add_converted(std::uint32_t layer, std::uint32_t first, std::uint32_t count) {
  std::vector<BlockId> places;
  for (std::uint32_t i = 0; i < count; ++i) {
    places.emplace_back(first + i);
  }
  add(layer, first, places);
}

void SenderSession::gathered(std::uint32_t layer,
                             std::uint32_t first,
                             std::span<const std::byte> blocks) {
  for (std::uint32_t i = 0; std::size_t{i} * limits_.block_bytes < blocks.size(); ++i) {
    digest_.add(layer, first + i, blocks.subspan(i * limits_.block_bytes, limits_.block_bytes));
  }
}

bool SenderSession::is_ready() const {
  return !waiting_.empty() &&
         (outstanding_ == 0 || outstanding_bytes_ + waiting_.front().bytes <= window_);
}

std::optional<Piece> SenderSession::next() {
  if (!is_ready()) {
    return std::nullopt;
  }
  Piece piece = std::move(waiting_.front());
  waiting_.pop_front();
  ++outstanding_;
  outstanding_bytes_ += piece.bytes;
  return piece;
}

void SenderSession::completed(std::size_t bytes) {
  BATON_CHECK(outstanding_ > 0 && outstanding_bytes_ >= bytes, "a piece completes once");
  --outstanding_;
  outstanding_bytes_ -= bytes;
  bytes_sent_ += bytes;
  settle();
}

void SenderSession::finish() {
  apply(SenderEvent::Finish);
  settle();
}

void SenderSession::flush_posted() {
  BATON_CHECK(needs_flush(), "a flush is posted once");
  flush_outstanding_ = true;
}

void SenderSession::flush_done() {
  flush_outstanding_ = false;
  apply(SenderEvent::FlushDone);
  settle();
}

void SenderSession::abort() {
  waiting_.clear();
  apply(SenderEvent::Abort);
  settle();
}

void SenderSession::fail(Error error) {
  if (!next_state(state_, SenderEvent::Fail)) {
    return;
  }
  error_ = std::move(error);
  waiting_.clear();
  apply(SenderEvent::Fail);
  settle();
}

bool SenderSession::is_over() const {
  return state_ == SenderState::Flushed || state_ == SenderState::Quiesced ||
         state_ == SenderState::Failed;
}

void SenderSession::apply(SenderEvent event) {
  if (const auto next = next_state(state_, event)) {
    state_ = *next;
  }
}

void SenderSession::settle() {
  if (outstanding_ == 0 && waiting_.empty() && !flush_outstanding_) {
    apply(SenderEvent::Drained);
  }
}

}  // namespace baton::transfer

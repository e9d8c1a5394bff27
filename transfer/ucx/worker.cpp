#include "transfer/ucx/worker.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "transfer/message.h"

namespace baton::transfer {
namespace {

// Goes before UCX's address, in the order of x86 and Arm alike (little endian).
struct Envelope {
  std::array<char, 4> magic{'B', 'T', 'W', 'A'};
  std::uint16_t ucx_major = 0;
  std::uint16_t ucx_minor = 0;
  std::uint64_t host = 0;
  std::uint64_t start = 0;
  std::uint32_t pid = 0;
  std::uint32_t offer_bytes = 0;  // behind UCX's address
  std::uint64_t digest = 0;       // of all that follows, seeded by the fields above
};
static_assert(sizeof(Envelope) == 40);
constexpr std::size_t kMaxAddressBytes = 64 * 1024;
constexpr unsigned kNumMessageNumbers = 1U << 16U;

std::uint64_t digest_of(Envelope envelope, std::span<const std::byte> address) {
  envelope.digest = 0;
  const std::uint64_t seed = XXH3_64bits(&envelope, sizeof(envelope));
  return XXH3_64bits_withSeed(address.data(), address.size(), seed);
}

Envelope own_envelope(const ProcessIdentity& process) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  ucp_get_version(&major, &minor, &patch);
  Envelope envelope;
  envelope.ucx_major = static_cast<std::uint16_t>(major);
  envelope.ucx_minor = static_cast<std::uint16_t>(minor);
  envelope.host = process.host;
  envelope.start = process.start;
  envelope.pid = process.pid;
  return envelope;
}

ucs_status_t drop_message(
    void*, const void*, std::size_t, void*, std::size_t, const ucp_am_recv_param_t*) {
  return UCS_OK;
}

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::create(UcxContext& context,
                                                     std::span<const std::byte> offer) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // Made on the caller's thread, then used by the reactor alone.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h handle = nullptr;
  const ucs_status_t status = ucp_worker_create(context.get(), &params, &handle);
  if (status != UCS_OK) {
    return fail(ErrorCode::Unavailable, ucx_error("creating a UCX worker", status));
  }
  std::unique_ptr<UcxWorker> worker(new UcxWorker(context, handle));
  BATON_TRY(worker->query(offer));
  // UCX 1.13 calls whatever stands in its table under a number without a handler, so that one
  // message of a stranger could end the process. Numbers have 16 bits: each gets a handler, the
  // largest first, so that the table grows once (to 1.5 MiB).
  for (unsigned id = kNumMessageNumbers; id-- > 0;) {
    BATON_TRY(worker->set_message_handler(id, &drop_message, nullptr));
  }
  return worker;
}

Status UcxWorker::query(std::span<const std::byte> offer) {
  ucs_status_t status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) {
    return fail(ErrorCode::Unavailable, ucx_error("UCX event descriptor", status));
  }
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER | UCP_WORKER_ATTR_FIELD_ADDRESS;
  status = ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK) {
    return fail(ErrorCode::Unavailable, ucx_error("UCX worker attributes", status));
  }
  max_header_bytes_ = attributes.max_am_header;
  const std::span raw(reinterpret_cast<const std::byte*>(attributes.address),
                      attributes.address_length);
  address_.resize(sizeof(Envelope));
  address_.insert(address_.end(), raw.begin(), raw.end());
  address_.insert(address_.end(), offer.begin(), offer.end());
  Envelope envelope = own_envelope(own_identity());
  envelope.offer_bytes = static_cast<std::uint32_t>(offer.size());
  envelope.digest = digest_of(envelope, std::span(address_).subspan(sizeof(Envelope)));
  std::memcpy(address_.data(), &envelope, sizeof(Envelope));
  ucp_worker_release_address(worker_, attributes.address);
  if (max_header_bytes_ < kMaxHeaderBytes) {
    return fail(ErrorCode::Unavailable,
                fmt::format("UCX carries {} bytes of message header, {} are needed",
                            max_header_bytes_,
                            kMaxHeaderBytes));
  }
  return {};
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) {
    ucp_worker_destroy(worker_);
  }
}

void UcxWorker::abandon() {
  context_.keep();
  worker_ = nullptr;
}

Status UcxWorker::set_message_handler(unsigned id, ucp_am_recv_callback_t callback, void* arg) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = id;
  params.flags = UCP_AM_FLAG_WHOLE_MSG;
  params.cb = callback;
  params.arg = arg;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &params);
  if (status != UCS_OK) {
    return fail(ErrorCode::Unavailable, ucx_error("UCX message handler", status));
  }
  return {};
}

Result<PeerAddress> open_address(std::span<const std::byte> envelope) {
  if (envelope.size() <= sizeof(Envelope) || envelope.size() > kMaxAddressBytes) {
    return fail(ErrorCode::ProtocolError,
                fmt::format("a worker address of {} bytes", envelope.size()));
  }
  Envelope theirs;
  std::memcpy(&theirs, envelope.data(), sizeof(Envelope));
  const auto body = envelope.subspan(sizeof(Envelope));
  const Envelope ours = own_envelope({});
  if (theirs.magic != ours.magic) {
    return fail(ErrorCode::ProtocolError, "not a worker address");
  }
  if (theirs.ucx_major != ours.ucx_major || theirs.ucx_minor != ours.ucx_minor) {
    return fail(ErrorCode::Mismatch,
                fmt::format("UCX version {}.{} here, {}.{} on the peer: they do not interoperate",
                            ours.ucx_major,
                            ours.ucx_minor,
                            theirs.ucx_major,
                            theirs.ucx_minor));
  }
  if (theirs.digest != digest_of(theirs, body) || theirs.offer_bytes >= body.size()) {
    return fail(ErrorCode::ProtocolError, "a damaged worker address");
  }
  const auto address = body.first(body.size() - theirs.offer_bytes);
  BATON_ASSIGN(PutOffer offer, decode_offer(body.last(theirs.offer_bytes)));
  return PeerAddress{
      {address.begin(), address.end()}, {theirs.host, theirs.start, theirs.pid}, std::move(offer)};
}

}  // namespace baton::transfer

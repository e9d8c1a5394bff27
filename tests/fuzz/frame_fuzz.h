// Bytes of a control connection: cut into frames, and the messages inside turned into values, which
// turn into messages again without loss.
#pragma once

#include <google/protobuf/stubs/logging.h>

#include "common/rpc/frame_codec.h"
#include "common/wire/convert.h"
#include "tests/fuzz/fuzz_target.h"
#include "transfer/digest.h"

namespace baton::fuzz {

struct FrameFuzz {
  static constexpr std::string_view kName = "frame";

  static void run(std::span<const std::uint8_t> bytes) {
    const google::protobuf::LogSilencer silence;
    const std::string_view text = as_text(bytes);
    FrameDecoder decoder(kMaxHelloBytes);
    // In pieces whose sizes come from the bytes, so that cuts fall everywhere.
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size =
          std::min<std::size_t>(text.size() - at, 1 + static_cast<unsigned char>(text[at]));
      decoder.feed(std::span(text.data() + at, size));
      at += size;
      while (true) {
        const auto frame = decoder.next();
        if (!frame) {
          fuzz_check(frame.error().code == ErrorCode::ProtocolError);
          return;
        }
        if (!frame->has_value()) {
          break;
        }
        convert(**frame);
      }
    }
  }

  static std::vector<std::string> seeds() {
    std::vector<std::string> made;
    const auto add = [&made](const wire::Frame& frame) {
      std::string bytes;
      fuzz_check(encode_frame(frame, bytes).has_value());
      made.push_back(std::move(bytes));
    };
    wire::Frame hello;
    hello.set_call(1);
    hello.mutable_hello()->set_role("decode");
    hello.mutable_hello()->set_node("d1");
    hello.mutable_hello()->mutable_model()->set_id("m");
    hello.mutable_hello()->mutable_load()->set_blocks_total(7);
    add(hello);
    GenerateRequest request;
    request.id = RequestId{7};
    request.model = "m";
    request.prompt = {1, 2, 3};
    request.stop_tokens = {2};
    request.max_tokens = 5;
    wire::Frame reserve;
    *reserve.mutable_reserve()->mutable_request() = to_wire(request);
    reserve.mutable_reserve()->set_prefill_node("p1");
    reserve.mutable_reserve()->set_prefill_incarnation(8);
    add(reserve);
    KvGrant grant;
    grant.node = "d1";
    grant.lease = LeaseId{1, 2};
    grant.runs = {BlockRun{BlockId{3}, 4}};
    wire::Frame prefill;
    *prefill.mutable_prefill()->mutable_request() = to_wire(request);
    *prefill.mutable_prefill()->mutable_grant() = to_wire(grant);
    prefill.mutable_prefill()->set_gateway("g1");
    prefill.mutable_prefill()->set_gateway_incarnation(6);
    add(prefill);
    TokenEvent event;
    event.request = request.id;
    event.tokens = {4, 5};
    wire::Frame tokens;
    *tokens.mutable_tokens()->add_events() = to_wire(event);
    add(tokens);
    wire::Frame refusal;
    refusal.set_answers(2);
    *refusal.mutable_refusal() = to_refusal(Error{ErrorCode::Busy, "no blocks"}, "blocks");
    add(refusal);
    wire::Frame commit;
    commit.set_call(4);
    set_lease(*commit.mutable_commit(), grant.lease, Epoch{9});
    commit.mutable_commit()->set_bytes(4096);
    commit.mutable_commit()->set_digest(0x1234567890abcdefULL);
    commit.mutable_commit()->set_digest_mode(2);
    add(commit);
    wire::Frame abort;
    set_lease(*abort.mutable_abort(), grant.lease, Epoch{9});
    abort.mutable_abort()->set_reason("the request was cancelled");
    add(abort);
    grant.layout = KvLayout{.layers = 2, .kv_heads = 1, .head_dim = 16};
    wire::Frame pull;
    pull.set_call(5);
    *pull.mutable_pull()->mutable_grant() = to_wire(grant);
    pull.mutable_pull()->add_tokens(7);
    pull.mutable_pull()->set_blocks(1);
    add(pull);
    made.push_back(made[0] + made[1] + made[2]);
    return made;
  }

 private:
  template <class Message>
  static void round_trip(const Message& message) {
    const auto value = from_wire(message);
    if (!value) {
      fuzz_check(value.error().code == ErrorCode::ProtocolError);
      return;
    }
    const auto first = to_wire(*value);
    const auto again = from_wire(first);
    fuzz_check(again.has_value());
    fuzz_check(to_wire(*again).SerializeAsString() == first.SerializeAsString());
  }

  static void convert(const wire::Frame& frame) {
    switch (frame.body_case()) {
      case wire::Frame::kHello:
        round_trip(frame.hello().model().layout());
        break;
      case wire::Frame::kReserve:
        round_trip(frame.reserve().request());
        break;
      case wire::Frame::kGranted:
        round_trip(frame.granted().grant());
        break;
      case wire::Frame::kPrefill:
        round_trip(frame.prefill().request());
        round_trip(frame.prefill().grant());
        break;
      case wire::Frame::kPull:
        round_trip(frame.pull().grant());
        break;
      case wire::Frame::kCommit: {
        // Lease and epoch come through whole; the node checks the rest against its grant.
        wire::Commit again;
        set_lease(again, lease_of(frame.commit()), Epoch{frame.commit().epoch()});
        fuzz_check(lease_of(again) == lease_of(frame.commit()));
        const auto mode = transfer::digest_mode_of(frame.commit().digest_mode());
        fuzz_check(mode.has_value() == (frame.commit().digest_mode() <= 2));
        break;
      }
      case wire::Frame::kTokens:
        for (const auto& event : frame.tokens().events()) {
          round_trip(event);
          round_trip(event.figures());
        }
        break;
      case wire::Frame::kRefusal:
        (void)from_refusal(frame.refusal());
        break;
      default:
        break;
    }
    std::string bytes;
    if (encode_frame(frame, bytes)) {
      FrameDecoder decoder;
      decoder.feed(bytes);
      const auto again = decoder.next();
      fuzz_check(again && again->has_value());
    }
  }
};

}  // namespace baton::fuzz

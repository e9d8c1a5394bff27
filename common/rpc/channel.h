// A control connection between two processes, after its handshake. Frames go both ways; a call is a
// frame that wants one answer. Frame limit: 4 MiB (a frame over it closes the connection).
//
// Owner: whoever got it from `dial` or from a listener. Thread: every method and every callback
// runs on the executor the channel was made with (the process's control strand). Failure: a lost
// connection fails every open call with PeerDead, then runs `on_closed` once. After `close()`, or
// once dropped, nothing is called: open calls are forgotten. A channel may be dropped inside its
// own callbacks.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/wire/control.pb.h"

namespace baton {

class Channel {
 public:
  using FrameHandler = std::function<void(wire::Frame)>;
  using AnswerHandler = std::function<void(Result<wire::Frame>)>;
  using ClosedHandler = std::function<void(Error)>;

  virtual ~Channel() = default;

  // Handlers of frames that are no answers, and of the end. Set before the executor runs again.
  virtual void set_handlers(FrameHandler on_frame, ClosedHandler on_closed) = 0;
  // Queues a frame. After the end of the connection it does nothing. A frame over the limit, or one
  // too many in the queue, ends the connection.
  virtual void send(wire::Frame frame) = 0;
  // Sends a call; the handler runs exactly once, never inside this call: with the answer, a Refusal
  // turned into its Error, PeerDead, or Timeout. A call over the frame limit fails alone.
  virtual void call(wire::Frame frame,
                    std::chrono::milliseconds timeout,
                    AnswerHandler handler) = 0;
  // Answers a frame that came with `call` != 0; does nothing for one that wants no answer.
  virtual void answer(const wire::Frame& question, wire::Frame reply) = 0;
  virtual void answer_error(const wire::Frame& question, const Error& error) = 0;
  // Ends the connection; what is queued still goes out, within a second.
  virtual void close() = 0;
  // Ends the connection as if the other side were lost, soon and not inside this call: open calls
  // fail with `why`, then `on_closed` runs. For a peer that misses its heartbeats.
  virtual void abort(Error why) = 0;
  virtual bool is_open() const = 0;
  // Bytes queued and not yet written, for back-pressure.
  virtual std::size_t queued_bytes() const = 0;
  // host:port of the other side, for messages.
  virtual std::string remote() const = 0;
};

}  // namespace baton

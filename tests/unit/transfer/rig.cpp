#include "tests/unit/transfer/rig.h"

#include <ucp/api/ucp.h>

#include <atomic>

#include "common/exec/mailbox.h"
#include "transfer/ucx/endpoint.h"

namespace baton::testing {
namespace {

// One thread that runs tasks in order: what a node's control strand is.
class Strand {
 public:
  Strand()
      : thread_([this] {
          for (auto tasks = tasks_.wait_all(); !tasks.empty(); tasks = tasks_.wait_all()) {
            for (auto& task : tasks) {
              task();
            }
          }
        }) {}
  ~Strand() {
    tasks_.close();
    thread_.join();
  }
  void post(std::function<void()> task) { tasks_.put(std::move(task)); }

 private:
  Mailbox<std::function<void()>> tasks_;
  std::thread thread_;
};

class FakeHostile : public HostilePeer {
 public:
  FakeHostile(FakeNetwork& network, std::string to) : network_(network), to_(std::move(to)) {}
  void send(std::span<const std::byte> header, std::span<const std::byte> bytes) override {
    network_.inject(to_, header, bytes);
  }
  void say(std::span<const std::byte> /*note*/) override { FAIL() << "nobody puts there"; }
  void send_as(unsigned /*number*/, std::span<const std::byte> /*bytes*/) override {}

 private:
  FakeNetwork& network_;
  std::string to_;
};

class FakeRig : public Rig {
 public:
  FakeRig() : network_([this](std::function<void()> task) { strand_.post(std::move(task)); }) {}
  std::unique_ptr<transfer::Transport> make(const std::string& name,
                                            KvArenaView arena,
                                            std::size_t window) override {
    transfer::TransportOptions options;
    options.window_bytes = window;
    return network_.make_transport(name, arena, options);
  }
  std::unique_ptr<HostilePeer> make_hostile(transfer::Transport& target) override {
    const auto inlet = std::move(target.open_inlet()).value();
    const auto& address = inlet->address();
    return std::make_unique<FakeHostile>(
        network_, std::string(reinterpret_cast<const char*>(address.data()), address.size()));
  }
  std::string lane() const override { return "shm"; }

 private:
  Strand strand_;
  FakeNetwork network_;
};

class UcxHostile : public HostilePeer {
 public:
  UcxHostile(const std::string& kind, transfer::Transport& target) {
    transfer::TransportOptions options;
    options.transport = transport_of(kind);
    options.path = path_of(kind);
    context_ = std::move(transfer::UcxContext::create(options)).value();
    worker_ = std::move(transfer::UcxWorker::create(*context_)).value();
    // Answers to claims go nowhere.
    EXPECT_TRUE(worker_->set_message_handler(
        transfer::kPutAnswer, [](auto...) { return UCS_OK; }, nullptr));
    inlet_ = std::move(target.open_inlet()).value();
    const auto address = transfer::open_address(inlet_->address()).value();
    endpoint_ = std::move(transfer::UcxEndpoint::create(*worker_, address.ucx, [](ucs_status_t) {
                  FAIL() << "peer is lost";
                })).value();
  }
  ~UcxHostile() override { wait(endpoint_->close(false)); }

  void send(std::span<const std::byte> header, std::span<const std::byte> bytes) override {
    post(transfer::kDataMessage, header, bytes, 0);
  }
  void say(std::span<const std::byte> note) override {
    post(transfer::kPutNote, note, {}, UCP_AM_SEND_FLAG_REPLY);
  }
  void send_as(unsigned number, std::span<const std::byte> bytes) override {
    post(number, bytes, bytes, 0);
  }

 private:
  void post(unsigned id,
            std::span<const std::byte> header,
            std::span<const std::byte> bytes,
            std::uint32_t flags) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = flags;
    wait(ucp_am_send_nbx(
        endpoint_->get(), id, header.data(), header.size(), bytes.data(), bytes.size(), &params));
  }
  void wait(void* request) {
    if (!UCS_PTR_IS_PTR(request)) {
      return;
    }
    const auto limit = std::chrono::steady_clock::now() + kHang;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
      worker_->progress();
      ASSERT_LT(std::chrono::steady_clock::now(), limit);
    }
    ucp_request_free(request);
  }

  std::unique_ptr<transfer::Inlet> inlet_;
  std::unique_ptr<transfer::UcxContext> context_;
  std::unique_ptr<transfer::UcxWorker> worker_;
  std::unique_ptr<transfer::UcxEndpoint> endpoint_;
};

class UcxRig : public Rig {
 public:
  explicit UcxRig(std::string kind) : kind_(std::move(kind)) {}
  std::unique_ptr<transfer::Transport> make(const std::string& /*name*/,
                                            KvArenaView arena,
                                            std::size_t window) override {
    transfer::TransportOptions options;
    options.transport = transport_of(kind_);
    options.path = path_of(kind_);
    options.window_bytes = window;
    auto transport = transfer::Transport::create(options, arena);
    EXPECT_TRUE(transport.has_value()) << transport.error().message;
    return std::move(transport).value();
  }
  std::unique_ptr<HostilePeer> make_hostile(transfer::Transport& target) override {
    return std::make_unique<UcxHostile>(kind_, target);
  }
  std::string lane() const override { return lane_name(kind_); }

 private:
  std::string kind_;
};

}  // namespace

bool eventually(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + kHang;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

std::unique_ptr<Rig> make_rig(const std::string& kind) {
  if (kind == "fake") {
    return std::make_unique<FakeRig>();
  }
  return std::make_unique<UcxRig>(kind);
}

LeaseId random_lease() {
  static std::atomic<std::uint64_t> next{1};
  const std::uint64_t n = next++;
  return {n * 0x9e3779b97f4a7c15ULL, n ^ 0xd1b54a32d192ed03ULL};
}

KvGrant make_grant(LeaseId lease, Epoch epoch, const KvLayout& layout, std::vector<BlockRun> runs) {
  KvGrant grant;
  grant.node = "d0";
  grant.lease = lease;
  grant.epoch = epoch;
  grant.layout_hash = layout.hash();
  grant.runs = std::move(runs);
  return grant;
}

}  // namespace baton::testing

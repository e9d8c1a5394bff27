#include "tests/support/cuda_emulator.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/half.h"
#include "tests/support/emulated_mma.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace baton::testing {
namespace {

using kernels::cuda::kWarp;
using kernels::cuda::LaunchShape;

constexpr unsigned kMaxThreads = 1024;
constexpr std::size_t kStackBytes = 256 * 1024;  // touched as far as it is used
constexpr std::size_t kStaticShared = 48 * 1024;
constexpr std::size_t kDynamicShared = 227 * 1024;  // sm_90; sm_80 has 163

// Tells the address sanitizer which stack runs, and that memory is no stack any more: what it has
// marked there would count for whatever is mapped at the same place next.
#ifdef __SANITIZE_ADDRESS__
void leave_stack(void** fake, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(fake, bottom, size);
}
void enter_stack(void* fake, const void** bottom, std::size_t* size) {
  __sanitizer_finish_switch_fiber(fake, bottom, size);
}
void forget_stacks(const void* base, std::size_t size) {
  __asan_unpoison_memory_region(base, size);
}
#else
void leave_stack(void**, const void*, std::size_t) {}
void enter_stack(void*, const void**, std::size_t*) {}
void forget_stacks(const void*, std::size_t) {}
#endif

// Stacks of a block's threads, used again by the next block.
class Stacks {
 public:
  explicit Stacks(unsigned count)
      : bytes_(count * kStackBytes),
        base_(::mmap(nullptr,
                     bytes_,
                     PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1,
                     0)) {
    BATON_CHECK(base_ != MAP_FAILED, "no memory for the stacks of emulated threads");
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() {
    forget_stacks(base_, bytes_);
    ::munmap(base_, bytes_);
  }

  std::byte* bottom(unsigned thread) const {
    return static_cast<std::byte*>(base_) + thread * kStackBytes;
  }

 private:
  std::size_t bytes_;
  void* base_;
};

// The stack is not owned: it goes back with all others.
struct BorrowedStack {
  void deallocate(boost::context::stack_context&) const {}
};

// What a warp does together. Each thread hands in its operands and gets its result there.
enum class Meeting { Sync, Shuffle, Ballot, MmaHalf, MmaBfloat, MmaInt8 };
struct Part {
  std::uint64_t value = 0;
  unsigned lane = 0;  // whose value is wanted
  std::uint64_t result = 0;
  MmaPart mma;
};

struct Copy {
  void* to;
  const void* from;  // null: zeros
};

struct Thread {
  enum class State { Ready, AtBarrier, AtMeeting, Ended };
  State state = State::Ready;
  unsigned index = 0;
  boost::context::fiber fiber;   // the thread, while another runs
  boost::context::fiber caller;  // the scheduler, while this one runs
  Part* part = nullptr;          // at a meeting
  std::vector<Copy> uncommitted;
  std::deque<std::vector<Copy>> groups;
};

struct Warp {
  unsigned arrived = 0;
  Meeting meeting = Meeting::Sync;
};

class Block {
 public:
  Block(const LaunchShape& shape, const std::function<void()>& body, ThreadOrder order)
      : shape_(shape),
        body_(body),
        order_(order),
        stacks_(shape.threads),
        threads_(shape.threads),
        warps_(shape.threads / kWarp),
        static_(kStaticShared / sizeof(Line)),
        dynamic_(shape.dynamic_shared / sizeof(Line) + 1) {}

  void run(unsigned x, unsigned y, unsigned z);

  // Of the thread that runs.
  Thread& thread() { return *current_; }
  const LaunchShape& shape() const { return shape_; }
  unsigned x() const { return x_; }
  unsigned y() const { return y_; }
  unsigned z() const { return z_; }
  void* static_shared(std::size_t bytes) {
    BATON_CHECK(bytes <= kStaticShared, "a block has at most 48 KiB of static shared memory");
    return static_.data();
  }
  void* dynamic_shared() {
    BATON_CHECK(shape_.dynamic_shared > 0, "the launch asked for no dynamic shared memory");
    return dynamic_.data();
  }
  void barrier() { suspend(Thread::State::AtBarrier); }
  void meet(Meeting meeting, Part& part);

 private:
  struct alignas(16) Line {
    std::array<unsigned char, 16> bytes;
  };

  void start(unsigned index);
  void resume(Thread& thread);
  void suspend(Thread::State state);
  bool run_ready(unsigned warp);
  void hold_meeting(unsigned warp);
  Thread& at(unsigned warp, unsigned lane) { return threads_[warp * kWarp + lane]; }
  // i-th of `count` in the order asked for.
  unsigned nth(unsigned i, unsigned count) const {
    return order_ == ThreadOrder::Ascending ? i : count - 1 - i;
  }

  const LaunchShape& shape_;
  const std::function<void()>& body_;
  ThreadOrder order_;
  Stacks stacks_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Line> static_;
  std::vector<Line> dynamic_;
  Thread* current_ = nullptr;
  unsigned x_ = 0;
  unsigned y_ = 0;
  unsigned z_ = 0;
  const void* main_stack_ = nullptr;  // for the address sanitizer
  std::size_t main_stack_bytes_ = 0;
};

// The block that runs: what a kernel calls has no other way to it.
Block* running = nullptr;

void Block::start(unsigned index) {
  Thread& thread = threads_[index];
  thread.state = Thread::State::Ready;
  thread.index = index;
  std::byte* const top = stacks_.bottom(index) + kStackBytes;
  boost::context::stack_context context;
  context.sp = top;
  context.size = kStackBytes;
  thread.fiber = boost::context::fiber(std::allocator_arg,
                                       boost::context::preallocated(top, kStackBytes, context),
                                       BorrowedStack{},
                                       [this, &thread](boost::context::fiber&& caller) {
                                         enter_stack(nullptr, &main_stack_, &main_stack_bytes_);
                                         thread.caller = std::move(caller);
                                         body_();
                                         thread.state = Thread::State::Ended;
                                         leave_stack(nullptr, main_stack_, main_stack_bytes_);
                                         return std::move(thread.caller);
                                       });
}

void Block::resume(Thread& thread) {
  current_ = &thread;
  void* fake = nullptr;
  leave_stack(&fake, stacks_.bottom(thread.index), kStackBytes);
  thread.fiber = std::move(thread.fiber).resume();
  enter_stack(fake, nullptr, nullptr);
  current_ = nullptr;
}

void Block::suspend(Thread::State state) {
  Thread& thread = *current_;
  thread.state = state;
  void* fake = nullptr;
  leave_stack(&fake, main_stack_, main_stack_bytes_);
  thread.caller = std::move(thread.caller).resume();
  enter_stack(fake, &main_stack_, &main_stack_bytes_);
}

// False when none of the warp's threads could run.
bool Block::run_ready(unsigned warp) {
  bool any = false;
  for (unsigned i = 0; i < kWarp; ++i) {
    Thread& thread = at(warp, nth(i, kWarp));
    if (thread.state == Thread::State::Ready) {
      resume(thread);
      any = true;
    }
  }
  return any;
}

void Block::run(unsigned x, unsigned y, unsigned z) {
  x_ = x;
  y_ = y;
  z_ = z;
  std::memset(static_.data(), 0xFF, static_.size() * sizeof(Line));
  std::memset(dynamic_.data(), 0xFF, dynamic_.size() * sizeof(Line));
  running = this;
  for (unsigned i = 0; i < shape_.threads; ++i) {
    start(i);
  }
  while (true) {
    for (unsigned i = 0; i < warps_.size(); ++i) {
      while (run_ready(nth(i, static_cast<unsigned>(warps_.size())))) {
      }
    }
    unsigned waiting = 0;
    unsigned ended = 0;
    for (const Thread& thread : threads_) {
      waiting += thread.state == Thread::State::AtBarrier ? 1 : 0;
      ended += thread.state == Thread::State::Ended ? 1 : 0;
    }
    if (ended == shape_.threads) {
      break;
    }
    BATON_CHECK(waiting == shape_.threads,
                fmt::format("block ({}, {}, {}): {} threads wait at a barrier and {} have ended, "
                            "of {}: the rest would never be met",
                            x,
                            y,
                            z,
                            waiting,
                            ended,
                            shape_.threads));
    for (Thread& thread : threads_) {
      thread.state = Thread::State::Ready;
    }
  }
  for (Thread& thread : threads_) {
    BATON_CHECK(thread.groups.empty() && thread.uncommitted.empty(),
                "a thread ended without waiting for its copies");
  }
  running = nullptr;
}

void Block::meet(Meeting meeting, Part& part) {
  Thread& thread = *current_;
  const unsigned index = thread.index / kWarp;
  Warp& warp = warps_[index];
  BATON_CHECK(warp.arrived == 0 || warp.meeting == meeting,
              "threads of a warp meet at different operations");
  warp.meeting = meeting;
  thread.part = &part;
  if (++warp.arrived < kWarp) {
    suspend(Thread::State::AtMeeting);
    return;
  }
  warp.arrived = 0;
  hold_meeting(index);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    at(index, lane).state = Thread::State::Ready;
  }
}

void Block::hold_meeting(unsigned warp) {
  std::array<MmaPart*, kWarp> mma{};
  std::uint32_t votes = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    mma[lane] = &at(warp, lane).part->mma;
    votes |= at(warp, lane).part->value != 0 ? 1U << lane : 0U;
  }
  switch (warps_[warp].meeting) {
    case Meeting::Sync:
      return;
    case Meeting::Shuffle:
      for (unsigned lane = 0; lane < kWarp; ++lane) {
        Part& part = *at(warp, lane).part;
        part.result = at(warp, part.lane % kWarp).part->value;
      }
      return;
    case Meeting::Ballot:
      for (unsigned lane = 0; lane < kWarp; ++lane) {
        at(warp, lane).part->result = votes;
      }
      return;
    case Meeting::MmaHalf:
      return multiply_half(mma);
    case Meeting::MmaBfloat:
      return multiply_bfloat(mma);
    case Meeting::MmaInt8:
      return multiply_int8(mma);
  }
}

Block& block() {
  BATON_CHECK(running != nullptr, "a kernel runs only in run_grid");
  return *running;
}

std::uint64_t shuffled(std::uint64_t value, unsigned lane) {
  Part part;
  part.value = value;
  part.lane = lane;
  block().meet(Meeting::Shuffle, part);
  return part.result;
}

template <class C>
void multiply(Meeting meeting,
              C (&c)[4],
              const std::uint32_t (&a)[4],
              const std::uint32_t (&b)[2]) {
  Part part;
  std::memcpy(part.mma.a, a, sizeof(a));
  std::memcpy(part.mma.b, b, sizeof(b));
  std::memcpy(part.mma.c, c, sizeof(c));
  block().meet(meeting, part);
  std::memcpy(c, part.mma.c, sizeof(c));
}

void land(std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, 16);
    } else {
      std::memcpy(copy.to, copy.from, 16);
    }
  }
  copies.clear();
}

}  // namespace

void run_grid(const LaunchShape& shape, const std::function<void()>& thread, ThreadOrder order) {
  BATON_CHECK(shape.threads > 0 && shape.threads <= kMaxThreads && shape.threads % kWarp == 0,
              "a block has 32 to 1024 threads, a multiple of 32");
  BATON_CHECK(shape.dynamic_shared <= kDynamicShared,
              "a block has at most 227 KiB of shared memory");
  BATON_CHECK(shape.y <= 65535 && shape.z <= 65535,
              "a grid has at most 65535 blocks along y and z");
  BATON_CHECK(running == nullptr, "one grid runs at a time");
  Block block(shape, thread, order);
  for (unsigned z = 0; z < shape.z; ++z) {
    for (unsigned y = 0; y < shape.y; ++y) {
      for (unsigned x = 0; x < shape.x; ++x) {
        block.run(x, y, z);
      }
    }
  }
}

}  // namespace baton::testing

namespace baton::kernels::cuda {

using testing::Meeting;
using testing::Part;

unsigned thread_index() {
  return testing::block().thread().index;
}
unsigned block_threads() {
  return testing::block().shape().threads;
}
unsigned block_index() {
  return testing::block().x();
}
unsigned block_index_y() {
  return testing::block().y();
}
unsigned block_index_z() {
  return testing::block().z();
}
unsigned grid_blocks() {
  return testing::block().shape().x;
}
void* static_shared_bytes(std::size_t bytes) {
  return testing::block().static_shared(bytes);
}
void* dynamic_shared_bytes() {
  return testing::block().dynamic_shared();
}

void sync_threads() {
  testing::block().barrier();
}
void sync_warp() {
  Part part;
  testing::block().meet(Meeting::Sync, part);
}
float shuffle_xor(float value, unsigned mask) {
  return float_of(shuffle_xor(bits_of(value), mask));
}
std::uint32_t shuffle_xor(std::uint32_t value, unsigned mask) {
  return static_cast<std::uint32_t>(testing::shuffled(value, lane_index() ^ mask));
}
std::uint64_t shuffle_xor(std::uint64_t value, unsigned mask) {
  return testing::shuffled(value, lane_index() ^ mask);
}
float shuffle(float value, unsigned lane) {
  return float_of(shuffle(bits_of(value), lane));
}
std::uint32_t shuffle(std::uint32_t value, unsigned lane) {
  return static_cast<std::uint32_t>(testing::shuffled(value, lane));
}
std::uint64_t shuffle(std::uint64_t value, unsigned lane) {
  return testing::shuffled(value, lane);
}
std::uint32_t ballot(bool vote) {
  Part part;
  part.value = vote ? 1 : 0;
  testing::block().meet(Meeting::Ballot, part);
  return static_cast<std::uint32_t>(part.result);
}

std::uint16_t half_of(float x) {
  return float_to_half(x);
}
float float_of_half(std::uint16_t bits) {
  return half_to_float(bits);
}
std::uint16_t bfloat_of(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return 0x7FFF;  // as the instruction gives a NaN
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}
std::uint32_t half_pair(float low, float high) {
  return half_of(low) | static_cast<std::uint32_t>(half_of(high)) << 16;
}
std::uint32_t bfloat_pair(float low, float high) {
  return bfloat_of(low) | static_cast<std::uint32_t>(bfloat_of(high)) << 16;
}

void mma_half(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  testing::multiply(Meeting::MmaHalf, c, a, b);
}
void mma_bfloat(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  testing::multiply(Meeting::MmaBfloat, c, a, b);
}
void mma_int8(std::int32_t (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  testing::multiply(Meeting::MmaInt8, c, a, b);
}

void copy_async16(void* to, const void* from, bool wanted) {
  BATON_CHECK(reinterpret_cast<std::uintptr_t>(to) % 16 == 0 &&
                  (!wanted || reinterpret_cast<std::uintptr_t>(from) % 16 == 0),
              "an asynchronous copy takes 16 aligned bytes");
  testing::block().thread().uncommitted.push_back({to, wanted ? from : nullptr});
}
void commit_copies() {
  testing::Thread& thread = testing::block().thread();
  thread.groups.push_back(std::exchange(thread.uncommitted, {}));
}
void wait_copies_left(unsigned left) {
  testing::Thread& thread = testing::block().thread();
  while (thread.groups.size() > left) {
    testing::land(thread.groups.front());
    thread.groups.pop_front();
  }
}

void atomic_add_shared(std::uint32_t* to, std::uint32_t value) {
  *to += value;
}
void atomic_add_shared(unsigned long long* to, unsigned long long value) {
  *to += value;
}

}  // namespace baton::kernels::cuda

// Stands for NVIDIA's NCCL on a machine without a GPU: a library with the functions that
// kernels/cuda/nccl.h asks for, whose ranks are threads and whose devices are host memory. A call
// waits for all ranks, where NCCL puts it on a stream and returns. It is stricter than NCCL: ranks
// whose calls differ get an error (5), where NCCL would hang or mix things up.
//
// `fake_nccl_fail(rank, calls, result)`: after so many groups or single calls, that rank's next one
// gives `result` and is not made: the others wait for it. GPU 99 cannot be joined.
//
// Thread: any. Failure: results as NCCL's.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace {

constexpr int kSystemError = 2;
constexpr int kInvalidUsage = 5;
constexpr int kAllRoots = -1;  // every rank's part

struct Call {
  int root = kAllRoots;
  std::size_t count = 0;
  const float* from = nullptr;
  float* to = nullptr;
};

// Ranks joined together, and the calls of the round they are in.
struct World {
  explicit World(std::size_t ranks) : calls(ranks) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<Call>> calls;  // by rank
  std::size_t arrived = 0;
  std::size_t round = 0;

  // Until all have come; the last one lets the others go.
  void meet(std::unique_lock<std::mutex>& lock) {
    const std::size_t mine = round;
    if (++arrived == calls.size()) {
      arrived = 0;
      ++round;
      changed.notify_all();
    } else {
      changed.wait(lock, [&] { return round != mine; });
    }
  }
};

struct Failure {
  std::atomic<int> rank{-1};
  std::atomic<int> calls_left{0};
  std::atomic<int> result{0};
};
Failure failure;
std::atomic<int> alive{0};  // communicators

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
};

namespace {

// Of the thread's group.
struct Group {
  bool is_open = false;
  ncclComm* comm = nullptr;
  std::vector<Call> calls;
};
thread_local Group group;

bool are_alike(const std::vector<std::vector<Call>>& calls) {
  for (const auto& others : calls) {
    if (!std::equal(
            others.begin(),
            others.end(),
            calls.front().begin(),
            calls.front().end(),
            [](const Call& a, const Call& b) { return a.root == b.root && a.count == b.count; })) {
      return false;
    }
  }
  return true;
}

int run(ncclComm* comm, std::vector<Call> calls) {
  if (failure.rank == comm->rank && failure.calls_left-- == 0) {
    return failure.result;
  }
  World& world = *comm->world;
  std::unique_lock lock(world.mutex);
  world.calls[static_cast<std::size_t>(comm->rank)] = std::move(calls);
  world.meet(lock);
  const bool alike = are_alike(world.calls);
  const std::vector<Call>& own = world.calls[static_cast<std::size_t>(comm->rank)];
  for (std::size_t i = 0; alike && i < own.size(); ++i) {
    for (std::size_t root = 0; root < world.calls.size(); ++root) {
      const float* const from = world.calls[root][i].from;
      float* const to = own[i].to + (own[i].root == kAllRoots ? root * own[i].count : 0);
      const bool is_sent = own[i].root == kAllRoots || static_cast<int>(root) == own[i].root;
      if (is_sent && from != to) {
        std::copy_n(from, own[i].count, to);
      }
    }
  }
  world.meet(lock);  // nobody changes its buffer while another still reads it
  return alike ? 0 : kInvalidUsage;
}

int call(ncclComm* comm, const Call& one) {
  if (!group.is_open) {
    return run(comm, {one});
  }
  group.comm = comm;
  group.calls.push_back(one);
  return 0;
}

}  // namespace

extern "C" {

void fake_nccl_fail(int rank, int calls, int result) {
  failure.calls_left = calls;
  failure.result = result;
  failure.rank = rank;
}
int fake_nccl_alive() {
  return alive;
}

int ncclCommInitAll(ncclComm** comms, int count, const int* devices) {
  if (std::count(devices, devices + count, 99) > 0) {
    return kSystemError;
  }
  auto world = std::make_shared<World>(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    comms[rank] = new ncclComm{world, rank};
    ++alive;
  }
  return 0;
}
int ncclCommDestroy(ncclComm* comm) {
  delete comm;
  --alive;
  return 0;
}
int ncclGroupStart() {
  group.is_open = true;
  return 0;
}
int ncclGroupEnd() {
  Group ended;
  std::swap(ended, group);
  return ended.calls.empty() ? 0 : run(ended.comm, std::move(ended.calls));
}
int ncclAllGather(
    const void* from, void* to, std::size_t count, int type, ncclComm* comm, void* stream) {
  static_cast<void>(stream);
  return type != 7
             ? kInvalidUsage
             : call(comm,
                    {kAllRoots, count, static_cast<const float*>(from), static_cast<float*>(to)});
}
int ncclBroadcast(const void* from,
                  void* to,
                  std::size_t count,
                  int type,
                  int root,
                  ncclComm* comm,
                  void* stream) {
  static_cast<void>(stream);
  return type != 7
             ? kInvalidUsage
             : call(comm, {root, count, static_cast<const float*>(from), static_cast<float*>(to)});
}
const char* ncclGetErrorString(int result) {
  return result == kSystemError ? "unhandled system error" : "invalid usage";
}

}  // extern "C"

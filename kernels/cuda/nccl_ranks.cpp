#include "kernels/cuda/nccl_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "common/base/check.h"

namespace baton::kernels::cuda {

// The communicators of all ranks.
class NcclTeam {
 public:
  NcclTeam(const NcclApi& api, std::vector<ncclComm*> comms)
      : api_(api), comms_(std::move(comms)) {}
  NcclTeam(const NcclTeam&) = delete;
  NcclTeam& operator=(const NcclTeam&) = delete;
  ~NcclTeam() {
    for (ncclComm* const comm : comms_) {
      api_.comm_destroy(comm);
    }
  }

  const NcclApi& api() const { return api_; }
  ncclComm* comm(std::uint32_t rank) const { return comms_[rank]; }
  std::size_t size() const { return comms_.size(); }

 private:
  const NcclApi api_;
  const std::vector<ncclComm*> comms_;
};

namespace {

bool are_equal(std::span<const std::size_t> borders) {
  for (std::size_t i = 1; i < borders.size(); ++i) {
    if (borders[i] - borders[i - 1] != borders[1] - borders[0]) {
      return false;
    }
  }
  return true;
}

// Parts of different sizes: each rank sends its own to all, in one launch.
int broadcast_parts(const NcclApi& api,
                    float* all,
                    std::span<const std::size_t> borders,
                    ncclComm* comm,
                    Stream stream) {
  if (const int result = api.group_start(); result != NcclApi::kSuccess) {
    return result;
  }
  int first_failure = NcclApi::kSuccess;
  for (std::size_t root = 0; root + 1 < borders.size(); ++root) {
    float* const part = all + borders[root];
    const std::size_t count = borders[root + 1] - borders[root];
    if (count == 0) {
      continue;
    }
    const int result = api.broadcast(
        part, part, count, NcclApi::kFloat32, static_cast<int>(root), comm, stream.handle);
    if (first_failure == NcclApi::kSuccess) {
      first_failure = result;
    }
  }
  const int ended = api.group_end();  // a group that was begun is ended, whatever it holds
  return first_failure == NcclApi::kSuccess ? ended : first_failure;
}

}  // namespace

NcclRank::NcclRank(std::shared_ptr<NcclTeam> team, std::uint32_t rank)
    : team_(std::move(team)), rank_(rank) {}

NcclRank::~NcclRank() = default;

Status NcclRank::all_gather(std::span<float> all,
                            std::span<const std::size_t> borders,
                            Stream stream) {
  BATON_CHECK(borders.size() == team_->size() + 1 && borders.back() == all.size(),
              "the borders of a gather do not fit");
  const NcclApi& api = team_->api();
  ncclComm* const comm = team_->comm(rank_);
  const int result = are_equal(borders) ? api.all_gather(all.data() + borders[rank_],
                                                         all.data(),
                                                         borders[1] - borders[0],
                                                         NcclApi::kFloat32,
                                                         comm,
                                                         stream.handle)
                                        : broadcast_parts(api, all.data(), borders, comm, stream);
  if (result != NcclApi::kSuccess) {
    return fail(
        ErrorCode::Unavailable,
        fmt::format("rank {} of {} cannot reach the others: NCCL says \"{}\" ({}); run with "
                    "NCCL_DEBUG=INFO to see more",
                    rank_,
                    team_->size(),
                    api.error_string(result),
                    result));
  }
  return {};
}

Result<std::vector<std::unique_ptr<NcclRank>>> join_ranks(const NcclApi& api,
                                                          std::span<const int> devices) {
  std::vector<ncclComm*> comms(devices.size());
  const int result =
      api.comm_init_all(comms.data(), static_cast<int>(devices.size()), devices.data());
  if (result != NcclApi::kSuccess) {
    return fail(ErrorCode::Unavailable,
                fmt::format("no CUDA: NCCL cannot join GPUs {}: \"{}\" ({}); run with "
                            "NCCL_DEBUG=INFO to see more",
                            fmt::join(devices, ", "),
                            api.error_string(result),
                            result));
  }
  auto team = std::make_shared<NcclTeam>(api, std::move(comms));
  std::vector<std::unique_ptr<NcclRank>> ranks;
  for (std::uint32_t rank = 0; rank < devices.size(); ++rank) {
    ranks.push_back(std::make_unique<NcclRank>(team, rank));
  }
  return ranks;
}

}  // namespace baton::kernels::cuda

// A cluster of Baton's own processes for a measurement: one prefill and one decode node on
// processors of their own, or one node that does both.
//
// Owner: a benchmark. Thread: the one that started it. Failure: `start` says what kept a process
// from starting or the cluster from getting ready. The destructor stops it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/cluster/local_cluster.h"
#include "common/base/error.h"
#include "common/base/host_port.h"

namespace baton::bench {

struct MeasuredClusterOptions {
  std::string model;       // path of a model
  std::string bin_folder;  // where the programs of Baton are
  std::string run_folder;  // configuration and logs
  bool colocated = false;  // one node, on all processors of the calling process
  std::string prefill_cores;
  std::string decode_cores;
  unsigned arena_mb = 2048;
  std::vector<std::string> set;  // KEY=VALUE over the configuration
};

class MeasuredCluster {
 public:
  static Result<std::unique_ptr<MeasuredCluster>> start(const MeasuredClusterOptions& options);
  ~MeasuredCluster();
  MeasuredCluster(const MeasuredCluster&) = delete;
  MeasuredCluster& operator=(const MeasuredCluster&) = delete;

  HostPort address() const;  // of the OpenAI API
  const std::string& model() const { return model_; }
  const std::vector<cli::LocalCluster::Member>& members() const { return cluster_->members(); }
  // What ended without being asked, a line break before each; empty: nothing.
  std::string obituary();

 private:
  MeasuredCluster() = default;

  std::string model_;  // its id
  std::unique_ptr<cli::LocalCluster> cluster_;
};

}  // namespace baton::bench

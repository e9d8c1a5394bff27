// Keeps the picture that I/O threads have of the cluster up to date, and the gauges of nodes.
//
// Owner: the composition root. Thread: the control strand. Failure: none.
#pragma once

#include <map>
#include <string>

#include "common/config/cluster_config.h"
#include "common/obs/metrics.h"
#include "gateway/cluster/artifact_fetcher.h"
#include "gateway/cluster/membership.h"
#include "gateway/cluster/served_models.h"

namespace baton::gateway {

class ModelPublisher {
 public:
  ModelPublisher(Metrics& metrics,
                 const Membership& membership,
                 const RouteHealth& health,
                 const ArtifactFetcher& fetcher,
                 ModelSection configured,
                 ModelDirectory& directory);
  ModelPublisher(const ModelPublisher&) = delete;
  ModelPublisher& operator=(const ModelPublisher&) = delete;

  // Publishes when something has changed.
  void publish();

 private:
  ServedModel describe(const ModelEntry& entry) const;
  void count_nodes();

  Metrics& metrics_;
  const Membership& membership_;
  const RouteHealth& health_;
  const ArtifactFetcher& fetcher_;
  const ModelSection configured_;
  ModelDirectory& directory_;
  std::map<std::string, Gauge> node_gauges_;  // by "role state"
};

}  // namespace baton::gateway

// Prometheus rules from the objectives of cluster.yaml: what share of events missed its target over
// several windows, and alerts by how fast the error budget burns, for each phase apart, so that the
// people who run a phase are called for that phase.
// Source of windows and factors: The Site Reliability Workbook, chapter 5, multiwindow,
// multi-burn-rate alerts.
//
// Thread: pure functions. Failure: none; the configuration has been checked.
#pragma once

#include <string>

#include "common/config/cluster_config.h"

namespace baton::cli {

struct RuleOptions {
  std::string runbooks = "docs/runbooks";  // folder or address that links of alerts begin with
  double speed_up = 1;                     // divides every window: for a drill that takes minutes
  std::string source = "cluster.yaml";     // the configuration's file, for the first line
};

// A rule file, YAML.
std::string alert_rules(const ClusterConfig& config, const RuleOptions& options);
// `scrape_configs` for every program of the file, with the labels `role` and `node`.
std::string scrape_config(const ClusterConfig& config, const RuleOptions& options);
// An Alertmanager configuration that sends each phase to a receiver of its own.
std::string alertmanager_config();

}  // namespace baton::cli

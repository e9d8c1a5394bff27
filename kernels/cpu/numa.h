// Memory nodes of the machine and where packed weights go on them. Every thread of the backend
// streams every weight in prefill, and in decode a share that differs from product to product, so
// on a machine of several nodes weights are spread page by page over the nodes whose cores the
// process may use: all memory channels serve every product. A process kept to one node (taskset, a
// cpuset) has its weights there, by first touch, which is faster still; run one for each node where
// that can be.
//
// Thread: any. Failure: what /sys does not say is taken for a machine of one node; a policy that
// the kernel refuses leaves pages where they are first touched.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace baton::kernels::cpu {

// Nodes, ascending, that have one of `cores`. `root`: "/sys/devices/system/node".
std::vector<int> memory_nodes(const std::string& root, const std::vector<int>& cores);

// "0-3,8,10-11" as numbers, ascending as written; empty when it is no such list.
std::vector<int> parse_core_list(const std::string& text);

// Asks that pages of [place, place + bytes), not touched yet, be spread over `nodes`. `place`: at a
// page's start. Whether the kernel agreed; nothing is asked for fewer than two nodes.
bool spread_over_nodes(void* place, std::size_t bytes, const std::vector<int>& nodes);

}  // namespace baton::kernels::cpu

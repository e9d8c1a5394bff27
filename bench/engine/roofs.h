// What this machine can do at best, measured in this process: the figures that a kernel's speed is
// a share of.
//
// Thread: starts its own and joins them; takes about half a second, which must be quiet.
// Failure: none; a machine without an instruction set is measured with what it has.
#pragma once

#include <cstddef>

namespace baton::bench {

struct Roofs {
  unsigned threads = 0;
  double read_bytes_per_s = 0;  // memory, all threads together
  double int8_ops_per_s = 0;    // multiplications and additions of 8-bit dot products
  double f32_flops_per_s = 0;   // multiplications and additions of fused ones
  double bf16_flops_per_s = 0;  // of VDPBF16PS; 0: the processor has none
  const char* int8_instruction = "";
};

Roofs measure_roofs(unsigned threads);

}  // namespace baton::bench

// What this machine's processor and operating system offer.
//
// Thread: pure. Failure: none.
#pragma once

namespace baton::kernels::cpu {

bool has_avx2();    // with FMA and F16C
bool has_avx512();  // F, BW, VL, DQ and VNNI

}  // namespace baton::kernels::cpu

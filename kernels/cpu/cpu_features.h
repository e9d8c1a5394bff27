// What this machine's processor and operating system offer.
//
// Thread: any. Failure: none.
#pragma once

namespace baton::kernels::cpu {

bool has_avx2();    // with FMA and F16C
bool has_avx512();  // F, BW, VL, DQ and VNNI

// Tile registers whose state the operating system can save; a process must still ask it to.
bool has_amx_int8();
bool has_amx_bf16();
bool has_avx512_bf16();
// Asks, for all threads of the process. False when refused. Asking again is the same.
bool permit_tiles();

}  // namespace baton::kernels::cpu

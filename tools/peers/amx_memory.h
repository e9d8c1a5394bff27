// GCC 12's AMX intrinsics do not say that they read and write memory: the stores that fill a tile
// configuration are dropped as dead, and llama.cpp ends with an illegal instruction on machines
// with AMX. These say it. tools/peers/llama_cpp has every C++ file of llama.cpp include this there.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13 && defined(__AMX_TILE__)
#include <immintrin.h>

// A tile's number may be a macro.
#define BATON_TILE_NAME(tile) #tile

#undef _tile_loadconfig
#define _tile_loadconfig(config) \
  __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(const void*)(config)) : "memory")
#undef _tile_loadd
#define _tile_loadd(tile, base, stride)                                                          \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" BATON_TILE_NAME(tile)::"r"((const void*)(base)), \
                   "r"((long)(stride))                                                           \
                   : "memory")
#undef _tile_stored
#define _tile_stored(tile, base, stride)                                                        \
  __asm__ volatile("tilestored %%tmm" BATON_TILE_NAME(tile) ", (%0,%1,1)" ::"r"((void*)(base)), \
                   "r"((long)(stride))                                                          \
                   : "memory")
#endif

#include "bench/engine/roofs.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = std::size_t{128} << 20;  // a thread; beyond the caches
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kChains = 12;  // hide an instruction's latency

// Kept out of the optimiser's reach.
template <class T>
void keep(const T& value) {
  __asm__ volatile("" : : "r"(&value) : "memory");
}

__attribute__((target("avx2"))) void read_avx2(const std::byte* data, std::size_t bytes) {
  __m256i sums[4] = {};
  for (std::size_t at = 0; at < bytes; at += 128) {
    _mm_prefetch(reinterpret_cast<const char*>(data + at + 2048), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + at + 2048 + 64), _MM_HINT_T0);
    for (std::size_t i = 0; i < 4; ++i) {
      const auto* p = reinterpret_cast<const __m256i*>(data + at + 32 * i);
      sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256(p));
    }
  }
  keep(sums);
}

__attribute__((target("avx512f,avx512vnni"))) void int8_avx512(std::size_t rounds) {
  __m512i sums[kChains];
  for (__m512i& sum : sums) {
    sum = _mm512_setzero_si512();
  }
  __m512i a = _mm512_set1_epi8(1);
  for (std::size_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a));
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_dpbusd_epi32(sums[c], a, a);
    }
  }
  keep(sums);
}

// Products of bytes summed in 16 bits, as codes of four bits allow.
__attribute__((target("avx2"))) void int8_avx2(std::size_t rounds) {
  __m256i sums[kChains] = {};
  __m256i a = _mm256_set1_epi8(1);
  for (std::size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      __asm__ volatile("" : "+x"(a));  // or the products would be taken for one
      sums[c] = _mm256_add_epi16(sums[c], _mm256_maddubs_epi16(a, a));
      __asm__ volatile("" : "+x"(sums[c]));
    }
  }
#pragma GCC unroll 12
  for (const __m256i& sum : sums) {  // one by one: an array that is kept would lie in memory
    __asm__ volatile("" : : "x"(sum));
  }
}

__attribute__((target("avx512f"))) void f32_avx512(std::size_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
  }
  __m512 a = _mm512_set1_ps(0.5F);
  for (std::size_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a));
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_fmadd_ps(a, a, sums[c]);
    }
  }
  keep(sums);
}

// Written out: GCC copies a sum after each instruction. REQUIRES: rounds > 0.
__attribute__((target("avx512f,avx512bf16"))) void bf16_avx512(std::size_t rounds) {
  __asm__ volatile(
      ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12\n"
      "vpxord %%zmm\\n, %%zmm\\n, %%zmm\\n\n"
      ".endr\n"
      "1:\n"
      ".irp n,0,1,2,3,4,5,6,7,8,9,10,11\n"
      "vdpbf16ps %%zmm12, %%zmm12, %%zmm\\n\n"
      ".endr\n"
      "dec %0\n"
      "jnz 1b\n"
      : "+r"(rounds)
      :
      : "cc",
        "xmm0",
        "xmm1",
        "xmm2",
        "xmm3",
        "xmm4",
        "xmm5",
        "xmm6",
        "xmm7",
        "xmm8",
        "xmm9",
        "xmm10",
        "xmm11",
        "xmm12");
}

__attribute__((target("avx2,fma"))) void f32_avx2(std::size_t rounds) {
  __m256 sums[kChains] = {};
  __m256 a = _mm256_set1_ps(0.5F);
  for (std::size_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+x"(a));
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm256_fmadd_ps(a, a, sums[c]);
      __asm__ volatile("" : "+x"(sums[c]));  // or the chains would be taken for one
    }
  }
#pragma GCC unroll 12
  for (const __m256& sum : sums) {
    __asm__ volatile("" : : "x"(sum));
  }
}

// For a processor without AVX2: what plain code reaches.
void plain_read(const std::byte* data, std::size_t bytes) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes; at += sizeof(sum)) {
    std::uint64_t word;
    std::memcpy(&word, data + at, sizeof(word));
    sum ^= word;
  }
  keep(sum);
}

// The best of eight runs of `body(thread)` on all threads at once, in seconds.
double best_seconds(unsigned threads, const std::function<void(unsigned)>& body) {
  double best = 1e30;
  for (int repetition = 0; repetition < 8; ++repetition) {
    std::atomic<unsigned> ready{0};
    std::vector<Clock::time_point> begin(threads);
    std::vector<Clock::time_point> end(threads);
    const auto run = [&](unsigned thread) {
      ready.fetch_add(1);
      while (ready.load() < threads) {
        _mm_pause();
      }
      begin[thread] = Clock::now();
      body(thread);
      end[thread] = Clock::now();
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i) {
      others.emplace_back(run, i);
    }
    run(0);
    for (std::thread& other : others) {
      other.join();
    }
    const std::chrono::duration<double> taken =
        *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
    best = std::min(best, taken.count());
  }
  return best;
}

}  // namespace

Roofs measure_roofs(unsigned threads) {
  Roofs roofs;
  roofs.threads = std::max(1U, threads);
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") != 0;
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni") != 0;

  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kHugePage}); }
  };
  std::vector<std::unique_ptr<std::byte[], Free>> buffers;
  for (unsigned i = 0; i < roofs.threads; ++i) {
    // On huge pages as weights are; room for the prefetches behind the end; written once, so that
    // every page is real.
    auto* bytes = static_cast<std::byte*>(
        ::operator new[](kReadBytes + kHugePage, std::align_val_t{kHugePage}));
    (void)madvise(bytes, kReadBytes + kHugePage, MADV_HUGEPAGE);
    std::memset(bytes, static_cast<int>(i) + 1, kReadBytes + kHugePage);
    buffers.emplace_back(bytes);
  }
  const double read = best_seconds(roofs.threads, [&](unsigned thread) {
    avx2 ? read_avx2(buffers[thread].get(), kReadBytes)
         : plain_read(buffers[thread].get(), kReadBytes);
  });
  roofs.read_bytes_per_s = static_cast<double>(kReadBytes) * roofs.threads / read;
  if (!avx2) {
    return roofs;  // the arithmetic roofs stay unknown
  }

  constexpr std::size_t kRounds = 500'000;
  const double int8 = best_seconds(
      roofs.threads, [&](unsigned) { vnni ? int8_avx512(kRounds) : int8_avx2(kRounds); });
  roofs.int8_instruction = vnni ? "vpdpbusd zmm" : "vpmaddubsw, vpaddw ymm";
  roofs.int8_ops_per_s =
      static_cast<double>(kRounds) * kChains * (vnni ? 128 : 64) * roofs.threads / int8;
  const double f32 = best_seconds(
      roofs.threads, [&](unsigned) { avx512 ? f32_avx512(kRounds) : f32_avx2(kRounds); });
  roofs.f32_flops_per_s =
      static_cast<double>(kRounds) * kChains * (avx512 ? 32 : 16) * roofs.threads / f32;
  if (avx512 && __builtin_cpu_supports("avx512bf16") != 0) {
    const double bf16 = best_seconds(roofs.threads, [&](unsigned) { bf16_avx512(kRounds); });
    roofs.bf16_flops_per_s = static_cast<double>(kRounds) * kChains * 64 * roofs.threads / bf16;
  }
  return roofs;
}

}  // namespace baton::bench

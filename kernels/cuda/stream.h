// The order in which a device works: what is put on one stream runs in turn.
//
// Thread: a plain value. Failure: none.
#pragma once

namespace baton::kernels::cuda {

struct Stream {
  void* handle = nullptr;  // a cudaStream_t; null where the device is emulated
};

}  // namespace baton::kernels::cuda

#include "tests/support/gguf_writer.h"

#include <cstring>

namespace baton::testing {
namespace {

constexpr std::size_t kAlignment = 32;

void put(std::vector<std::byte>& out, const void* data, std::size_t size) {
  const std::size_t at = out.size();
  out.resize(at + size);
  if (size > 0) {
    std::memcpy(out.data() + at, data, size);
  }
}

template <class T>
void put(std::vector<std::byte>& out, T value) {
  put(out, &value, sizeof(value));
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  put(out, text.data(), text.size());
}

void pad(std::vector<std::byte>& out) {
  out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace

void GgufWriter::key(std::string_view key, std::uint32_t type) {
  ++num_values_;
  put_text(values_, key);
  put(values_, type);
}

void GgufWriter::add_uint(std::string_view name, std::uint32_t value) {
  key(name, 4);
  put(values_, value);
}

void GgufWriter::add_float(std::string_view name, float value) {
  key(name, 6);
  put(values_, value);
}

void GgufWriter::add_bool(std::string_view name, bool value) {
  key(name, 7);
  put(values_, static_cast<std::uint8_t>(value ? 1 : 0));
}

void GgufWriter::add_string(std::string_view name, std::string_view value) {
  key(name, 8);
  put_text(values_, value);
}

void GgufWriter::add_strings(std::string_view name, std::span<const std::string> values) {
  key(name, 9);
  put(values_, std::uint32_t{8});
  put(values_, std::uint64_t{values.size()});
  for (const std::string& value : values) {
    put_text(values_, value);
  }
}

void GgufWriter::add_floats(std::string_view name, std::span<const float> values) {
  key(name, 9);
  put(values_, std::uint32_t{6});
  put(values_, std::uint64_t{values.size()});
  put(values_, values.data(), values.size_bytes());
}

void GgufWriter::add_ints(std::string_view name, std::span<const std::int32_t> values) {
  key(name, 9);
  put(values_, std::uint32_t{5});
  put(values_, std::uint64_t{values.size()});
  put(values_, values.data(), values.size_bytes());
}

void GgufWriter::add_raw(std::string_view name,
                         std::uint32_t type,
                         std::span<const std::byte> bytes) {
  key(name, type);
  put(values_, bytes.data(), bytes.size());
}

void GgufWriter::add_tensor(std::string_view name,
                            std::span<const std::uint64_t> dims,
                            kernels::DType type,
                            std::span<const std::byte> data) {
  pad(data_);
  tensors_.push_back({std::string(name),
                      std::vector<std::uint64_t>(dims.begin(), dims.end()),
                      ggml_type_number(type),
                      data_.size()});
  put(data_, data.data(), data.size());
}

std::vector<std::byte> GgufWriter::bytes() const {
  std::vector<std::byte> out;
  put(out, "GGUF", 4);
  put(out, std::uint32_t{3});
  put(out, std::uint64_t{tensors_.size()});
  put(out, num_values_);
  put(out, values_.data(), values_.size());
  for (const Tensor& tensor : tensors_) {
    put_text(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.dims.size()));
    for (const std::uint64_t size : tensor.dims) {
      put(out, size);
    }
    put(out, tensor.type);
    put(out, tensor.offset);
  }
  pad(out);
  put(out, data_.data(), data_.size());
  return out;
}

std::uint32_t ggml_type_number(kernels::DType type) {
  using kernels::DType;
  switch (type) {
    case DType::F32:
      return 0;
    case DType::F16:
      return 1;
    case DType::Q4_0:
      return 2;
    case DType::Q4_1:
      return 3;
    case DType::Q5_0:
      return 6;
    case DType::Q5_1:
      return 7;
    case DType::Q8_0:
      return 8;
    case DType::Q4_K:
      return 12;
    case DType::Q5_K:
      return 13;
    case DType::Q6_K:
      return 14;
    case DType::BF16:
      return 30;
  }
  return ~0U;
}

}  // namespace baton::testing

#include "tests/support/byte_tokenizer.h"

namespace baton::testing {
namespace {

void append_utf8(std::string& out, unsigned code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

}  // namespace

engine::TokenizerSpec byte_tokenizer_spec() {
  engine::TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre_tokenizer = "gpt-2";
  // The GPT-2 byte alphabet: printable bytes stand for themselves, others for 256, 257, …
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string token;
    append_utf8(token, itself ? byte : next++);
    spec.tokens.push_back(token);
    spec.kinds.push_back(engine::TokenKind::Normal);
  }
  for (const char* name : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}) {
    spec.tokens.emplace_back(name);
    spec.kinds.push_back(engine::TokenKind::Control);
  }
  spec.bos = kByteStart;
  spec.eos = kByteEnd;
  spec.eot = kByteEos;
  spec.add_space_prefix = false;
  spec.architecture = "llama";
  spec.chat_template =
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  return spec;
}

std::vector<TokenId> byte_tokens(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) {
    ids.push_back(static_cast<TokenId>(static_cast<unsigned char>(c)));
  }
  return ids;
}

}  // namespace baton::testing

// A block holds two boxes, keys and values, each with the axes head, dim and token, and where the
// type has scales two more without the axis dim. A copy between
// two blocks is a box as well: axes that lie without gaps on both sides melt into the length, axes
// that continue one another melt together, what is left becomes loops.
#include "transfer/layout_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace baton::transfer {
namespace {

enum class Part : std::uint8_t { Keys, Values, KeyScales, ValueScales };
constexpr std::array kParts{Part::Keys, Part::Values, Part::KeyScales, Part::ValueScales};

// Where element (head, dim, token) of a part lies in a block, in bytes. Scales have one dim.
struct Box {
  std::uint64_t element = 0;
  std::uint64_t base = 0;
  std::uint64_t head = 0;
  std::uint64_t dim = 0;
  std::uint64_t token = 0;
};

Box box_of(const KvLayout& layout, Part part) {
  const std::uint64_t heads = layout.kv_heads;
  const std::uint64_t tokens = layout.block_tokens;
  const bool scales = part == Part::KeyScales || part == Part::ValueScales;
  const bool second = part == Part::Values || part == Part::ValueScales;
  const std::uint64_t dims = scales ? 1 : layout.head_dim;
  Box box;
  box.element = scales ? layout.scale_bytes() : layout.element_bytes();
  switch (layout.order) {
    case KvOrder::KeysByDimValuesByToken:
      box.head = dims * tokens;
      box.dim = part == Part::Keys ? tokens : 1;
      box.token = part == Part::Keys ? 1 : dims;
      break;
    case KvOrder::ByHeadAndToken:
      box.head = dims * tokens;
      box.dim = 1;
      box.token = dims;
      break;
    case KvOrder::ByTokenAndHead:
      box.head = dims;
      box.dim = 1;
      box.token = heads * dims;
      break;
  }
  for (std::uint64_t* step : {&box.head, &box.dim, &box.token}) {
    *step *= box.element;
  }
  box.base = (scales ? layout.scales_at() : 0) + (second ? heads * dims * tokens * box.element : 0);
  return box;
}

struct Axis {
  std::uint32_t count;
  std::uint64_t source;  // bytes from one to the next
  std::uint64_t target;
};

// Melts the axes into length and loops.
void shape(std::vector<Axis>& axes, std::uint64_t element_bytes, BlockCopy& copy) {
  std::erase_if(axes, [](const Axis& axis) { return axis.count == 1; });
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
    return std::pair(a.target, a.source) < std::pair(b.target, b.source);
  });
  copy.length = element_bytes;
  std::vector<Axis> loops;
  for (const Axis& axis : axes) {
    if (loops.empty() && axis.source == copy.length && axis.target == copy.length) {
      copy.length *= axis.count;
    } else if (!loops.empty() && axis.source == loops.back().source * loops.back().count &&
               axis.target == loops.back().target * loops.back().count) {
      loops.back().count *= axis.count;
    } else {
      loops.push_back(axis);
    }
  }
  for (std::size_t i = 0; i < loops.size(); ++i) {
    copy.loops[i] = {loops[i].count, loops[i].source, loops[i].target};
  }
}

// Joins a plain copy to the one before it where both sides go on.
void append(const BlockCopy& copy,
            std::uint64_t source_block_bytes,
            std::uint64_t target_block_bytes,
            std::vector<BlockCopy>& out) {
  if (!out.empty() && out.back().is_plain() && copy.is_plain()) {
    BlockCopy& last = out.back();
    const auto place = [](BlockId block, std::uint64_t offset, std::uint64_t block_bytes) {
      return block.value * block_bytes + offset;
    };
    if (place(last.source, last.source_offset, source_block_bytes) + last.length ==
            place(copy.source, copy.source_offset, source_block_bytes) &&
        place(last.target, last.target_offset, target_block_bytes) + last.length ==
            place(copy.target, copy.target_offset, target_block_bytes)) {
      last.length += copy.length;
      return;
    }
  }
  out.push_back(copy);
}

template <std::size_t kBytes>
void copy_rows(const CopyLoop& rows, const std::byte* source, std::byte* target) {
  for (std::uint32_t i = 0; i < rows.count; ++i) {
    std::memcpy(target, source, kBytes);
    source += rows.source_step;
    target += rows.target_step;
  }
}

void copy_rows(std::uint64_t length,
               const CopyLoop& rows,
               const std::byte* source,
               std::byte* target) {
  // The lengths that occur by the thousand: elements, and 16, 32 or 64 of them.
  switch (length) {
    case 1:
      return copy_rows<1>(rows, source, target);
    case 2:
      return copy_rows<2>(rows, source, target);
    case 4:
      return copy_rows<4>(rows, source, target);
    case 16:
      return copy_rows<16>(rows, source, target);
    case 32:
      return copy_rows<32>(rows, source, target);
    case 64:
      return copy_rows<64>(rows, source, target);
    case 128:
      return copy_rows<128>(rows, source, target);
    default:
      for (std::uint32_t i = 0; i < rows.count; ++i) {
        std::memcpy(target, source, length);
        source += rows.source_step;
        target += rows.target_step;
      }
  }
}

}  // namespace

Range intersect(Range a, Range b) {
  const std::uint32_t first = std::max(a.first, b.first);
  const std::uint32_t end = std::min(a.end(), b.end());
  return first < end ? Range{first, end - first} : Range{first, 0};
}

Range heads_of_rank(std::uint32_t heads, std::uint32_t ranks, std::uint32_t rank) {
  BATON_CHECK(heads > 0 && rank < ranks, "a rank is one of its group");
  const auto at = [&](std::uint64_t r) { return static_cast<std::uint32_t>(r * heads / ranks); };
  if (ranks >= heads) {
    return {at(rank), 1};
  }
  return {at(rank), at(std::uint64_t{rank} + 1) - at(rank)};
}

std::vector<RankCopy> plan_ranks(std::uint32_t heads,
                                 std::uint32_t sources,
                                 std::uint32_t targets) {
  std::vector<RankCopy> out;
  for (std::uint32_t target = 0; target < targets; ++target) {
    const Range wanted = heads_of_rank(heads, targets, target);
    for (std::uint32_t head = wanted.first; head < wanted.end(); ++head) {
      std::vector<std::uint32_t> holders;
      for (std::uint32_t source = 0; source < sources; ++source) {
        if (intersect(heads_of_rank(heads, sources, source), {head, 1}).count > 0) {
          holders.push_back(source);
        }
      }
      const std::uint32_t source = holders[target % holders.size()];
      if (!out.empty() && out.back().source == source && out.back().target == target &&
          out.back().heads.end() == head) {
        ++out.back().heads.count;
      } else {
        out.push_back({source, target, {head, 1}});
      }
    }
  }
  return out;
}

Status check_plan(const LayoutSide& source, const LayoutSide& target, Range heads, Range tokens) {
  const KvLayout& from = source.layout;
  const KvLayout& to = target.layout;
  BATON_TRY(validate(from));
  BATON_TRY(validate(to));
  if (from.layers != to.layers || from.head_dim != to.head_dim || from.dtype != to.dtype) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} cannot become {}", from.to_string(), to.to_string()));
  }
  if (source.heads.count != from.kv_heads || target.heads.count != to.kv_heads ||
      intersect(source.heads, heads) != heads || intersect(target.heads, heads) != heads) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("heads {}..{} are not on both sides", heads.first, heads.end()));
  }
  if (intersect(source.tokens(), tokens) != tokens ||
      intersect(target.tokens(), tokens) != tokens) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("tokens {}..{} are not on both sides", tokens.first, tokens.end()));
  }
  return {};
}

void plan_layout(const LayoutSide& source,
                 const LayoutSide& target,
                 Range heads,
                 Range tokens,
                 std::vector<BlockCopy>& out) {
  const KvLayout& from = source.layout;
  const KvLayout& to = target.layout;
  std::vector<Axis> axes;
  std::uint32_t token = tokens.first;
  while (token < tokens.end() && heads.count > 0) {
    const std::uint32_t in_source = token - source.first_token;
    const std::uint32_t in_target = token - target.first_token;
    const std::uint32_t from_token = in_source % from.block_tokens;
    const std::uint32_t to_token = in_target % to.block_tokens;
    const std::uint32_t count = std::min(
        {tokens.end() - token, from.block_tokens - from_token, to.block_tokens - to_token});
    for (const Part part : kParts) {
      const Box a = box_of(from, part);
      const Box b = box_of(to, part);
      if (a.element == 0) {
        continue;  // a type without scales
      }
      BlockCopy copy;
      copy.source = source.blocks[in_source / from.block_tokens];
      copy.source_offset =
          a.base + (heads.first - source.heads.first) * a.head + from_token * a.token;
      copy.target = target.blocks[in_target / to.block_tokens];
      copy.target_offset =
          b.base + (heads.first - target.heads.first) * b.head + to_token * b.token;
      const bool scales = part == Part::KeyScales || part == Part::ValueScales;
      axes = {{heads.count, a.head, b.head},
              {scales ? 1 : from.head_dim, a.dim, b.dim},
              {count, a.token, b.token}};
      shape(axes, a.element, copy);
      append(copy, from.block_bytes(), to.block_bytes(), out);
    }
    token += count;
  }
}

void run(const BlockCopy& copy, const std::byte* source, std::byte* target) {
  source += copy.source_offset;
  target += copy.target_offset;
  for (std::uint32_t i = 0; i < copy.loops[2].count; ++i) {
    for (std::uint32_t j = 0; j < copy.loops[1].count; ++j) {
      copy_rows(copy.length,
                copy.loops[0],
                source + j * copy.loops[1].source_step,
                target + j * copy.loops[1].target_step);
    }
    source += copy.loops[2].source_step;
    target += copy.loops[2].target_step;
  }
}

}  // namespace baton::transfer

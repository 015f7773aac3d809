## Slabs of a warpgroup kernel that the lanes of a warpgroup copy by NVIDIA's cp.async. The end of the copies
## is signalled to a barrier in local memory (PTX ISA, "cp.async", "cp.async.mbarrier.arrive").
##
## Context: stored (C type of an element of A and B in memory), and as wgmma/wgmma.cl.mako has it.
<%namespace name="slabs" file="/wgmma/slab.mako"/>
<%!
    def offset_of(slab, row, element):
        """The offset in global memory of an element of a row of the slab."""
        entry = [row, element] if slab.along_k == (slab.name == "a") else [element, row]
        return f"{slab.name.upper()}_AT({', '.join(entry)})"

    def unrolling(count):
        return "#pragma unroll" + (" 8" if count > 16 else "")
%>

<%def name="functions()" filter="trim">
% for name, size, cached in sorted({(copies.copy, copies.vectors.bytes, copies.cached) for copies in operands}):
// Copies ${size} bytes to local memory, ${"through" if cached else "past"} the first-level cache. Only the first `inside` of them
// are read; the others become zeros.
static inline void ${name}(const uint to, const __global void *from, const int inside)
{
    asm volatile("cp.async.${"ca" if cached else "cg"}.shared.global [%0], [%1], ${size}, %2;"
        : : "r"(to), "l"(from), "r"(inside) : "memory");
}

% endfor
// Arrives at the barrier once all copies of this work-item are complete.
static inline void arrive_when_copied(const uint barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}
</%def>

## A lane's first vector of every slab: its row, its first element, and its offset in local memory.
<%def name="first_vectors()" filter="trim">
            % for copies in operands:
            % if copies.turned:
            // A sub-group copies 4 depths of 8 rows at a time: whole sectors of global memory, to
            // all banks of local memory.
            const int ${copies.name}_row = item / 32 * 8 + item % 8;
            const int ${copies.name}_element = item / 8 % 4;
            const uint ${copies.name}_offset_in_slab = ${copies.name}_row * 128 + ${copies.name}_element * 4;
            % else:
            // A row has ${copies.vectors.across} parts; its 16-byte vectors are permuted every 128 bytes.
            const int ${copies.name}_row = item / ${copies.vectors.across};
            const int ${copies.name}_element = item % ${copies.vectors.across} * ${copies.vectors.width};
            const uint ${copies.name}_offset_in_slab = ${copies.vectors.offset(f"{copies.name}_row", "item")};
            % endif
            % endfor
</%def>

## Copies slabs `first` to `last` of a tile as stages become empty. Elements outside the matrix are zero.
<%def name="copy_slabs()" filter="trim">
                #pragma unroll 1
                for (extent slab = first; slab < last; ++slab) {
                    ${slabs.slab_origin()}
                    const uint slabs_at = slab_memory + stage * (A_BYTES + B_BYTES);
                    const uint a_slab = slabs_at + a_offset_in_slab;
                    const uint b_slab = slabs_at + A_BYTES + b_offset_in_slab;
                    await(empty + 8 * stage, parity);
                    % for copies in operands:
                    % if copies.turned:
                    ${copy_turned(copies)}
                    % elif copies.along_k:
                    ${copy_along_k(copies)}
                    % else:
                    ${copy_along_tile(copies)}
                    % endif
                    % endfor
                    arrive_when_copied(full + 8 * stage);
                    ${slabs.next_stage()}
                }
</%def>

## k is contiguous: rows of the slab are positions along the tile.
<%def name="copy_along_k(copies)" filter="trim">
<%
    name, first = copies.name, f"depth + {copies.name}_element"
    from_row = offset_of(copies, f"{name}_from + {name}_row", first)
%>\
                    const __global ${stored} *${name}_vector = ${name} + ${from_row};
                    const extent ${name}_rows = ${copies.index} - ${name}_tile - ${name}_row;
                    ${inside(copies, "k", first)}
                    ${unrolling(copies.count)}
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i * ${copies.vectors.rows};
                        ${copy_one(copies, offset_of(copies, "row", "0"))}
                    }
</%def>

## k is not contiguous: boxes lie side by side along the tile, and have a row for each depth.
<%def name="copy_along_tile(copies)" filter="trim">
<%
    name, first = copies.name, f"{copies.name}_from + {copies.name}_element"
    from_row = offset_of(copies, f"depth + {name}_row", first)
%>\
                    const __global ${stored} *${name}_vector = ${name} + ${from_row};
                    const extent ${name}_rows = k - depth - ${name}_row;
                    ${unrolling(copies.count)}
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i % ${copies.vectors.per_box} * ${copies.vectors.rows};
                        const int box = i / ${copies.vectors.per_box} * ${copies.map.elements};
                        ${inside(copies, copies.index, f"{first} + box")}
                        ${copy_one(copies, offset_of(copies, "row", "box"))}
                    }
</%def>

## k is contiguous in local memory, but not in the matrix: each element is copied by itself.
<%def name="copy_turned(copies)" filter="trim">
<%
    name = copies.name
    from_row = offset_of(copies, f"{name}_from + {name}_row", f"depth + {name}_element")
%>\
                    const __global ${stored} *${name}_vector = ${name} + ${from_row};
                    const extent ${name}_rows = ${copies.index} - ${name}_tile - ${name}_row;
                    const extent ${name}_depths = k - depth - ${name}_element;
                    #pragma unroll 8
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i / 8 * 32;
                        const int vector = i % 8;
                        const uint to = ${name}_slab + row * 128 + (vector ^ (item & 7)) * 16;
                        const bool is_inside = row < ${name}_rows && 4 * vector < ${name}_depths;
                        copy_4_bytes(to, ${name}_vector + ${offset_of(copies, "row", "4 * vector")}, is_inside ? 4 : 0);
                    }
</%def>

## Copies vector i of a lane; `offset` is its distance from the lane's first vector.
<%def name="copy_one(copies, offset)" filter="trim">
<%
    name, size = copies.name, copies.vectors.bytes
    slab = f"{name}_slab"
    if copies.vectors.alternates:
        slab = f"({slab} ^ i % 2 * 64)"
    to = f"{slab} + i * {copies.vectors.step}"
    inside = f"? {name}_inside" if copies.edges == "elements" else f"&& {name}_inside ? {size}"
%>\
                        ${copies.copy}(${to}, ${name}_vector + ${offset}, row < ${name}_rows ${inside} : 0);
</%def>

## The part of a vector, which starts at element `first`, before the end of its row. A size of either zero or
## all bytes is cheap: ptxas makes a predicate of it. Other sizes take four more instructions.
<%def name="inside(copies, end, first)" filter="trim">
                    % if copies.edges == "vectors":
                    const bool ${copies.name}_inside = ${first} < ${end};
                    % else:
                    const extent ${copies.name}_left = ${end} - (${first});
                    const extent ${copies.name}_elements = clamp(
                        ${copies.name}_left, (extent)0, (extent)${copies.vectors.width});
                    const int ${copies.name}_inside = ${copies.name}_elements * ${copies.map.element_bytes};
                    % endif
</%def>

## Slabs of a warpgroup kernel that the lanes of a warpgroup copy by NVIDIA's cp.async. The end of the copies
## is signalled to a barrier in local memory (PTX ISA, "cp.async", "cp.async.mbarrier.arrive").
##
## Context: stored (C type of an element of A and B in memory), and as wgmma/wgmma.cl.mako has it.
<%namespace name="slabs" file="/wgmma/slab.mako"/>
<%!
    def offset_of(slab, row, element):
        """The offset in global memory of an element of a row of contiguous elements."""
        entry = [row, element] if slab.along_k == (slab.name == "a") else [element, row]
        return f"{slab.name.upper()}_AT({', '.join(entry)})"
%>

<%def name="functions()" filter="trim">
// Copies 16 bytes to local memory. Only the first `inside` of them are read; the others become zeros.
static inline void copy_vector(const uint to, const __global void *from, const int inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
        : : "r"(to), "l"(from), "r"(inside) : "memory");
}

// Arrives at the barrier once all copies of this work-item are complete.
static inline void arrive_when_copied(const uint barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}
</%def>

## A lane's first vector of every slab: its row, its first element, and its offset in local memory.
<%def name="first_vectors()" filter="trim">
            % for copies in operands:
            // A row has ${copies.vectors.across} vectors, which are permuted every 128 bytes.
            const int ${copies.name}_row = item / ${copies.vectors.across};
            const int ${copies.name}_element = item % ${copies.vectors.across} * ${copies.vectors.width};
            const uint ${copies.name}_offset_in_slab = ${copies.vectors.offset(f"{copies.name}_row", "item")};
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
                    % if copies.along_k:
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
                    #pragma unroll
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
                    #pragma unroll
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i % ${copies.vectors.per_box} * ${copies.vectors.rows};
                        const int box = i / ${copies.vectors.per_box} * ${copies.map.elements};
                        ${inside(copies, copies.index, f"{first} + box")}
                        ${copy_one(copies, offset_of(copies, "row", "box"))}
                    }
</%def>

## Copies vector i of a lane; `offset` is its distance from the lane's first vector.
<%def name="copy_one(copies, offset)" filter="trim">
<%
    name, to = copies.name, f"{copies.name}_slab + i * {copies.vectors.step}"
    inside = f"? {name}_inside" if copies.edges == "elements" else f"&& {name}_inside ? 16"
%>\
                        copy_vector(${to}, ${name}_vector + ${offset}, row < ${name}_rows ${inside} : 0);
</%def>

## The part of a vector, which starts at element `first`, before the end of its row. A size of either zero or
## 16 is cheap: ptxas makes a predicate of it. Other sizes take four more instructions.
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

## Slabs of a warpgroup kernel that the lanes of a warpgroup copy themselves, by NVIDIA's cp.async. Its end
## is told to a barrier in local memory (PTX ISA, "cp.async", "cp.async.mbarrier.arrive").
##
## Context: stored (C type of an element of A and B in memory), and as wgmma/wgmma.cl.mako has it.
<%namespace name="slabs" file="/wgmma/slab.mako"/>

<%def name="functions()" filter="trim">
// Copies 16 bytes to local memory; those from `inside` on are zeros, and are not read.
static inline void copy_vector(const uint to, const __global void *from, const int inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
        : : "r"(to), "l"(from), "r"(inside) : "memory");
}

// Arrives once all copies of this work-item are in place.
static inline void arrive_when_copied(const uint barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}
</%def>

## A lane's first vector of every slab: its row, its first element, and its offset in local memory.
<%def name="first_vectors()" filter="trim">
            % for copies in operands:
            // ${copies.vectors.across} vectors make up a row, and change places every 128 bytes.
            const int ${copies.name}_row = item / ${copies.vectors.across};
            const int ${copies.name}_element = item % ${copies.vectors.across} * ${copies.vectors.width};
            const uint ${copies.name}_offset_in_slab = ${copies.vectors.offset(f"{copies.name}_row", "item")};
            % endfor
</%def>

## Slabs `first` to `last` of a tile, as stages become empty. What lies outside the matrix is zero.
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

## Rows along the tile.
<%def name="copy_along_k(copies)" filter="trim">
                    const __global ${stored} *${copies.name}_vector = ${copies.first_vector};
                    const extent ${copies.name}_rows = ${copies.index} - ${copies.name}_tile - ${copies.name}_row;
                    ${inside(copies, "k", copies.first_element)}
                    #pragma unroll
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i * ${copies.vectors.rows};
                        copy_vector(${copies.vector_in_slab}, ${copies.vector_in_row}, ${copies.bytes_inside});
                    }
</%def>

## Boxes side by side, with a row for each depth.
<%def name="copy_along_tile(copies)" filter="trim">
                    const __global ${stored} *${copies.name}_vector = ${copies.first_vector};
                    const extent ${copies.name}_rows = k - depth - ${copies.name}_row;
                    #pragma unroll
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i % ${copies.vectors.per_box} * ${copies.vectors.rows};
                        const int box = i / ${copies.vectors.per_box} * ${copies.map.elements};
                        ${inside(copies, copies.index, copies.element_of_box)}
                        copy_vector(${copies.vector_in_slab}, ${copies.vector_in_box}, ${copies.bytes_inside});
                    }
</%def>

## What of a vector from element `first` on lies before the end of its row. Sizes that are 0 or all are
## cheap: ptxas makes a predicate of them, and four instructions more of others.
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

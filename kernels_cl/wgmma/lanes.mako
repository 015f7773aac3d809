## Slabs of a warpgroup kernel that the lanes of a warpgroup copy themselves: NVIDIA's cp.async, of whose
## end a barrier in local memory is told (PTX ISA, "cp.async", "cp.async.mbarrier.arrive").
##
## Context: lanes (LaneCopies of a and b), and as wgmma/wgmma.cl.mako has it.
<%namespace name="slabs" file="/wgmma/slab.mako"/>

<%def name="functions()" filter="trim">
// Copies 16 bytes to local memory; those from `inside` on are zeros, and are not read.
static inline void copy_piece(const uint to, const __global void *from, const int inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(inside) : "memory");
}

// Arrives once all copies of this work-item are in place.
static inline void arrive_when_copied(const uint barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}
</%def>

## A lane's first piece of every slab: its place in local memory, its row, and its first element.
<%def name="own_pieces()" filter="trim">
            % for copies, name in zip(lanes, "ab"):
            // ${copies.pieces.across} pieces make up a row, and change places every 128 bytes.
            const int ${name}_row = item / ${copies.pieces.across};
            const int ${name}_within = item % ${copies.pieces.across} * ${copies.pieces.width};
            const uint ${name}_place = ${copies.pieces.place("item")};
            % endfor
</%def>

## Slabs `first` to `last` of a tile, as stages become empty. What lies outside the matrix is zero.
<%def name="copy_slabs()" filter="trim">
                #pragma unroll 1
                for (extent slab = first; slab < last; ++slab) {
                    ${slabs.place_slab()}
                    const uint a_slab = slab_memory + stage * (A_BYTES + B_BYTES) + a_place;
                    const uint b_slab = slab_memory + stage * (A_BYTES + B_BYTES) + A_BYTES + b_place;
                    await(empty + 8 * stage, parity);
                    % for copies in lanes:
                    ${(copy_along_k if copies.operand.along_k else copy_along_tile)(copies, copies.operand)}
                    % endfor
                    arrive_when_copied(full + 8 * stage);
                    ${slabs.next_stage()}
                }
</%def>

## Rows along the tile.
<%def name="copy_along_k(copies, slab)" filter="trim">
                    const __global ${copies.stored} *${slab.name}_piece = ${slab.name} + ${copies.at(f"{slab.name}_from + {slab.name}_row", f"depth + {slab.name}_within")};
                    const extent ${slab.name}_rows = ${copies.index} - ${slab.name}_tile - ${slab.name}_row;
                    ${inside(copies, slab, "k", f"depth + {slab.name}_within")}
                    #pragma unroll
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i * ${copies.pieces.rows};
                        copy_piece(${slab.name}_slab + i * ${copies.pieces.step}, ${slab.name}_piece + ${copies.at("row", "0")}, ${bytes_inside(copies, slab)});
                    }
</%def>

## Boxes side by side, with a row for each depth.
<%def name="copy_along_tile(copies, slab)" filter="trim">
                    const __global ${copies.stored} *${slab.name}_piece = ${slab.name} + ${copies.at(f"{slab.name}_from + {slab.name}_within", f"depth + {slab.name}_row")};
                    const extent ${slab.name}_rows = k - depth - ${slab.name}_row;
                    #pragma unroll
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i % ${copies.pieces.per_box} * ${copies.pieces.rows};
                        const int box = i / ${copies.pieces.per_box} * ${slab.map.elements};
                        ${inside(copies, slab, copies.index, f"{slab.name}_from + {slab.name}_within + box")}
                        copy_piece(${slab.name}_slab + i * ${copies.pieces.step}, ${slab.name}_piece + ${copies.at("box", "row")}, ${bytes_inside(copies, slab)});
                    }
</%def>

## What of a piece from element `from` on lies before the end of its row. Sizes that are 0 or all are
## cheap: ptxas makes a predicate of them, and four instructions more of others.
<%def name="inside(copies, slab, end, from_)" filter="trim">
                    % if copies.edges == "vectors":
                    const bool ${slab.name}_inside = ${from_} < ${end};
                    % else:
                    const int ${slab.name}_inside = clamp(${end} - (${from_}), (extent)0, (extent)${copies.pieces.width}) * ${slab.map.element_bytes};
                    % endif
</%def>

<%def name="bytes_inside(copies, slab)" filter="trim">
row < ${slab.name}_rows ${f'&& {slab.name}_inside ? 16' if copies.edges == 'vectors' else f'? {slab.name}_inside'} : 0
</%def>

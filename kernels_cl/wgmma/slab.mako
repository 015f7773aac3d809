## The slabs of a warpgroup kernel: one warpgroup copies them into a ring of stages, the others multiply them
## there. Boxes of C for a tile's results may follow the tile's last slab.
##
## Context: as wgmma/wgmma.cl.mako has it.

<%def name="functions()" filter="trim">
// The tf32 nearest to x.
static inline uint nearest_tf32(const float x)
{
    uint bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
</%def>

## The stage after this one, and the parity of its next phase.
<%def name="next_stage()" filter="trim">
                if (++stage == STAGES) {
                    stage = 0;
                    parity ^= 1;
                }
</%def>

## For each operand of a tile, how much lies inside the matrix: the rows of its box if the rows of the box run
## along k, else the number of its boxes.
<%def name="boxes_of_tile()" filter="trim">
                % for slab in operands:
<%
    name, left = slab.name, f"{slab.index} - {slab.name}_tile"
    rows, columns = slab.map.rows, slab.map.elements
%>\
                % if slab.along_k:
                const int ${name}_rows = min(${left}, (extent)${rows});
                % if not moved:
                const __global ulong *${name}_tile_map = ${name}_rows < ${rows} ? ${name}_edge_map : ${name}_map;
                % endif
                % elif slab.boxes > 1:
                const int ${name}_boxes = min((${left} + ${columns - 1}) / ${columns}, (extent)${slab.boxes});
                % endif
                % endfor
                const uint slab_bytes = ${" + ".join(slab.inside_bytes for slab in operands)};
</%def>

## Copies slabs `first` to `last` of a tile as stages become empty.
<%def name="copy_slabs()" filter="trim">
                #pragma unroll 1
                for (extent slab = first; slab < last; ++slab) {
                    ${slab_origin()}
                    const uint filled = full + 8 * stage;
                    const uint a_slab = slab_memory + stage * (A_BYTES + B_BYTES);
                    const uint b_slab = a_slab + A_BYTES;
                    await(empty + 8 * stage, parity);
                    arrive_and_expect(filled, slab_bytes);
                    % for slab in operands:
                    % if slab.along_k:
                    load_box(${slab.name}_slab, ${slab.name}_${"map" if moved else "tile_map"}, depth, ${slab.name}_from, filled);
                    % elif slab.boxes == 1:
                    load_box(${slab.name}_slab, ${slab.name}_map, ${slab.name}_from, depth, filled);
                    % else:
                    for (int box = 0; box < ${slab.name}_boxes; ++box) {
                        load_box(
                            ${slab.name}_slab + box * ${slab.map.bytes}, ${slab.name}_map,
                            ${slab.name}_from + box * ${slab.map.elements}, depth, filled);
                    }
                    % endif
                    % endfor
                    ${next_stage()}
                }
</%def>

## The origin of the slab in the matrices.
<%def name="slab_origin()" filter="trim">
                    % if terms > 1:
                    // Products of the smaller terms come first: they would be lost in a large sum.
                    const extent pair = slab / slabs_k;
                    const int depth = (slab - pair * slabs_k) * KWG;
                    const extent a_from = a_tile + (${a_terms}ul >> 4 * pair & 15) * m;
                    const extent b_from = b_tile + (${b_terms}ul >> 4 * pair & 15) * n;
                    % else:
                    const int depth = slab * KWG;
                    const extent a_from = a_tile;
                    const extent b_from = b_tile;
                    % endif
</%def>

## Copies boxes of c in the order in which the warpgroups compute their results.
<%def name="copy_addends()" filter="trim">
<%
    boxes = results.c_chunks * staging.boxes
    across = staging.boxes * staging.chunks  # of a fragment
    fragments = tiles.MWG // (64 * tiles.CONSUMERS)
    fragment = f" + box / {across} * 64" if fragments > 1 else ""
    number = f"box % {across}" if fragments > 1 else "box"
    boxes_of_all = tiles.CONSUMERS * boxes
    columns, rows = staging.map.elements, staging.map.rows
%>
                #pragma unroll 1
                for (int first_box = 0; first_box < ${fragments * across}; first_box += ${boxes}) {
                    const uint filled = full + 8 * stage;
                    const uint c_boxes = slab_memory + stage * (A_BYTES + B_BYTES);
                    await(empty + 8 * stage, parity);
                    arrive_and_expect(filled, ${boxes_of_all * staging.map.bytes});
                    #pragma unroll
                    for (int i = 0; i < ${boxes_of_all}; ++i) {
                        const int box = first_box + i % ${boxes};
                        const extent first_row = a_tile + i / ${boxes} * CONSUMER_M${fragment};
                        % if staging.turned:
                        load_box(
                            c_boxes + i * ${staging.map.bytes}, c_map,
                            first_row + ${number} % 2 * ${columns}, b_tile + ${number} / 2 * ${rows}, filled);
                        % else:
                        load_box(
                            c_boxes + i * ${staging.map.bytes}, c_map,
                            b_tile + ${number} * ${columns}, first_row, filled);
                        % endif
                    }
                    ${next_stage()}
                }
</%def>

## Adds the products of slabs `begin` to `end` of the tile to the sums.
<%def name="multiply_slabs(begin, end)" filter="trim">
            % if a_in_registers:
            ${multiply_through_registers(begin, end)}
            % else:
            ${multiply_as_copied(begin, end)}
            % endif
</%def>

<%def name="multiply_as_copied(begin, end)" filter="trim">
            int used = -1;  // the stage whose slabs were multiplied last
            #pragma unroll 1
            for (extent slab = ${begin}; slab < ${end}; ++slab) {
                const uint a_slab = slab_memory + stage * (A_BYTES + B_BYTES) + consumer * (CONSUMER_M * 128);
                const ulong a_at = ${descriptor(operands[0])} | (a_slab & 0x3ffff) >> 4;
                ${await_slab()}
                ${multiply("a_at + f * %d + step * %d" % (64 * 128 >> 4, operands[0].step))}
                // The newest group of instructions keeps running; the group before it has finished.
                if (used >= 0) {
                    asm volatile("${mark}wgmma.wait_group.sync.aligned 1;" : : : "memory");
                    if (thread == 0) {
                        arrive(empty + 8 * used);
                    }
                }
                used = stage;
                ${next_stage()}
            }
            ${await_all()}
            if (thread == 0 && used >= 0) {
                arrive(empty + 8 * used);
            }
</%def>

## Loads one half of a slab's fragments of A while the unit multiplies the half before.
<%def name="multiply_through_registers(begin, end)" filter="trim">
            uint a_fragments[2][FRAGMENTS][2][4];
            int used = -1;
            #pragma unroll 1
            for (extent slab = ${begin}; slab < ${end}; ++slab) {
                const __local uchar *a_slab = memory + stage * (A_BYTES + B_BYTES) + consumer * (CONSUMER_M * 128);
                ${await_slab()}
                #pragma unroll
                for (int half_slab = 0; half_slab < 2; ++half_slab) {
                    ${load_a()}
                    ${multiply("a_fragments[half_slab][f][step]", 2, "(2 * half_slab + step)")}
                    asm volatile("${mark}wgmma.wait_group.sync.aligned 1;" : : : "memory");
                    if (half_slab == 0 && thread == 0 && used >= 0) {
                        arrive(empty + 8 * used);
                    }
                }
                used = stage;
                ${next_stage()}
            }
            ${await_all()}
            if (thread == 0 && used >= 0) {
                arrive(empty + 8 * used);
            }
</%def>

<%def name="await_slab()" filter="trim">
                await(full + 8 * stage, parity);
                % if not tiles.TMA:
                // Lanes write through the generic proxy, units read through the async proxy (PTX ISA, "Async proxy").
                asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
                % endif
</%def>

## Multiplies the stage's slabs in steps of 32 bytes, as one group of instructions.
<%def name="multiply(a, steps=4, b_step='step')" filter="trim">
                const uint b_slab = slab_memory + stage * (A_BYTES + B_BYTES) + A_BYTES;
                const ulong b_at = ${descriptor(operands[1])} | (b_slab & 0x3ffff) >> 4;
                asm volatile("${mark}wgmma.fence.sync.aligned;" : : : "memory");
                #pragma unroll
                for (int step = 0; step < ${steps}; ++step) {
                    #pragma unroll
                    for (int f = 0; f < FRAGMENTS; ++f) {
                        multiply_accumulate(accumulators[f], ${a}, b_at + ${b_step} * ${operands[1].step});
                    }
                }
                asm volatile("${mark}wgmma.commit_group.sync.aligned;" : : : "memory");
</%def>

## Loads half a slab's fragments of A from boxes of 32 rows by 32 depths, in which rows are contiguous.
<%def name="load_a()" filter="trim">
                #pragma unroll
                for (int f = 0; f < FRAGMENTS; ++f) {
                    #pragma unroll
                    for (int step = 0; step < 2; ++step) {
                        #pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const int row = 64 * f + thread / 32 * 16 + i % 2 * 8 + lane / 4;
                            const int depth = 8 * (2 * half_slab + step) + i / 2 * 4 + lane % 4;
                            const int vector = (row % 32 / 4) ^ (depth & 7);
                            const int at = row / 32 * 4096 + depth * 128 + vector * 16 + row % 4 * 4;
                            a_fragments[half_slab][f][step][i] = nearest_tf32(*(const __local float *)(a_slab + at));
                        }
                    }
                }
</%def>

## A slab's descriptor, to which its address / 16 is added.
<%def name="descriptor(slab)" filter="trim">${f"{slab.descriptor:#x}"}ul</%def>

<%def name="await_all()" filter="trim">
                #pragma unroll
                for (int f = 0; f < FRAGMENTS; ++f) {
                    await_sums(accumulators[f]);
                }
</%def>

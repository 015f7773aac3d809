## NVIDIA's warpgroup units (sm_90): persistent work-groups, each with one warpgroup that copies slabs
## (TMA) and others that multiply them (wgmma). A slab is 128 bytes deep, one span of the swizzle.
## Instructions behind ${mark} are comments to the compiler (pyclgemm/ptx_step.py).
##
## Context: tiles (a WgmmaConfig), operands (a WgmmaOperand of a and b), results (a WgmmaResults), staging
## (its own, or None), terms (products of parts that make up a product), whole (layouts of the elements
## before they were split), and what all gemm templates see.
##
## In a batch the tiles of all products are numbered through, and a map is told where the matrices of
## another product begin. Copies read a map while they run, so there is one map more than stages for each
## operand: the oldest was last read for a slab that has been multiplied.
<%namespace name="prelude" file="prelude.mako"/>
<%namespace name="share" file="share.mako"/>
<%namespace name="tensor_copy" file="tensor_copy.mako"/>
<%namespace name="store" file="wgmma_store.mako"/>
<%namespace name="tile" file="tile.mako"/>
<%namespace name="warpgroup_unit" file="warpgroup_unit.mako"/>
<%
    maps_of = [(slab.map, slab.name, slab.inner, slab.outer, slab.pitch) for slab in operands]
    if staging:
        across, down, pitch = ("m", "n", "out_column_stride") if staging.turned else ("n", "m", "out_row_stride")
        maps_of.append((staging.map, "out", across, down, pitch))
    c_boxed = results.c_in == "boxes"
    if c_boxed:
        across, down, pitch = ("m", "n", "c_column_stride") if staging.turned else ("n", "m", "c_row_stride")
        maps_of.append((staging.map, "c", across, down, pitch))
    own_tile = "own_tile" if moved else "tile"
%>
${prelude.types()}

#define MWG ${tiles.MWG}  // rows of a work-group's tile
#define NWG ${tiles.NWG}  // columns of it
#define KWG ${slab_depth}  // depth of a slab: 128 bytes
#define STAGES ${tiles.STAGES}  // slabs of each operand in local memory
#define CONSUMER_M ${tiles.MWG // tiles.CONSUMERS}  // rows of a warpgroup's part of the tile
#define FRAGMENTS (CONSUMER_M / 64)
#define A_BYTES (MWG * 128)  // of a slab
#define B_BYTES (NWG * 128)

% if not staging:
${prelude.address("out", problem.out)}
% endif
% if problem.c and not c_boxed:
${prelude.address("c", problem.c)}
% endif
% if terms > 1:
${prelude.address("whole_a", whole[0])}
${prelude.address("whole_b", whole[1])}
% endif

${tensor_copy.functions(staging is not None)}
% if tiles.FILL:

${share.defines()}

${share.functions()}
% endif

${warpgroup_unit.functions(accumulators, a_in_registers)}
% if a_in_registers:

// The tf32 nearest to x.
static inline uint nearest_tf32(const float x)
{
    uint bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
% endif

${store.functions()}

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({work_items}, 1, 1)))", arguments)}
{
    __local uchar memory[STAGES * (A_BYTES + B_BYTES)${f" + {staging.bytes}" if staging else ""}] __attribute__((aligned(1024)));
    % if tiles.FILL:
    ${share.locals()}
    % endif
    __local ulong barriers[2 * STAGES] __attribute__((aligned(8)));
    ${prelude.offsets("a", "b", "out", *(("whole_a", "whole_b") if terms > 1 else ()))}

    const int item = get_local_id(0);
    const uint slab_memory = address_of(memory);
    const uint full = address_of(barriers);  // of stage 0; phases end when its slabs have come
    const uint empty = full + 8 * STAGES;  // when all have multiplied them
% if moved:
    // Maps of A and of B by turns, behind them a map of the result for each warpgroup.
    __global ulong *own_maps = maps + get_group_id(0) * ${map_words * map_count};
    ${tensor_copy.write_maps("own_maps", maps_of, map_words, capture(each_map))}
% else:
    __global ulong *a_map = maps + get_group_id(0) * ${map_words * map_count};
    __global ulong *b_map = a_map + ${map_words};
% if staging:
    __global ulong *out_map = a_map + ${2 * map_words};
% endif
% if c_boxed:
    __global ulong *c_map = a_map + ${3 * map_words};
% endif
    ${tensor_copy.write_maps("a_map", maps_of, map_words)}
% endif
    if (item == ${warpgroup}) {
        for (int stage = 0; stage < STAGES; ++stage) {
            make_barrier(full + 8 * stage, 1);
            make_barrier(empty + 8 * stage, ${tiles.CONSUMERS});
        }
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);

    const extent tiles_m = (m + MWG - 1) / MWG;
    const extent tiles_n = (n + NWG - 1) / NWG;
    % if terms > 1:
    const extent slabs_k = (k + KWG - 1) / KWG;
    % endif
    int stage = 0;
    if (item < ${warpgroup}) {
        % if registers:
        asm volatile("${mark}setmaxnreg.dec.sync.aligned.u32 ${registers[0]};" : : : "memory");
        % endif
        if (item == 0) {
            ${produce()}
        }
    } else {
        % if registers:
        asm volatile("${mark}setmaxnreg.inc.sync.aligned.u32 ${registers[1]};" : : : "memory");
        % endif
        ${consume()}
    }
}

<%def name="each_map()" filter="trim">
    for (int number = item / 32; number < 2 * (STAGES + 1)${f" + {tiles.CONSUMERS}" if staging else ""}; number += ${work_items // 32}) {
        const int which = ${"number >= 2 * (STAGES + 1) ? 2 : " if staging else ""}number % 2;
</%def>

## The loop over tiles, or parts of tiles, of this work-group: slabs `first` to `last` of `tile`.
<%def name="begin_tile()" filter="trim">
<% count = f"{terms} * slabs_k" if terms > 1 else "(k + KWG - 1) / KWG" %>
% if tiles.FILL:
        ${share.begin(count, depths=False)}
% else:
        const extent last = ${count};
        % if moved:
        long product = 0;
        % endif
        for (extent tile = get_group_id(0); tile < tiles_m * tiles_n${" * batch" if moved else ""}; tile += get_num_groups(0)) {
            const extent first = 0;
            % if moved:
            ${share.next_product()}
            % endif
% endif
</%def>

## Every sum of a work-item.
<%def name="each_sum()" filter="trim">
                #pragma unroll
                for (int f = 0; f < FRAGMENTS; ++f) {
                    #pragma unroll
                    for (int i = 0; i < ${accumulators}; ++i) {
                        ${capture(caller.body) | trim}
                    }
                }
</%def>

<%def name="produce()" filter="trim">
            % if moved:
            __global ulong *a_map, *b_map;
            long mapped = -1;  // the product of which they tell
            int slot = 0;
            % else:
            read_map_anew(a_map);
            read_map_anew(b_map);
            % endif
            % if c_boxed:
            read_map_anew(c_map);
            % endif
            uint parity = 1;  // all stages are empty
            ${begin_tile()}
                % if moved:
                if (product != mapped) {
                    mapped = product;
                    slot = slot == STAGES ? 0 : slot + 1;
                    a_map = own_maps + slot * ${2 * map_words};
                    b_map = a_map + ${map_words};
                    a_map[0] = (ulong)a;
                    b_map[0] = (ulong)b;
                    asm volatile("fence.proxy.tensormap::generic.release.gpu;" : : : "memory");
                    read_map_anew(a_map);
                    read_map_anew(b_map);
                }
                % endif
                ${tile.place(own_tile)}
                #pragma unroll 1
                for (extent slab = first; slab < last; ++slab) {
                    % if terms > 1:
                    // Small products come first: they would be lost in a large sum.
                    const extent pair = slab / slabs_k;
                    const int depth = (slab - pair * slabs_k) * KWG;
                    const extent a_from = a_tile + (${f"{a_parts:#x}"}ul >> 4 * pair & 15) * m;
                    const extent b_from = b_tile + (${f"{b_parts:#x}"}ul >> 4 * pair & 15) * n;
                    % else:
                    const int depth = slab * KWG;
                    const extent a_from = a_tile;
                    const extent b_from = b_tile;
                    % endif
                    const uint filled = full + 8 * stage;
                    const uint a_slab = slab_memory + stage * (A_BYTES + B_BYTES);
                    const uint b_slab = a_slab + A_BYTES;
                    await(empty + 8 * stage, parity);
                    arrive_and_expect(filled, A_BYTES + B_BYTES);
                    % for slab in operands:
                    % if slab.along_k:
                    load_box(${slab.name}_slab, ${slab.name}_map, depth, ${slab.name}_from, filled);
                    % else:
                    #pragma unroll
                    for (int box = 0; box < ${slab.boxes}; ++box) {
                        load_box(${slab.name}_slab + box * ${slab.map.bytes}, ${slab.name}_map, ${slab.name}_from + box * ${slab.map.elements}, depth, filled);
                    }
                    % endif
                    % endfor
                    ${next_stage()}
                }
                % if c_boxed:
                ${produce_c()}
                % endif
            }
</%def>

## Boxes of c, in the order in which the warpgroups finish their results.
<%def name="produce_c()" filter="trim">
<%
    boxes = results.c_chunks * staging.boxes
    across = staging.boxes * staging.chunks  # of a fragment
    fragments = tiles.MWG // (64 * tiles.CONSUMERS)
    fragment = f" + box / {across} * 64" if fragments > 1 else ""
    within = f"box % {across}" if fragments > 1 else "box"
    columns, rows = staging.map.elements, staging.map.rows
%>
                #pragma unroll 1
                for (int first_box = 0; first_box < ${fragments * across}; first_box += ${boxes}) {
                    const uint filled = full + 8 * stage;
                    const uint c_boxes = slab_memory + stage * (A_BYTES + B_BYTES);
                    await(empty + 8 * stage, parity);
                    arrive_and_expect(filled, ${tiles.CONSUMERS * boxes * 8192});
                    #pragma unroll
                    for (int i = 0; i < ${tiles.CONSUMERS * boxes}; ++i) {
                        const int box = first_box + i % ${boxes};
                        const extent first_row = a_tile + i / ${boxes} * CONSUMER_M${fragment};
                        % if staging.turned:
                        load_box(c_boxes + i * 8192, c_map, first_row + ${within} % 2 * ${columns}, b_tile + ${within} / 2 * ${rows}, filled);
                        % else:
                        load_box(c_boxes + i * 8192, c_map, b_tile + ${within} * ${columns}, first_row, filled);
                        % endif
                    }
                    ${next_stage()}
                }
</%def>

<%def name="consume()" filter="trim">
        const int consumer = item / ${warpgroup} - 1;
        const int thread = item % ${warpgroup};
        const int lane = item % 32;
        % if tiles.FILL:
        const int sharer = item - ${warpgroup};
        % endif
        uint parity = 0;
        % if staging and moved:
        __global ulong *out_map = own_maps + (2 * (STAGES + 1) + consumer) * ${map_words};
        long mapped = -1;  // the product of which it tells
        % elif staging:
        if (thread == 0) {
            read_map_anew(out_map);
        }
        % endif
        ${begin_tile()}
            ${tile.place(own_tile)}
            % if problem.bias:
            ${store.hold_biases()}
            % endif
            element accumulators[FRAGMENTS][${accumulators}];
            % if tiles.PROMOTE:
            element totals[FRAGMENTS][${accumulators}];
            % endif
            <%call expr="each_sum()">
                accumulators[f][i] = 0;
                % if tiles.PROMOTE:
                totals[f][i] = 0;
                % endif
            </%call>
            % if tiles.PROMOTE:
            for (extent begin = first; begin < last; begin += ${tiles.PROMOTE}) {
                const extent end = min(begin + ${tiles.PROMOTE}, last);
                ${multiply_slabs("begin", "end")}
                <%call expr="each_sum()">
                totals[f][i] += accumulators[f][i];
                accumulators[f][i] = 0;
                </%call>
            }
            % else:
            ${multiply_slabs("first", "last")}
            % endif
            % if tiles.FILL:
            ${share.join_among(f"asm volatile(\"bar.sync {tiles.CONSUMERS + 1}, {warpgroup * tiles.CONSUMERS};\" : : : \"memory\");", "sharer", "sharer == 0", f"(f * {accumulators} + i) * {warpgroup * tiles.CONSUMERS}", f"{held}[f][i]", each_sum)}
            % endif
            % if staging and moved:
            if (thread == 0 && product != mapped) {
                // Results that were copied by the map have been written.
                asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
                mapped = product;
                out_map[0] = (ulong)out;
                asm volatile("fence.proxy.tensormap::generic.release.gpu;" : : : "memory");
                read_map_anew(out_map);
            }
            % endif
            ${store.unrolling()}
            for (int f = 0; f < FRAGMENTS; ++f) {
                const extent first_row = a_tile + consumer * CONSUMER_M + 64 * f;
                ${store.finish()}
            }
        }
        % if staging:
        if (thread == 0) {
            asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
        }
        % endif
</%def>

## Slabs `begin` to `end` of the tile, added to the sums.
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
                await(full + 8 * stage, parity);
                ${multiply("a_at + f * %d + step * %d" % (64 * 128 >> 4, operands[0].step))}
                // One group of instructions stays on its way; the one before it is done.
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

## Half of a slab's fragments of A are loaded while the unit multiplies the half before.
<%def name="multiply_through_registers(begin, end)" filter="trim">
            uint a_fragments[2][FRAGMENTS][2][4];
            int used = -1;
            #pragma unroll 1
            for (extent slab = ${begin}; slab < ${end}; ++slab) {
                const __local uchar *a_slab = memory + stage * (A_BYTES + B_BYTES) + consumer * (CONSUMER_M * 128);
                await(full + 8 * stage, parity);
                #pragma unroll
                for (int half_slab = 0; half_slab < 2; ++half_slab) {
                    ${load_a()}
                    ${multiply("a_fragments[half_slab][f][step]", 2, "2 * half_slab + step")}
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

## Steps of 32 bytes of the stage's slabs, as one group of instructions.
<%def name="multiply(a, steps=4, b_step='step')" filter="trim">
                const uint b_slab = slab_memory + stage * (A_BYTES + B_BYTES) + A_BYTES;
                const ulong b_at = ${descriptor(operands[1])} | (b_slab & 0x3ffff) >> 4;
                asm volatile("${mark}wgmma.fence.sync.aligned;" : : : "memory");
                #pragma unroll
                for (int step = 0; step < ${steps}; ++step) {
                    #pragma unroll
                    for (int f = 0; f < FRAGMENTS; ++f) {
                        multiply_accumulate(accumulators[f], ${a}, b_at + ${f'({b_step})' if '+' in b_step else b_step} * ${operands[1].step});
                    }
                }
                asm volatile("${mark}wgmma.commit_group.sync.aligned;" : : : "memory");
</%def>

<%def name="next_stage()" filter="trim">
                if (++stage == STAGES) {
                    stage = 0;
                    parity ^= 1;
                }
</%def>

## Half a slab's fragments of A. They lie there in boxes of 32 rows by 32 depths, rows contiguous.
<%def name="load_a()" filter="trim">
                #pragma unroll
                for (int f = 0; f < FRAGMENTS; ++f) {
                    #pragma unroll
                    for (int step = 0; step < 2; ++step) {
                        #pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const int row = 64 * f + thread / 32 * 16 + i % 2 * 8 + lane / 4;
                            const int depth = 8 * (2 * half_slab + step) + i / 2 * 4 + lane % 4;
                            const int at = row / 32 * 4096 + depth * 128 + ((row % 32 / 4) ^ (depth & 7)) * 16 + row % 4 * 4;
                            a_fragments[half_slab][f][step][i] = nearest_tf32(*(const __local float *)(a_slab + at));
                        }
                    }
                }
</%def>

## Where a slab's first piece lies is added: address / 16.
<%def name="descriptor(slab)" filter="trim">${f"{slab.descriptor:#x}"}ul</%def>

<%def name="await_all()" filter="trim">
                #pragma unroll
                for (int f = 0; f < FRAGMENTS; ++f) {
                    await_sums(accumulators[f]);
                }
</%def>

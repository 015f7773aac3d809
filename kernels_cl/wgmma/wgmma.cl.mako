## NVIDIA's warpgroup units (sm_90): persistent work-groups, each with one warpgroup that copies slabs
## (by TMA, or by cp.async in each lane) and others that multiply them (wgmma). A slab is 128 bytes deep, the
## widest span of a swizzle. Instructions after ${mark} are comments for the compiler
## (pyclgemm/device/probe.py).
##
## Context: tiles (a WgmmaConfig), operands (a WgmmaOperand for a and b), matrix_maps (each a MatrixMap), stored
## (C type of the operands' elements), results (a WgmmaResults), staging (results.staging), terms (products of
## split terms for each product), whole (layouts of the elements before splitting), and what all gemm templates see.
##
## Copies of boxes slow down where much of them lies outside a matrix (docs/techniques.md). So tiles at the
## edges copy fewer boxes, or boxes of fewer rows, which a map of their own describes.
##
## In a batch the tiles of all products are numbered consecutively. For another product, or another number of
## rows, a map gets the addresses of its matrices and that number. Copies read a map while they run, so each
## operand has one map more than stages: the oldest map was last read for a slab that has been multiplied since.
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="stream_k" file="/common/stream_k.mako"/>
<%namespace name="lane_copies" file="/wgmma/lanes.mako"/>
<%namespace name="slabs" file="/wgmma/slab.mako"/>
<%namespace name="tensor_copy" file="/common/tensor_copy.mako"/>
<%namespace name="formed" file="/wgmma/results.mako"/>
<%namespace name="store" file="/wgmma/store.mako"/>
<%namespace name="tile" file="/common/tile.mako"/>
<%namespace name="warpgroup_unit" file="/wgmma/unit.mako"/>
<%
    map_names = [one.name for one in matrix_maps]
    out_mapped = "out_map" in map_names
    c_boxed = "c_map" in map_names
    rowed = [slab.name for slab in operands if slab.along_k]  # whose boxes have rows along the tile
    own_tile = "own_tile" if moved else "tile"
    memory_bytes = "STAGES * (A_BYTES + B_BYTES)" + (f" + {staging.bytes}" if staging else "")
%>
${prelude.types()}

#define MWG ${tiles.MWG}  // rows of a work-group's tile
#define NWG ${tiles.NWG}  // columns of it
#define KWG ${slab_depth}  // depth of a slab: 128 bytes
#define STAGES ${tiles.STAGES}  // slabs of each operand in local memory
#define CONSUMER_M ${tiles.MWG // tiles.CONSUMERS}  // rows of a warpgroup's part of the tile
#define FRAGMENTS (CONSUMER_M / 64)
#define A_BYTES (MWG * 128)  // of a slab
#define B_BYTES (${"NWG" if operands[1].rows == tiles.NWG else operands[1].rows} * 128)

% if not tiles.TMA:
${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
% endif
% if not out_mapped:
${prelude.address("out", problem.out)}
% endif
% if problem.c and not c_boxed:
${prelude.address("c", problem.c)}
% endif
% if terms > 1:
${prelude.address("whole_a", whole[0])}
${prelude.address("whole_b", whole[1])}
% endif

${tensor_copy.barriers(counts_bytes=tiles.TMA)}

% if tiles.TMA:
${tensor_copy.copies(out_mapped)}
% else:
${lane_copies.functions()}
% endif
% if tiles.FILL:

${stream_k.defines()}

${stream_k.functions()}
% endif

${warpgroup_unit.functions(accumulators, a_in_registers)}
% if a_in_registers:

${slabs.functions()}
% endif

${formed.functions()}

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({work_items}, 1, 1)))", arguments)}
{
    __local uchar memory[${memory_bytes}] __attribute__((aligned(1024)));
    % if tiles.FILL:
    ${stream_k.locals()}
    % endif
    __local ulong barriers[2 * STAGES] __attribute__((aligned(8)));
    ${prelude.offsets("a", "b", "out", *(("whole_a", "whole_b") if terms > 1 else ()))}

    const int item = get_local_id(0);
    const uint slab_memory = address_of(memory);
    const uint full = address_of(barriers);  // of stage 0; a phase ends when its slabs have arrived
    const uint empty = full + 8 * STAGES;  // a phase ends when all have multiplied them
    % if tiles.TMA:
    ${maps()}
    % endif
    if (item == ${warpgroup}) {
        for (int stage = 0; stage < STAGES; ++stage) {
            make_barrier(full + 8 * stage, ${1 if tiles.TMA else warpgroup});
            make_barrier(empty + 8 * stage, ${tiles.CONSUMERS});
        }
        % if tiles.TMA:
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
        % endif
    }
    barrier(CLK_LOCAL_MEM_FENCE${" | CLK_GLOBAL_MEM_FENCE" if tiles.TMA else ""});

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
        % if tiles.TMA:
        if (item == 0) {
            ${produce()}
        }
        % else:
        ${produce_by_lanes()}
        % endif
    } else {
        % if registers:
        asm volatile("${mark}setmaxnreg.inc.sync.aligned.u32 ${registers[1]};" : : : "memory");
        % endif
        ${consume()}
    }
}

## Every work-group writes its own maps, as OpenCL cannot pass them to a kernel.
<%def name="maps()" filter="trim">
% if moved:
    // Maps of A and B alternate; a map of the result for each warpgroup follows them.
    __global ulong *own_maps = maps + get_group_id(0) * ${map_words * map_count};
    ${tensor_copy.write_maps("own_maps", "memory", matrix_maps, map_words, capture(each_map))}
% else:
    __global ulong *a_map = maps + get_group_id(0) * ${map_words * map_count};
    % for number, name in enumerate(map_names[1:], start=1):
    __global ulong *${name} = a_map + ${number * map_words};
    % endfor
    ${tensor_copy.write_maps("a_map", "memory", matrix_maps, map_words)}
% endif
</%def>

<%def name="each_map()" filter="trim">
<% count = f"2 * (STAGES + 1) + {tiles.CONSUMERS}" if out_mapped else "2 * (STAGES + 1)" %>
    for (int number = item / 32; number < ${count}; number += ${work_items // 32}) {
        % if out_mapped:
        const int which = number >= 2 * (STAGES + 1) ? 2 : number % 2;
        % else:
        const int which = number % 2;
        % endif
</%def>

## The loop over this work-group's tiles or parts of tiles: slabs `first` to `last` of `tile`.
<%def name="begin_tile()" filter="trim">
<%
    count = f"{terms} * slabs_k" if terms > 1 else "(k + KWG - 1) / KWG"
    all_tiles = "tiles_m * tiles_n * batch" if moved else "tiles_m * tiles_n"
%>
% if tiles.FILL:
        ${stream_k.begin(count, depths=False)}
% else:
        const extent last = ${count};
        % if moved:
        long product = 0;
        % endif
        for (extent tile = get_group_id(0); tile < ${all_tiles}; tile += get_num_groups(0)) {
            const extent first = 0;
            % if moved:
            ${stream_k.next_product()}
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
<% changed = ["product != mapped", *(f"{name}_rows != {name}_mapped_rows" for name in rowed)] %>
            % if moved:
            __global ulong *a_map, *b_map;
            long mapped = -1;  // the product whose matrices the maps describe, and the rows of their boxes
            % for name in rowed:
            int ${name}_mapped_rows = 0;
            % endfor
            int slot = 0;
            % else:
            % for name in map_names:
            % if name != "out_map":
            read_map_anew(${name});
            % endif
            % endfor
            % endif
            uint parity = 1;  // all stages are empty
            ${begin_tile()}
                ${tile.first_entry(own_tile)}
                ${slabs.boxes_of_tile()}
                % if moved:
                if (${" || ".join(changed)}) {
                    mapped = product;
                    % for name in rowed:
                    ${name}_mapped_rows = ${name}_rows;
                    % endfor
                    slot = slot == STAGES ? 0 : slot + 1;
                    a_map = own_maps + slot * ${2 * map_words};
                    b_map = a_map + ${map_words};
                    a_map[0] = (ulong)a;
                    b_map[0] = (ulong)b;
                    % for name in rowed:
                    ${name}_map[7] = ${name}_rows - 1;  // rows of a box, as in map_word
                    % endfor
                    asm volatile("fence.proxy.tensormap::generic.release.gpu;" : : : "memory");
                    read_map_anew(a_map);
                    read_map_anew(b_map);
                }
                % endif
                ${slabs.copy_slabs()}
                % if c_boxed:
                ${slabs.copy_addends()}
                % endif
            }
</%def>

<%def name="produce_by_lanes()" filter="trim">
        uint parity = 1;  // all stages are empty
        ${lane_copies.first_vectors()}
        ${begin_tile()}
            ${tile.first_entry(own_tile)}
            ${lane_copies.copy_slabs()}
        }
        asm volatile("cp.async.wait_all;" : : : "memory");
</%def>

<%def name="consume()" filter="trim">
        const int consumer = item / ${warpgroup} - 1;
        const int thread = item % ${warpgroup};
        const int lane = item % 32;
        % if tiles.FILL:
        const int sum_item = item - ${warpgroup};
        % endif
        uint parity = 0;
        % if out_mapped and moved:
        __global ulong *out_map = own_maps + (2 * (STAGES + 1) + consumer) * ${map_words};
        long mapped = -1;  // the product whose result it describes
        % elif out_mapped:
        if (thread == 0) {
            read_map_anew(out_map);
        }
        % endif
        ${begin_tile()}
            ${tile.first_entry(own_tile)}
            % if problem.bias:
            ${formed.hold_biases()}
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
                ${slabs.multiply_slabs("begin", "end")}
                <%call expr="each_sum()">
                totals[f][i] += accumulators[f][i];
                accumulators[f][i] = 0;
                </%call>
            }
            % else:
            ${slabs.multiply_slabs("first", "last")}
            % endif
            % if tiles.FILL:
            ${stream_k.join(each_sum)}
            % endif
            % if out_mapped and moved:
            if (thread == 0 && product != mapped) {
                // Wait until the results that were copied with the map have been written.
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
        % if out_mapped:
        if (thread == 0) {
            asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
        }
        % endif
</%def>

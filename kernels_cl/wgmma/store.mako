## Stores the results of a warpgroup: collected in boxes in local memory and copied from there, or stored
## directly if they do not lie in 16-byte vectors.
##
## Context: that of `wgmma/results.mako`, which computes them strip by strip, and constraint, warpgroup.
<%namespace name="formed" file="/wgmma/results.mako"/>
<%namespace name="slabs" file="/wgmma/slab.mako"/>

## The results of fragment f, whose rows begin at `first_row`.
<%def name="finish()" filter="trim">
                % if staging:
                ${finish_staged()}
                % else:
                ${unrolling()}
                for (int strip = 0; strip < STRIPS; ++strip) {
                    ${formed.finish_strip(store_pair)}
                }
                % endif
</%def>

## Long code for each result is not unrolled.
<%def name="unrolling()" filter="trim">#pragma unroll${" 1" if results.rolled else ""}</%def>

## Stores a pair of results, by a single store if their alignment allows it.
<%def name="store_pair()" filter="trim">
<%
    whole = problem.out.order == "row" and problem.out.alignment >= 2
    narrow = wide.stored_bytes == 2
    first, second = ("(ushort)both", "(ushort)(both >> 16)") if narrow else ("pair.x", "pair.y")
    to = "(__global ushort *)out" if narrow else "out"
    pairs = "(__global uint *)" if narrow else "(__global wide2 *)"
%>
                            % if narrow:
                            const uint both = packed(pair);
                            % endif
                            % if whole:
                            if (row < m && column + 2 <= n) {
                                *${pairs}(${to} + OUT_AT(row, column)) = ${"both" if narrow else "pair"};
                            } else if (row < m && column < n) {
                                (${to})[OUT_AT(row, column)] = ${first};
                            }
                            % else:
                            if (row < m && column < n) {
                                (${to})[OUT_AT(row, column)] = ${first};
                            }
                            if (row < m && column + 1 < n) {
                                (${to})[OUT_AT(row, column + 1)] = ${second};
                            }
                            % endif
</%def>

## Collects results in local memory and copies them from there. Boxes are 64 rows by 128 bytes, or by 64 or 32
## bytes where these do not divide the tile's rows; or 64 columns or fewer by 128 bytes where columns of the
## result are contiguous.
<%def name="finish_staged()" filter="trim">
<%
    box_at = (
        f"first_row + box * {staging.map.elements}, b_tile + {staging.map.rows} * chunk"
        if staging.turned
        else f"b_tile + (chunk * {staging.boxes} + box) * {staging.map.elements}, first_row"
    )
    boxes_bytes = staging.boxes * staging.map.bytes  # of a warpgroup
    boxed = results.c_in == "boxes"
    turns = results.c_chunks if boxed else 1
    chunk_of_warpgroup = f"(f * {staging.chunks} + chunk)" if tiles.MWG > 64 * tiles.CONSUMERS else "chunk"
    number = f"{chunk_of_warpgroup} % {turns}"
    c_boxes_at = f"(consumer * {turns} + {number})" if turns > 1 else "consumer"
%>
                ${unrolling()}
                for (int chunk = 0; chunk < ${staging.chunks}; ++chunk) {
                    const uint boxes = slab_memory + STAGES * (A_BYTES + B_BYTES) + consumer * ${boxes_bytes};
                    % if boxed:
                    const __local uchar *c_slab = memory + stage * (A_BYTES + B_BYTES);
                    const __local uchar *c_boxes = c_slab + ${c_boxes_at} * ${boxes_bytes};
                    await(full + 8 * stage, parity);
                    % endif
                    // Wait until the boxes of the chunk before have been read.
                    % if not results.parts:
                    if (thread == 0) {
                        asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
                    }
                    % endif
                    ${await_collectors()}
                    ${unrolling()}
                    for (int strip_in_chunk = 0; strip_in_chunk < ${staging.chunk_strips}; ++strip_in_chunk) {
                        const int strip = chunk * ${staging.chunk_strips} + strip_in_chunk;
                        ${collect_strip()}
                    }
                    % if not results.parts:
                    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
                    % endif
                    ${await_collectors()}
                    % if not results.parts:
                    if (thread == 0) {
                        #pragma unroll
                        for (int box = 0; box < ${staging.boxes}; ++box) {
                            store_box(boxes + box * ${staging.map.bytes}, out_map, ${box_at});
                        }
                        asm volatile("cp.async.bulk.commit_group;" : : : "memory");
                    }
                    % else:
                    ${store_parts()}
                    % endif
                    % if boxed:
                    ${leave_boxes(number, turns)}
                    % endif
                }
</%def>

## Waits until all who collect the boxes are here: the warpgroup, or the sub-group if its lanes copy them.
<%def name="await_collectors()" filter="trim">
% if results.parts:
                    asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
% else:
                    asm volatile("bar.sync %0, ${warpgroup};" : : "r"(consumer + 1) : "memory");
% endif
</%def>

## The lanes copy what their sub-group collected, each lane a part of a row at a time.
<%def name="store_parts()" filter="trim">
<%
    parts = results.parts
    across, down = ("row", "column") if staging.turned else ("column", "row")
    first_across, first_down = ("first_row", "b_tile") if staging.turned else ("b_tile", "first_row")
    if staging.turned:
        box_in_tile, chunk_row = parts.box, times("chunk", staging.map.rows)
    else:
        box_in_tile = f"(chunk * {staging.boxes} + {parts.box})" if staging.boxes > 1 else "chunk"
        chunk_row = 0
%>
                    // 16 rows of the fragment are this sub-group's. Vectors are permuted as in slabs.
                    const __local uchar *own_boxes = memory + STAGES * (A_BYTES + B_BYTES) + consumer * ${staging.boxes * staging.map.bytes};
                    % if parts.count > 1:
                    #pragma unroll${" 8" if parts.bytes < 16 else ""}
                    for (int i = 0; i < ${parts.count}; ++i) {
                    % else:
                    {
                    % endif
                        const int box_row = ${parts.row};
                        const int part = ${parts.part};
                        const __local uchar *box = ${plus("own_boxes", times(parts.box, staging.map.bytes))};
                        const extent ${down} = ${plus(first_down, chunk_row, "box_row")};
                        const extent ${across} = ${plus(first_across, times(box_in_tile, staging.map.elements), times("part", parts.width))};
                        if (row < m && column < n) {
                            *(__global ${parts.type} *)(out + OUT_AT(row, column)) =
                                *(const __local ${parts.type} *)(box + ${staging.map.offset("box_row", "part", parts.bytes)});
                        }
                    }
</%def>

## The whole warpgroup has read the boxes of c in this stage.
<%def name="leave_boxes(number, turns)" filter="trim">
                    % if turns > 1:
                    if (${number} == ${turns - 1}) {
                        ${leave_stage()}
                    }
                    % else:
                    ${leave_stage()}
                    % endif
</%def>

<%def name="leave_stage()" filter="trim">
                    if (thread == 0) {
                        arrive(empty + 8 * stage);
                    }
                    ${slabs.next_stage()}
</%def>

<%def name="collect_strip()" filter="trim">
                        % if wide.stored_bytes == 2:
                        uint pairs[${tiles.strip // 8}][2];
                        ${formed.finish_strip(collect_pairs)}
                        % if staging.turned:
                        // Lane l points to column l % 8 of group l / 16, rows l / 8 % 2 * 8 (PTX ISA, "stmatrix").
                        const int vector = (thread / 32 * 2 + lane / 8 % 2) ^ (lane & 7);
                        % else:
                        // Lane l points to row l % 16 of group l / 16 (PTX ISA, "stmatrix").
                        const int box_row = thread / 32 * 16 + lane % 16;
                        % endif
                        #pragma unroll
                        for (int j = 0; j < ${tiles.strip // 8}; j += 2) {
                            % if staging.turned:
                            const int box_row = ${tiles.strip} * strip_in_chunk + 8 * (j + lane / 16) + lane % 8;
                            const uint at = boxes + box_row * 128 + vector * 16;
                            % else:
<% row_at = capture(formed.offset_in_boxes, "boxes", "box_row", "j + lane / 16", "(box_row & 7)") %>
                            const uint at = ${row_at};
                            % endif
                            asm volatile("stmatrix.sync.aligned.m8n8.x4${".trans" if staging.turned else ""}.shared::cta.b16 [%0], {%1, %2, %3, %4};"
                                : : "r"(at), "r"(pairs[j][0]), "r"(pairs[j][1]),
                                    "r"(pairs[j + 1][0]), "r"(pairs[j + 1][1]) : "memory");
                        }
                        % elif staging.turned:
                        ${formed.finish_strip(collect_columns)}
                        % else:
                        ${formed.finish_strip(collect_words)}
                        % endif
</%def>

## Four 8 x 8 matrices of 16-bit results: rows 0-7 and 8-15 of two groups of 8 columns.
<%def name="collect_pairs()" filter="trim">
                            pairs[j][lower] = packed(pair);
</%def>

## Two neighbouring results of 32 bits.
<%def name="collect_words()" filter="trim">
                            const int box_row = thread / 32 * 16 + 8 * lower + lane / 4;
<% length = staging.map.row_bytes %>\
                            const int vector = (2 * j + lane % 4 / 2) ^ ${divided("(box_row & 7)", 128 // length)};
                            const uint box_at = boxes + strip_in_chunk * ${staging.map.bytes} + box_row * ${length};
                            const uint at = box_at + vector * 16 + lane % 2 * 8;
                            asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
                                : : "r"(at), "${constraint}"(pair.x), "${constraint}"(pair.y) : "memory");
</%def>

<%def name="collect_columns()" filter="trim">
                            const int box_column = thread / 32 * 16 + 8 * lower + lane / 4;
                            const int box_row = ${tiles.strip} * strip_in_chunk + 8 * j + lane % 4 * 2;
                            const uint box_at = boxes + box_column / 32 * ${staging.map.bytes} + box_column % 4 * 4;
                            % for row, result in (("box_row", "pair.x"), ("(box_row + 1)", "pair.y")):
                            {
                                const int vector = (box_column % 32 / 4) ^ (${row} & 7);
                                const uint at = box_at + ${row} * 128 + vector * 16;
                                asm volatile("st.shared.b32 [%0], %1;"
                                    : : "r"(at), "${constraint}"(${result}) : "memory");
                            }
                            % endfor
</%def>

## Computes the results of a warpgroup from its sums in registers: scaled, with c, bias and activation, a
## pair of neighbours at a time. `wgmma/store.mako` stores them.
##
## A strip is a work-item's results in 32 columns of a fragment, or in 16 where 32 do not divide the tile: in
## each group of 8 columns a pair of neighbours in a row, and a pair 8 rows below.
##
## Context: tiles (a WgmmaConfig), results (a WgmmaResults), staging (results.staging), held (the name of the
## sums in registers), terms, whole_steps, and what all gemm templates see.
<%namespace name="activation" file="/common/ptx_activation.mako"/>
<%namespace name="half" file="/common/ptx_half.mako"/>

<%def name="functions()" filter="trim">
<%
    narrow = wide.stored_bytes == 2
    relu = "relu." if results.relu_packs else ""
%>
typedef ${wide.vector(2)} wide2;  // two neighbours in a row
#define STRIPS (NWG / ${tiles.strip})  // of a work-item in a fragment
% if terms > 1:

// An infinity times the second split term of a number may be NaN or have the wrong sign. A sum that is not
// finite is therefore computed again from the elements themselves.
static __attribute__((noinline)) element sum_of_products(
    const __global float *a, const long a_step, const __global float *b, const long b_step, const extent k)
{
    element sum = 0;
    for (extent p = 0; p < k; ++p) {
        sum = fma(a[p * a_step], b[p * b_step], sum);
    }
    return sum;
}
% endif
% if narrow:

// Two results in a register, the first in its lower half${"; relu is applied" if relu else ""}.
static inline uint packed(const wide2 results)
{
    uint both;
    asm("cvt.rn.${relu}${results.packs}.f32 %0, %1, %2;" : "=r"(both) : "f"(results.y), "f"(results.x));
    return both;
}
% endif
% if narrow and (problem.bias == "column" or results.c_in != "elements"):

% if wide.dtype == "bfloat16":
// Two elements of a register, the first from its lower half.
static inline wide2 unpacked(const uint both)
{
    return (wide2)(as_float(both << 16), as_float(both & 0xffff0000));
}
% else:
${half.unpacked("wide2")}
% endif
% endif
% if problem.bias == "column":

// The value that lane number `lane` of this sub-group passes as `own`.
static inline uint held_by(const int lane, const uint own)
{
    uint held;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(held) : "r"(own), "r"(lane) : "memory");
    return held;
}
% endif
% if problem.activation and not results.relu_packs:

${activation.functions(pairs=True)}
% endif
</%def>

## Loads the biases of a tile early enough for its results; biases beyond the last are 0. The biases of
## columns are distributed over the lanes of a sub-group.
<%def name="hold_biases()" filter="trim">
<% row_bias = wide.load("bias + min(row, m - 1) * bias_stride", 1) %>
% if problem.bias == "row":
            wide row_biases[FRAGMENTS][2];
            #pragma unroll
            for (int f = 0; f < FRAGMENTS; ++f) {
                #pragma unroll
                for (int lower = 0; lower < 2; ++lower) {
                    const extent first_row = a_tile + consumer * CONSUMER_M + 64 * f;
                    const extent row = first_row + thread / 32 * 16 + 8 * lower + lane / 4;
                    row_biases[f][lower] = ${row_bias};
                }
            }
% elif problem.bias == "column" and wide.stored_bytes == 2:
            // A register holds the biases of two neighbouring columns, a sub-group those of 64 columns.
            const __global ushort *biases = (const __global ushort *)bias;
            const __global ushort *biases_from = biases + (long)(b_tile + 2 * lane) * bias_stride;
            uint column_biases[${results.bias_registers}];
            #pragma unroll
            for (int i = 0; i < ${results.bias_registers}; ++i) {
                const extent column = b_tile + 64 * i + 2 * lane;
                const uint first = column < n ? biases_from[64 * i * bias_stride] : 0;
                const uint second = column + 1 < n ? biases_from[(64 * i + 1) * bias_stride] : 0;
                column_biases[i] = first | second << 16;
            }
% elif problem.bias == "column":
            // A register holds the bias of a column, a sub-group those of 32 columns.
            const __global uint *biases = (const __global uint *)bias;
            const __global uint *biases_from = biases + (long)(b_tile + lane) * bias_stride;
            uint column_biases[${results.bias_registers}];
            #pragma unroll
            for (int i = 0; i < ${results.bias_registers}; ++i) {
                column_biases[i] = b_tile + 32 * i + lane < n ? biases_from[32 * i * bias_stride] : 0;
            }
% endif
</%def>

## Address of 16 bytes of a strip in boxes of 2-byte results: a group of 8 columns in a row, which is number
## `eighth` of eight rows. A box's row of 128 bytes holds two strips. A shorter row holds one, and those in the
## same 128 bytes are swizzled in the same way.
<%def name="offset_in_boxes(boxes, row, group, eighth)" filter="trim">
% if staging.map.row_bytes == 128:
${boxes} + strip_in_chunk / 2 * ${staging.map.bytes} + ${row} * 128
    + ((strip_in_chunk % 2 * 4 + ${group}) ^ ${eighth}) * 16
% else:
<% length = staging.map.row_bytes %>\
${boxes} + strip_in_chunk * ${staging.map.bytes} + ${row} * ${length} + ((${group}) ^ ${eighth} / ${128 // length}) * 16
% endif
</%def>

## Fetches the sums of a strip and its biases. A loop cannot index registers, so each strip has its own code
## where the loop over strips is not unrolled.
<%def name="fetch_strip()" filter="trim">
<%
    fragments = tiles.MWG // (64 * tiles.CONSUMERS)
    strips = tiles.NWG // tiles.strip
    alike = results.bias_strips
    count = fragments * strips
%>
                    element sums[${tiles.strip // 2}];
                    % if problem.bias == "row":
                    wide strip_biases[2];
                    % elif problem.bias == "column":
                    uint strip_biases;
                    % endif
                    % if count == 1:
                    ${fetch(0, 0, 0)}
                    % elif results.rolled:
                    switch (${f"f * STRIPS + strip" if fragments > 1 else "strip"}) {
                    % for number in range(count):
                    ${f"case {number}" if number < count - 1 else "default"}:
                        ${fetch(number // strips, number % strips, number % strips // alike)}
                        break;
                    % endfor
                    }
                    % else:
                    ${fetch("f", "strip", f"strip / {alike}" if alike > 1 else "strip")}
                    % endif
</%def>

<%def name="fetch(f, strip, bias)" filter="trim">
                        #pragma unroll
                        for (int i = 0; i < ${tiles.strip // 2}; ++i) {
                            sums[i] = ${held}[${f}][${tiles.strip // 2} * ${strip} + i];
                        }
                        % if problem.bias == "row":
                        strip_biases[0] = row_biases[${f}][0];
                        strip_biases[1] = row_biases[${f}][1];
                        % elif problem.bias == "column":
                        strip_biases = column_biases[${bias}];
                        % endif
</%def>

## Computes each pair of results of a strip as `pair`, followed by `statements`: in group `j` of 8 columns, in
## the upper or the `lower` row.
<%def name="finish_strip(statements)" filter="trim">
<%
    strip = tiles.strip
    alike = results.bias_strips
    first_held = plus(times(strip, f"strip % {alike}") if alike > 1 else 0, "8 * j + lane % 4 * 2")
    pair_held = plus(times(strip // 2, f"strip % {alike}") if alike > 1 else 0, "4 * j + lane % 4")
%>\
                    ${fetch_strip()}
                    #pragma unroll
                    for (int j = 0; j < ${strip // 8}; ++j) {
                        % if results.is_placed:
                        const extent column = b_tile + ${strip} * strip + 8 * j + lane % 4 * 2;
                        % endif
                        % if problem.bias == "column" and wide.stored_bytes == 2:
                        const wide2 biases = unpacked(held_by(${pair_held}, strip_biases));
                        % elif problem.bias == "column":
                        const uint first_bias = held_by(${first_held}, strip_biases);
                        const uint second_bias = held_by(${first_held} + 1, strip_biases);
                        const wide2 biases = (wide2)(as_${wide.real}(first_bias), as_${wide.real}(second_bias));
                        % endif
                        #pragma unroll
                        for (int lower = 0; lower < 2; ++lower) {
                            % if results.is_placed:
                            const extent row = first_row + thread / 32 * 16 + 8 * lower + lane / 4;
                            % endif
                            ${finish_pair()}
                            ${statements()}
                        }
                    }
</%def>

<%def name="finish_pair()" filter="trim">
<%
    sum_of = "alpha * (wide2)(sums[4 * j + 2 * lower], sums[4 * j + 2 * lower + 1])"
    bias = {"row": "strip_biases[lower]", "column": "biases"}.get(problem.bias)
    added = [term for term in ("beta * addends" if problem.c else None, bias) if term]
    if len(added) == 2:
        added = [f"({' + '.join(added)})"]
    value = " + ".join([sum_of, *added])
%>
                            % if terms > 1:
                            #pragma unroll
                            for (int i = 0; i < 2; ++i) {
                                if (!isfinite(sums[4 * j + 2 * lower + i]) && row < m && column + i < n) {
                                    sums[4 * j + 2 * lower + i] = sum_of_products(
                                        whole_a + WHOLE_A_AT(row, 0), ${whole_steps[0]},
                                        whole_b + WHOLE_B_AT(0, column + i), ${whole_steps[1]}, k);
                                }
                            }
                            % endif
                            % if problem.c:
                            ${load_addends()}
                            % endif
                            % if problem.activation and not results.relu_packs:
                            const wide2 pair = activate(${value});
                            % else:
                            const wide2 pair = ${value};
                            % endif
</%def>

## Loads the elements of c for a pair of results. Results outside the matrix use other elements, which saves
## branches; they are not stored.
<%def name="load_addends()" filter="trim">
<%
    row_in_fragment = "thread / 32 * 16 + 8 * lower + lane / 4"
    box = f"c_boxes + strip_in_chunk * {staging.map.bytes}" if staging else ""
    pair_in_boxes = capture(offset_in_boxes, "c_boxes", "fragment_row", "j", "(lane / 4)") if staging else ""
    pair_of_c = "C_AT(min(row, m - 1), min(column, n - 2))"
    first_of_c = wide.load("c + C_AT(min(row, m - 1), min(column, n - 1))", 1)
    second_of_c = wide.load("c + C_AT(min(row, m - 1), min((extent)(column + 1), n - 1))", 1)
%>
% if results.c_in == "boxes" and wide.stored_bytes == 2:
                            const int fragment_row = ${row_in_fragment};
                            const wide2 addends = unpacked(*(const __local uint *)(${pair_in_boxes} + lane % 4 * 4));
% elif results.c_in == "boxes" and staging.turned:
                            const int c_column = ${row_in_fragment};
                            const int c_row = ${tiles.strip} * strip_in_chunk + 8 * j + lane % 4 * 2;
                            const __local uchar *c_box = c_boxes + c_column / 32 * ${staging.map.bytes};
                            const __local uchar *c_from = c_box + c_row * 128 + c_column % 4 * 4;
                            const int first_vector = (c_column % 32 / 4) ^ (c_row & 7);
                            const int second_vector = (c_column % 32 / 4) ^ ((c_row + 1) & 7);
                            const wide2 addends = (wide2)(
                                *(const __local wide *)(c_from + first_vector * 16),
                                *(const __local wide *)(c_from + 128 + second_vector * 16));
% elif results.c_in == "boxes":
<% length = staging.map.row_bytes %>\
                            const __local uchar *c_from = ${box} + (${row_in_fragment}) * ${length};
                            const int c_vector = (2 * j + lane % 4 / 2) ^ ${divided("(lane / 4)", 128 // length)};
                            const wide2 addends = *(const __local wide2 *)(c_from + c_vector * 16 + lane % 2 * 8);
% elif results.c_in == "pairs" and wide.stored_bytes == 2:
                            const __global ushort *c_bits = (const __global ushort *)c;
                            const wide2 addends = unpacked(*(const __global uint *)(c_bits + ${pair_of_c}));
% elif results.c_in == "pairs":
                            const wide2 addends = *(const __global wide2 *)(c + ${pair_of_c});
% else:
                            const wide2 addends = (wide2)(
                                ${first_of_c},
                                ${second_of_c});
% endif
</%def>

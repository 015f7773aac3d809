## The results of a warpgroup of Hopper's units, from the registers to where they belong: collected in
## boxes in local memory and copied from there, or directly where no tensor map describes the result.
##
## Context: tiles (a WgmmaConfig), staging (a Staging or None), held (the sums in registers), terms,
## whole_steps, accumulators, constraint, warpgroup, needs_place (whether the epilogue asks where a
## result lies), and what all gemm templates see.
<%namespace name="prelude" file="prelude.mako"/>
<%!
    def bias_of(kind, elements, half_fragment, group, part):
        """Where the bias is held of a part of a pair of columns, in groups of 8 from the box's first."""
        if kind == "row":
            return f"biases[{half_fragment}]"
        pair = f"{elements // 32} * q" if elements > 32 else "q"
        return f"biases[{pair}{f' + {group}' if group else ''}][{part}]"
%>

<%def name="functions()" filter="trim">
% if terms > 1:

// An infinity times the second part of a number may be NaN, or of the wrong sign: where a sum is not
// finite, it is formed again from the elements themselves.
static __attribute__((noinline)) element sum_of_products(const __global float *a, const long a_step, const __global float *b, const long b_step, const extent k)
{
    element sum = 0;
    for (extent p = 0; p < k; ++p) {
        sum = fma(a[p * a_step], b[p * b_step], sum);
    }
    return sum;
}
% endif
% if staging and staging.packs:

// Two results in a register, the first in its lower half.
static inline uint packed(const wide first, const wide second)
{
    uint both;
    asm("cvt.rn.${staging.packs}.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
% endif
</%def>

## The results of fragment f, whose rows begin at `first_row`.
<%def name="finish()" filter="trim">
                % if staging:
                ${finish_staged()}
                % else:
                ${finish_directly()}
                % endif
</%def>

## The result of element `place` of the sums, at `row` and `column`, in `value`. `held`: where its bias
## is held. If `clamped`, results outside of the matrix are formed from other elements of c, without
## a branch for each, and left out later.
<%def name="finish_one(place, row, column, held_bias='', clamped=False)" filter="trim">
<%
    bias_at = {"row": row, "column": column}.get(problem.bias, "")
    bias = held_bias or wide.load(f"bias + ({bias_at}) * bias_stride", 1)
    c_at = f"min({row}, m - 1), min((extent)({column}), n - 1)" if clamped else f"{row}, {column}"
    addend = wide.load(f"c + C_AT({c_at})", 1)
%>
% if terms > 1:
if (!isfinite(${held}[f][${place}]) && ${row} < m && ${column} < n) {
    ${held}[f][${place}] = sum_of_products(whole_a + WHOLE_A_AT(${row}, 0), ${whole_steps[0]}, whole_b + WHOLE_B_AT(0, ${column}), ${whole_steps[1]}, k);
}
% endif
${prelude.finish(f"{held}[f][{place}]", addend, bias)}
</%def>

## Results go where they belong, two at a time where that is one store.
<%def name="finish_directly()" filter="trim">
<% whole = problem.out.order == "row" and problem.out.alignment >= 2 %>
                #pragma unroll
                for (int half_fragment = 0; half_fragment < 2; ++half_fragment) {
                    const extent row = first_row + thread / 32 * 16 + 8 * half_fragment + lane / 4;
                    #pragma unroll
                    for (int j = 0; j < NWG / 8; ++j) {
                        const extent column = b_tile + 8 * j + lane % 4 * 2;
                        % if whole:
                        if (row < m && column + 2 <= n) {
                            ${wide.vector(2)} results;
                            % for part in range(2):
                            {
                                ${finish_one(f"4 * j + 2 * half_fragment + {part}", "row", f"column + {part}" if part else "column")}
                                results${wide.lane(part, 2)} = value;
                            }
                            % endfor
                            ${wide.store("results", "out + OUT_AT(row, column)", 2)}
                            continue;
                        }
                        % endif
                        % for part in range(1 if whole else 2):
                        if (row < m && column${f" + {part}" if part else ""} < n) {
                            ${finish_one(f"4 * j + 2 * half_fragment + {part}", "row", f"column + {part}" if part else "column")}
                            ${wide.store("value", f"out + OUT_AT(row, column{f' + {part}' if part else ''})", 1)}
                        }
                        % endfor
                    }
                }
</%def>

## Results are collected in local memory, and copied from there. Boxes are 64 rows by 128 bytes; where
## columns of the result are contiguous, 64 columns by 32 rows.
<%def name="finish_staged()" filter="trim">
<%
    box_at = (
        f"first_row + box * {staging.map.elements}, b_tile + {staging.map.rows} * chunk"
        if staging.turned
        else f"b_tile + (chunk * {staging.boxes} + box) * {staging.map.elements}, first_row"
    )
%>
                % if problem.bias == "row":
                ${hold_row_biases()}
                % endif
                #pragma unroll
                for (int chunk = 0; chunk < ${staging.chunks}; ++chunk) {
                    % if problem.bias == "column" and staging.turned:
                    ${hold_column_biases(f"{staging.map.rows} * chunk", staging.map.rows)}
                    % endif
                    const uint boxes = slab_memory + STAGES * (A_BYTES + B_BYTES) + consumer * ${staging.boxes * 8192};
                    // The boxes of the chunk before have been read.
                    if (thread == 0) {
                        asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
                    }
                    asm volatile("bar.sync %0, ${warpgroup};" : : "r"(consumer + 1) : "memory");
                    % if staging.turned:
                    ${collect_columns()}
                    % else:
                    ${collect_rows()}
                    % endif
                    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
                    asm volatile("bar.sync %0, ${warpgroup};" : : "r"(consumer + 1) : "memory");
                    if (thread == 0) {
                        #pragma unroll
                        for (int box = 0; box < ${staging.boxes}; ++box) {
                            store_box(boxes + box * 8192, out_map, ${box_at});
                        }
                        asm volatile("cp.async.bulk.commit_group;" : : : "memory");
                    }
                }
</%def>

## Biases are loaded all at once, before the first is waited for; beyond the last any value will do.
<%def name="hold_row_biases()" filter="trim">
                wide biases[2];
                #pragma unroll
                for (int half_fragment = 0; half_fragment < 2; ++half_fragment) {
                    const extent row = min(first_row + thread / 32 * 16 + 8 * half_fragment + lane / 4, m - 1);
                    biases[half_fragment] = ${wide.load("bias + row * bias_stride", 1)};
                }
</%def>

## Of so many columns from `begin` on, of the tile.
<%def name="hold_column_biases(begin, columns)" filter="trim">
                    wide biases[${columns // 8}][2];
                    #pragma unroll
                    for (int pair = 0; pair < ${columns // 8}; ++pair) {
                        #pragma unroll
                        for (int part = 0; part < 2; ++part) {
                            const extent column = min(b_tile + ${begin} + 8 * pair + lane % 4 * 2 + part, n - 1);
                            biases[pair][part] = ${wide.load("bias + column * bias_stride", 1)};
                        }
                    }
</%def>

<%def name="collect_rows()" filter="trim">
                    #pragma unroll
                    for (int box = 0; box < ${staging.boxes}; ++box) {
                        % if problem.bias == "column":
                        ${hold_column_biases(f"{staging.map.elements} * (chunk * {staging.boxes} + box)", staging.map.elements)}
                        % endif
                        #pragma unroll
                        for (int q = 0; q < 4; ++q) {
                            const int j = (chunk * ${staging.boxes} + box) * ${staging.map.elements // 8} + q * ${staging.map.elements // 32};
                            % if staging.packs:
                            ${collect_halves()}
                            % else:
                            ${collect_words()}
                            % endif
                        }
                    }
</%def>

<%def name="collect_columns()" filter="trim">
                    #pragma unroll
                    for (int q = 0; q < ${staging.map.rows // 8}; ++q) {
                        #pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const int j = chunk * ${staging.map.rows // 8} + q;
                            const int within = thread / 32 * 16 + i / 2 * 8 + lane / 4;
                            const int box_row = 8 * q + lane % 4 * 2 + i % 2;
                            % if needs_place:
                            const extent row = first_row + within;
                            const extent column = b_tile + ${staging.map.rows} * chunk + box_row;
                            % endif
                            ${finish_one("4 * j + i", "row", "column", "biases[q][i % 2]" if problem.bias == "column" else "biases[i / 2]", True)}
                            const uint at = boxes + within / 32 * 8192 + box_row * 128 + ((within % 32 / 4) ^ (box_row & 7)) * 16 + within % 4 * 4;
                            asm volatile("st.shared.b32 [%0], %1;" : : "r"(at), "${constraint}"(value) : "memory");
                        }
                    }
</%def>

## Four 8 x 8 matrices of 16-bit results: rows 0-7 and 8-15 of two groups of 8 columns.
<%def name="collect_halves()" filter="trim">
                            uint pairs[4];
                            % for quarter in range(4):
                            {
                                % if needs_place:
                                const extent row = first_row + thread / 32 * 16 + ${f"{8 * (quarter % 2)} + " if quarter % 2 else ""}lane / 4;
                                const extent column = b_tile + 8 * ${f"(j + {quarter // 2})" if quarter // 2 else "j"} + lane % 4 * 2;
                                % endif
                                wide left;
                                {
                                    ${finish_one(f"4 * j + {2 * quarter}", "row", "column", bias_of(problem.bias, staging.map.elements, quarter % 2, quarter // 2, 0), True)}
                                    left = value;
                                }
                                ${finish_one(f"4 * j + {2 * quarter + 1}", "row", "column + 1", bias_of(problem.bias, staging.map.elements, quarter % 2, quarter // 2, 1), True)}
                                pairs[${quarter}] = packed(left, value);
                            }
                            % endfor
                            // Lane l tells where row l % 16 of group l / 16 begins (PTX ISA, "stmatrix").
                            const int box_row = thread / 32 * 16 + lane % 16;
                            const uint at = boxes + box * 8192 + box_row * 128 + ((2 * q + lane / 16) ^ (box_row & 7)) * 16;
                            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};"
                                : : "r"(at), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3]) : "memory");
</%def>

## Two neighbouring results of 32 bits in each of two rows.
<%def name="collect_words()" filter="trim">
                            % for half_fragment in range(2):
                            {
                                const int box_row = thread / 32 * 16 + ${f"{8 * half_fragment} + " if half_fragment else ""}lane / 4;
                                % if needs_place:
                                const extent row = first_row + box_row;
                                const extent column = b_tile + 8 * j + lane % 4 * 2;
                                % endif
                                wide left;
                                {
                                    ${finish_one(f"4 * j + {2 * half_fragment}", "row", "column", bias_of(problem.bias, staging.map.elements, half_fragment, 0, 0), True)}
                                    left = value;
                                }
                                ${finish_one(f"4 * j + {2 * half_fragment + 1}", "row", "column + 1", bias_of(problem.bias, staging.map.elements, half_fragment, 0, 1), True)}
                                const uint at = boxes + box * 8192 + box_row * 128 + ((2 * q + lane % 4 / 2) ^ (box_row & 7)) * 16 + lane % 2 * 8;
                                asm volatile("st.shared.v2.b32 [%0], {%1, %2};" : : "r"(at), "${constraint}"(left), "${constraint}"(value) : "memory");
                            }
                            % endfor
</%def>

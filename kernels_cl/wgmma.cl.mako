## NVIDIA's warpgroup units (sm_90): persistent work-groups, each with one warpgroup that copies slabs
## (TMA) and others that multiply them (wgmma). A slab is 128 bytes deep, one span of the swizzle.
## Instructions behind ${mark} are comments to the compiler (pyclgemm/ptx_step.py).
##
## Context: tiles (a WgmmaConfig), operands (a WgmmaOperand of a and b), staging (a Staging or None),
## terms (products of parts that make up a product), whole (layouts of the elements before they were
## split), and what all gemm templates see.
<%namespace name="prelude" file="prelude.mako"/>
<%namespace name="share" file="share.mako"/>
<%namespace name="tensor_copy" file="tensor_copy.mako"/>
<%namespace name="tile" file="tile.mako"/>
<%
    places = ", ".join(f"%{i}" for i in range(accumulators))
    pinned = ", ".join(f'"+{constraint}"(c[{i}])' for i in range(accumulators))
    # What the unit still reads or writes, registers of A or sums, is not touched meanwhile.
    waits_each = tiles.PROMOTE or a_in_registers
    held = "totals" if tiles.PROMOTE else "accumulators"
    needs_row = problem.c or problem.bias == "row" or terms > 1
    needs_column = problem.c or problem.bias == "column" or terms > 1
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
% if problem.c:
${prelude.address("c", problem.c)}
% endif
% if terms > 1:
${prelude.address("whole_a", whole[0])}
${prelude.address("whole_b", whole[1])}
% endif

${prelude.epilogue(called=True)}

${tensor_copy.functions(staging is not None)}
% if tiles.FILL:

${share.defines()}

${share.functions()}
% endif

% if a_in_registers:
// c += a b, for 64 rows; where b lies, a descriptor tells.
static inline void multiply_accumulate(element *c, const uint *a, const ulong b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %${accumulators + 5}, 0;\n"
        "${mark}${instruction} {${places}}, {${", ".join(f"%{accumulators + i}" for i in range(4))}}, %${accumulators + 4}, p${modifiers};\n}"
        : ${pinned} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1) : "memory");
}

// The tf32 nearest to x.
static inline uint nearest_tf32(const float x)
{
    uint bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
% else:
// c += a b, for 64 rows; where a and b lie, descriptors tell.
static inline void multiply_accumulate(element *c, const ulong a, const ulong b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %${accumulators + 2}, 0;\n"
        "${mark}${instruction} {${places}}, %${accumulators}, %${accumulators + 1}, p${modifiers};\n}"
        : ${pinned} : "l"(a), "l"(b), "r"(1) : "memory");
}
% endif

// Until the sums are in the registers.
static inline void await_sums(element *c)
{
    asm volatile("${mark}wgmma.wait_group.sync.aligned 0;" : ${pinned} : : "memory");
}
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

__kernel __attribute__((reqd_work_group_size(${work_items}, 1, 1))) void ${name}(
% for argument in arguments:
    ${argument.declaration}${"," if not loop.last else ")"}
% endfor
{
    __local uchar memory[STAGES * (A_BYTES + B_BYTES)${f" + {staging.bytes}" if staging else ""}] __attribute__((aligned(1024)));
    % if tiles.FILL:
    ${share.locals()}
    % endif
    __local ulong barriers[2 * STAGES] __attribute__((aligned(8)));
    ${prelude.offsets("a", "b", "out")}
% if terms > 1:
    whole_a += whole_a_offset;
    whole_b += whole_b_offset;
% endif

    const int item = get_local_id(0);
    const uint slab_memory = address_of(memory);
    const uint full = address_of(barriers);  // of stage 0; phases end when its slabs have come
    const uint empty = full + 8 * STAGES;  // when all have multiplied them
    __global ulong *a_map = maps + get_group_id(0) * ${map_words * map_count};
    __global ulong *b_map = a_map + ${map_words};
% if staging:
    __global ulong *out_map = a_map + ${2 * map_words};
% endif
    if (item == 0) {
        % for slab in operands:
        ${tensor_copy.write(f"{slab.name}_map", slab.map, slab.name, slab.inner, slab.outer, slab.pitch)}
        % endfor
        % if staging:
        % if staging.turned:
        ${tensor_copy.write("out_map", staging.map, "out", "m", "n", "out_column_stride")}
        % else:
        ${tensor_copy.write("out_map", staging.map, "out", "n", "m", "out_row_stride")}
        % endif
        % endif
        for (int stage = 0; stage < STAGES; ++stage) {
            make_barrier(full + 8 * stage, 1);
            make_barrier(empty + 8 * stage, ${tiles.CONSUMERS});
        }
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
        asm volatile("fence.proxy.tensormap::generic.release.gpu;" : : : "memory");
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

## The loop over tiles, or parts of tiles, of this work-group: slabs `first` to `last` of `tile`.
<%def name="begin_tile()" filter="trim">
<% count = f"{terms} * slabs_k" if terms > 1 else "(k + KWG - 1) / KWG" %>
% if tiles.FILL:
        ${share.begin(count, depths=False)}
% else:
        const extent last = ${count};
        for (extent tile = get_group_id(0); tile < tiles_m * tiles_n; tile += get_num_groups(0)) {
            const extent first = 0;
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
            read_map_anew(a_map);
            read_map_anew(b_map);
            uint parity = 1;  // all stages are empty
            ${begin_tile()}
                ${tile.place()}
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
                    if (++stage == STAGES) {
                        stage = 0;
                        parity ^= 1;
                    }
                }
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
        % if staging:
        if (thread == 0) {
            read_map_anew(out_map);
        }
        % endif
        ${begin_tile()}
            ${tile.place()}
            element accumulators[FRAGMENTS][${accumulators}];
            % if tiles.PROMOTE:
            element totals[FRAGMENTS][${accumulators}];
            % endif
            #pragma unroll
            for (int f = 0; f < FRAGMENTS; ++f) {
                #pragma unroll
                for (int i = 0; i < ${accumulators}; ++i) {
                    accumulators[f][i] = 0;
                    % if tiles.PROMOTE:
                    totals[f][i] = 0;
                    % endif
                }
            }
            % if not waits_each:
            int used = -1;  // the stage whose slabs were multiplied last
            % endif
            #pragma unroll 1
            for (extent slab = first; slab < last; ++slab) {
                % if a_in_registers:
                const __local uchar *a_slab = memory + stage * (A_BYTES + B_BYTES) + consumer * (CONSUMER_M * 128);
                % else:
                const uint a_slab = slab_memory + stage * (A_BYTES + B_BYTES) + consumer * (CONSUMER_M * 128);
                const ulong a_at = ${descriptor(operands[0])} | (a_slab & 0x3ffff) >> 4;
                % endif
                const uint b_slab = slab_memory + stage * (A_BYTES + B_BYTES) + A_BYTES;
                const ulong b_at = ${descriptor(operands[1])} | (b_slab & 0x3ffff) >> 4;
                await(full + 8 * stage, parity);
                % if a_in_registers:
                ${load_a()}
                % endif
                asm volatile("${mark}wgmma.fence.sync.aligned;" : : : "memory");
                #pragma unroll
                for (int step = 0; step < 4; ++step) {
                    #pragma unroll
                    for (int f = 0; f < FRAGMENTS; ++f) {
                        % if a_in_registers:
                        multiply_accumulate(accumulators[f], a_fragments[f][step], b_at + step * ${operands[1].step});
                        % else:
                        multiply_accumulate(accumulators[f], a_at + f * ${64 * 128 >> 4} + step * ${operands[0].step}, b_at + step * ${operands[1].step});
                        % endif
                    }
                }
                asm volatile("${mark}wgmma.commit_group.sync.aligned;" : : : "memory");
                % if waits_each:
                ${await_all()}
                if (thread == 0) {
                    arrive(empty + 8 * stage);
                }
                % if tiles.PROMOTE:
                if (${"true" if tiles.PROMOTE == 1 else f"slab % {tiles.PROMOTE} == {tiles.PROMOTE - 1} || slab == last - 1"}) {
                    #pragma unroll
                    for (int f = 0; f < FRAGMENTS; ++f) {
                        #pragma unroll
                        for (int i = 0; i < ${accumulators}; ++i) {
                            totals[f][i] += accumulators[f][i];
                            accumulators[f][i] = 0;
                        }
                    }
                }
                % endif
                % else:
                // One group of instructions stays on its way; the one before it is done.
                if (used >= 0) {
                    asm volatile("${mark}wgmma.wait_group.sync.aligned 1;" : : : "memory");
                    if (thread == 0) {
                        arrive(empty + 8 * used);
                    }
                }
                used = stage;
                % endif
                if (++stage == STAGES) {
                    stage = 0;
                    parity ^= 1;
                }
            }
            % if not waits_each:
            ${await_all()}
            if (thread == 0 && used >= 0) {
                arrive(empty + 8 * used);
            }
            % endif
            % if tiles.FILL:
            ${share.join_among(f"asm volatile(\"bar.sync {tiles.CONSUMERS + 1}, {warpgroup * tiles.CONSUMERS};\" : : : \"memory\");", "sharer", "sharer == 0", f"(f * {accumulators} + i) * {warpgroup * tiles.CONSUMERS}", f"{held}[f][i]", each_sum, 1)}
            % endif
            #pragma unroll
            for (int f = 0; f < FRAGMENTS; ++f) {
                const extent first_row = a_tile + consumer * CONSUMER_M + 64 * f;
                % if not staging:
                ${finish_directly()}
                % elif staging.turned:
                ${finish_turned()}
                % else:
                ${finish_staged()}
                % endif
            }
        }
        % if staging:
        if (thread == 0) {
            asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
        }
        % endif
</%def>

## The fragments of A of a slab. They lie there in boxes of 32 rows by 32 depths, rows contiguous.
<%def name="load_a()" filter="trim">
                uint a_fragments[FRAGMENTS][4][4];
                #pragma unroll
                for (int f = 0; f < FRAGMENTS; ++f) {
                    #pragma unroll
                    for (int step = 0; step < 4; ++step) {
                        #pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const int row = 64 * f + thread / 32 * 16 + i % 2 * 8 + lane / 4;
                            const int depth = 8 * step + i / 2 * 4 + lane % 4;
                            const int at = row / 32 * 4096 + depth * 128 + ((row % 32 / 4) ^ (depth & 7)) * 16 + row % 4 * 4;
                            a_fragments[f][step][i] = nearest_tf32(*(const __local float *)(a_slab + at));
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

## The result of element `place` of the sums, at `row` and `column`, in `value`. What is read outside
## of the matrices is left out.
<%def name="finish_one(place, row, column, guarded)" filter="trim">
<%
    bias_at = {"row": row, "column": column}.get(problem.bias, "")
    bias_inside = {"row": f"{row} < m", "column": f"{column} < n"}.get(problem.bias, "")
    bias = wide.load(f"bias + ({bias_at}) * bias_stride", 1)
    addend = wide.load(f"c + C_AT({row}, {column})", 1)
    if guarded:
        bias = f"({bias_inside} ? {bias} : 0)"
        addend = f"({row} < m && {column} < n ? {addend} : 0)"
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
                                ${finish_one(f"4 * j + 2 * half_fragment + {part}", "row", f"column + {part}" if part else "column", False)}
                                results${wide.lane(part, 2)} = value;
                            }
                            % endfor
                            ${wide.store("results", "out + OUT_AT(row, column)", 2)}
                            continue;
                        }
                        % endif
                        % for part in range(1 if whole else 2):
                        if (row < m && column${f" + {part}" if part else ""} < n) {
                            ${finish_one(f"4 * j + 2 * half_fragment + {part}", "row", f"column + {part}" if part else "column", False)}
                            ${wide.store("value", f"out + OUT_AT(row, column{f' + {part}' if part else ''})", 1)}
                        }
                        % endfor
                    }
                }
</%def>

## Results are collected in local memory, in boxes of 64 rows by 128 bytes, and copied from there.
<%def name="finish_staged()" filter="trim">
                #pragma unroll
                for (int chunk = 0; chunk < ${staging.chunks}; ++chunk) {
                    const uint boxes = slab_memory + STAGES * (A_BYTES + B_BYTES) + consumer * ${staging.boxes * 8192};
                    // The boxes of the chunk before have been read.
                    if (thread == 0) {
                        asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
                    }
                    asm volatile("bar.sync %0, ${warpgroup};" : : "r"(consumer + 1) : "memory");
                    #pragma unroll
                    for (int box = 0; box < ${staging.boxes}; ++box) {
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
                    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
                    asm volatile("bar.sync %0, ${warpgroup};" : : "r"(consumer + 1) : "memory");
                    if (thread == 0) {
                        #pragma unroll
                        for (int box = 0; box < ${staging.boxes}; ++box) {
                            store_box(boxes + box * 8192, out_map, b_tile + (chunk * ${staging.boxes} + box) * ${staging.map.elements}, first_row);
                        }
                        asm volatile("cp.async.bulk.commit_group;" : : : "memory");
                    }
                }
</%def>

## Four 8 x 8 matrices of 16-bit results: rows 0-7 and 8-15 of two groups of 8 columns.
<%def name="collect_halves()" filter="trim">
                            uint pairs[4];
                            % for quarter in range(4):
                            {
                                % if needs_row:
                                const extent row = first_row + thread / 32 * 16 + ${f"{8 * (quarter % 2)} + " if quarter % 2 else ""}lane / 4;
                                % endif
                                % if needs_column:
                                const extent column = b_tile + 8 * ${f"(j + {quarter // 2})" if quarter // 2 else "j"} + lane % 4 * 2;
                                % endif
                                wide left;
                                {
                                    ${finish_one(f"4 * j + {2 * quarter}", "row", "column", True)}
                                    left = value;
                                }
                                ${finish_one(f"4 * j + {2 * quarter + 1}", "row", "column + 1", True)}
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
                                % if needs_row:
                                const extent row = first_row + box_row;
                                % endif
                                % if needs_column:
                                const extent column = b_tile + 8 * j + lane % 4 * 2;
                                % endif
                                wide left;
                                {
                                    ${finish_one(f"4 * j + {2 * half_fragment}", "row", "column", True)}
                                    left = value;
                                }
                                ${finish_one(f"4 * j + {2 * half_fragment + 1}", "row", "column + 1", True)}
                                const uint at = boxes + box * 8192 + box_row * 128 + ((2 * q + lane % 4 / 2) ^ (box_row & 7)) * 16 + lane % 2 * 8;
                                asm volatile("st.shared.v2.b32 [%0], {%1, %2};" : : "r"(at), "${constraint}"(left), "${constraint}"(value) : "memory");
                            }
                            % endfor
</%def>

## As above, where columns of the result are contiguous: boxes of 64 columns by 32 rows.
<%def name="finish_turned()" filter="trim">
                #pragma unroll
                for (int chunk = 0; chunk < ${staging.chunks}; ++chunk) {
                    const uint boxes = slab_memory + STAGES * (A_BYTES + B_BYTES) + consumer * ${staging.boxes * 8192};
                    // The boxes of the chunk before have been read.
                    if (thread == 0) {
                        asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
                    }
                    asm volatile("bar.sync %0, ${warpgroup};" : : "r"(consumer + 1) : "memory");
                    #pragma unroll
                    for (int q = 0; q < ${staging.map.rows // 8}; ++q) {
                        #pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const int j = chunk * ${staging.map.rows // 8} + q;
                            const int within = thread / 32 * 16 + i / 2 * 8 + lane / 4;
                            const int box_row = 8 * q + lane % 4 * 2 + i % 2;
                            % if needs_row:
                            const extent row = first_row + within;
                            % endif
                            % if needs_column:
                            const extent column = b_tile + ${staging.map.rows} * chunk + box_row;
                            % endif
                            ${finish_one("4 * j + i", "row", "column", True)}
                            const uint at = boxes + within / 32 * 8192 + box_row * 128 + ((within % 32 / 4) ^ (box_row & 7)) * 16 + within % 4 * 4;
                            asm volatile("st.shared.b32 [%0], %1;" : : "r"(at), "${constraint}"(value) : "memory");
                        }
                    }
                    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
                    asm volatile("bar.sync %0, ${warpgroup};" : : "r"(consumer + 1) : "memory");
                    if (thread == 0) {
                        #pragma unroll
                        for (int box = 0; box < ${staging.boxes}; ++box) {
                            store_box(boxes + box * 8192, out_map, first_row + box * ${staging.map.elements}, b_tile + ${staging.map.rows} * chunk);
                        }
                        asm volatile("cp.async.bulk.commit_group;" : : : "memory");
                    }
                }
</%def>

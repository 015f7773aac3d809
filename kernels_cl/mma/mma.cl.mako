## Matrix units: a work-group computes a MWG x NWG tile of the result, slab of k by slab of k. Slabs keep
## the order of global memory and are copied past the registers or through them; sub-groups multiply their
## fragments.
<%namespace name="fragment" file="/common/matrix_fragment.mako"/>
<%namespace name="half" file="/common/ptx_half.mako"/>
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="ptx_activation" file="/common/ptx_activation.mako"/>
<%namespace name="stream_k" file="/common/stream_k.mako"/>
<%namespace name="slab" file="/mma/slab.mako"/>
<%namespace name="store" file="/mma/store.mako"/>
<%namespace name="tile" file="/common/tile.mako"/>
${prelude.types()}
typedef ${stored} stored;  // an element of A or B in local memory
% if not past_registers:
typedef ${vector} vector;  // 16 bytes that are copied at once
% endif
% if unit.spelling == "builtin":
typedef ${element.vector(unit.result_elements)} sums;  // a lane's elements of a fragment of the result
% endif

#define MWG ${tiles.MWG}  // rows of a work-group's tile
#define NWG ${tiles.NWG}  // columns of it
#define KWG ${tiles.KWG}  // depth of a slab
% if tiles.SLICES > 1:
#define SLICES ${tiles.SLICES}  // of sub-groups; each multiplies its own part of every slab
#define SLICE_DEPTH (KWG / SLICES)  // depth of that part
% endif
% if tiles.STAGES > 1:
#define STAGES ${tiles.STAGES}  // slabs of each operand in local memory
% endif
#define STEP ${unit.k * fragments.steps}  // depth of the fragments that are loaded at once
#define ITEMS ${work_items}  // work-items of a group
#define SUBGROUP_M ${tiles.MWG // tiles.SUBGROUPS_M}  // rows of a sub-group's tile
#define SUBGROUP_N ${tiles.NWG // tiles.SUBGROUPS_N}  // columns of it
#define A_FRAGMENTS (SUBGROUP_M / ${unit.m})
#define B_FRAGMENTS (SUBGROUP_N / ${unit.n})
% for one in slabs:
% if fragments.way == "ldmatrix" and not one.by_elements:
<% positions = "rows" if one.name == "a" else "columns" %>\
#define ${one.name.upper()}_LOADS (SUBGROUP_${one.index.upper()} / 16)  // of 16 ${positions} and 32 bytes along k
% endif
% endfor
% if collected:
#define COLLECTED_PITCH ${collected_pitch}  // results from one row to the next in local memory
<% row_vectors = "SUBGROUP_N" if collected.width == 1 else f"(SUBGROUP_N / {collected.width})" %>\
#define ROW_VECTORS ${row_vectors}  // vectors of ${collected.width} in a row of a sub-group's results
% endif
% if joined:
#define JOINED_PITCH ${joined.pitch}  // sums from one row of a slice's tile to the next in local memory
#define JOINED_TILE (MWG * JOINED_PITCH)
#define ROW_VECTORS (NWG / ${joined.width})  // vectors of ${joined.width} results in a row of the tile
% endif
% if tiles.FILL:
${stream_k.defines(tile_sums, "registers")}
% endif
% for one in slabs:

// ${one.name.upper()} in local memory: ${"k" if one.along_k else one.index} is contiguous, ${"other than" if one.turned else "as"} in global memory.
% if one.swizzle:
// Runs of ${one.swizzle.run} elements of a row are permuted, so that lanes that load at once use all banks.
% endif
#define ${one.name.upper()}_PITCH ${one.pitch}  // elements from one ${one.index if one.along_k else "k"} to the next
% if one.terms > 1:
#define ${one.name.upper()}_TERM ${one.rows * one.pitch}  // elements from one split term to the next
#define ${one.name.upper()}_SLAB (${one.terms} * ${one.name.upper()}_TERM)
% else:
#define ${one.name.upper()}_SLAB ${one.rows * one.pitch}  // elements of a slab
% endif
% if not one.by_elements and one.along_k:
#define ${one.name.upper()}_INDEX(position, depth) ((position) * ${one.name.upper()}_PITCH + (depth))
% elif not one.by_elements:
#define ${one.name.upper()}_INDEX(position, depth) ((depth) * ${one.name.upper()}_PITCH + (position))
% endif
% endfor

% if whole:
${prelude.address("whole_a", whole[0])}
${prelude.address("whole_b", whole[1])}
% endif
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

## If a long activation were inlined, NVIDIA's compiler would not unroll the loops over the accumulators,
## which would then lie in memory, or it would spill them.
% if approximates:
${ptx_activation.functions(pairs=False)}

${prelude.scaling()}
% else:
${prelude.epilogue(called=unit.spelling == "ptx" and problem.activation != "relu")}
% endif

${slab.functions()}

${fragment.functions()}
% if unit.packed_sums:

${half.unpacked("float2")}
% endif
% if tiles.FILL:

${stream_k.functions()}
% if unit.packed_sums:

${half.added()}
% endif
% endif

## The registers of fragments; with FRAGMENTS = 2 two sets that alternate.
<%def name="declare_fragments()" filter="trim">
<%
    buffers = "[2]" if tiles.FRAGMENTS == 2 else ""
    of_a, of_b = (products.a_numbers, unit.a_registers), (products.b_numbers, unit.b_registers)
%>\
% for name, (numbers, registers) in (("a", of_a), ("b", of_b)):
<% count = times(f"{name.upper()}_FRAGMENTS", registers * fragments.steps) %>\
    ${unit.register} ${products.array(name, buffers, numbers)}[${count}];
% endfor
</%def>

<%def name="load_fragments(buffer, p)" filter="trim">
    ${fragment.load(slabs[0], buffer, p)}
    ${fragment.load(slabs[1], buffer, p)}
</%def>

## Loads the fragments of a depth, then multiplies them.
<%def name="multiply_slab()" filter="trim">
% if unit.spelling == "ptx":
    #pragma unroll
% else:
    // If this were unrolled, the compiler would move the loads of all steps to the front, and spill registers.
    #pragma unroll 1
% endif
    for (int p = 0; p < ${slice_depth}; p += STEP) {
        ${declare_fragments()}
        ${load_fragments("", "p")}
        ${fragment.multiply("")}
    }
</%def>

## Before the first slab that is copied past the registers.
<%def name="start()" filter="trim">
% if tiles.FRAGMENTS == 2:
    ${declare_fragments()}
    ${slab.wait_for_slab()}
    ${slab.slab_pointers()}
    ${load_fragments("[0]", "0")}
% endif
</%def>

## Multiplies such a slab. The copies of another slab start as soon as this one has arrived.
<%def name="copy_and_multiply_slab()" filter="trim">
% if tiles.FRAGMENTS == 2:
    // While fragments are multiplied, those of the next depth are loaded, at the end of a slab those
    // of the next slab.
    #pragma unroll
    for (int p = 0; p < ${slice_depth}; p += STEP) {
        if (p + STEP == ${slice_depth}) {
            ${slab.wait_for_slab()}
            ${slab.next_stage()}
            ${slab.move_slab_pointers()}
        }
        ${load_fragments("[(p / STEP + 1) % 2]", f"(p + STEP) % {slice_depth}")}
        if (p == 0) {
            ${slab.copy_next()}
        }
        ${fragment.multiply("[p / STEP % 2]")}
    }
% else:
    ${slab.wait_for_slab()}
    ${slab.copy_next()}
    ${slab.slab_pointers()}
    ${multiply_slab()}
    ${slab.next_stage()}
% endif
</%def>

<%def name="clear_sums()" filter="trim">
% if unit.spelling == "builtin":
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        #pragma unroll
        for (int j = 0; j < B_FRAGMENTS; ++j) {
            accumulators[i][j] = (sums)(0);
        }
    }
% else:
    <%call expr="each_sum()">
        accumulators[i][j]${products.sum_at("number")}[r] = 0;
    </%call>
% endif
</%def>

## The loop over a lane's sums, `accumulators[i][j][r]`, or `[i][j][number][r]` for complex elements.
<%def name="each_sum()" filter="trim">
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        #pragma unroll
        for (int j = 0; j < B_FRAGMENTS; ++j) {
            % if products.complex:
            #pragma unroll
            for (int number = 0; number < ${products.sums}; ++number) {
            % endif
            #pragma unroll
            for (int r = 0; r < ${unit.result_registers}; ++r) {
                ${capture(caller.body) | trim}
            }
            % if products.complex:
            }
            % endif
        }
    }
</%def>

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({work_items}, 1, 1)))", arguments)}
{
% for one in slabs:
<% elements = times("STAGES" if tiles.STAGES > 1 else 1, f"{one.name.upper()}_SLAB") %>\
% if collected and collected.elements and collected.slab == one.name:
    // More than its slabs need, so that it also holds the results that the sub-groups collect.
<% elements = collected.elements %>\
% endif
    __local stored ${one.name}_local[${elements}] __attribute__((aligned(16)));
% endfor
% if tiles.FILL:
    ${stream_k.locals()}
% endif
    ${prelude.offsets("a", "b", "out", *(("whole_a", "whole_b") if whole else ()))}

% if tiles.GROUP_M > 1 or tiles.FILL or moved:
    const extent tiles_m = (m + MWG - 1) / MWG;
% endif
    const extent tiles_n = (n + NWG - 1) / NWG;
% if tiles.FILL:
    ${stream_k.begin()}
% else:
    ${prelude.own_group("tile", "tiles_m * tiles_n")}
% endif
    ${tile.first_entry("own_tile" if tiles.FILL and moved else "tile")}
    const int item = get_local_id(0);
    const int lane = item % ${unit.lanes};
    const int a_first = item / ${unit.lanes} % ${tiles.SUBGROUPS_M} * SUBGROUP_M;
    const int b_first = ${b_first};
% if tiles.SLICES > 1:
    const int slice = item / ${unit.lanes * tiles.tile_subgroups};
% endif

% if unit.spelling == "builtin":
    sums accumulators[A_FRAGMENTS][B_FRAGMENTS];
% else:
    ${unit.result_register} accumulators[A_FRAGMENTS][B_FRAGMENTS]${sums_of_element}[${unit.result_registers}];
% endif
    ${clear_sums()}

% if past_registers:
    ${slab.walk_past_registers(start, copy_and_multiply_slab)}
% else:
    ${slab.walk_through_registers(multiply_slab)}
% endif

% if tiles.FILL:
    ${stream_k.join(each_sum)}
% endif
    ${store.store_results()}
% if tiles.FILL:
    ${stream_k.end()}
% endif
}

## Copying slabs of A and B into local memory, k-major.
##
## Through registers a copy takes two steps: `fetch_a` reads a work-item's vectors from global memory,
## `store_a` writes them to local memory. So the next slab can be read while this one is multiplied.
## `copy_a` does both at once, past the registers. The same holds for B.
##
## `slab` is a SlabReader (pyclgemm/families/tiled/codegen.py). Context: also first_depth and last_depth (in
## C: the depths that a work-group multiplies).
<%namespace name="async_copy" file="/common/async_copy.mako"/>
<%namespace name="fragment" file="/common/fragment.mako"/>

<%def name="functions(slab)" filter="trim">
% if tiles.ASYNC:
${copy_function(slab)}
% else:
${fetch_function(slab)}

${store_function(slab)}
% endif
</%def>

## The loop over a work-item's vectors.
<%def name="each_vector(slab)" filter="trim">
% if slab.vectors > 1:
    #pragma unroll
    for (int i = 0; i < ${slab.vectors}; ++i) {
        ${capture(caller.body) | trim}
    }
% else:
    ${capture(caller.body) | trim}
% endif
</%def>

## Where vector i starts in the slab.
<%def name="indices(slab)" filter="trim">
% for name, value in slab.indices:
    const int ${name} = ${value};
% endfor
</%def>

## Vectors that the matrix's edge may cut are read element by element, unless the whole slab is inside.
<%def name="fetch_function(slab)" filter="trim">
% if slab.edges == "none":
// Reads this work-item's vectors of a slab of ${slab.upper}.
% else:
// Reads this work-item's vectors of a slab of ${slab.upper}. Elements outside the matrix are zero, and add nothing.
% endif
static inline void fetch_${slab.name}(
    ${slab.vector} *fetched, const __global ${slab.element.stored} *${slab.name}_from${slab.parameters})
{
% if slab.edges == "elements":
    if (${slab.name}_tile + ${"MWG" if slab.name == "a" else "NWG"} <= ${slab.tile_index} && depth + KWG <= k) {
        ${fetch_whole(slab)}
    } else {
        <%call expr="each_vector(slab)">
        ${indices(slab)}
        % for lane in range(slab.copy.width):
<% component = slab.element.lane(lane, slab.copy.width) %>\
        fetched[${slab.i}]${component} = ${slab.is_inside(lane)} ? ${slab.read(lane, 1)} : (element)(0);
        % endfor
        </%call>
    }
% elif slab.edges == "vectors":
    <%call expr="each_vector(slab)">
        ${indices(slab)}
        fetched[${slab.i}] = ${slab.is_inside(0)} ? ${slab.read()} : (${slab.vector})(0);
    </%call>
% else:
    ${fetch_whole(slab)}
% endif
}
</%def>

<%def name="fetch_whole(slab)" filter="trim">
    <%call expr="each_vector(slab)">
        fetched[${slab.i}] = ${slab.read()};
    </%call>
</%def>

<%def name="store_function(slab)" filter="trim">
// Writes them to local memory.
static inline void store_${slab.name}(
    __local element *slab, const ${slab.vector} *fetched, const int ${slab.name}_unit, const int ${slab.name}_other)
{
    <%call expr="each_vector(slab)">
    ${indices(slab)}
    % if slab.along_tile:
        *(__local ${slab.vector} *)(slab + ${slab.local_index()}) = fetched[${slab.i}];
    % else:
        % for lane in range(slab.copy.width):
        slab[${slab.local_index(lane)}] = fetched[${slab.i}]${slab.element.lane(lane, slab.copy.width)};
        % endfor
    % endif
    </%call>
}
</%def>

<%def name="copy_function(slab)" filter="trim">
<%
    size = slab.element.stored_bytes
    vector_bytes = slab.copy.width * size
    # Bytes at the start of vector i that belong to the matrix.
    inside = vector_bytes
    if slab.edges == "vectors":
        inside = f"({slab.is_inside(0)} ? {vector_bytes} : 0)"
    elif slab.edges == "elements":
        elements = f"{slab.tile_index} - {slab.name}_tile - {slab.unit}"
        count = f"clamp({elements}, (extent)0, (extent){slab.copy.width})"
        inside = f"(depth + {slab.other} < k ? (int){count} * {size} : 0)"
%>
% if slab.edges == "none":
// Starts the copies of this work-item's vectors of a slab of ${slab.upper}.
% else:
// Starts the copies of this work-item's vectors of a slab of ${slab.upper}. Elements outside the matrix are zero,
// and add nothing.
% endif
static inline void copy_${slab.name}(
    __local element *slab, const __global ${slab.element.stored} *${slab.name}_from${slab.parameters})
{
    <%call expr="each_vector(slab)">
        ${indices(slab)}
        ${async_copy.copy(f"slab + {slab.local_index()}", slab.pointer(), vector_bytes, inside)}
    </%call>
}
</%def>

## A work-item's vectors of a slab.
<%def name="declare(slab)" filter="trim">
<% index = slab.tile_index if slab.along_tile else "k" %>\
    // A work-item copies vectors of ${slab.copy.width} along ${index} of a slab of ${slab.upper};
    // ${slab.copy.unit_items} neighbouring work-items copy a row together.
    const int ${slab.name}_unit = ${times(modulo("item", slab.copy.unit_items), slab.copy.width)};
    const int ${slab.name}_other = ${divided("item", slab.copy.unit_items)};
    % if not tiles.ASYNC:
    ${slab.vector} ${slab.name}_fetched[${slab.vectors}];
    % endif
</%def>

## The pointer from which the next slab is read; the first slab is at `first_depth`.
<%def name="begin(slab)" filter="trim">
<%
    along, depth = slab.by_index(f"{slab.name}_unit", f"{slab.name}_other")
    entry = [f"{slab.name}_tile + {along}", plus(first_depth, depth)]
    offset = f"{slab.upper}_AT({', '.join(entry if slab.name == 'a' else entry[::-1])})"
%>\
    const __global ${slab.element.stored} *${slab.name}_from = ${slab.name} + ${offset};
</%def>

<%def name="fetch(slabs)" filter="trim">
    % for slab in slabs:
    fetch_${slab.name}(${slab.name}_fetched, ${slab.name}_from${slab.arguments});
    ${slab.name}_from += ${slab.advance};
    % endfor
</%def>

<%def name="store(slabs, stage)" filter="trim">
    % for slab in slabs:
    store_${slab.name}(${slab.in_stage(stage)}, ${slab.name}_fetched, ${slab.name}_unit, ${slab.name}_other);
    % endfor
</%def>

<%def name="copy(slabs, stage)" filter="trim">
    % for slab in slabs:
    copy_${slab.name}(${slab.in_stage(stage)}, ${slab.name}_from${slab.arguments});
    ${slab.name}_from += ${slab.advance};
    % endfor
</%def>

## The loop over the slabs from first_depth to last_depth; `multiply` writes the multiply-adds
## of a slab.
<%def name="walk(slabs, multiply)" filter="trim">
    #pragma unroll 1
    for (extent depth = ${first_depth}; depth < ${last_depth}; depth += KWG) {
        % if slabs:
        ${fetch(slabs)}
        ${store(slabs, "")}
        barrier(CLK_LOCAL_MEM_FENCE);
        % endif
        ${multiply()}
        % if slabs:
        barrier(CLK_LOCAL_MEM_FENCE);
        % endif
    }
</%def>

## The same with two slabs of each operand in local memory: while one is multiplied, the next is read to
## registers and then written to the other stage. Each slab takes one barrier.
<%def name="walk_ahead(slabs, multiply)" filter="trim">
    extent depth = ${first_depth};
    ${fetch(slabs)}
    ${store(slabs, "")}
    barrier(CLK_LOCAL_MEM_FENCE);
    int stage = 0;
    #pragma unroll 1
    while (depth < ${last_depth}) {
        ${slab_pointers(slabs)}
        depth += KWG;
        const bool more = depth < ${last_depth};
        if (more) {
            ${fetch(slabs)}
        }
        ${multiply()}
        stage ^= 1;
        if (more) {
            ${store(slabs, "stage")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

## The same past the registers, with `stages` slabs in local memory, of which all but one are being copied.
## A copy is complete once its work-item has waited for it and all have passed the barrier.
<%def name="walk_past_registers(slabs, stages, multiply)" filter="trim">
    ${fill_stages(slabs, stages - 1)}
    #pragma unroll 1
    for (extent multiplied = ${first_depth}; multiplied < ${last_depth}; multiplied += KWG) {
        ${async_copy.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
        ${copy_next(slabs, stages)}
        ${slab_pointers(slabs)}
        ${multiply()}
        stage = stage == ${stages - 1} ? 0 : stage + 1;
    }
</%def>

<%def name="fill_stages(slabs, count)" filter="trim">
    extent depth = ${first_depth};  // of the slab that is copied next
% if count > 1:
    #pragma unroll
    for (int stage = 0; stage < ${count}; ++stage) {
        ${fill_stage(slabs, "stage")}
    }
% else:
    ${fill_stage(slabs, "")}
% endif
    int stage = 0;
    int stage_to_fill = ${count};
</%def>

<%def name="fill_stage(slabs, stage)" filter="trim">
    if (depth < ${last_depth}) {
        ${copy(slabs, stage)}
    }
    ${async_copy.end_group()}
    depth += KWG;
</%def>

<%def name="copy_next(slabs, stages)" filter="trim">
    ${fill_stage(slabs, "stage_to_fill")}
    stage_to_fill = stage_to_fill == ${stages - 1} ? 0 : stage_to_fill + 1;
</%def>

## Loops that keep the fragments of two rows in registers, so that no multiply-add waits for local memory,
## not even at the start of a slab (as CUTLASS pipelines its warp-level tiles: "Efficient GEMM in CUDA",
## section "Pipelining").
<%def name="walk_ahead_with_fragments(slabs, tile)" filter="trim">
    extent depth = ${first_depth};  // of the slab that is fetched next
    ${fetch(slabs)}
    ${store(slabs, "")}
    barrier(CLK_LOCAL_MEM_FENCE);
    depth += KWG;
    int stage = 0;
    ${no_fragments()}
<%def name="start()" filter="trim">
    if (depth < ${last_depth}) {
        ${fetch(slabs)}
    }
</%def>
    #pragma unroll 1
    for (; depth < ${last_depth} + KWG; depth += KWG) {
        ${slab_pointers(slabs)}
        ${fragment.rows_of_slab()}
        ${tile.multiply_behind(start)}
        stage ^= 1;
        if (depth < ${last_depth}) {
            ${store(slabs, "stage")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    ${tile.multiply_fragments("a_fragments[1]", "b_fragments[1]")}
</%def>

<%def name="walk_past_registers_with_fragments(slabs, stages, tile)" filter="trim">
    ${fill_stages(slabs, stages - 1)}
    ${async_copy.wait(stages - 2)}
    barrier(CLK_LOCAL_MEM_FENCE);
    ${no_fragments()}
<%def name="start()" filter="trim">
    ${copy_next(slabs, stages)}
</%def>
    #pragma unroll 1
    for (extent multiplied = ${first_depth}; multiplied < ${last_depth}; multiplied += KWG) {
        ${slab_pointers(slabs)}
        ${fragment.rows_of_slab()}
        ${tile.multiply_behind(start)}
        stage = stage == ${stages - 1} ? 0 : stage + 1;
        ${async_copy.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    ${tile.multiply_fragments("a_fragments[1]", "b_fragments[1]")}
</%def>

## Before the first slab there is no previous row; zeros stand for it.
<%def name="no_fragments()" filter="trim">
    element a_fragments[2][MWI];
    element b_fragments[2][NWI];
    #pragma unroll
    for (int i = 0; i < MWI; ++i) {
        a_fragments[1][i] = (element)(0);
    }
    #pragma unroll
    for (int j = 0; j < NWI; ++j) {
        b_fragments[1][j] = (element)(0);
    }
</%def>

<%def name="slab_pointers(slabs)" filter="trim">
    % for slab in slabs:
    const __local element *${slab.name}_slab = ${slab.name}_local + stage * (KWG * ${slab.upper}_PITCH);
    % endfor
</%def>

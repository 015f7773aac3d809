## Copying slabs of A and B into local memory, k-major.
##
## Through registers it takes two steps: `fetch` reads a work-item's share of a slab from global
## memory, `stage` writes it to local memory; apart, so that the next slab can be on its way
## while this one is multiplied. `copy_past_registers` does both at once.
## A slab is described by a SlabReader (pyclgemm/slab_reader.py).
<%namespace name="async_copy" file="/common/async_copy.mako"/>
<%namespace name="fragment" file="/common/fragment.mako"/>

<%def name="declare(slab)" filter="trim">
    // This work-item's share in copying a slab of ${slab.name.upper()}: vectors of ${slab.copy.width} along ${slab.unit_index},
    // of which ${slab.copy.unit_items} work-items take neighbouring ones.
    const int ${slab.name}_unit = item % ${slab.copy.unit_items} * ${slab.copy.width};
    const int ${slab.name}_other = item / ${slab.copy.unit_items};
    % if not slab.past_registers:
    ${slab.vector} ${slab.name}_fetched[${slab.vectors}];
    % endif
</%def>

## From where the next slab is read, at first the one at `first_depth`.
<%def name="begin(slab)" filter="trim">
    const __global ${slab.element.stored} *${slab.name}_from = ${slab.start};
</%def>

## The loops over a work-item's vectors: number i starts at (unit, other) of the slab.
<%def name="each_vector(slab)" filter="trim">
    #pragma unroll
    for (int i = 0; i < ${slab.vectors}; ++i) {
        const int unit = ${slab.unit_of_i};
        const int other = ${slab.other_of_i};
        ${capture(caller.body) | trim}
    }
</%def>

## What lies outside the matrix is zero, and adds nothing. Vectors that the edge may cut are read
## element by element, where the slab is not wholly inside.
<%def name="fetch(slab)" filter="trim">
% if slab.edges == "elements":
    if (${slab.name}_inside && depth + KWG <= k) {
        ${fetch_vectors(slab)}
    } else {
        <%call expr="each_vector(slab)">
        % for lane in range(slab.copy.width):
            ${slab.name}_fetched[i]${slab.lane(lane)} = ${slab.is_inside(lane)} ? ${slab.read_one(lane)} : (element)(0);
        % endfor
        </%call>
    }
% elif slab.edges == "vectors":
    <%call expr="each_vector(slab)">
        ${slab.name}_fetched[i] = ${slab.is_inside(0)} ? ${slab.read()} : (${slab.vector})(0);
    </%call>
% else:
    ${fetch_vectors(slab)}
% endif
    ${slab.name}_from += ${slab.advance};
</%def>

<%def name="fetch_vectors(slab)" filter="trim">
    #pragma unroll
    for (int i = 0; i < ${slab.vectors}; ++i) {
        ${slab.name}_fetched[i] = ${slab.read()};
    }
</%def>

<%def name="stage(slab, start)" filter="trim">
    <%call expr="each_vector(slab)">
    % if slab.unit == "tile":
        *(__local ${slab.vector} *)(${start} + ${slab.name.upper()}_PLACE(other, unit)) = ${slab.name}_fetched[i];
    % else:
        % for lane in range(slab.copy.width):
        ${start}[${slab.name.upper()}_PLACE(unit + ${lane}, other)] = ${slab.name}_fetched[i]${slab.lane(lane)};
        % endfor
    % endif
    </%call>
</%def>

<%def name="copy_past_registers(slab)" filter="trim">
    <%call expr="each_vector(slab)">
        ${async_copy.copy(f"{slab.name}_to + {slab.place}", slab.pointer(), slab.bytes, slab.bytes_inside())}
    </%call>
    ${slab.name}_from += ${slab.advance};
</%def>

## The loop over the slabs from first_depth to last_depth; `multiply` writes the multiply-adds
## of a slab.
<%def name="walk(slabs, multiply)" filter="trim">
    #pragma unroll 1
    for (extent depth = first_depth; depth < last_depth; depth += KWG) {
        % for slab in slabs:
        ${fetch(slab)}
        % endfor
        % for slab in slabs:
        ${stage(slab, f"{slab.name}_local")}
        const __local element *${slab.name}_slab = ${slab.name}_local;
        % endfor
        % if slabs:
        barrier(CLK_LOCAL_MEM_FENCE);
        % endif
        ${multiply()}
        % if slabs:
        barrier(CLK_LOCAL_MEM_FENCE);
        % endif
    }
</%def>

## The same with two slabs of each operand in local memory: while one is multiplied, the
## next is on its way, first to registers and then to the other half. One barrier a slab.
<%def name="walk_ahead(slabs, multiply)" filter="trim">
    extent depth = first_depth;
    % for slab in slabs:
    ${fetch(slab)}
    % endfor
    % for slab in slabs:
    ${stage(slab, f"{slab.name}_local")}
    % endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    int half_in_use = 0;
    #pragma unroll 1
    while (depth < last_depth) {
        ${slab_pointers(slabs, "half_in_use")}
        depth += KWG;
        const bool more = depth < last_depth;
        if (more) {
            % for slab in slabs:
            ${fetch(slab)}
            % endfor
        }
        ${multiply()}
        half_in_use ^= 1;
        if (more) {
            % for slab in slabs:
            __local element *${slab.name}_next = ${slab.name}_local + half_in_use * (KWG * ${slab.name.upper()}_PITCH);
            ${stage(slab, f"{slab.name}_next")}
            % endfor
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

## The same past the registers, with `stages` slabs in local memory, all but one on their way.
## A copy is in place once its work-item has waited for it and all have met at the barrier.
<%def name="walk_past_registers(slabs, stages, multiply)" filter="trim">
    ${fill_stages(slabs, stages - 1)}
    #pragma unroll 1
    for (extent multiplied = first_depth; multiplied < last_depth; multiplied += KWG) {
        ${async_copy.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
        ${copy_next(slabs, stages)}
        ${slab_pointers(slabs, "stage")}
        ${multiply()}
        stage = stage == ${stages - 1} ? 0 : stage + 1;
    }
</%def>

<%def name="fill_stages(slabs, count)" filter="trim">
    extent depth = first_depth;  // of the slab that is copied next
    #pragma unroll
    for (int stage = 0; stage < ${count}; ++stage) {
        if (depth < last_depth) {
            % for slab in slabs:
            __local element *${slab.name}_to = ${slab.name}_local + stage * (KWG * ${slab.name.upper()}_PITCH);
            ${copy_past_registers(slab)}
            % endfor
        }
        ${async_copy.end_group()}
        depth += KWG;
    }
    int stage = 0;
    int stage_to_fill = ${count};
</%def>

<%def name="copy_next(slabs, stages)" filter="trim">
    if (depth < last_depth) {
        % for slab in slabs:
        __local element *${slab.name}_to = ${slab.name}_local + stage_to_fill * (KWG * ${slab.name.upper()}_PITCH);
        ${copy_past_registers(slab)}
        % endfor
    }
    ${async_copy.end_group()}
    depth += KWG;
    stage_to_fill = stage_to_fill == ${stages - 1} ? 0 : stage_to_fill + 1;
</%def>

## The walks that keep the fragments of two rows in registers, so that no multiply-add waits for
## local memory, at the start of a slab either (as CUTLASS pipelines its warp-level tiles:
## "Efficient GEMM in CUDA", section "Pipelining").
<%def name="walk_ahead_with_fragments(slabs, tile)" filter="trim">
    extent depth = first_depth;  // of the slab that is fetched next
    % for slab in slabs:
    ${fetch(slab)}
    % endfor
    % for slab in slabs:
    ${stage(slab, f"{slab.name}_local")}
    % endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    depth += KWG;
    int half_in_use = 0;
    ${no_fragments()}
<%def name="start()" filter="trim">
    if (depth < last_depth) {
        % for slab in slabs:
        ${fetch(slab)}
        % endfor
    }
</%def>
    #pragma unroll 1
    for (; depth < last_depth + KWG; depth += KWG) {
        ${slab_pointers(slabs, "half_in_use")}
        ${fragment.rows_of_slab()}
        ${tile.multiply_behind(start)}
        half_in_use ^= 1;
        if (depth < last_depth) {
            % for slab in slabs:
            __local element *${slab.name}_next = ${slab.name}_local + half_in_use * (KWG * ${slab.name.upper()}_PITCH);
            ${stage(slab, f"{slab.name}_next")}
            % endfor
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
    for (extent multiplied = first_depth; multiplied < last_depth; multiplied += KWG) {
        ${slab_pointers(slabs, "stage")}
        ${fragment.rows_of_slab()}
        ${tile.multiply_behind(start)}
        stage = stage == ${stages - 1} ? 0 : stage + 1;
        ${async_copy.wait(stages - 2)}
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    ${tile.multiply_fragments("a_fragments[1]", "b_fragments[1]")}
</%def>

## Before the first slab there is no row left over: zeros are multiplied.
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

<%def name="slab_pointers(slabs, stage)" filter="trim">
    % for slab in slabs:
    const __local element *${slab.name}_slab = ${slab.name}_local + ${stage} * (KWG * ${slab.name.upper()}_PITCH);
    % endfor
</%def>

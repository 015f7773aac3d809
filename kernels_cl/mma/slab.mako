## Slabs of A and B on their way into local memory, where they lie as in memory.
##
## Past the registers, `copy_past_registers` starts a slab's copies. Through them it takes two
## steps: `fetch` reads a work-item's share from global memory, `write` takes it to local memory;
## apart, so that the next slab can be on its way while this one is multiplied.
##
## Context: slabs (MatrixSlab), tiles (a MatrixConfig), past_registers, piece (C type of what is copied
## at once). The text sees the depths that a work-group multiplies, from `first_depth` to `last_depth`.
<%namespace name="async_copy" file="/common/async_copy.mako"/>
<%! added = lambda step: f" + {step}" if step else "" %>

## Where copy number i of this work-item lies: in row `row` of the slab, from element `within` on.
<%def name="place(slab)" filter="trim">
    ${place_in_slab(slab)}
    % if slab.along_k:
    const extent position = ${slab.name}_tile + row;
    const extent from = depth + within;
    % else:
    const extent from = depth + row;
    const extent position = ${slab.name}_tile + within;
    % endif
</%def>

<%def name="place_in_slab(slab)" filter="trim">
<% copy = "copy" if slab.parts > 1 else "i" %>
    % if slab.parts > 1:
    const int part = i / ${slab.copies};
    const int copy = i % ${slab.copies};
    % endif
    % if past_registers:
    const int row = ${slab.name}_row${added(slab.row_step(copy))};
    const int within = ${slab.name}_within${added(slab.within_step(copy))};
    % else:
    const int chunk = item + ${copy} * ITEMS;
    const int within = chunk % ${slab.chunks} * ${slab.width};
    const int row = chunk / ${slab.chunks};
    % endif
</%def>

## Elements from a part of an operand to the next.
<%def name="part_sizes()" filter="trim">
    % for slab in slabs:
    % if slab.parts > 1:
    const long ${slab.name}_part = (long)${slab.index} * ${slab.name}_${"row" if slab.name == "a" else "column"}_stride;  // elements from a part to the next
    % endif
    % endfor
</%def>

## A work-item's first copy of a slab: its place there, and where that of the next slab comes from.
## Other copies are at the same distance from it in all work-items.
<%def name="first_copies()" filter="trim">
    ${part_sizes()}
    % for slab in slabs:
    const int ${slab.name}_row = item / ${slab.chunks};
    const int ${slab.name}_within = item % ${slab.chunks} * ${slab.width};
    const __global ${slab.element.stored} *${slab.name}_next = ${slab.name} + ${slab.name.upper()}_AT(${slab.at(*((f"{slab.name}_tile + {slab.name}_row", f"first_depth + {slab.name}_within") if slab.along_k else (f"{slab.name}_tile + {slab.name}_within", f"first_depth + {slab.name}_row")))});
    % endfor
</%def>

## Where it comes from.
<%def name="source(slab)" filter="trim">
${slab.name} + ${f"part * {slab.name}_part + " if slab.parts > 1 else ""}${slab.name.upper()}_AT(${slab.at("position", "from")})
</%def>

## How many of its elements lie inside the matrix.
<%def name="inside(slab)" filter="trim">
    % if slab.edges == "pieces":
    const int inside = position < ${slab.index} && from < last_depth ? ${slab.width} : 0;
    % elif slab.along_k:
    const int inside = position < ${slab.index} ? clamp(last_depth - from, (extent)0, (extent)${slab.width}) : 0;
    % else:
    const int inside = from < last_depth ? clamp(${slab.index} - position, (extent)0, (extent)${slab.width}) : 0;
    % endif
</%def>

## Where it goes.
<%def name="target(slab, stage)" filter="trim">
${slab.name}_local + ${stage} * ${slab.name.upper()}_SLAB + ${f"part * {slab.name.upper()}_PART + " if slab.parts > 1 else ""}row * ${slab.name.upper()}_PITCH + within
</%def>

<%def name="copy_past_registers(stage)" filter="trim">
    % for slab in slabs:
    #pragma unroll
    for (int i = 0; i < ${slab.parts * slab.copies}; ++i) {
        ${place(slab)}
        ${inside(slab)}
        // What lies outside the matrix is not read, but zero, and adds nothing.
        ${async_copy.copy(capture(target, slab, stage).strip(), capture(next_source, slab).strip(), 16, f"inside * {slab.element.stored_bytes}")}
    }
    ${slab.name}_next += ${slab.name.upper()}_AT(${slab.at("0", "KWG")});
    % endfor
</%def>

<%def name="next_source(slab)" filter="trim">
<%
    copy = "copy" if slab.parts > 1 else "i"
    row, within = slab.row_step(copy) or "0", slab.within_step(copy) or "0"
%>
${slab.name}_next + ${f"part * {slab.name}_part + " if slab.parts > 1 else ""}${slab.name.upper()}_AT(${slab.at(row, within) if slab.along_k else slab.at(within, row)})
</%def>

## A work-item's share of the slabs on their way.
<%def name="declare()" filter="trim">
    % for slab in slabs:
    piece ${slab.name}_fetched[${slab.parts * slab.copies}];
    const bool ${slab.name}_inside = ${slab.name}_tile + ${"MWG" if slab.name == "a" else "NWG"} <= ${slab.index};
    % endfor
</%def>

<%def name="fetch()" filter="trim">
    % for slab in slabs:
    if (${slab.name}_inside && depth + KWG <= last_depth) {
        #pragma unroll
        for (int i = 0; i < ${slab.parts * slab.copies}; ++i) {
            ${place(slab)}
            ${fetch_whole(slab)}
        }
    } else {
        // What lies outside the matrix is zero, and adds nothing.
        #pragma unroll
        for (int i = 0; i < ${slab.parts * slab.copies}; ++i) {
            ${place(slab)}
            ${slab.name}_fetched[i] = (piece)(0);
            % if slab.edges == "pieces":
            if (position < ${slab.index} && from < last_depth) {
                ${slab.name}_fetched[i] = *(const __global piece *)(${capture(source, slab).strip()});
            }
            % else:
            ${inside(slab)}
            const __global stored *first = (const __global stored *)(${slab.name} + (inside ? ${slab.name.upper()}_AT(${slab.at("position", "from")}) : 0));
            % for one in range(slab.width):
            if (${one} < inside) ${slab.name}_fetched[i].s${"0123456789abcdef"[one]} = first[${one}];
            % endfor
            % endif
        }
    }
    % endfor
</%def>

## A piece that lies inside the matrix.
<%def name="fetch_whole(slab)" filter="trim">
% if slab.vector == slab.width:
            ${slab.name}_fetched[i] = *(const __global piece *)(${capture(source, slab).strip()});
% else:
            const __global stored *first = (const __global stored *)(${capture(source, slab).strip()});
            % for one in range(0, slab.width, slab.vector):
            ${slab.name}_fetched[i].s${"0123456789abcdef"[one:one + slab.vector]} = ${f"first[{one}]" if slab.vector == 1 else f"*(const __global {stored}{slab.vector} *)(first + {one})"};
            % endfor
% endif
</%def>

<%def name="write(stage)" filter="trim">
    % for slab in slabs:
    #pragma unroll
    for (int i = 0; i < ${slab.parts * slab.copies}; ++i) {
        ${place_in_slab(slab)}
        *(__local piece *)(${capture(target, slab, stage).strip()}) = ${slab.name}_fetched[i];
    }
    % endfor
</%def>

## The loop over the slabs with STAGES of each operand in local memory, all but one on their way.
## A copy is in place once its work-item has waited for it and all have met at the barrier.
<%def name="walk_past_registers(stages, start, multiply)" filter="trim">
    ${first_copies()}
    extent depth = first_depth;  // of the slab that is copied next
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        ${copy_past_registers("stage")}
        ${async_copy.end_group()}
        depth += KWG;
    }
    int stage = 0;
    int stage_to_fill = STAGES - 1;
    ${start()}
    #pragma unroll 1
    for (extent multiplied = first_depth; multiplied < last_depth; multiplied += KWG) {
        ${multiply()}
    }
    ${async_copy.wait(0)}
</%def>

## All that were to be in place are, and what was multiplied last may be written over.
<%def name="meet(stages)" filter="trim">
    ${async_copy.wait(stages - 2)}
    barrier(CLK_LOCAL_MEM_FENCE);
</%def>

## Start the copies of one more slab, into the place of the one that all have multiplied.
<%def name="copy_next()" filter="trim">
    ${copy_past_registers("stage_to_fill")}
    ${async_copy.end_group()}
    depth += KWG;
    stage_to_fill = stage_to_fill == STAGES - 1 ? 0 : stage_to_fill + 1;
</%def>

<%def name="next_stage()" filter="trim">
    stage = stage == STAGES - 1 ? 0 : stage + 1;
</%def>

## The loop over the slabs with one or two of each operand in local memory: while one is multiplied,
## the next is on its way, first to registers, then to the other half, or in the place of the one
## that all have multiplied.
<%def name="walk_through_registers(stages, multiply)" filter="trim">
    ${part_sizes()}
    ${declare()}
    extent depth = first_depth;  // of the slab that is fetched
    ${fetch()}
    ${write("0")}
    barrier(CLK_LOCAL_MEM_FENCE);
    % if stages == 1:
    const int stage = 0;
    % else:
    int stage = 0;
    % endif
    #pragma unroll 1
    while (depth < last_depth) {
        ${slab_pointers()}
        depth += KWG;
        const bool more = depth < last_depth;
        if (more) {
            ${fetch()}
        }
        ${multiply()}
        % if stages == 1:
        barrier(CLK_LOCAL_MEM_FENCE);
        % else:
        stage ^= 1;
        % endif
        if (more) {
            ${write("stage")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

## Where the part of the slab starts that this sub-group multiplies.
<%def name="in_stage(slab)" filter="trim">
${slab.name}_local + stage * ${slab.name.upper()}_SLAB${f" + {slab.name.upper()}_PLACE(0, slice * SLICE_DEPTH)" if tiles.SLICES > 1 else ""}
</%def>

<%def name="slab_pointers()" filter="trim">
    % for slab in slabs:
    const __local stored *${slab.name}_slab = ${in_stage(slab)};
    % endfor
</%def>

<%def name="move_slab_pointers()" filter="trim">
    % for slab in slabs:
    ${slab.name}_slab = ${in_stage(slab)};
    % endfor
</%def>

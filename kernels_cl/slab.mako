## Copying slabs of A and B through registers into local memory, k-major.
##
## `fetch` reads a work-item's share of a slab from global memory into registers, `stage`
## writes it to local memory: apart, so that the next slab can be on its way while this one
## is multiplied. `slab` is a SlabReader (pyclgemm/codegen.py).

<%def name="declare(slab)" filter="trim">
    // This work-item's share in copying a slab of ${slab.name.upper()}: vectors of ${slab.copy.width} along ${slab.unit_index},
    // of which ${slab.copy.unit_items} work-items take neighbouring ones.
    const int ${slab.name}_unit = item % ${slab.copy.unit_items} * ${slab.copy.width};
    const int ${slab.name}_other = item / ${slab.copy.unit_items};
    ${slab.vector} ${slab.name}_fetched[${slab.vectors}];
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

## Without checks: the slab lies wholly inside the matrix.
<%def name="fetch(slab)" filter="trim">
    <%call expr="each_vector(slab)">
        ${slab.name}_fetched[i] = ${slab.read()};
    </%call>
</%def>

## What lies outside the matrix is zero, and adds nothing.
<%def name="fetch_checked(slab)" filter="trim">
    if (${slab.name}_inside && depth + KWG <= k) {
        ${fetch(slab)}
    } else {
        <%call expr="each_vector(slab)">
        % for lane in range(slab.copy.width):
            ${slab.name}_fetched[i]${slab.lane(lane)} = ${slab.is_inside(lane)} ? ${slab.read_one(lane)} : (element)(0);
        % endfor
        </%call>
    }
</%def>

<%def name="stage(slab, start)" filter="trim">
    <%call expr="each_vector(slab)">
    % if slab.unit == "tile":
        *(__local ${slab.vector} *)(${start} + other * ${slab.name.upper()}_PITCH + unit) = ${slab.name}_fetched[i];
    % else:
        % for lane in range(slab.copy.width):
        ${start}[(unit + ${lane}) * ${slab.name.upper()}_PITCH + other] = ${slab.name}_fetched[i]${slab.lane(lane)};
        % endfor
    % endif
    </%call>
</%def>

## The loop over slabs. `fetch_slab` is one of the two fetches above, `multiply` writes the
## multiply-adds of a slab.
<%def name="walk(slabs, fetch_slab, multiply)" filter="trim">
    #pragma unroll 1
    for (extent depth = 0; depth < k; depth += KWG) {
        % for slab in slabs:
        ${fetch_slab(slab)}
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
<%def name="walk_ahead(slabs, fetch_slab, multiply)" filter="trim">
    extent depth = 0;
    % for slab in slabs:
    ${fetch_slab(slab)}
    % endfor
    % for slab in slabs:
    ${stage(slab, f"{slab.name}_local")}
    % endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    int half_in_use = 0;
    #pragma unroll 1
    while (depth < k) {
        % for slab in slabs:
        const __local element *${slab.name}_slab = ${slab.name}_local + half_in_use * (KWG * ${slab.name.upper()}_PITCH);
        % endfor
        depth += KWG;
        const bool more = depth < k;
        if (more) {
            % for slab in slabs:
            ${fetch_slab(slab)}
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

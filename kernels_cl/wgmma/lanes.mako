## Slabs of a warpgroup kernel that the lanes of a warpgroup copy by NVIDIA's cp.async. The end of the copies
## is signalled to a barrier in local memory (PTX ISA, "cp.async", "cp.async.mbarrier.arrive").
##
## Rows of 1- and 2-byte elements may start between words of 4 bytes. Their words are copied from the one in
## which they start, with a word more at the end of each row of the slab, and are shifted in local memory while
## copies of later slabs run.
##
## Context: stored (C type of an element of A and B in memory), copies_ahead (slabs that are copied while an
## earlier one is shifted), row_ends (words at the ends of all rows of a stage), and as wgmma/wgmma.cl.mako
## has it.
<%namespace name="slabs" file="/wgmma/slab.mako"/>
<%!
    def offset_of(slab, row, element):
        """The offset in global memory of an element of a row of the slab."""
        entry = [row, element] if slab.along_k == (slab.name == "a") else [element, row]
        return f"{slab.name.upper()}_AT({', '.join(entry)})"

    def unrolling(count):
        return "#pragma unroll" + (" 8" if count > 16 else "")

    def address(copies, slab):
        """The address in local memory of part `i` of a lane."""
        if copies.vectors.alternates:  # every other part lies in the other half of the permuted 128 bytes
            slab = f"({slab} ^ i % 2 * 64)"
        return f"{slab} + i * {copies.vectors.step}"

    def row_ends_at(copies, stage):
        """The end of the first row that this lane's part of a sub-group copies."""
        operand = "A_ROW_ENDS + " if copies.name == "b" else ""
        return f"row_ends + {stage} * ROW_ENDS + {operand}item / {copies.vectors.across}"
%>

<%def name="functions()" filter="trim">
% for size in sorted({copies.vectors.bytes for copies in operands}):
// Copies ${size} bytes to local memory. Only the first `inside` of them are read; the others become zeros.
static inline void copy_${size}_bytes(const uint to, const __global void *from, const int inside)
{
    asm volatile("cp.async.${"cg" if size == 16 else "ca"}.shared.global [%0], [%1], ${size}, %2;"
        : : "r"(to), "l"(from), "r"(inside) : "memory");
}

% endfor
// Arrives at the barrier once all copies of this work-item are complete.
static inline void arrive_when_copied(const uint barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}
% if row_ends:

// The value that the next lane of this sub-group passes as `own`.
static inline uint of_next_lane(const uint own)
{
    uint held;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;"
        : "=r"(held) : "r"(own), "r"((uint)get_local_id(0) + 1 & 31));
    return held;
}
% endif
</%def>

## Rows of the slabs whose words are shifted: by how many bytes.
<%def name="shifts()" filter="trim">
            % for copies in operands:
            % if copies.shifted:
<%
    name = copies.name
    tile = f"{name}_tile + {name}_row" if copies.along_k else f"{name}_row"
    start = offset_of(copies, tile, "0" if copies.along_k else f"{name}_tile")
%>\
            // Rows start so many bytes behind a word: all rows of this lane, in all slabs.
            const uint ${name}_shift = (ulong)(${name} + ${start}) & 3;
            % endif
            % endfor
</%def>

## A lane's first vector of every slab: its row, its first element, and its offset in local memory.
<%def name="first_vectors()" filter="trim">
            % for copies in operands:
            % if copies.turned:
            // A sub-group copies 4 depths of 8 rows at a time: whole sectors of global memory to all banks of local memory.
            const int ${copies.name}_row = item / 32 * 8 + item % 8;
            const int ${copies.name}_element = item / 8 % 4;
            const uint ${copies.name}_offset_in_slab = ${copies.name}_row * 128 + ${copies.name}_element * 4;
            <% continue %>
            % endif
            // A row has ${copies.vectors.across} parts; its 16-byte vectors are permuted every 128 bytes.
            const int ${copies.name}_row = item / ${copies.vectors.across};
            const int ${copies.name}_element = item % ${copies.vectors.across} * ${copies.vectors.width};
            const uint ${copies.name}_offset_in_slab = ${copies.vectors.offset(f"{copies.name}_row", "item")};
            % endfor
</%def>

## Copies slabs `first` to `last` of a tile as stages become empty. Elements outside the matrix are zero.
<%def name="copy_slabs()" filter="trim">
                % if row_ends:
                ${shifts()}
                int oldest = stage;  // of the stages that are copied, but not yet shifted
                % endif
                #pragma unroll 1
                for (extent slab = first; slab < last; ++slab) {
                    ${slabs.slab_origin()}
                    const uint slabs_at = slab_memory + stage * (A_BYTES + B_BYTES);
                    const uint a_slab = slabs_at + a_offset_in_slab;
                    const uint b_slab = slabs_at + A_BYTES + b_offset_in_slab;
                    await(empty + 8 * stage, parity);
                    % for copies in operands:
                    % if copies.turned:
                    ${copy_turned(copies)}
                    % elif copies.along_k:
                    ${copy_along_k(copies)}
                    % else:
                    ${copy_along_tile(copies)}
                    % endif
                    % endfor
                    % if row_ends and not copies_ahead:
                    asm volatile("cp.async.wait_all;" : : : "memory");
                    ${shift_slab()}
                    % elif row_ends:
                    asm volatile("cp.async.commit_group;" : : : "memory");
                    if (slab >= first + ${copies_ahead}) {
                        asm volatile("cp.async.wait_group ${copies_ahead};" : : : "memory");
                        ${shift_slab()}
                    }
                    % else:
                    arrive_when_copied(full + 8 * stage);
                    % endif
                    ${slabs.next_stage()}
                }
                % if row_ends and copies_ahead:
                asm volatile("cp.async.wait_all;" : : : "memory");
                for (extent slab = max(first, (extent)(last - ${copies_ahead})); slab < last; ++slab) {
                    ${shift_slab()}
                }
                % endif
</%def>

## Shifts the words of the oldest stage; each row is that of one sub-group or of half of one.
<%def name="shift_slab()" filter="trim">
                    {
                        // The words that other lanes have copied are there, too.
                        asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
                        const int slabs_at = oldest * (A_BYTES + B_BYTES);
                        % for copies in operands:
                        % if copies.shifted:
                        ${shift_words(copies)}
                        % endif
                        % endfor
                        arrive(full + 8 * oldest);
                        oldest = oldest + 1 == STAGES ? 0 : oldest + 1;
                    }
</%def>

<%def name="shift_words(copies)" filter="trim">
<%
    name, parts = copies.name, copies.vectors
    whole_sub_group = parts.across == 32
    slab = f"{name}_words_at"
%>\
                        const int ${slab} = slabs_at + ${"A_BYTES + " if name == "b" else ""}${name}_offset_in_slab;
                        const __local uint *${name}_ends = ${row_ends_at(copies, "oldest")};
                        % if whole_sub_group:
                        if (${name}_shift != 0) {
                        % else:
                        {
                        % endif
                            // Eight at a time hide each other's latencies.
                            #pragma unroll 1
                            for (int part = 0; part < ${copies.count}; part += 8) {
                                __local uchar *words = memory + part * ${parts.step};
                                uint own[8], next[8];
                                #pragma unroll
                                for (int i = 0; i < 8; ++i) {
                                    own[i] = *(const __local uint *)(words + (${address(copies, slab)}));
                                }
                                #pragma unroll
                                for (int i = 0; i < 8; ++i) {
                                    next[i] = of_next_lane(own[i]);
                                    if (item % ${parts.across} == ${parts.across - 1}) {
                                        next[i] = ${name}_ends[(part + i) * ${parts.rows}];
                                    }
                                }
                                #pragma unroll
                                for (int i = 0; i < 8; ++i) {
                                    const ulong both = (ulong)next[i] << 32 | own[i];
                                    *(__local uint *)(words + (${address(copies, slab)})) = (uint)(both >> 8 * ${name}_shift);
                                }
                            }
                        }
</%def>

## The word behind each row of the slab, copied by one of the row's lanes.
<%def name="copy_row_ends(copies, row, box, end, first)" filter="trim">
<%
    name, parts = copies.name, copies.vectors
    ends = f"address_of({row_ends_at(copies, 'stage')})"
%>\
                    for (int i = item % ${parts.across}; i < ${copies.count}; i += ${parts.across}) {
                        const int row = ${row};
                        % if box:
                        const int box = ${box};
                        % endif
                        const extent left = ${end} - (${first}${" + box" if box else ""} - ${name}_element + ${copies.map.elements});
                        const int inside = clamp(left, (extent)0, (extent)${parts.width}) * ${copies.map.element_bytes};
                        copy_4_bytes(${ends} + i * ${4 * parts.rows},
                            ${name}_vector - ${name}_element + ${copies.map.elements} + ${offset_of(copies, "row", "box" if box else "0")},
                            row < ${name}_rows ? inside : 0);
                    }
</%def>

## k is contiguous: rows of the slab are positions along the tile.
<%def name="copy_along_k(copies)" filter="trim">
<%
    name, first = copies.name, f"depth + {copies.name}_element"
    from_row = offset_of(copies, f"{name}_from + {name}_row", first)
    start = f"{first} - {name}_before" if copies.shifted else first
%>\
                    ${first_vector(copies, from_row)}
                    const extent ${name}_rows = ${copies.index} - ${name}_tile - ${name}_row;
                    ${inside(copies, "k", start)}
                    ${unrolling(copies.count)}
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i * ${copies.vectors.rows};
                        ${copy_one(copies, offset_of(copies, "row", "0"))}
                    }
                    % if copies.shifted:
                    ${copy_row_ends(copies, f"i * {copies.vectors.rows}", "", "k", start)}
                    % endif
</%def>

## k is not contiguous: boxes lie side by side along the tile, and have a row for each depth.
<%def name="copy_along_tile(copies)" filter="trim">
<%
    name, first = copies.name, f"{copies.name}_from + {copies.name}_element"
    from_row = offset_of(copies, f"depth + {name}_row", first)
    start = f"{first} - {name}_before" if copies.shifted else first
    row = f"i % {copies.vectors.per_box} * {copies.vectors.rows}"
    box = f"i / {copies.vectors.per_box} * {copies.map.elements}"
%>\
                    ${first_vector(copies, from_row)}
                    const extent ${name}_rows = k - depth - ${name}_row;
                    ${unrolling(copies.count)}
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = ${row};
                        const int box = ${box};
                        ${inside(copies, copies.index, f"{start} + box")}
                        ${copy_one(copies, offset_of(copies, "row", "box"))}
                    }
                    % if copies.shifted:
                    ${copy_row_ends(copies, row, box, copies.index, start)}
                    % endif
</%def>

## A lane's first vector, from the start of a word.
<%def name="first_vector(copies, offset)" filter="trim">
<% name = copies.name %>\
                    % if copies.shifted:
                    const int ${name}_before = ${name}_shift${f" / {copies.map.element_bytes}" if copies.map.element_bytes > 1 else ""};
                    const __global ${stored} *${name}_vector = ${name} + ${offset} - ${name}_before;
                    % else:
                    const __global ${stored} *${name}_vector = ${name} + ${offset};
                    % endif
</%def>

## k is contiguous in local memory, but not in the matrix: each element is copied by itself.
<%def name="copy_turned(copies)" filter="trim">
<%
    name = copies.name
    from_row = offset_of(copies, f"{name}_from + {name}_row", f"depth + {name}_element")
%>\
                    const __global ${stored} *${name}_vector = ${name} + ${from_row};
                    const extent ${name}_rows = ${copies.index} - ${name}_tile - ${name}_row;
                    const extent ${name}_depths = k - depth - ${name}_element;
                    #pragma unroll 8
                    for (int i = 0; i < ${copies.count}; ++i) {
                        const int row = i / 8 * 32;
                        const int vector = i % 8;
                        const uint to = ${name}_slab + row * 128 + (vector ^ (item & 7)) * 16;
                        const bool is_inside = row < ${name}_rows && 4 * vector < ${name}_depths;
                        copy_4_bytes(to, ${name}_vector + ${offset_of(copies, "row", "4 * vector")}, is_inside ? 4 : 0);
                    }
</%def>

## Copies vector i of a lane; `offset` is its distance from the lane's first vector.
<%def name="copy_one(copies, offset)" filter="trim">
<%
    name, size = copies.name, copies.vectors.bytes
    to = address(copies, f"{name}_slab")
    inside = f"? {name}_inside" if copies.edges == "elements" else f"&& {name}_inside ? {size}"
%>\
                        copy_${size}_bytes(${to}, ${name}_vector + ${offset}, row < ${name}_rows ${inside} : 0);
</%def>

## The part of a vector, which starts at element `first`, before the end of its row. A size of either zero or
## all bytes is cheap: ptxas makes a predicate of it. Other sizes take four more instructions.
<%def name="inside(copies, end, first)" filter="trim">
                    % if copies.edges == "vectors":
                    const bool ${copies.name}_inside = ${first} < ${end};
                    % else:
                    const extent ${copies.name}_left = ${end} - (${first});
                    const extent ${copies.name}_elements = clamp(
                        ${copies.name}_left, (extent)0, (extent)${copies.vectors.width});
                    const int ${copies.name}_inside = ${copies.name}_elements * ${copies.map.element_bytes};
                    % endif
</%def>

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

    def row_start(copies, parts):
        """The offset in global memory of a row of which a lane has a part."""
        row, tile = f"item / {parts.across}", f"{copies.name}_tile"
        return offset_of(copies, f"{tile} + {row}" if copies.along_k else row, "0" if copies.along_k else tile)

    def before(copies):
        """Elements between the start of a row and that of its first word."""
        size = copies.map.element_bytes
        return f"{copies.name}_before" + (f" / {size}" if size > 1 else "")

    def row_ends_at(copies, stage):
        """The first of the words in which the rows of a stage end."""
        return f"row_ends + {stage} * ROW_ENDS" + (" + A_ROW_ENDS" if copies.name == "b" else "")
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
% if row_ends:
// A word that starts `bits` behind the first of two.
static inline uint shifted(const uint first, const uint second, const int bits)
{
    return (uint)(((ulong)second << 32 | first) >> bits);
}

% endif
// Arrives at the barrier once all copies of this work-item are complete.
static inline void arrive_when_copied(const uint barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}
</%def>

## By how many bytes words are shifted: those that a lane copies, and those of its vectors of 16 bytes.
<%def name="shifts()" filter="trim">
            % for copies in operands:
            % if copies.shifted:
            // Rows start so many bytes behind a word, in all slabs.
            const int ${copies.name}_before = (ulong)(${copies.name} + ${row_start(copies, copies.vectors)}) & 3;
            const int ${copies.name}_shift = 8 * ((ulong)(${copies.name} + ${row_start(copies, copies.whole)}) & 3);
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

## Shifts the words of the oldest stage, a vector of 16 bytes at a time.
<%def name="shift_slab()" filter="trim">
                    {
                        // All lanes have copied their words.
                        asm volatile("bar.sync ${tiles.CONSUMERS + 2}, ${warpgroup};" : : : "memory");
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
    name, parts = copies.name, copies.whole
    count = copies.boxes * parts.per_box
    batch = 4 if count % 4 == 0 else 2  # they hide each other's latencies
    slab = "memory + slabs_at" + (" + A_BYTES" if name == "b" else "")
    row = f"(item / {parts.across})"
%>\
                        {
                            __local uchar *vectors = ${slab} + ${parts.offset(row, "item")};
                            // The word behind a vector: of the next lane, or the row's end.
                            const bool is_last = item % ${parts.across} == ${parts.across - 1};
                            const __local uchar *next_words = is_last
                                ? (const __local uchar *)(${row_ends_at(copies, "oldest")} + item / ${parts.across})
                                : ${slab} + ${parts.offset(row, "(item + 1)")};
                            const int next_step = is_last ? ${4 * parts.rows} : ${parts.step};
                            #pragma unroll 1
                            for (int part = 0; part < ${count}; part += ${batch}) {
                                uint4 own[${batch}];
                                uint next[${batch}];
                                #pragma unroll
                                for (int i = 0; i < ${batch}; ++i) {
                                    own[i] = *(const __local uint4 *)(vectors + (part + i) * ${parts.step});
                                    next[i] = *(const __local uint *)(next_words + (part + i) * next_step);
                                }
                                asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
                                #pragma unroll
                                for (int i = 0; i < ${batch}; ++i) {
                                    *(__local uint4 *)(vectors + (part + i) * ${parts.step}) = (uint4)(
                                        shifted(own[i].s0, own[i].s1, ${name}_shift),
                                        shifted(own[i].s1, own[i].s2, ${name}_shift),
                                        shifted(own[i].s2, own[i].s3, ${name}_shift),
                                        shifted(own[i].s3, next[i], ${name}_shift));
                                }
                            }
                        }
</%def>

## Copies the word behind each row of the slab that starts between words.
<%def name="copy_row_ends(copies)" filter="trim">
<%
    name, length, size = copies.name, copies.map.elements, copies.map.element_bytes
    row, box = f"end % {copies.map.rows}", f"end / {copies.map.rows} * {length}"
    if copies.along_k:
        along, position, inside, limit = "depth", f"{name}_from + end", f"{name}_tile + end < {copies.index}", "k"
    else:
        along = f"{name}_from" + (f" + {box}" if copies.boxes > 1 else "")
        position, limit = f"depth + {row}", copies.index
        inside = f"{position} < k"
    first = "item" if name == "a" else f"(item + {warpgroup // 2}) % {warpgroup}"
%>\
                    for (int end = ${first}; end < ${copies.row_ends}; end += ${warpgroup}) {
                        const __global ${stored} *start = ${name} + ${offset_of(copies, position, along)};
                        const int before = ((ulong)start & 3)${f" / {size}" if size > 1 else ""};
                        const extent left = ${limit} - (${along} + ${length} - before);
                        const int bytes = clamp(left, (extent)0, (extent)${4 // size}) * ${size};
                        if (before != 0) {
                            copy_4_bytes(address_of(${row_ends_at(copies, "stage")} + end),
                                start + ${length} - before, ${inside} ? bytes : 0);
                        }
                    }
</%def>

## k is contiguous: rows of the slab are positions along the tile.
<%def name="copy_along_k(copies)" filter="trim">
<%
    name, first = copies.name, f"depth + {copies.name}_element"
    from_row = offset_of(copies, f"{name}_from + {name}_row", first)
    start = f"{first} - {before(copies)}" if copies.shifted else first
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
                    ${copy_row_ends(copies)}
                    % endif
</%def>

## k is not contiguous: boxes lie side by side along the tile, and have a row for each depth.
<%def name="copy_along_tile(copies)" filter="trim">
<%
    name, first = copies.name, f"{copies.name}_from + {copies.name}_element"
    from_row = offset_of(copies, f"depth + {name}_row", first)
    start = f"{first} - {before(copies)}" if copies.shifted else first
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
                    ${copy_row_ends(copies)}
                    % endif
</%def>

## A lane's first vector, from the start of a word.
<%def name="first_vector(copies, offset)" filter="trim">
<% name = copies.name %>\
                    % if copies.shifted:
                    const __global ${stored} *${name}_vector = ${name} + ${offset} - ${before(copies)};
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

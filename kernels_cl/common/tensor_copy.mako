## NVIDIA's bulk copies of boxes of a matrix (TMA), and barriers in local memory that signal their end: inline
## PTX for sm_90 (PTX ISA, "cp.async.bulk.tensor", "mbarrier", "tensormap.cp_fenceproxy").
## Addresses in local memory are numbers of 32 bits.

## Addresses in local memory, and barriers there. `counts_bytes`: whether barriers also wait for bytes.
<%def name="barriers(counts_bytes)" filter="trim">
static inline uint address_of(const __local void *p)
{
    return (uint)(size_t)p;
}

// A barrier whose phase ends after `arrivals` arrivals and all announced bytes.
static inline void make_barrier(const uint barrier, const uint arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
}

static inline void arrive(const uint barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

% if counts_bytes:
static inline void arrive_and_expect(const uint barrier, const uint bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}

% endif
// Waits until the phase of this parity has ended.
static inline void await(const uint barrier, const uint parity)
{
    uint done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    } while (!done);
}
</%def>

## Copies of boxes, and their maps. `stores`: whether boxes are also written to a matrix.
<%def name="copies(stores)" filter="trim">
// Copies the box at (inner, outer) of a matrix to local memory; elements outside are zero.
static inline void load_box(
    const uint to, const __global ulong *map, const int inner, const int outer, const uint barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];"
        : : "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(barrier) : "memory");
}
% if stores:

// Copies a box from local memory to a matrix; elements outside are not written.
static inline void store_box(const uint from, const __global ulong *map, const int inner, const int outer)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%1, {%2, %3}], [%0];"
        : : "r"(from), "l"(map), "r"(inner), "r"(outer) : "memory");
}
% endif

// Word `i` of the map that cuTensorMapEncodeTiled would write. `extents` are reduced by one, with the inner
// extent in the lower half; `row_bytes` is the distance of rows of the matrix.
static inline ulong map_word(
    const int i, const ulong address, const ulong format, const ulong row_bytes,
    const ulong extents, const ulong box, const ulong rows)
{
    const ulong low = i == 0 ? address : format | row_bytes >> 4 << 32;
    const ulong high = i == 4 ? extents : i == 6 ? box : i == 7 ? rows : 0;
    return i < 2 ? low : high;
}

// Writes a map that this sub-group has assembled in local memory, which boxes may overwrite afterwards.
// The instruction is itself a release; ordinary stores and a fence would take longer.
static inline void write_map(__global ulong *map, const __local ulong *words)
{
    asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[%0], [%1], 128;"
        : : "l"(map), "r"(address_of(words)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

// Afterwards the copies of this work-group read the map as it was written.
static inline void read_map_anew(const __global ulong *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" : : "l"(map) : "memory");
}
</%def>

## Writes consecutive tensor maps. A sub-group writes a map, each of its first work-items a word.
## `maps`: a MatrixMap for each.
## `local`: the local memory in which maps are assembled, aligned to the 128 bytes of a map.
## `each`: if there are more maps than matrices, the loop over the numbers of maps, which sets `which`, the
## matrix of a map.
<%def name="write_maps(to, local, maps, words, each='')" filter="trim">
<%
    def of_each(values):
        """In C: the value of the matrix `which`; the most frequent one needs no condition."""
        values = list(values)
        usual = max(values, key=values.count)
        others = ""
        for value in dict.fromkeys(values):
            if value != usual:
                is_one = " || ".join(f"which == {i}" for i, other in enumerate(values) if other == value)
                others += f"{is_one} ? {value} : "
        return others + usual
%>
    % if each:
    const int word = item % 32;
    ${each}
    % else:
    const int which = item / 32;
    const int word = item % 32;
    if (which < ${len(maps)}) {
    % endif
        const ulong address = ${of_each(f"(ulong){one.matrix}" for one in maps)};
        const ulong row_bytes = ${of_each(f"(ulong){one.pitch} * {one.box.element_bytes}" for one in maps)};
        const ulong inner = ${of_each(f"(ulong){one.inner}" for one in maps)};
        const ulong outer = ${of_each(f"(ulong)({one.outer})" for one in maps)};
        const ulong format = ${of_each(f"{one.box.format_word:#x}" for one in maps)};
        const ulong box = ${of_each(f"{one.box.box_word:#x}" for one in maps)};
        const ulong rows = ${of_each(one.rows_word for one in maps)};
        const int at = ${words} * ${"number" if each else "which"};
        __local ulong *words = (__local ulong *)${local} + at;
        if (word < ${words}) {
            words[word] = map_word(word, address, format, row_bytes, (inner - 1) | (outer - 1) << 32, box, rows);
        }
        write_map(${to} + at, words);
    }
</%def>

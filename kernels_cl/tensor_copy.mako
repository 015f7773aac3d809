## NVIDIA's bulk copies of boxes of a matrix (TMA), and the barriers in local memory by which they say
## that they are done: inline PTX for sm_90 (PTX ISA, "cp.async.bulk.tensor", "mbarrier").
## Addresses in local memory are plain numbers of 32 bits.

<%namespace name="async_copy" file="async_copy.mako"/>

## Functions around barriers and copies. `stores`: whether boxes are written to a matrix, too. `stored`:
## type of an element, of which `piece_elements` are 16 bytes.
<%def name="functions(stores, stored, piece_elements)" filter="trim">
static inline uint address_of(const __local void *p)
{
    return (uint)(size_t)p;
}

// A barrier whose phase ends when `arrivals` have come, and the bytes that were announced.
static inline void make_barrier(const uint barrier, const uint arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
}

static inline void arrive(const uint barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

static inline void arrive_and_expect(const uint barrier, const uint bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}

// Until the phase of this parity has ended.
static inline void await(const uint barrier, const uint parity)
{
    uint done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    } while (!done);
}

// Copies the box at (inner, outer) of a matrix to local memory; what lies outside is zero.
static inline void load_box(const uint to, const __global ulong *map, const int inner, const int outer, const uint barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        : : "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(barrier) : "memory");
}

// Copies the same box by a warpgroup's work-items, without a map: 16 bytes of each 16th row by each.
static inline void load_box_by_items(const uint to, const __global ${stored} *matrix, const long pitch, const extent inner, const extent outer, const extent width, const extent height, const int rows, const int item)
{
    const int row = item / 8;
    const int piece = item % 8;
    const __global ${stored} *source = matrix + (outer + row) * pitch + inner + piece * ${piece_elements};
    uint at = to + row * 128 + (piece ^ (row & 7)) * 16;
    if (inner + ${8 * piece_elements} <= width && outer + rows <= height) {
        #pragma unroll
        for (int i = 0; i < rows / 16; ++i) {
            ${async_copy.copy("at", "source", 16, 16)}
            at += 16 * 128;
            source += 16 * pitch;
        }
    } else {
        const int inside = max(min(width - inner - piece * ${piece_elements}, (extent)${piece_elements}), (extent)0) * ${16 // piece_elements};
        #pragma unroll 1
        for (int i = 0; i < rows / 16; ++i) {
            const int bytes = outer + row + 16 * i < height ? inside : 0;
            const __global ${stored} *valid = bytes ? source : matrix;
            ${async_copy.copy("at", "valid", 16, "bytes")}
            at += 16 * 128;
            source += 16 * pitch;
        }
    }
}
% if stores:

// Copies a box from local memory to a matrix; what lies outside is not written.
static inline void store_box(const uint from, const __global ulong *map, const int inner, const int outer)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%1, {%2, %3}], [%0];"
        : : "r"(from), "l"(map), "r"(inner), "r"(outer) : "memory");
}
% endif

// Word `i` of what cuTensorMapEncodeTiled would write: `extents` less one, the inner one in the
// lower half; `row_bytes` from one row of the matrix to the next.
static inline ulong map_word(const int i, const ulong address, const ulong format, const ulong row_bytes, const ulong extents, const ulong box, const ulong rows)
{
    const ulong low = i == 0 ? address : format | row_bytes >> 4 << 32;
    const ulong high = i == 4 ? extents : i == 6 ? box : i == 7 ? rows : 0;
    return i < 2 ? low : high;
}

// What this work-group wrote to a map is what its copies read.
static inline void read_map_anew(const __global ulong *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" : : "l"(map) : "memory");
}
</%def>

## Writes word `i` of the map of a matrix. `map`: a TensorMap; `inner`, `outer`: its extents; `pitch`: elements.
<%def name="write(to, i, map, pointer, inner, outer, pitch)" filter="trim">
${to}[${i}] = map_word(${i}, (ulong)(${pointer}), ${f"{map.format_word:#x}"}, (ulong)(${pitch}) * ${map.element_bytes}, (ulong)(${inner} - 1) | (ulong)(${outer} - 1) << 32, ${f"{map.box_word:#x}"}, ${map.rows_word});
</%def>

// What sm_90 does between work-items of a group, for kernels that run as host code: barriers in local
// memory, tensor maps, warpgroup products, and exchanges within a sub-group. After the PTX ISA
// ("mbarrier", "cp.async.bulk.tensor", "wgmma", "stmatrix"). No library's headers.
//
// Work-items take turns in one thread, each on a stack of its own: one runs until it has to wait.
// The first is the first in every other round of turns, and the last in the others, so that whoever
// reads what nobody has waited for reads too early in some round.

typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned char uchar;
typedef unsigned short ushort;

#include "wgmma.h"

// A ucontext_t, of which the C library uses less than `rest`.
struct context {
    ulong flags;
    struct context *next;
    void *stack;
    int stack_flags;
    ulong stack_bytes;
    uchar rest[8192];
} __attribute__((aligned(16)));
int getcontext(struct context *own);
void makecontext(struct context *made, void (*start)(void), int arguments, ...);
int swapcontext(struct context *kept, const struct context *next);

enum { BARRIERS = 64, WARPS = 16, PENDING = 256, STACK_BYTES = 1 << 18 };

struct work_item {
    struct context context;
    int is_done, pending_count;
    struct { uint to; const uchar *from; int inside, bytes; } pending[PENDING];
    uchar stack[STACK_BYTES] __attribute__((aligned(16)));
};
static struct work_item *work_items;
static struct context turns; // whoever waits goes back there
static uint item, group, groups, items;
static int has_moved; // in this round of turns
static int waits_for; // what the last one that waits complains of
static void (*kernel)(ulong arguments);
static ulong kernel_arguments;

static ulong base; // of local memory: its addresses begin at 0
static int fault;

struct mbarrier {
    uint address;
    int expected, pending, bytes;
    int phase;
};
static struct mbarrier barriers[BARRIERS];
static int barrier_count;

enum { BUFFERS = 32 };
static struct { const uchar *from; ulong bytes; } buffers[BUFFERS];
static int buffer_count;

// Work-items that meet: number 0 is the whole group, 1-15 are named, then sub-groups and warpgroups.
enum { SUB_GROUP = 16, WARPGROUP = SUB_GROUP + WARPS, MEETINGS = WARPGROUP + WARPS / 4 };
static int met[MEETINGS], round_of[MEETINGS];
static uint exchanged[WARPS][32][5];

static void blame(int what)
{
    if (!fault) {
        fault = what;
    }
}

// Let others run until what is there is another value.
static void await_change(const int *there, int value, int complaint)
{
    if (*there != value) {
        return;
    }
    has_moved = 1; // to this place
    while (*there == value && !fault) {
        waits_for = complaint;
        swapcontext(&work_items[item].context, &turns);
    }
    has_moved = 1;
}

static void meet(int number, int count)
{
    if (++met[number] == count) {
        met[number] = 0;
        round_of[number] += 1;
    } else {
        await_change(&round_of[number], round_of[number], 1);
    }
}

static uchar *at(uint address)
{
    return (uchar *)(base + address);
}

// 128-byte swizzle: bits 4-6 of an address change by bits 7-9. 64-byte swizzle: bits 4-5 by bits 7-8.
// 32-byte swizzle: bit 4 by bit 7.
static uint swizzled(uint address, uint span)
{
    return address ^ (address >> 7 & (span / 16 - 1)) << 4;
}

// ---------------------------------------------------------------- for the test

// Rows of loaded boxes of which nothing lay inside the matrix.
static int rows_outside;

int emulation_rows_outside(void)
{
    return rows_outside;
}

void emulation_begin(void)
{
    base = 0;
    rows_outside = 0;
    fault = barrier_count = buffer_count = 0;
    for (int i = 0; i < MEETINGS; ++i) {
        met[i] = round_of[i] = 0;
    }
}

ulong emulation_bytes(uint count)
{
    return count * sizeof(struct work_item);
}

static void run_work_item(void)
{
    kernel(kernel_arguments);
    work_items[item].is_done = has_moved = 1;
}

// Run the kernel for all work-items of a group, in memory of `emulation_bytes` for them.
void emulation_run(
    void (*called)(ulong), ulong arguments, struct work_item *memory, uint count, uint own_group,
    uint group_count)
{
    kernel = called;
    kernel_arguments = arguments;
    work_items = memory;
    items = count;
    group = own_group;
    groups = group_count;
    for (uint i = 0; i < items; ++i) {
        struct context *own = &work_items[i].context;
        work_items[i].is_done = work_items[i].pending_count = 0;
        getcontext(own);
        own->next = &turns;
        own->stack = work_items[i].stack;
        own->stack_bytes = STACK_BYTES;
        makecontext(own, run_work_item, 0);
    }
    uint done = 0;
    for (uint round = group; done < items; ++round) {
        done = has_moved = 0;
        for (uint turn = 0; turn < items; ++turn) {
            item = round % 2 ? items - 1 - turn : turn;
            if (!work_items[item].is_done) {
                swapcontext(&turns, &work_items[item].context);
            }
            done += work_items[item].is_done;
        }
        if (!has_moved && done < items) {
            blame(waits_for); // all wait, and would for ever
        }
    }
}

// Memory that copies may read.
void emulation_allow(const uchar *from, ulong bytes)
{
    if (buffer_count == BUFFERS) {
        blame(8);
        return;
    }
    buffers[buffer_count].from = from;
    buffers[buffer_count++].bytes = bytes;
}

int emulation_fault(void)
{
    return fault;
}

// ------------------------------------------------- functions of OpenCL C, by their symbols

ulong get_local_id(uint d) __asm__("_Z12get_local_idj");
ulong get_local_id(uint d)
{
    return item;
}

ulong get_group_id(uint d) __asm__("_Z12get_group_idj");
ulong get_group_id(uint d)
{
    return group;
}

ulong get_num_groups(uint d) __asm__("_Z14get_num_groupsj");
ulong get_num_groups(uint d)
{
    return groups;
}

void group_barrier(uint flags) __asm__("_Z7barrierj");
void group_barrier(uint flags)
{
    meet(0, items);
}

int atomic_increment(volatile int *p) __asm__("_Z10atomic_incPU8CLglobalVi");
int atomic_increment(volatile int *p)
{
    return (*p)++;
}

void emulated_fence(void)
{
    __sync_synchronize();
}

int is_finite(float x) __asm__("_Z8isfinitef");
int is_finite(float x)
{
    return x - x == 0;
}

int is_nan(float x) __asm__("_Z5isnanf");
int is_nan(float x)
{
    return x != x;
}

float multiply_add(float a, float b, float c) __asm__("_Z3fmafff");
float multiply_add(float a, float b, float c)
{
    return (float)((double)a * b + c);
}

int smaller(int a, int b) __asm__("_Z3minii");
int smaller(int a, int b)
{
    return a < b ? a : b;
}

long smaller_long(long a, long b) __asm__("_Z3minll");
long smaller_long(long a, long b)
{
    return a < b ? a : b;
}

int larger_int(int a, int b) __asm__("_Z3maxii");
int larger_int(int a, int b)
{
    return a > b ? a : b;
}

int between(int x, int least, int most) __asm__("_Z5clampiii");
int between(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

float sqrtf(float x);
float square_root(float x) __asm__("_Z4sqrtf");
float square_root(float x)
{
    return sqrtf(x);
}

float ceilf(float x);
float next_whole(float x) __asm__("_Z4ceilf");
float next_whole(float x)
{
    return ceilf(x);
}

float larger(float a, float b) __asm__("_Z4fmaxff");
float larger(float a, float b)
{
    return a > b || b != b ? a : b;
}

// ---------------------------------------------------------------- local memory

uint emulated_address(ulong p)
{
    if (!base) {
        base = p; // the slabs are asked for first
    }
    return (uint)(p - base);
}

static struct mbarrier *barrier_at(uint address)
{
    for (int i = 0; i < barrier_count; ++i) {
        if (barriers[i].address == address) {
            return barriers + i;
        }
    }
    blame(2);
    return barriers;
}

static void settle(struct mbarrier *b)
{
    if (b->pending < 0) {
        blame(3);
    }
    if (b->pending == 0 && b->bytes == 0) {
        b->pending = b->expected;
        b->phase ^= 1;
    }
}

void emulated_make_barrier(uint address, uint arrivals)
{
    struct mbarrier *b = barriers + barrier_count++;
    b->address = address;
    b->expected = b->pending = arrivals;
    b->bytes = b->phase = 0;
}

void emulated_arrive(uint address, uint bytes)
{
    struct mbarrier *b = barrier_at(address);
    b->bytes += bytes;
    b->pending -= 1;
    settle(b);
}

uint emulated_try_wait(uint address, uint parity)
{
    struct mbarrier *b = barrier_at(address);
    await_change(&b->phase, (int)parity, 4);
    return 1;
}

void emulated_meet(uint number, uint count)
{
    meet(number, count);
}

void emulated_store_pair(uint to, uint first, uint second)
{
    *(uint *)at(to) = first;
    *(uint *)at(to + 4) = second;
}

void emulated_store(uint to, uint value)
{
    *(uint *)at(to) = value;
}

void emulated_stmatrix(uint to, uint m0, uint m1, uint m2, uint m3, int transposed)
{
    const int warp = item / 32, lane = item % 32;
    uint *own = exchanged[warp][lane];
    own[0] = m0;
    own[1] = m1;
    own[2] = m2;
    own[3] = m3;
    own[4] = to;
    meet(SUB_GROUP + warp, 32);
    // Row lane % 8 of matrix lane / 8, of which lane 4 r + i holds elements 2 i and 2 i + 1 in row r.
    // A transposed one is stored by columns.
    const int line = lane % 8, matrix = lane / 8;
    for (int i = 0; i < 8; ++i) {
        const int row = transposed ? i : line, column = transposed ? line : i;
        const uint both = exchanged[warp][4 * row + column / 2][matrix];
        *(ushort *)at(to + 2 * i) = both >> column % 2 * 16;
    }
    meet(SUB_GROUP + warp, 32);
}

// ---------------------------------------------------------------- copies of boxes

// Returns the bytes of the box.
static int copy_box(int loads, uint address, const ulong *map, int inner, int outer)
{
    const uint format = map[1] >> 7 & 15;
    const uint size = format == 0 ? 1 : format == 6 ? 2 : format == 7 ? 4 : 0;
    const ulong pitch = (map[1] >> 32) * 16;
    const ulong width = (map[4] & 0xffffffff) + 1, height = (map[4] >> 32) + 1;
    const uint elements = (map[6] >> 56) + 1, rows = map[7] + 1;
    const uint swizzle = map[1] >> 13 & 3; // CU_TENSOR_MAP_SWIZZLE_32B is 1, _64B is 2, _128B is 3
    const uint span = swizzle ? 16 << swizzle : 0;
    // A pattern begins anew after 8 spans.
    if (!size || !span || elements * size != span || rows > 256 || address % (8 * span) || map[0] % 16
        || !pitch || (map[1] & 0xffffffff) != (0x40010 | format << 7 | swizzle << 13)) {
        blame(5);
        return 0;
    }
    for (uint r = 0; r < rows; ++r) {
        rows_outside += loads && ((ulong)(outer + r) >= height || (ulong)inner >= width);
        for (uint e = 0; e < elements; ++e) {
            const long row = (long)outer + r, column = (long)inner + e;
            // As the hardware was seen to: what is written ends at whole pieces of 16 bytes.
            const ulong end = loads ? width : (width * size + 15) / 16 * 16 / size;
            const int inside = row >= 0 && column >= 0 && (ulong)row < height && (ulong)column < end;
            uchar *local = at(swizzled(address + span * r + size * e, span));
            uchar *global = (uchar *)(map[0] + row * pitch + column * size);
            for (uint b = 0; b < size; ++b) {
                if (loads) {
                    local[b] = inside ? global[b] : 0;
                } else if (inside) {
                    global[b] = local[b];
                }
            }
        }
    }
    return (int)(span * rows);
}

// Each work-item of a sub-group copies a word.
void emulated_write_map(ulong map, uint from)
{
    ((uint *)map)[item % 32] = *(uint *)at(from + 4 * (item % 32));
}

void emulated_load_box(uint to, ulong map, int inner, int outer, uint barrier)
{
    const int bytes = copy_box(1, to, (const ulong *)map, inner, outer);
    struct mbarrier *b = barrier_at(barrier);
    b->bytes -= bytes;
    settle(b);
}

void emulated_store_box(uint from, ulong map, int inner, int outer)
{
    copy_box(0, from, (const ulong *)map, inner, outer);
}

// ---------------------------------------------------------------- copies of lanes

// Copies are in place when they must be, and no sooner.
void emulated_copy(uint to, ulong from, int inside, int bytes)
{
    struct work_item *own = work_items + item;
    if (to % bytes || from % bytes || inside < 0 || inside > bytes || own->pending_count == PENDING) {
        blame(7);
        return;
    }
    own->pending[own->pending_count].to = to;
    own->pending[own->pending_count].from = (const uchar *)from;
    own->pending[own->pending_count].bytes = bytes;
    own->pending[own->pending_count++].inside = inside;
}

static int is_readable(const uchar *from, int bytes)
{
    int found = bytes == 0;
    for (int i = 0; i < buffer_count; ++i) {
        found |= from >= buffers[i].from && from + bytes <= buffers[i].from + buffers[i].bytes;
    }
    return found;
}

void emulated_finish_copies(void)
{
    struct work_item *own = work_items + item;
    for (int i = 0; i < own->pending_count; ++i) {
        if (!is_readable(own->pending[i].from, own->pending[i].inside)) {
            blame(9);
            continue;
        }
        for (int b = 0; b < own->pending[i].bytes; ++b) {
            at(own->pending[i].to)[b] = b < own->pending[i].inside ? own->pending[i].from[b] : 0;
        }
    }
    own->pending_count = 0;
}

void emulated_arrive_when_copied(uint barrier)
{
    emulated_finish_copies();
    emulated_arrive(barrier, 0);
}

// ---------------------------------------------------------------- products

static float of_half(ushort h)
{
    const uint exponent = h >> 10 & 31, fraction = h & 1023;
    union { uint bits; float value; } x;
    if (exponent == 0) {
        x.value = fraction * 0x1p-24f;
    } else {
        x.bits = (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    }
    x.bits |= (uint)(h >> 15) << 31;
    return x.value;
}

enum { HALF, BFLOAT16, TF32, INT8 };

static float number(int kind, const uchar *p)
{
    union { uint bits; float value; } x;
    switch (kind) {
    case HALF:
        return of_half(*(const ushort *)p);
    case BFLOAT16:
        x.bits = (uint)*(const ushort *)p << 16;
        return x.value;
    case TF32:
        x.bits = *(const uint *)p & 0xffffe000;
        return x.value;
    default:
        return *(const signed char *)p;
    }
}

// Element (position, depth) of a matrix that a descriptor tells of.
static float element(ulong descriptor, int kind, int turned, int position, int depth)
{
    const uint size = kind == TF32 ? 4 : kind == INT8 ? 1 : 2;
    const uint start = (descriptor & 0x3fff) << 4;
    const uint beside = (descriptor >> 16 & 0x3fff) << 4, below = (descriptor >> 32 & 0x3fff) << 4;
    const uint layout = descriptor >> 62; // 1: 128-byte swizzle, 2: 64-byte swizzle
    const uint span = layout == 1 ? 128 : 64, along = span / size;
    if ((layout != 1 && layout != 2) || descriptor >> 49 & 7) {
        blame(6);
    }
    // Without a base offset patterns begin where addresses are multiples of 8 spans.
    const uint address = turned
        ? start + position / along * beside + depth / 8 * below + depth % 8 * span + position % along * size
        : start + position / 8 * below + position % 8 * span + depth * size;
    return number(kind, at(swizzled(address, span)));
}

static int depth_of(int kind)
{
    return kind == TF32 ? 8 : kind == INT8 ? 32 : 16;
}

static void multiply(float row[2][32], ulong sums, ulong b, int n, int kind, int turned_b)
{
    const int k = depth_of(kind), within = item % 128;
    for (int j = 0; j < n / 8; ++j) {
        for (int i = 0; i < 2; ++i) {
            for (int p = 0; p < k; ++p) {
                const float y = element(b, kind, turned_b, 8 * j + within % 4 * 2 + i, p);
                for (int h = 0; h < 2; ++h) {
                    const int place = 4 * j + 2 * h + i;
                    if (kind == INT8) {
                        ((int *)sums)[place] += (int)row[h][p] * (int)y;
                    } else {
                        ((float *)sums)[place] += row[h][p] * y;
                    }
                }
            }
        }
    }
}

void emulated_wgmma(ulong sums, ulong a, ulong b, int n, int kind, int turned_a, int turned_b)
{
    const int within = item % 128;
    float row[2][32];
    // A warpgroup multiplies as one: slabs come and go for all of it.
    meet(WARPGROUP + item / 128, 128);
    for (int h = 0; h < 2; ++h) {
        for (int p = 0; p < depth_of(kind); ++p) {
            row[h][p] = element(a, kind, turned_a, 16 * (within / 32) + 8 * h + within % 32 / 4, p);
        }
    }
    multiply(row, sums, b, n, kind, turned_b);
    meet(WARPGROUP + item / 128, 128);
}

// A in registers: work-items hold tf32 elements of rows lane / 4 and 8 further, depths lane % 4 and
// 4 further.
void emulated_wgmma_of_registers(ulong sums, uint a0, uint a1, uint a2, uint a3, ulong b, int n)
{
    const int warp = item / 32, lane = item % 32;
    float row[2][32];
    uint *own = exchanged[warp][lane];
    own[0] = a0;
    own[1] = a1;
    own[2] = a2;
    own[3] = a3;
    meet(WARPGROUP + item / 128, 128);
    for (int h = 0; h < 2; ++h) {
        for (int p = 0; p < 8; ++p) {
            row[h][p] = number(TF32, (uchar *)&exchanged[warp][lane / 4 * 4 + p % 4][h + p / 4 * 2]);
        }
    }
    multiply(row, sums, b, n, TF32, 0);
    meet(WARPGROUP + item / 128, 128);
}

// ---------------------------------------------------------------- conversions

static uint half_of(float value)
{
    union { float value; uint bits; } x = { value };
    const uint sign = x.bits >> 16 & 0x8000;
    x.bits &= 0x7fffffff;
    if (x.bits >= 0x7f800000) {
        return sign | (x.bits > 0x7f800000 ? 0x7fff : 0x7c00);
    }
    if (x.bits < 0x38800000) { // below the smallest normal half: units of 2^-24, rounded to even
        x.value += 0.5f; // of which 0.5f has the spacing
        return sign | (x.bits - 0x3f000000);
    }
    const uint rounded = x.bits + 0xfff + (x.bits >> 13 & 1);
    return sign | (rounded >= 0x47800000 ? 0x7c00 : (rounded - 0x38000000) >> 13);
}

static uint bfloat16_of(float value)
{
    union { float value; uint bits; } x = { value };
    if (value != value) {
        return 0x7fff;
    }
    return (x.bits + 0x7fff + (x.bits >> 16 & 1)) >> 16;
}

uint emulated_pack(int kind, float first, float second)
{
    uint (*of)(float) = kind == HALF ? half_of : bfloat16_of;
    return of(first) | of(second) << 16;
}

uint emulated_nearest_tf32(float value)
{
    union { float value; uint bits; } x = { value };
    return value - value == 0 ? (x.bits + 0x1000) & 0xffffe000 : x.bits; // ties away from zero
}

float emulated_half(uint bits)
{
    return of_half(bits & 0xffff);
}

static uint relu_of(uint half)
{
    return half & 0x8000 && (half & 0x7fff) <= 0x7f80 ? 0 : half; // no infinity of either type is larger
}

// NaN, which the packing makes positive, stays what it is.
uint emulated_relu(uint both)
{
    return relu_of(both & 0xffff) | relu_of(both >> 16) << 16;
}

typedef float float2 __attribute__((ext_vector_type(2)));

float load_half(ulong offset, const ushort *p) __asm__("_Z10vload_halfmPU8CLglobalKDh");
float load_half(ulong offset, const ushort *p)
{
    return of_half(p[offset]);
}

void store_half(float x, ulong offset, ushort *p) __asm__("_Z11vstore_halffmPU8CLglobalDh");
void store_half(float x, ulong offset, ushort *p)
{
    p[offset] = half_of(x);
}

void store_halves(float2 x, ulong offset, ushort *p) __asm__("_Z13vstorea_half2Dv2_fmPU8CLglobalDh");
void store_halves(float2 x, ulong offset, ushort *p)
{
    p[2 * offset] = half_of(x.x);
    p[2 * offset + 1] = half_of(x.y);
}

float erff(float x);
float error_function(float x) __asm__("_Z3erff");
float error_function(float x)
{
    return erff(x);
}

float tanhf(float x);
float hyperbolic_tangent(float x) __asm__("_Z4tanhf");
float hyperbolic_tangent(float x)
{
    return tanhf(x);
}

float smaller_float(float a, float b) __asm__("_Z4fminff");
float smaller_float(float a, float b)
{
    return a < b || b != b ? a : b;
}

float magnitude(float x) __asm__("_Z4fabsf");
float magnitude(float x)
{
    return x < 0 ? -x : x;
}

// ------------------------------------ approximate instructions: as far off as the PTX ISA allows

float exp2f(float x);
float emulated_power_of_2(float x)
{
    const float y = exp2f(x) * (1 + 0x1p-22f);
    return y < 0x1p-126f ? 0 : y;
}

float emulated_reciprocal(float x)
{
    const float y = 1 / x;
    return (y < 0 ? -y : y) < 0x1p-126f ? 0 : y * (1 - 0x1p-23f);
}

float emulated_tanh(float x)
{
    return tanhf(x) * (1 - 0x1p-11f);
}

float emulated_positive(float x)
{
    return x < 0 ? 0 : x;
}

void emulated_meet_in_sub_group(void)
{
    meet(SUB_GROUP + item / 32, 32);
}

uint emulated_shuffle(uint own, uint from)
{
    const int warp = item / 32;
    meet(SUB_GROUP + warp, 32);
    exchanged[warp][item % 32][0] = own;
    meet(SUB_GROUP + warp, 32);
    const uint held = exchanged[warp][from % 32][0];
    meet(SUB_GROUP + warp, 32);
    return held;
}

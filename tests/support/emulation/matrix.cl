// Matrix units in plain C. What stands in the place of an instruction is told here again, by lane
// and element and as the vendors' documents do. `matrix.py` defines the macros UNIT_* before it.

// By lane of a sub-group, what it hands out to the others: registers of both operands.
typedef __local ulong (*handed_out)[2][UNIT_A_REGISTERS];

#define MEET barrier(CLK_LOCAL_MEM_FENCE)

// A half by its bits: a pointer to them as another type may read them before they are there.
static inline float half_of(const uint bits)
{
    const uint size = (bits & 0x7fff) << 13;
    const float x = size < 0x0f800000 ? as_float(size) * 0x1p112f : as_float(size | 0x7f800000);
    return bits & 0x8000 ? -x : x;
}

// Nearest, ties to even.
static inline uint bits_of(const float x)
{
    const uint size = as_uint(fabs(x) * 0x1p-112f);
    const uint rounded = fabs(x) < 65520 ? (size + 0xfff + (size >> 13 & 1)) >> 13
        : isnan(x) ? 0x7e00 : 0x7c00;
    return x < 0 ? rounded | 0x8000 : rounded;
}

// ldmatrix, without .trans.
static inline void emulated_rows(handed_out exchange, uint *to, const __local void *row)
{
    const int lane = get_local_id(0) % 32;
    exchange[lane][0][0] = (ulong)row;
    MEET;
    for (int j = 0; j < 4; ++j) {
        const ulong start = exchange[8 * j + lane / 4][0][0];
        to[j] = ((const __local uint *)(size_t)start)[lane % 4];
    }
    MEET;
}

// ldmatrix with .trans.
static inline void emulated_columns(handed_out exchange, uint *to, const __local void *row)
{
    const int lane = get_local_id(0) % 32;
    exchange[lane][0][0] = (ulong)row;
    MEET;
    for (int j = 0; j < 4; ++j) {
        const ulong even = exchange[8 * j + 2 * (lane % 4)][0][0];
        const ulong odd = exchange[8 * j + 2 * (lane % 4) + 1][0][0];
        const uint low = ((const __local ushort *)(size_t)even)[lane / 4];
        const uint high = ((const __local ushort *)(size_t)odd)[lane / 4];
        to[j] = low | high << 16;
    }
    MEET;
}

// What a unit makes of a register, at `element` of the lane's share.
#define OF_FLOAT16 half_of(one >> 16 * (element % 2))
#define OF_BFLOAT16 as_float(element % 2 ? one & 0xffff0000 : one << 16)
#define OF_TF32 as_float(one & 0xffffe000)
#define OF_FLOAT64 as_double(one)
#define OF_INT8 (char)(one >> 8 * (element % 4))

// LANE: which lane holds the entry at `position` (a row of A, a column of B) and `depth`.
// ELEMENT: where among its own; `word` is how many there are in 32 bits.
// ROW, COLUMN: the entry of the result that is element `i` of `lane`.
#if defined(UNIT_MMA_SYNC)
// PTX ISA, figures of mma.m16n8k16 and others. Of B there are 8 columns.
#define LANE 4 * (position % 8) + depth / word % 4
#define ELEMENT depth % word + word * (position / 8 + groups * (depth / (4 * word)))
#define ROW 8 * (i / 2) + lane / 4
#define COLUMN 2 * (lane % 4) + i % 2
#elif defined(UNIT_GFX11)
// What AMD's Matrix Instruction Calculator prints; of RDNA 3's copies both are read.
#define LANE position + 16 * (depth % 2)
#define ELEMENT depth
#define ROW 2 * i + lane / 16
#define COLUMN lane % 16
#elif defined(UNIT_GFX12_INT8)
#define LANE position + 16 * (depth / 8)
#define ELEMENT depth % 8
#define ROW 8 * (lane / 16) + i
#define COLUMN lane % 16
#elif defined(UNIT_GFX12)
#define LANE position + 16 * (depth / 4 % 2)
#define ELEMENT depth % 4 + 4 * (depth / 8)
#define ROW 8 * (lane / 16) + i
#define COLUMN lane % 16
#elif defined(UNIT_MFMA)
#define LANE position + 16 * (depth / (UNIT_K / 4))
#define ELEMENT depth % (UNIT_K / 4)
#define ROW 4 * (lane / 16) + i
#define COLUMN lane % 16
#elif defined(UNIT_MFMA_FLOAT64)
#define LANE position + 16 * depth
#define ELEMENT 0
#define ROW 4 * i + lane / 16
#define COLUMN lane % 16
#endif

// c += a b
static inline void emulated_multiply(
    handed_out exchange, UNIT_RESULT *c, const UNIT_REGISTER *a, const UNIT_REGISTER *b)
{
    const int word = UNIT_WORD;
    const int lane = get_local_id(0) % UNIT_LANES;
    for (int i = 0; i < UNIT_A_REGISTERS; ++i) {
        exchange[lane][0][i] = UNIT_BITS(a[i]);
    }
    for (int i = 0; i < UNIT_B_REGISTERS; ++i) {
        exchange[lane][1][i] = UNIT_BITS(b[i]);
    }
    MEET;
    for (int i = 0; i < UNIT_RESULT_ELEMENTS; ++i) {
        const int row = ROW, column = COLUMN;
        UNIT_SUM sum = 0;
        for (int depth = 0; depth < UNIT_K; ++depth) {
            UNIT_SUM factors[2];
            for (int operand = 0; operand < 2; ++operand) {
                const int position = operand ? column : row;
                const int groups = (operand ? UNIT_N : UNIT_M) / 8;
                const int element = ELEMENT;
                const UNIT_WHOLE one = exchange[LANE][operand][element / word];
                factors[operand] = UNIT_VALUE;
            }
            sum += factors[0] * factors[1];
        }
#if UNIT_PACKED_SUMS
        const int shift = i % 2 * 16;
        const uint added = bits_of(half_of(c[i / 2] >> shift) + sum);
        c[i / 2] = (c[i / 2] & ~(0xffffu << shift)) | added << shift;
#else
        c[i] += sum;
#endif
    }
    MEET;
}

// Other instructions of inline PTX, as `ptx.py` calls them.
#define ldmatrix_sync_aligned_m8n8_x4_shared_b16(to, to1, to2, to3, row) \
    emulated_rows(exchange, &(to), row)
#define ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(to, to1, to2, to3, row) \
    emulated_columns(exchange, &(to), row)
#define ld_shared_f32(to, from) to = *(from)
#define ld_shared_f64(to, from) to = *(from)
#define ld_shared_v2_f64(first, second, from) { first = (from)->x; second = (from)->y; }
#define bar_warp_sync(mask) MEET
#define ex2_approx_ftz_f32(y, x) y = exp2(x)
#define rcp_approx_ftz_f32(y, x) y = 1 / (x)
#define max_NaN_f32(y, x, zero) y = (x) < 0 ? 0 : (x)
#define mov_b32(first, second, both) { first = half_of(both); second = half_of((both) >> 16); }
#define add_rn_f16x2(both, first, second) \
    both = bits_of(half_of(first) + half_of(second)) \
        | bits_of(half_of((first) >> 16) + half_of((second) >> 16)) << 16


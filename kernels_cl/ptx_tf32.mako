## Rounding to tf32, by inline PTX for compute capability 8.0 and up (PTX ISA, "cvt").

## `keeps_nan`: whether a NaN is one by the bits that units read, too. The instruction leaves it as it
## is, and by others alone it would pass for an infinity.
<%def name="nearest(keeps_nan)" filter="trim">
// The tf32 nearest to x.
static inline uint nearest_tf32(const float x)
{
    uint bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return ${"isnan(x) ? 0x7fffffff : bits" if keeps_nan else "bits"};
}
</%def>

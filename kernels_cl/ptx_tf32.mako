## Rounding to tf32, by inline PTX for compute capability 8.0 and up (PTX ISA, "cvt").

<%def name="nearest()" filter="trim">
// The tf32 nearest to x.
static inline uint nearest_tf32(const float x)
{
    uint bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
</%def>

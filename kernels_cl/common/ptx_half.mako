## Pairs of halves in registers of 32 bits, as in NVIDIA's units: inline PTX (PTX ISA, "mov", "cvt", "add").

<%def name="unpacked(pair)" filter="trim">
// The two halves in a register; the first is in its lower half.
static inline ${pair} unpacked(const uint both)
{
    float first, second;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(first), "=f"(second) : "r"(both));
    return (${pair})(first, second);
}
</%def>

<%def name="added()" filter="trim">
// The sums of two pairs of halves.
static inline uint added(const uint first, const uint second)
{
    uint both;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(first), "r"(second));
    return both;
}
</%def>

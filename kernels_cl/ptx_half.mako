## Halves in registers of 32 bits, as NVIDIA's units have them: inline PTX (PTX ISA, "mov", "cvt").

<%def name="unpacked(pair)" filter="trim">
// Two halves of a register, the first from its lower half.
static inline ${pair} unpacked(const uint both)
{
    float first, second;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}" : "=f"(first), "=f"(second) : "r"(both));
    return (${pair})(first, second);
}
</%def>

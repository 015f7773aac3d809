## The instruction of NVIDIA's warpgroup units (PTX ISA, "wgmma"). It follows ${mark}, which makes it a comment
## for the compiler (pyclgemm/device/probe.py).
##
## Context: instruction, modifiers, constraint (of a register of the sums), mark.

## `sums`: registers of the sums; `a_in_registers`: whether A comes from registers, too.
<%def name="functions(sums, a_in_registers=False)" filter="trim">
<%
    registers = ", ".join(f"%{i}" for i in range(sums))
    a = ", ".join(f"%{sums + i}" for i in range(4))
    pinned = ", ".join(f'"+{constraint}"(c[{i}])' for i in range(sums))
%>
% if a_in_registers:
// c += a b, for 64 rows; b is a descriptor.
static inline void multiply_accumulate(element *c, const uint *a, const ulong b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %${sums + 5}, 0;\n"
        "${mark}${instruction} {${registers}}, {${a}}, %${sums + 4}, p${modifiers};\n}"
        : ${pinned} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1) : "memory");
}
% else:
// c += a b, for 64 rows; a and b are descriptors.
static inline void multiply_accumulate(element *c, const ulong a, const ulong b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %${sums + 2}, 0;\n"
        "${mark}${instruction} {${registers}}, %${sums}, %${sums + 1}, p${modifiers};\n}"
        : ${pinned} : "l"(a), "l"(b), "r"(1) : "memory");
}
% endif

// Waits until the sums are in the registers.
static inline void await_sums(element *c)
{
    asm volatile("${mark}wgmma.wait_group.sync.aligned 0;" : ${pinned} : : "memory");
}
</%def>

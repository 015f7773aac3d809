## The fragments of a sub-group: loads them from local memory into registers, and multiplies them.
##
## Context: unit (a MatrixUnit), slabs (MatrixSlab), fragments (a FragmentLoad), products
## (ElementProducts).

<%def name="functions()" filter="trim">
% if any(slab.rounded for slab in slabs):

// The tf32 nearest to x, ties away from zero, in the bits that the unit reads. It is like cvt.rna.tf32, which
// however leaves a NaN unchanged; a NaN only by its other bits would then be taken for an infinity.
static inline uint nearest_tf32(const float x)
{
    return isnan(x) ? 0x7fffffff : as_uint(x) + 0x1000;
}
% endif
% if fragments.way == "vectors":

// Loads a lane's elements of a fragment of A or B, starting at its first depth.
static inline void load_fragment(${unit.register} *to, const __local stored *from)
{
    const __local ${fragments.vector} *vectors = (const __local ${fragments.vector} *)from;
<% of_vector = unit.operand_lanes.run * fragments.steps // unit.word // fragments.vectors %>\
    % for one in range(fragments.vectors):
    % if of_vector == 1:
    to[${one}] = vectors[${one}];
    % else:
    vstore${of_vector}(vectors[${one}], ${one}, to);
    % endif
    % endfor
}
% endif
% for slab in slabs:
% if fragments.way == "ldmatrix" and not slab.by_elements:

// Loads four matrices of 8 rows of 16 bytes, one to each register; lane l points to row l % 8 of matrix l / 8
// (PTX ISA, "ldmatrix").
static inline void load_${slab.name}(uint *to, const __local stored *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4${"" if slab.along_k else ".trans"}.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((uint)(size_t)row) : "memory");
    % if slab.rounded:
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        to[i] = nearest_tf32(as_float(to[i]));
    }
    % endif
}
% endif
% endfor
<% of_elements = next((slab for slab in slabs if slab.by_elements), None) %>
% if of_elements:
<% suffix, register = {"double": ("f64", "d"), "float": ("f32", "f")}[of_elements.element.stored_real] %>

// The compiler would move a plain load of the next depth's elements down to their multiplication, after the
// barrier, where nothing hides its latency.
% if of_elements.element.parts == 2:
static inline stored load_element(const __local stored *from)
{
    ${unit.register} real, imaginary;
    asm volatile("ld.shared.v2.${suffix} {%0, %1}, [%2];"
        : "=${register}"(real), "=${register}"(imaginary) : "r"((uint)(size_t)from) : "memory");
    return (stored)(real, imaginary);
}
% else:
static inline ${unit.register} load_element(const __local stored *from)
{
    stored loaded;
    asm volatile("ld.shared.${suffix} %0, [%1];" : "=${register}"(loaded) : "r"((uint)(size_t)from) : "memory");
    return ${"nearest_tf32(loaded)" if of_elements.rounded else "loaded"};
}
% endif
% endif

% if unit.spelling == "ptx":
${multiply_by_ptx()}
% else:
${multiply_by_builtin()}
% endif
</%def>

<%def name="multiply_by_ptx()" filter="trim">
<%
    kinds = {"int": "r", "uint": "r", "float": "f", "double": "d"}  # of registers, by their C types
    counts = unit.result_registers, unit.a_registers, unit.b_registers
    numbers = iter(range(sum(counts)))
    c, a, b = ("{" + ", ".join(f"%{next(numbers)}" for _ in range(count)) + "}" for count in counts)
    held = [f"{name}[{i}]" for name, count in zip("ab", counts[1:]) for i in range(count)]
    results = ", ".join(f'"+{kinds[unit.result_register]}"(c[{i}])' for i in range(counts[0]))
    factors = ", ".join(f'"{kinds[unit.register]}"({one})' for one in held)
%>
// c += a b (PTX ISA, "mma").
static inline void multiply_accumulate(${unit.result_register} *c, const ${unit.register} *a, const ${unit.register} *b)
{
    asm("${unit.instruction} ${c}, ${a}, ${b}, ${c};"
        : ${results} : ${factors});
}
</%def>

<%def name="multiply_by_builtin()" filter="trim">
% if unit.operand == "float16":
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

% endif
% if unit.exchanged:
// c += a b, by the transposed product: a lane then holds neighbouring columns of c.
% else:
// c += a b
% endif
static inline void multiply_accumulate(sums *c, const ${unit.register} *a, const ${unit.register} *b)
{
<%
    def argument(name):
        """A lane's elements of a fragment in the type that the builtin takes."""
        registers = [f"{name}[{i}]" for i in range(unit.a_registers)]
        joined = registers[0] if len(registers) == 1 else f"(uint{len(registers)})({', '.join(registers)})"
        return joined if unit.register == "double" else f"as_{unit.vector}({joined})"

    a, b = map(argument, "ba" if unit.exchanged else "ab")
%>\
    *c = ${unit.instruction.format(a=a, b=b, c="*c")};
}
</%def>

## Loads the fragments of all rows (a) or columns (b) of the sub-group's tile at depth `p` into `buffer` (the
## index of one of two sets of registers, or nothing).
<%def name="load(slab, buffer, p)" filter="trim">
% if slab.by_elements:
${load_elements(slab, buffer, p)}
% elif fragments.way == "ldmatrix":
${load_matrices(slab, buffer, p)}
% else:
${load_vectors(slab, buffer, p)}
% endif
</%def>

<%def name="load_matrices(slab, buffer, p)" filter="trim">
    #pragma unroll
    for (int i = 0; i < ${slab.name.upper()}_LOADS; ++i) {
        % for term in range(slab.terms):
        load_${slab.name}(${products.array(slab.name, buffer, term)} + 4 * i, ${slab.lane_row(term, p)});
        % endfor
    }
</%def>

<%def name="load_vectors(slab, buffer, p)" filter="trim">
<%
    depths = unit.operand_lanes.run * fragments.steps  # of a lane
    position = plus(times(slab.extent, "i"), unit.operand_lanes.position)
    depth = plus(p, times(unit.operand_lanes.run_index or 0, depths))
%>\
    #pragma unroll
    for (int i = 0; i < ${slab.name.upper()}_FRAGMENTS; ++i) {
        % for term in range(slab.terms):
<% to = products.array(slab.name, buffer, term) %>\
        load_fragment(
            ${to} + ${depths // unit.word} * i, ${slab.entry(term, position, depth)});
        % endfor
    }
</%def>

<%def name="load_elements(slab, buffer, p)" filter="trim">
<%
    lanes, groups = unit.operand_lanes, slab.extent // unit.operand_lanes.positions
    numbers = [(depth, group) for depth in range(unit.depth_groups) for group in range(groups)]
%>\
    #pragma unroll
    for (int i = 0; i < ${slab.name.upper()}_FRAGMENTS; ++i) {
        % for depth_group, group in numbers:
<%
    register = plus(times(len(numbers), "i"), groups * depth_group + group)
    position = plus(lanes.position, lanes.positions * group)
    depth = plus(lanes.run_index, lanes.depths * depth_group)
    element = slab.element_at(times(slab.extent, "i"), position, p, depth)
%>\
        % if products.complex:
        {
            const stored loaded = load_element(${element});
            ${products.array(slab.name, buffer, 0)}[${register}] = loaded.x;
            ${products.array(slab.name, buffer, 1)}[${register}] = loaded.y;
            % if slab.name == "b":
            ${products.array("b", buffer, 2)}[${register}] = -loaded.y;
            % endif
        }
        % else:
        ${products.array(slab.name, buffer, 0)}[${register}] = load_element(${element});
        % endif
        % endfor
    }
</%def>

<%def name="multiply(buffer)" filter="trim">
<%
    def registers(name, number, step):
        index, count = ("i", unit.a_registers) if name == "a" else ("j", unit.b_registers)
        return plus(products.array(name, buffer, number), times(fragments.steps * count, index), step * count)

    address = "&" if unit.spelling == "builtin" else ""
%>\
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        #pragma unroll
        for (int j = 0; j < B_FRAGMENTS; ++j) {
            % for step in range(fragments.steps):
            % for a, b, sum in products.terms:
<% factors = ", ".join([registers("a", a, step), registers("b", b, step)]) %>\
            multiply_accumulate(${address}accumulators[i][j]${products.sum_at(sum)}, ${factors});
            % endfor
            % endfor
        }
    }
</%def>

## The fragments of a sub-group: from local memory into registers, and multiplied.
##
## Context: unit (a MatrixUnit), slabs (MatrixSlab), fragments (a FragmentLoad), products
## (ElementProducts).
<%! part_at = lambda slab, part: f"{part} * {slab.name.upper()}_PART + " if part else "" %>

<%def name="functions()" filter="trim">
% if any(slab.rounded for slab in slabs):

// The tf32 nearest to x in the bits that the unit reads, ties away from zero, as cvt.rna.tf32 has it; but
// that leaves a NaN as it is, and one by the other bits alone would pass for an infinity.
static inline uint nearest_tf32(const float x)
{
    return isnan(x) ? 0x7fffffff : as_uint(x) + 0x1000;
}
% endif
% for slab in slabs:
% if fragments.way == "ldmatrix" and not slab.by_elements:

// Four matrices of 8 rows of 16 bytes, one in each register; lane l gives row l % 8 of matrix l / 8
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

// A plain load of the next depth's elements is moved down by the compiler to where they are multiplied,
// behind the barrier, and nothing hides its latency.
% if of_elements.element.parts == 2:
static inline stored load_element(const __local stored *from)
{
    ${unit.register} real, imaginary;
    asm volatile("ld.shared.v2.${suffix} {%0, %1}, [%2];" : "=${register}"(real), "=${register}"(imaginary) : "r"((uint)(size_t)from) : "memory");
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
// c += a b (PTX ISA, "mma").
static inline void multiply_accumulate(${unit.result_register} *c, const ${unit.register} *a, const ${unit.register} *b)
{
<%
    count = unit.result_registers
    c_places = ", ".join(f"%{i}" for i in range(count))
    a_places = ", ".join(f"%{count + i}" for i in range(unit.a_registers))
    b_places = ", ".join(f"%{count + unit.a_registers + i}" for i in range(unit.b_registers))
    results = ", ".join(f'"+{constraints[0]}"(c[{i}])' for i in range(count))
    operands = ", ".join([f'"{constraints[1]}"(a[{i}])' for i in range(unit.a_registers)] + [f'"{constraints[1]}"(b[{i}])' for i in range(unit.b_registers)])
%>
    asm("${unit.instruction} {${c_places}}, {${a_places}}, {${b_places}}, {${c_places}};"
        : ${results} : ${operands});
}
</%def>

<%def name="multiply_by_builtin()" filter="trim">
<%
    def share(name):
        """A lane's share of a fragment in the type that the builtin takes."""
        registers = [f"{name}[{i}]" for i in range(unit.a_registers)]
        if unit.register == "double":
            return registers[0]
        count = len(registers)
        return f"as_{unit.vector}({registers[0] if count == 1 else f'(uint{count})({chr(44).join(registers)})'})"
    a, b = ("b", "a") if unit.exchanged else ("a", "b")
    call = unit.instruction.format(a=share(a), b=share(b), c="*c")
%>
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
    *c = ${call};
}
</%def>

## The fragments of so many instructions as are loaded for at once, of all rows (a) or columns (b)
## of the sub-group's tile.
##
## They go to `buffer`, and start at depth `p`.
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
        % for part in range(slab.parts):
        load_${slab.name}(${slab.name}_fragments${buffer}[${part}] + 4 * i, ${slab.name}_slab + ${part_at(slab, part)}${slab.name.upper()}_PLACE(${slab.name}_first + 16 * i + ${slab.matrix_position}, ${p} + ${slab.matrix_depth}));
        % endfor
    }
</%def>

<%def name="load_vectors(slab, buffer, p)" filter="trim">
<%
    depths = unit.places.run * fragments.steps
    depth = f"{p} + {unit.places.piece} * {depths}" if unit.places.piece else p
    registers = depths // unit.word
    width = registers // fragments.vectors
    lane = lambda one: f"loaded{one // width}" + (f".s{one % width}" if width > 1 else "")
%>
    #pragma unroll
    for (int i = 0; i < ${slab.name.upper()}_FRAGMENTS; ++i) {
        % for part in range(slab.parts):
        {
            const __local ${fragments.vector} *from = (const __local ${fragments.vector} *)(${slab.name}_slab + ${part_at(slab, part)}${slab.name.upper()}_PLACE(${slab.name}_first + ${slab.extent} * i + ${unit.places.position}, ${depth}));
            % for one in range(fragments.vectors):
            const ${fragments.vector} loaded${one} = from[${one}];
            % endfor
            % for register in range(registers):
            ${slab.name}_fragments${buffer}[${part}][${registers} * i + ${register}] = ${lane(register)};
            % endfor
        }
        % endfor
    }
</%def>

<%def name="load_elements(slab, buffer, p)" filter="trim">
<%
    groups = slab.extent // unit.places.positions
    place = lambda depth_group, group: f"{groups * unit.depth_groups} * i + {groups * depth_group + group}"
%>
    #pragma unroll
    for (int i = 0; i < ${slab.name.upper()}_FRAGMENTS; ++i) {
        % for depth_group in range(unit.depth_groups):
        % for group in range(groups):
        {
            const int position = ${slab.name}_first + ${slab.extent} * i + ${f"{unit.places.positions * group} + " if group else ""}${unit.places.position};
            const int depth = ${p} + ${f"{unit.places.depths * depth_group} + " if depth_group else ""}${unit.places.piece};
            % if products.complex:
            const stored loaded = load_element(${slab.name}_slab + ${slab.name.upper()}_PLACE(position, depth));
            ${slab.name}_fragments${buffer}[0][${place(depth_group, group)}] = loaded.x;
            ${slab.name}_fragments${buffer}[1][${place(depth_group, group)}] = loaded.y;
            % if slab.name == "b":
            b_fragments${buffer}[2][${place(depth_group, group)}] = -loaded.y;
            % endif
            % else:
            ${slab.name}_fragments${buffer}[0][${place(depth_group, group)}] = load_element(${slab.name}_slab + ${slab.name.upper()}_PLACE(position, depth));
            % endif
        }
        % endfor
        % endfor
    }
</%def>

<%def name="multiply(buffer)" filter="trim">
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        #pragma unroll
        for (int j = 0; j < B_FRAGMENTS; ++j) {
            % for step in range(fragments.steps):
            % for a_part, b_part, sum in products.terms:
            multiply_accumulate(${"&" if unit.spelling == "builtin" else ""}accumulators[i][j]${products.sum_at(sum)}, a_fragments${buffer}[${a_part}] + ${share_of("i", step, unit.a_registers)}, b_fragments${buffer}[${b_part}] + ${share_of("j", step, unit.b_registers)});
            % endfor
            % endfor
        }
    }
</%def>

## Where a lane's registers of a fragment start, of the `step`-th instruction loaded for.
<%def name="share_of(fragment, step, registers)" filter="trim">
${fragments.steps * registers} * ${fragment}${f" + {step * registers}" if step else ""}
</%def>

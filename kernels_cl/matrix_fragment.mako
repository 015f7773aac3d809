## The fragments of a sub-group: from local memory into registers, and multiplied.
##
## Context: unit (a MatrixUnit), slabs (MatrixSlab), parts (how many parts an element is split
## into), products (the pairs of parts that are multiplied, small ones first).

<%namespace name="parts_of" file="parts.mako"/>

<%def name="functions()" filter="trim">
% if unit.operand == "float16":
% for slab in slabs:

// Four 8 x 8 matrices of halves, one in each register; lane l gives row l % 8 of matrix l / 8
// (PTX ISA, "ldmatrix").
static inline void load_${slab.name}(uint *to, const __local stored *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4${"" if slab.along_k else ".trans"}.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((uint)(size_t)row) : "memory");
}
% endfor
% elif unit.operand in ("tf32", "bfloat16"):

${parts_of.functions(split, parts > 1)}
% endif

// c += a b (PTX ISA, "mma").
static inline void multiply_accumulate(element *c, const ${register} *a, const ${register} *b)
{
<%
    c_places = ", ".join(f"%{i}" for i in range(unit.result_elements))
    a_places = ", ".join(f"%{unit.result_elements + i}" for i in range(unit.a_registers))
    b_places = ", ".join(f"%{unit.result_elements + unit.a_registers + i}" for i in range(unit.b_registers))
    results = ", ".join(f'"+{constraints[0]}"(c[{i}])' for i in range(unit.result_elements))
    operands = ", ".join([f'"{constraints[1]}"(a[{i}])' for i in range(unit.a_registers)] + [f'"{constraints[1]}"(b[{i}])' for i in range(unit.b_registers)])
%>
    asm("${unit.instruction} {${c_places}}, {${a_places}}, {${b_places}}, {${c_places}};"
        : ${results} : ${operands});
}
</%def>

## The fragments of one step along k, of all rows (a) or columns (b) of the sub-group's tile.
<%def name="load(slab)" filter="trim">
% if unit.operand == "float16":
    #pragma unroll
    for (int i = 0; i < ${slab.name.upper()}_LOADS; ++i) {
        load_${slab.name}(${slab.name}_fragments[0] + 4 * i, ${slab.name}_slab + ${slab.name.upper()}_PLACE(${slab.name}_first + 16 * i + ${slab.matrix_position}, p + ${slab.matrix_depth}));
    }
% else:
    #pragma unroll
    for (int i = 0; i < ${slab.name.upper()}_FRAGMENTS; ++i) {
        % for depth_group in range(unit.depth_groups):
        % for row_group in range(slab.row_groups):
        {
            const int position = ${slab.name}_first + ${8 * slab.row_groups} * i + ${f"{8 * row_group} + " if row_group else ""}lane / 4;
            const int depth = p + ${f"{4 * unit.word * depth_group} + " if depth_group else ""}lane % 4${f" * {unit.word}" if unit.word > 1 else ""};
            ${to_registers(slab, f"{slab.row_groups * unit.depth_groups} * i + {slab.row_groups * depth_group + row_group}")}
        }
        % endfor
        % endfor
    }
% endif
</%def>

## A register of each part from the elements at `position`, from `depth` on.
<%def name="to_registers(slab, place)" filter="trim">
<% at = lambda step: f"{slab.name}_slab[{slab.name.upper()}_PLACE(position, depth{f' + {step}' if step else ''})]" %>
% if unit.operand == "float64":
    ${slab.name}_fragments[0][${place}] = ${at(0)};
% else:
    % for word in range(unit.word):
    float x${word} = ${at(word)};
    % endfor
    % for part in range(parts):
    {
        % for word in range(unit.word):
        const float lead${word} = leading(x${word});
        % endfor
        % if unit.word == 1:
        ${slab.name}_fragments[${part}][${place}] = as_uint(lead0);
        % else:
        ${slab.name}_fragments[${part}][${place}] = as_uint(lead0) >> 16 | as_uint(lead1);
        % endif
        % if part < parts - 1:
        % for word in range(unit.word):
        x${word} = rest(x${word}, lead${word});
        % endfor
        % endif
    }
    % endfor
% endif
</%def>

<%def name="multiply()" filter="trim">
    #pragma unroll
    for (int i = 0; i < A_FRAGMENTS; ++i) {
        #pragma unroll
        for (int j = 0; j < B_FRAGMENTS; ++j) {
            % for a_part, b_part in products:
            multiply_accumulate(accumulators[i][j], a_fragments[${a_part}] + ${unit.a_registers} * i, b_fragments[${b_part}] + ${unit.b_registers} * j);
            % endfor
        }
    }
</%def>

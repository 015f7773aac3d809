## Packs a constant B for the CPU family: blocks of KC rows, each with panels of NR columns from left to
## right. Each work-item packs a panel.
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="panel" file="/common/panel.mako"/>
${prelude.types()}
% if operand.loads_vectors:
${panel.types()}
% endif

${panel.defines()}
% if operand.transposes:
${panel.vectors()}
% endif
${prelude.address("b", layout, **operand.indices)}

% if operand.pairs:
${panel.pair_function()}

% endif
% if operand.loads_vectors:
${panel.load_function(operand)}

% endif
${panel.functions(operand)}

${prelude.signature("__kernel __attribute__((reqd_work_group_size(1, 1, 1)))", arguments)}
{
    b += b_offset;
    const extent first_column = get_group_id(0) * NR;
    const extent first_depth = get_group_id(1) * KC;
    % if operand.pairs:
    const int depth = min(k / 2 + k % 2 - first_depth, (extent)KC);  // pairs; the last one of an odd k has a zero
    % else:
    const int depth = min(k - first_depth, (extent)KC);
    % endif
    const long panels = get_num_groups(0);
    __global element *panel = packed + (first_depth * panels + (long)get_group_id(0) * depth) * NR;
    ${panel.pack(operand)}
}

## A loop of the CPU family over `turns` turns; a single turn is its body alone, which then has 0 for
## the variable.
<%def name="repeat(variable, condition, turns)" filter="trim">
% if turns > 1:
for (int ${variable} = 0; ${condition}; ++${variable}) {
    ${caller.body()}
}
% else:
${caller.body()}
% endif
</%def>

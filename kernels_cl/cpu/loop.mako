## A loop of the CPU family with `turns` turns. A single turn is the body alone, without the variable.
<%def name="repeat(variable, condition, turns)" filter="trim">
% if turns > 1:
for (int ${variable} = 0; ${condition}; ++${variable}) {
    ${caller.body()}
}
% else:
${caller.body()}
% endif
</%def>

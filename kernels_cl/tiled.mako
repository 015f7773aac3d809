## What both families of tiled kernels share: a work-group computes one MWG x NWG tile of the
## result, slab of k by slab of k. A family adds how it reads a slab (`fetch_slab`).
<%namespace name="prelude" file="prelude.mako"/>
<%namespace name="slab" file="slab.mako"/>
<%namespace name="tile" file="tile.mako"/>
${prelude.types()}

${tile.defines()}

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

${prelude.arithmetic()}

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({tiles.work_items}, 1, 1)))", arguments)}
{
${tile.locals(slabs)}
${prelude.offsets("a", "b", "out")}

${tile.place()}
% for one in slabs:

${slab.declare(one)}
% endfor
${self.before_slabs()}

${tile.accumulators()}

% if tiles.STAGES == 2:
${slab.walk_ahead(slabs, self.fetch_slab, tile.multiply)}
% else:
${slab.walk(slabs, self.fetch_slab, tile.multiply)}
% endif

${tile.store()}
}

## What both families of tiled kernels share: a work-group computes a MWG x NWG tile of the
## result, slab of k by slab of k. A family adds how a slab is fetched (`fetch_slab`) and copied
## past the registers (`copy_slab`).
<%namespace name="prelude" file="prelude.mako"/>
<%namespace name="share" file="share.mako"/>
<%namespace name="slab" file="slab.mako"/>
<%namespace name="tile" file="tile.mako"/>
${prelude.types()}

${tile.defines()}
% if tiles.FILL:
${share.defines()}
% endif

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

${prelude.arithmetic()}
% if tiles.FILL:

${share.functions()}
% endif

${prelude.signature(f"__kernel __attribute__((reqd_work_group_size({tiles.work_items}, 1, 1)))", arguments)}
{
${tile.locals(slabs)}
% if tiles.FILL:
${share.locals()}
% endif
${prelude.offsets("a", "b", "out")}

    const extent tiles_m = (m + MWG - 1) / MWG;
    const extent tiles_n = (n + NWG - 1) / NWG;
${tile.item()}
% for one in slabs:

${slab.declare(one)}
% endfor

% if tiles.FILL:
${share.begin()}
% else:
    const extent tile = get_group_id(0);
    const extent first_depth = 0;
    const extent last_depth = k;
% endif
${tile.place()}
${self.before_slabs()}
% for one in slabs:
${slab.begin(one)}
% endfor

${tile.accumulators()}

% if tiles.FRAGMENTS == 2 and tiles.ASYNC:
${slab.walk_past_registers_with_fragments(slabs, tiles.STAGES, self.copy_slab, tile)}
% elif tiles.FRAGMENTS == 2:
${slab.walk_ahead_with_fragments(slabs, self.fetch_slab, tile)}
% elif tiles.ASYNC:
${slab.walk_past_registers(slabs, tiles.STAGES, self.copy_slab, tile.multiply)}
% elif tiles.STAGES == 2:
${slab.walk_ahead(slabs, self.fetch_slab, tile.multiply)}
% else:
${slab.walk(slabs, self.fetch_slab, tile.multiply)}
% endif

% if tiles.FILL:
${share.join()}
% endif
${tile.store()}
% if tiles.FILL:
${share.end()}
% endif
}

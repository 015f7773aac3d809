## The tiled kernels: a work-group computes a MWG x NWG tile of the result, slab of k by slab of k. On the
## indirect path both operands are k-major and padded with zeros to whole tiles and slabs. On the direct path
## operands of any layout are read in place.
<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="stream_k" file="/common/stream_k.mako"/>
<%namespace name="shuffle" file="/common/shuffle.mako"/>
<%namespace name="slab" file="/tiled/slab.mako"/>
<%namespace name="tile" file="/common/tile.mako"/>
${prelude.types()}

${tile.defines()}
% if tiles.FILL:
${stream_k.defines()}
% endif

${prelude.address("a", problem.a)}
${prelude.address("b", problem.b)}
${prelude.address("out", problem.out)}
% if problem.c:
${prelude.address("c", problem.c)}
% endif

${prelude.arithmetic()}
% for one in slabs:

${slab.functions(one)}
% endfor
% if tiles.SHUFFLE:

${shuffle.functions(shuffle_function)}
% endif
% if tiles.FILL:

${stream_k.functions()}
% endif

${prelude.signature(f"__kernel {attributes}".strip(), arguments)}
{
${tile.locals(slabs)}
% if tiles.FILL:
${stream_k.locals()}
% endif
${prelude.offsets("a", "b", "out")}

% if tiles.GROUP_M > 1 or tiles.FILL or moved:
    const extent tiles_m = (m + MWG - 1) / MWG;
% endif
    const extent tiles_n = (n + NWG - 1) / NWG;
${tile.item()}
% for one in slabs:
${slab.declare(one)}
% endfor
% if tiles.FILL:
${stream_k.begin()}
% else:
${prelude.own_group("tile", "tiles_m * tiles_n")}
% endif
${tile.first_entry("own_tile" if tiles.FILL and moved else "tile")}
% for one in slabs:
${slab.begin(one)}
% endfor

${tile.accumulators()}

% if tiles.FRAGMENTS == 2 and tiles.ASYNC:
${slab.walk_past_registers_with_fragments(slabs, tiles.STAGES, tile)}
% elif tiles.FRAGMENTS == 2:
${slab.walk_ahead_with_fragments(slabs, tile)}
% elif tiles.ASYNC:
${slab.walk_past_registers(slabs, tiles.STAGES, tile.multiply)}
% elif tiles.STAGES == 2:
${slab.walk_ahead(slabs, tile.multiply)}
% else:
${slab.walk(slabs, tile.multiply)}
% endif

% if tiles.SLICES > 1:
${tile.add_slices()}
% endif
% if tiles.FILL:
${stream_k.join(tile.each_sum)}
% endif
% if tiles.SLICES > 1:
    if (slice == 0) {
${tile.store()}
    }
% else:
${tile.store()}
% endif
% if tiles.FILL:
${stream_k.end()}
% endif
}

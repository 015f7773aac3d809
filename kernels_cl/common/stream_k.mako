## Stream-K: the slabs of all tiles are divided evenly among the work-groups, and the partial sums
## of a tile that several groups worked on are joined by the last of them to arrive (M. Osama et
## al., "Stream-K", PPoPP 2023, section 4; nobody waits, so groups need not run at the same time).
## The order of summation depends on the division alone: equal calls give equal results.
##
## Where work-items form slices, the first one has the sums.
##
## Of the tiles, `rounds` to each group are computed whole, and the rest are divided. In a batch the
## tiles of all products are numbered through.
##
## Context: tiles and sharing (a Sharing, or None).

<%namespace name="prelude" file="/common/prelude.mako"/>
<%namespace name="tile" file="/common/tile.mako"/>
<%def name="if_has_sums(sliced)" filter="trim">
% if sliced:
    if (slice == 0) {
        ${capture(caller.body) | trim}
    }
% else:
    ${capture(caller.body) | trim}
% endif
</%def>

## `sums`: of a tile, and what they are.
<%def name="defines(sums='MWG * NWG', of='elements')" filter="trim">
typedef ${sharing.counts} slab_count;  // slabs of all divided tiles, times work-groups
#define FAN_IN ${sharing.fan_in}  // so many partial sums are joined at once; of more, the square root
#define TILE_SUMS (${sums})  // ${of} of a tile's partial sums
</%def>

<%def name="functions()" filter="trim">
// Orders what this work-group writes before what others read, and the other way round.
static inline void device_fence()
{
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device);
}

// The work-group whose share contains a slab of the divided tiles.
static inline int group_of(const slab_count slab, const slab_count divided, const int groups)
{
    return (int)(((slab + 1) * groups - 1) / divided);
}

// A group works on parts of two tiles at most: on the first's end and on the second's beginning.
static inline long slot_of(const int group, const bool is_beginning)
{
    return 2L * group + is_beginning;
}
</%def>

<%def name="locals()" filter="trim">
    __local int arrived;
</%def>

## `slabs_of_tile`: how many. `depths`: whether a tile's part is wanted in elements of k, too.
<%def name="begin(slabs_of_tile='max((k + KWG - 1) / KWG, (extent)1)', depths=True)" filter="trim">
    const int group = get_group_id(0);
    const int groups = get_num_groups(0);
    const extent slabs = ${slabs_of_tile};
    const extent whole_tiles = (extent)rounds * groups;
    const slab_count divided = (slab_count)(tiles_m * tiles_n${" * batch" if moved else ""} - whole_tiles) * slabs;
    slab_count position = divided * group / groups;
    const slab_count end = divided * (group + 1) / groups;
% if moved:
    long product = 0;
% endif
    #pragma unroll 1
    for (int round = 0; round < rounds || position < end; ++round) {
        extent tile = round * groups + group;
        extent first = 0;
        extent last = slabs;
        if (round >= rounds) {
            tile = whole_tiles + position / slabs;
            first = position % slabs;
            last = min(slabs, (extent)(first + end - position));
            position += last - first;
        }
% if moved:
${next_product()}
% endif
% if depths:
        const extent first_depth = first * KWG;
        const extent last_depth = min(last * KWG, k);
% endif
</%def>

## Where tiles are numbered through a batch: the number of one among those of its product, on to whose
## matrices the pointers go.
<%def name="next_product()" filter="trim">
        const extent own_tile = tile % (tiles_m * tiles_n);
        const long next = tile / (tiles_m * tiles_n);
        if (next != product) {
            ${prelude.move_on("next", "product")}
            product = next;
        }
</%def>

## Nobody may overwrite local memory for the next tile while another still reads it.
<%def name="end()" filter="trim">
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

<%def name="join()" filter="trim">
<%
    own = "tile_item" if tiles.SLICES > 1 else "item"
    end = "barrier(CLK_LOCAL_MEM_FENCE);  // the one that ends a tile"
%>
${join_among("barrier(CLK_LOCAL_MEM_FENCE);", own, "item == 0", "(i * NWI + j) * TILE_ITEMS", "accumulators[i][j]", tile.each_sum, tiles.SLICES > 1, end)}
</%def>

## `meet`: waits for all work-items that have sums. `own`: the number of one among them; `is_first`:
## whether it is the first. `place`, `sum`: of an element that `each_sum` walks over. `sliced`:
## whether only the first slice has sums. `end`: what is done before a tile is left to another group.
## `type`: of a sum, in C. `add`: a function that adds where the operator does not.
<%def name="join_among(meet, own, is_first, place, sum, each_sum, sliced=False, end='', type='element', add=None)" filter="trim">
    if (last - first < slabs) {
        // The groups that share this tile, and this group's number among them.
        const slab_count beginning = (slab_count)(tile - whole_tiles) * slabs;
        const int lowest = group_of(beginning, divided, groups);
        const int sharers = group_of(beginning + slabs - 1, divided, groups) - lowest + 1;
        int rank = group - lowest;
        // A tree of one level or two: of so many neighbours the last to arrive goes on with their sum.
        const int neighbours = max(FAN_IN, (int)ceil(sqrt((float)sharers)));
        __global int *level = counters;
        #pragma unroll 1
        for (int distance = 1; distance < sharers && rank >= 0; distance *= neighbours) {
            __global ${type} *sums = partial_sums + slot_of(lowest + rank, rank == 0) * TILE_SUMS + ${own};
            <%call expr="if_has_sums(sliced)">
            <%call expr="each_sum()">
                sums[${place}] = ${sum};
            </%call>
            </%call>
            const int leader = rank / (distance * neighbours) * (distance * neighbours);
            const int members = min(neighbours, (sharers - leader + distance - 1) / distance);
            __global int *counter = level + slot_of(lowest + leader, leader == 0);
            // All sums of the group are in memory before its arrival is.
            device_fence();
            ${meet}
            if (${is_first}) {
                arrived = atomic_inc(counter) + 1;
                if (arrived == members) {
                    *counter = 0;  // ready for the next launch
                }
            }
            ${meet}
            rank = arrived == members ? leader : -1;
            level += 2 * groups;
            if (rank >= 0${" && slice == 0" if sliced else ""}) {
                device_fence();
                <%call expr="each_sum()">
                    ${sum} = (${type})(0);
                </%call>
                #pragma unroll ${sharing.unrolling}
                for (int member = 0; member < members; ++member) {
                    const int from = leader + member * distance;
                    const __global ${type} *sums = partial_sums + slot_of(lowest + from, from == 0) * TILE_SUMS + ${own};
                    <%call expr="each_sum()">
                        ${f"{sum} = {add}({sum}, sums[{place}])" if add else f"{sum} += sums[{place}]"};
                    </%call>
                }
            }
        }
        if (rank < 0) {
% if end:
            ${end}
% endif
            continue;
        }
    }
</%def>

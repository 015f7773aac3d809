## Stream-K: the slabs of all tiles are divided evenly among the work-groups. The last work-group to arrive adds
## up the partial sums of a tile (M. Osama et al., "Stream-K", PPoPP 2023, section 4); no work-group waits, so
## they need not run at the same time. The order of summation depends only on the division, so equal calls
## have equal results.
##
## If work-items form slices, the first slice has the sums.
##
## Each work-group computes `rounds` whole tiles; the slabs of the remaining tiles are divided. In a batch the
## tiles of all products are numbered consecutively.
##
## Context: tiles, split_k (a StreamK, or None).

<%namespace name="prelude" file="/common/prelude.mako"/>
<%def name="if_has_sums(sliced)" filter="trim">
% if sliced:
    if (slice == 0) {
        ${capture(caller.body) | trim}
    }
% else:
    ${capture(caller.body) | trim}
% endif
</%def>

## `sums`: the number of a tile's partial sums; `of`: their unit, for a comment.
<%def name="defines(sums='MWG * NWG', of='elements')" filter="trim">
typedef ${split_k.counts} slab_count;  // slabs of all divided tiles, times work-groups
% if not split_k.by_pairs:
#define FAN_IN ${split_k.fan_in}  // most partial sums that are added up in one step
% endif
#define TILE_SUMS (${sums})  // ${of} of a tile's partial sums
</%def>

<%def name="functions()" filter="trim">
// Orders this work-group's writes before reads of other groups, and its reads after their writes.
static inline void device_fence()
{
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device);
}

// The work-group that multiplies a slab of the divided tiles.
static inline int group_of(const slab_count slab, const slab_count divided, const int groups)
{
    return (int)(((slab + 1) * groups - 1) / divided);
}

// The slot of a work-group's partial sums of a tile. It has sums of at most two tiles: of the end of one and of
// the beginning of the next.
static inline long slot_of(const int group, const bool is_beginning)
{
    return 2L * group + is_beginning;
}
</%def>

<%def name="locals()" filter="trim">
    __local int arrived;
</%def>

## The loop over a work-group's tiles and parts of tiles. `slabs_of_tile`: their number; `depths`: whether the
## kernel also needs the first and last depth.
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

## For tiles that are numbered over a batch: the tile's number in its product, and pointers to the matrices of
## that product.
<%def name="next_product()" filter="trim">
        const extent own_tile = tile % (tiles_m * tiles_n);
        const long next = tile / (tiles_m * tiles_n);
        if (next != product) {
            ${prelude.move_on("next", "product")}
            product = next;
        }
</%def>

## No work-item may overwrite local memory for the next tile while another still reads it.
<%def name="end()" filter="trim">
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

## Adds up the partial sums of a divided tile; `each_sum` is the loop over the sums of a work-item.
<%def name="join(each_sum)" filter="trim">
    if (last - first < slabs) {
        // The work-groups that have sums of this tile, and the rank of this work-group among them.
        const slab_count beginning = (slab_count)(tile - whole_tiles) * slabs;
        const int lowest = group_of(beginning, divided, groups);
        const int contributors = group_of(beginning + slabs - 1, divided, groups) - lowest + 1;
        int rank = group - lowest;
        ${join_pairs(each_sum) if split_k.by_pairs else join_many(each_sum)}
        if (rank < 0) {
% if split_k.end:
            ${split_k.end}
% endif
            continue;
        }
    }
</%def>

## Of many partial sums: the last work-group to arrive loads all of them.
<%def name="join_many(each_sum)" filter="trim">
        // A tree of one or two levels: the last of `neighbours` work-groups to arrive adds up their sums and continues.
        const int neighbours = max(FAN_IN, (int)ceil(sqrt((float)contributors)));
        __global int *level = counters;
        #pragma unroll 1
        for (int distance = 1; distance < contributors && rank >= 0; distance *= neighbours) {
            ${store(each_sum)}
            const int leader = rank / (distance * neighbours) * (distance * neighbours);
            const int members = min(neighbours, (contributors - leader + distance - 1) / distance);
            ${arrive("members")}
            rank = arrived == members ? leader : -1;
            level += 2 * groups;
            if (rank >= 0${" && slice == 0" if split_k.sliced else ""}) {
                device_fence();
                <%call expr="each_sum()">
                    ${split_k.sum} = (${split_k.type})(0);
                </%call>
                #pragma unroll ${split_k.unrolling}
                for (int member = 0; member < members; ++member) {
                    const int from = leader + member * distance;
                    ${add(each_sum)}
                }
            }
        }
</%def>

## Of pairs: the last work-group to arrive adds the other's sums to its own, which stay in registers.
<%def name="join_pairs(each_sum)" filter="trim">
        // A binary tree: the last of two work-groups to arrive adds the other's sums to its own and continues.
        __global int *level = counters;
        #pragma unroll 1
        for (int distance = 1; distance < contributors && rank >= 0; distance *= 2, level += 2 * groups) {
            const int from = rank ^ distance;  // the other one
            if (from >= contributors) {
                continue;  // it does not exist
            }
            ${store(each_sum)}
            const int leader = min(rank, from);
            ${arrive("2")}
            rank = arrived == 2 ? leader : -1;
            if (rank >= 0${" && slice == 0" if split_k.sliced else ""}) {
                device_fence();
                ${add(each_sum)}
            }
        }
</%def>

## Stores the sums of this work-group.
<%def name="store(each_sum)" filter="trim">
            const long own_slot = slot_of(lowest + rank, rank == 0);
            __global ${split_k.type} *sums = partial_sums + own_slot * TILE_SUMS + ${split_k.own};
            <%call expr="if_has_sums(split_k.sliced)">
            <%call expr="each_sum()">
                sums[${split_k.index}] = ${split_k.sum};
            </%call>
            </%call>
</%def>

## Counts the arrival of this work-group among the ones that follow `leader`, of which there are `wanted`.
<%def name="arrive(wanted)" filter="trim">
            __global int *counter = level + slot_of(lowest + leader, leader == 0);
            // All sums of the work-group reach memory before its arrival is counted.
            device_fence();
            ${split_k.wait}
            if (${split_k.first}) {
                arrived = atomic_inc(counter) + 1;
                if (arrived == ${wanted}) {
                    *counter = 0;  // ready for the next launch
                }
            }
            ${split_k.wait}
</%def>

## Adds the sums of the work-group `from`.
<%def name="add(each_sum)" filter="trim">
                    const long slot = slot_of(lowest + from, from == 0);
                    const __global ${split_k.type} *sums = partial_sums + slot * TILE_SUMS + ${split_k.own};
                    <%call expr="each_sum()">
                        % if split_k.add:
                        ${split_k.sum} = ${split_k.add}(${split_k.sum}, sums[${split_k.index}]);
                        % else:
                        ${split_k.sum} += sums[${split_k.index}];
                        % endif
                    </%call>
</%def>

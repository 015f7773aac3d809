## The direct path: operands are read where they lie, in any layout. Slabs that reach over an
## edge are read with checks, all others without.
<%inherit file="tiled.mako"/>
<%namespace name="slab" file="slab.mako"/>
<%def name="before_slabs()" filter="trim">
    const bool a_inside = a_tile + MWG <= m;
    const bool b_inside = b_tile + NWG <= n;
</%def>
<%def name="fetch_slab(one)" filter="trim">${slab.fetch_checked(one)}</%def>
<%def name="copy_slab(one)" filter="trim">${slab.copy_past_registers_checked(one)}</%def>

## The indirect path: both operands k-major and padded with zeros to whole tiles and slabs,
## so that nothing is checked before the store.
<%inherit file="tiled.mako"/>
<%namespace name="slab" file="slab.mako"/>
<%def name="before_slabs()"></%def>
<%def name="fetch_slab(one)" filter="trim">${slab.fetch(one)}</%def>
<%def name="copy_slab(one)" filter="trim">${slab.copy_past_registers(one)}</%def>

	.text
pack:
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
	v_fma_f32 v0, v1, v2, v3
	s_cbranch_scc1 .LBB0_1
.Lfunc_end0:
xgemm:                                  ; @xgemm
; %bb.0:
	v_fma_f32 v60, v61, v62, v63
	s_branch .LBB1_3
.LBB1_2:                                ;   in Loop: Header=BB1_3 Depth=1
	v_fma_f32 v60, v61, v62, v63
	s_cbranch_vccnz .LBB1_11
.LBB1_3:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB1_6 Depth 2
	global_load_dwordx4 v[0:3], v[4:5], off
	s_branch .LBB1_6
.LBB1_5:                                ;   in Loop: Header=BB1_6 Depth=2
	ds_read_b128 v[0:3], v9 offset:512    ; 16 bytes
	v_fmac_f32_e32 v20, v0, v4
	v_dual_fmac_f32 v21, v1, v4 :: v_dual_fmac_f32 v22, v2, v5
	s_cbranch_scc1 .LBB1_2
.LBB1_6:                                ;   Parent Loop BB1_3 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	ds_read2_b32 v[4:5], v9 offset1:64
	ds_read2st64_b64 v[10:13], v9 offset1:1
	ds_write_b32 v9, v0
	v_dual_mov_b32 v30, v31 :: v_dual_fmac_f32 v23, v3, v5
	s_cbranch_scc0 .LBB1_5
; %bb.7:                                ;   in Loop: Header=BB1_6 Depth=2
	ds_load_2addr_stride64_b32 v[14:15], v9 offset1:1
	v_pk_fma_f32 v[24:25], v[0:1], v[4:5], v[24:25]
	v_mad_u32_u24 v40, v41, v42, v43
	v_fma_mix_f32 v26, v0, v1, v26
	s_branch .LBB1_5
.LBB1_11:
	v_fma_f32 v60, v61, v62, v63
	s_endpgm
.Lfunc_end1:

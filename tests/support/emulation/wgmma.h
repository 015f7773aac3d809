// What kernels of sm_90 call as host code. Each instruction of inline PTX is a macro of its name, with
// its operands in their order: results, what it is given, and numbers that stand in it (`ptx.py`).
// `wgmma.c` has the functions.

void emulated_fence(void);
uint emulated_address(ulong p);
void emulated_make_barrier(uint address, uint arrivals);
void emulated_arrive(uint address, uint bytes);
uint emulated_try_wait(uint address, uint parity);
void emulated_meet(uint number, uint count);
void emulated_store_pair(uint to, uint first, uint second);
void emulated_store(uint to, uint value);
void emulated_stmatrix(uint to, uint m0, uint m1, uint m2, uint m3, int transposed);
void emulated_write_map(ulong map, uint from);
void emulated_load_box(uint to, ulong map, int inner, int outer, uint barrier);
void emulated_store_box(uint from, ulong map, int inner, int outer);
void emulated_copy(uint to, ulong from, int inside, int bytes);
void emulated_finish_copies(void);
void emulated_arrive_when_copied(uint barrier);
void emulated_wgmma(ulong sums, ulong a, ulong b, int n, int kind, int turned_a, int turned_b);
void emulated_wgmma_of_registers(ulong sums, uint a0, uint a1, uint a2, uint a3, ulong b, int n);
uint emulated_pack(int kind, float first, float second);
uint emulated_nearest_tf32(float value);
float emulated_half(uint bits);
uint emulated_relu(uint both);
float emulated_power_of_2(float x);
float emulated_reciprocal(float x);
float emulated_tanh(float x);
float emulated_positive(float x);
void emulated_meet_in_sub_group(void);
uint emulated_shuffle(uint own, uint from);

// What is not needed where each instruction is done when it is issued.
#define cp_async_bulk_commit_group(...)
#define cp_async_bulk_wait_group(...)
#define cp_async_bulk_wait_group_read(...)
#define fence_mbarrier_init_release_cluster(...)
#define fence_proxy_async_shared_cta(...)
#define fence_proxy_tensormap_generic_acquire_gpu(...)
#define fence_proxy_tensormap_generic_release_gpu(...)
#define setmaxnreg_dec_sync_aligned_u32(...)
#define setmaxnreg_inc_sync_aligned_u32(...)
#define wgmma_commit_group_sync_aligned(...)
#define wgmma_fence_sync_aligned(...)
#define wgmma_wait_group_sync_aligned(...)

#define mbarrier_init_shared_cta_b64(barrier, count) emulated_make_barrier(barrier, count)
#define mbarrier_arrive_shared_cta_b64(barrier) emulated_arrive(barrier, 0)
#define mbarrier_arrive_expect_tx_shared_cta_b64(barrier, bytes) emulated_arrive(barrier, bytes)
#define mbarrier_try_wait_parity_shared_cta_b64(is_done, barrier, parity) \
    is_done = emulated_try_wait(barrier, parity)
#define cp_async_bulk_tensor_2d_shared_cluster_global_tile_mbarrier_complete_tx_bytes( \
    to, map, inner, outer, barrier) emulated_load_box(to, (ulong)(map), inner, outer, barrier)
#define cp_async_bulk_tensor_2d_global_shared_cta_tile_bulk_group(from, map, inner, outer) \
    emulated_store_box(from, (ulong)(map), inner, outer)
#define cp_async_ca_shared_global(to, from, inside, bytes) \
    emulated_copy(to, (ulong)(from), inside, bytes)
#define cp_async_cg_shared_global cp_async_ca_shared_global
#define cp_async_mbarrier_arrive_noinc_shared_cta_b64(barrier) emulated_arrive_when_copied(barrier)
#define cp_async_wait_all() emulated_finish_copies()
#define bar_sync(number, count) emulated_meet(number, count)
#define bar_warp_sync(mask) emulated_meet_in_sub_group()
#define tensormap_cp_fenceproxy_global_shared_cta_tensormap_generic_release_gpu_sync_aligned( \
    map, from, bytes) emulated_write_map((ulong)(map), from)
#define stmatrix_sync_aligned_m8n8_x4_shared_cta_b16(to, m0, m1, m2, m3) \
    emulated_stmatrix(to, m0, m1, m2, m3, 0)
#define stmatrix_sync_aligned_m8n8_x4_trans_shared_cta_b16(to, m0, m1, m2, m3) \
    emulated_stmatrix(to, m0, m1, m2, m3, 1)
#define st_shared_v2_b32(to, first, second) \
    emulated_store_pair(to, as_uint(first), as_uint(second))
#define st_shared_b32(to, value) emulated_store(to, as_uint(value))
#define cvt_rna_tf32_f32(to, x) to = emulated_nearest_tf32(x)
#define mov_b32(first, second, both) \
    { first = emulated_half(both); second = emulated_half((both) >> 16); }
#define shfl_sync_idx_b32(to, own, lane, last, mask) to = emulated_shuffle(own, lane)
#define ex2_approx_ftz_f32(y, x) y = emulated_power_of_2(x)
#define rcp_approx_ftz_f32(y, x) y = emulated_reciprocal(x)
#define tanh_approx_f32(y, x) y = emulated_tanh(x)
#define max_NaN_f32(y, x, zero) y = emulated_positive(x)
#define cvt_rn_relu_f16x2_f32(to, high, low) to = emulated_relu(emulated_pack(0, low, high))
#define cvt_rn_relu_bf16x2_f32(to, high, low) to = emulated_relu(emulated_pack(1, low, high))
#define cvt_rn_f16x2_f32(to, high, low) to = emulated_pack(0, low, high)
#define cvt_rn_bf16x2_f32(to, high, low) to = emulated_pack(1, low, high)

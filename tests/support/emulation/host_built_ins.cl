// In the place of OpenCL's built-in functions, for kernels that are compiled for the host.

// What work-items ask about themselves, answered by host_program.c.
size_t host_local_id(uint);
size_t host_group_id(uint);
size_t host_groups(uint);
size_t host_local_size(uint);
void host_barrier(void);
#define get_local_id(d) host_local_id(d)
#define get_group_id(d) host_group_id(d)
#define get_num_groups(d) host_groups(d)
#define get_local_size(d) host_local_size(d)
#define get_global_id(d) (host_group_id(d) * host_local_size(d) + host_local_id(d))
#define barrier(flags) host_barrier()
#define atomic_inc(p) __sync_fetch_and_add(p, 1)
#define mem_fence(flags) __sync_synchronize()
#define atomic_work_item_fence(flags, order, scope) __sync_synchronize()

// Accesses by vector, in text that sanitizers see: pocl's own were compiled without them.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define OVERLOADED static inline __attribute__((overloadable))
#define EACH(n, to, from) for (int j = 0; j < n; ++j) { to = from; }

#define VECTORS(type, n, space) \
    OVERLOADED type##n host_load##n(size_t i, const space type *p) \
    { \
        type##n x; \
        EACH(n, x[j], p[i * n + j]) \
        return x; \
    } \
    OVERLOADED void host_store##n(type##n x, size_t i, space type *p) \
    { \
        EACH(n, p[i * n + j], x[j]) \
    }

// Halves, which any kernel may hold in memory; `loada` and `storea` are aligned.
#define HALVES(n, space) \
    OVERLOADED float##n host_load_half##n(size_t i, const space half *p) \
    { \
        float##n x; \
        EACH(n, x[j], p[i * n + j]) \
        return x; \
    } \
    OVERLOADED void host_store_half##n(float##n x, size_t i, space half *p) \
    { \
        EACH(n, p[i * n + j], (half)x[j]) \
    } \
    OVERLOADED float##n host_loada_half##n(size_t i, const space half *p) \
    { \
        const half##n loaded = ((const space half##n *)p)[i]; \
        float##n x; \
        EACH(n, x[j], loaded[j]) \
        return x; \
    } \
    OVERLOADED void host_storea_half##n(float##n x, size_t i, space half *p) \
    { \
        half##n stored; \
        EACH(n, stored[j], (half)x[j]) \
        ((space half##n *)p)[i] = stored; \
    }

#define IN_SPACE(n, space) \
    VECTORS(char, n, space) VECTORS(uchar, n, space) VECTORS(short, n, space) \
    VECTORS(ushort, n, space) VECTORS(int, n, space) VECTORS(uint, n, space) \
    VECTORS(float, n, space) VECTORS(double, n, space) HALVES(n, space)
#define OF_WIDTH(n) IN_SPACE(n, __global) IN_SPACE(n, __local) IN_SPACE(n, __private)

OF_WIDTH(2)
OF_WIDTH(4)
OF_WIDTH(8)
OF_WIDTH(16)

#define vload_half(i, p) ((float)(p)[i])
#define vstore_half(x, i, p) ((p)[i] = (half)(x))
#define vload2 host_load2
#define vstore2 host_store2
#define vload_half2 host_load_half2
#define vstore_half2 host_store_half2
#define vloada_half2 host_loada_half2
#define vstorea_half2 host_storea_half2
#define vload4 host_load4
#define vstore4 host_store4
#define vload_half4 host_load_half4
#define vstore_half4 host_store_half4
#define vloada_half4 host_loada_half4
#define vstorea_half4 host_storea_half4
#define vload8 host_load8
#define vstore8 host_store8
#define vload_half8 host_load_half8
#define vstore_half8 host_store_half8
#define vloada_half8 host_loada_half8
#define vstorea_half8 host_storea_half8
#define vload16 host_load16
#define vstore16 host_store16
#define vload_half16 host_load_half16
#define vstore_half16 host_store_half16
#define vloada_half16 host_loada_half16
#define vstorea_half16 host_storea_half16

// pocl's own take vectors of 32 bits in another register.
#define convert_int2(x) __builtin_convertvector(x, int2)
#define convert_int4(x) __builtin_convertvector(x, int4)
// pocl's own gives other numbers in host code.
#define select(a, b, c) ((c) ? (b) : (a))

// Runs a kernel on the buffers and numbers of one file, and writes the buffers to another. A file
// starts with groups and work-items along three dimensions; each argument has its size, and 1 if
// it is a buffer. The file that includes this one defines KERNEL, its PARAMETERS, the ARGUMENTS
// that it is called with, taken from `values`, and ARGUMENT_COUNT.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef float float2 __attribute__((ext_vector_type(2)));
typedef double double2 __attribute__((ext_vector_type(2)));

static long sizes[6], heads[ARGUMENT_COUNT][2];
static void *values[ARGUMENT_COUNT];
static pthread_barrier_t meeting;
static __thread long item, group;

static long along(const long *counts, long index, unsigned d)
{
    for (unsigned i = 0; i < d; ++i) {
        index /= counts[i];
    }
    return index % counts[d];
}

size_t host_local_id(unsigned d) { return along(sizes + 3, item, d); }
size_t host_group_id(unsigned d) { return along(sizes, group, d); }
size_t host_groups(unsigned d) { return sizes[d]; }
size_t host_local_size(unsigned d) { return sizes[3 + d]; }
void host_barrier(void) { pthread_barrier_wait(&meeting); }

void KERNEL(PARAMETERS);

static void *work(void *number)
{
    item = (long)number;
    for (group = 0; group < sizes[0] * sizes[1] * sizes[2]; ++group) {
        KERNEL(ARGUMENTS);
        host_barrier();
    }
    return 0;
}

int main(int argc, char **argv)
{
    FILE *file = fopen(argv[1], "rb");
    fread(sizes, sizeof sizes, 1, file);
    for (int i = 0; i < ARGUMENT_COUNT; ++i) {
        fread(heads[i], sizeof heads[i], 1, file);
        values[i] = malloc(heads[i][0]);
        fread(values[i], 1, heads[i][0], file);
    }
    fclose(file);
    const long items = sizes[3] * sizes[4] * sizes[5];
    pthread_barrier_init(&meeting, 0, items);
    pthread_t *threads = malloc(items * sizeof *threads);
    for (long i = 0; i < items; ++i) {
        pthread_create(&threads[i], 0, work, (void *)i);
    }
    for (long i = 0; i < items; ++i) {
        pthread_join(threads[i], 0);
    }
    file = fopen(argv[2], "wb");
    for (int i = 0; i < ARGUMENT_COUNT; ++i) {
        if (heads[i][1]) {
            fwrite(values[i], 1, heads[i][0], file);
        }
    }
    return fclose(file);
}

// Runs a kernel on the buffers and numbers of one file, and writes the buffers to another. A file
// starts with groups and work-items along three dimensions, and the number of arguments; each argument
// has its size, and 1 if it is a buffer.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef double double2 __attribute__((ext_vector_type(2)));

enum { ARGUMENTS = 64 };
static long sizes[6], argument_count, heads[ARGUMENTS][2];
static union { void *buffer; double2 number; } values[ARGUMENTS];
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

void call_kernel(unsigned long given); // by its arguments, 16 bytes each

static void *work(void *number)
{
    item = (long)number;
    for (group = 0; group < sizes[0] * sizes[1] * sizes[2]; ++group) {
        call_kernel((unsigned long)values);
        host_barrier();
    }
    return 0;
}

int main(int argc, char **argv)
{
    FILE *file = fopen(argv[1], "rb");
    fread(sizes, sizeof sizes, 1, file);
    fread(&argument_count, sizeof argument_count, 1, file);
    if (argument_count > ARGUMENTS) {
        return 1;
    }
    for (int i = 0; i < argument_count; ++i) {
        fread(heads[i], sizeof heads[i], 1, file);
        if (heads[i][1]) {
            values[i].buffer = malloc(heads[i][0]);
        }
        fread(heads[i][1] ? values[i].buffer : &values[i], 1, heads[i][0], file);
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
    for (int i = 0; i < argument_count; ++i) {
        if (heads[i][1]) {
            fwrite(values[i].buffer, 1, heads[i][0], file);
        }
    }
    return fclose(file);
}

## Keeps a thread of a CPU busy for a time that does not depend on memory.
__kernel void probe(const int steps, __global float *y)
{
    float x = get_global_id(0);
    for (int i = 0; i < steps; ++i) {
        x = x * 0.5f + 1.0f;  // not fma, which is slow where the processor has none
    }
    y[get_global_id(0)] = x;
}

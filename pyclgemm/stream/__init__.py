"""Products of host matrices of any size on any number of devices: `stream_gemm`.

`plan` divides a product into tiles, `sources` reads and writes blocks of host matrices, `links`
measures transfers, `buffers` has a device's memory, `engine` runs one device, `feed` hands tiles to
the devices, `request` checks arguments, and `stream` has the public function.
"""

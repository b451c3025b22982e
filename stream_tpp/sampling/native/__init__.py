"""The sampler as machine code: the same paths as `stream_tpp.sampling.sampler` from the same random numbers, many times faster.

It runs on a CPU, for a target with a mixture head and an anchored draft; elsewhere the reference runs.
"""

"""The operations as machine code for CPUs (Numba): what a round of sampling is made of, without a tensor library between.

Every function takes NumPy arrays, works on one row or on a few, and holds no lock. A row's result does not depend on the
rows beside it, to the last bit: each sum runs in an order that its own row decides.
"""

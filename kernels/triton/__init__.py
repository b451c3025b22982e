"""Kernels for CUDA, each the same operation as the PyTorch reference of the same name in `stream_tpp.kernels`.

Nothing here is imported before an operation meets CUDA tensors: Triton may be absent, and costs time to import.
All arithmetic is float64, as in the references: it is the ratios of densities that make the samples exact.
"""

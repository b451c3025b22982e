FROM python:3.12-slim

# The build of torch without CUDA: a tenth of the size. For the usual one, with it: --build-arg TORCH_INDEX=
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.8,<3"

WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY kernels kernels
COPY operators operators
COPY topologies topologies
COPY stream_tpp stream_tpp
# The extra brings the flights that the replay publishes.
RUN pip install --no-cache-dir ".[demo,parquet]"

RUN useradd --uid 10001 --create-home tpp && install -d -o tpp -g tpp /data /var/cache/stream-tpp
USER tpp
# The sampler is compiled for the CPU of the build; another kind of CPU compiles its own, once, and keeps it here.
ENV NUMBA_CACHE_DIR=/var/cache/stream-tpp
RUN python -m stream_tpp.sampling.native
WORKDIR /home/tpp
VOLUME /data
ENV PYTHONUNBUFFERED=1 MPLBACKEND=Agg
ENTRYPOINT ["stream-tpp"]
CMD ["--help"]

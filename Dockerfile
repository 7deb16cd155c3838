# CPU:  docker build -t atwu .
# CUDA: docker build -t atwu:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
# Run:  docker run --rm -v "$PWD:/work" -v atwu-cache:/cache atwu unlearn --model smollm2 --forget mine.jsonl --output unlearned
FROM python:3.11-slim-bookworm
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 ATWU_CACHE=/cache HF_HOME=/cache/huggingface
WORKDIR /opt/atwu
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
RUN pip install torch -c constraints.txt --extra-index-url "$TORCH_INDEX" \
 && pip install ".[lora,quantize,judge,tune,report]" -c constraints.txt \
 && useradd --create-home user && mkdir -p /cache /work && chown user /cache /work
USER user
WORKDIR /work
ENTRYPOINT ["atwu"]
CMD ["--help"]

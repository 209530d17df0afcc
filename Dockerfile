# The pinned packages and the smoke profile, which needs no network:
#   docker build -t blockrr . && docker run --rm --network none blockrr
# JupyterLab: docker run --rm -p 8888:8888 blockrr jupyter lab nbs --ip 0.0.0.0 --allow-root
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /blockrr
COPY requirements-3.11.txt .
RUN pip install --no-cache-dir --require-hashes -r requirements-3.11.txt
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e .
CMD ["bash", "-c", "blockrr reproduce --profile smoke && python tools/digests.py runs/smoke"]

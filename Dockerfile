# specviz in a container: docker compose up, or
#   docker build -t specviz . && docker run -p 7860:7860 -v specviz:/data specviz
# torch for a processor alone keeps the image small: TORCH_INDEX is the address of PyTorch's CPU wheels (its install page)
FROM python:3.11-slim AS built
ARG TORCH_INDEX=""
WORKDIR /source
COPY . .
RUN sh .ci/install /specviz "$TORCH_INDEX"

FROM python:3.11-slim
COPY --from=built /specviz /specviz
RUN useradd --uid 1000 --create-home specviz && mkdir /data && chown specviz /data
USER specviz
ENV PATH=/specviz/bin:$PATH SPECVIZ_HOME=/data GRADIO_SERVER_NAME=0.0.0.0 PYTHONDONTWRITEBYTECODE=1
VOLUME /data
EXPOSE 7860
HEALTHCHECK --interval=10s --start-period=40s --timeout=5s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7860/api/status', timeout=4)"]
CMD ["specviz", "app"]

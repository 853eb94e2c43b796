"""Other quantisers, each run in an environment of its own on the same model, calibration and settings.

`benchmarks.shrink` looks for ENVS/NAME/bin/python, where NAME is that of the peer. To make them, with
`python -m venv ENVS/NAME` first and then that environment's pip:

    torchao         torch==2.13.0 torchao==0.18.0 transformers==5.24.0
    llmcompressor   torch==2.13.0 llmcompressor==0.14.0
    gptqmodel       gptqmodel==7.7.0 (asks for torch 2.14.1; measured here with 2.13.0, by --no-deps)
    autoround       torch==2.13.0 auto-round==0.16.1
    llama_cpp       llama-cpp-python==0.3.36

A runner takes a folder in the Hugging Face layout and token ids, and writes what the peer makes of it as
such a folder in float32, or as a GGUF file, so that all are judged by the same code; `exchange` is that
contract. Runners import nothing of penjing.
"""

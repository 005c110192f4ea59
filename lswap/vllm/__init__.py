"""`lswap-vllm`: keeps a vLLM server alive, asleep, while models are swapped; read `lswap.vllm.options` first."""

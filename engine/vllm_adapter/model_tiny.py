"""A tiny Llama with random weights: it talks nonsense, fast, through the same code as a real model.

The weights come from a fixed seed, so every machine makes the same model.
"""

from pathlib import Path
from string import ascii_lowercase
from typing import Any

CONTEXT_TOKENS = 8192
START, END, PAD = "<|start|>", "<|end|>", "<|pad|>"

CHAT_TEMPLATE = (
    "{% if tools %}<|start|>tools\n{{ tools | tojson }}<|end|>\n{% endif %}"
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
"""Every turn in the same form, whatever its role."""


def write(folder: Path) -> None:
    """Write weights, settings and tokenizer with its chat template into `folder`; takes a few seconds."""
    import torch
    from transformers import LlamaForCausalLM

    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    LlamaForCausalLM(_config(tokenizer)).to(torch.bfloat16).save_pretrained(folder)


def _tokenizer() -> Any:
    """Return a byte-level BPE tokenizer: any text is spelt out in bytes, save for pairs of lower-case letters.

    The pairs are most of the vocabulary, so that random tokens are mostly readable.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pairs = [(first, second) for first in ascii_lowercase for second in ascii_lowercase]
    pieces = [START, END, PAD, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, pairs)]
    tokenizer = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = {"bos_token": START, "eos_token": END, "pad_token": PAD}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=CHAT_TEMPLATE, **specials)


def _config(tokenizer: Any) -> Any:
    """Return the settings of a Llama of 4 layers, 256 wide."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="bfloat16",
    )

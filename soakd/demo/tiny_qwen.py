"""A Qwen3 model of half a megabyte with random weights, as a GGUF file that llama.cpp loads for real.

The text it generates is nonsense but printable: one hidden channel is held constant (the embedding writes it, no
block overwrites it) and the output matrix reads it to push down every token that is not letters, space, comma or
full stop. The end-of-turn token is pushed down as well, so that an answer is exactly ``max_tokens`` long.

Needs the packages ``gguf`` and ``numpy`` (extra ``demo``).
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]
_FORMAT = 1
"""Raised whenever the same shape would give another file, so that a cached model of an older release is not used."""

_CORPUS = (
    "hello, how can i help you today? please tell me the number of your order and the name on the account. i am "
    "sorry that the parcel came late; we will send a new one within two days. the refund was started and takes three "
    "to five working days. could you describe what happened before the message appeared? thank you for waiting. the "
    "technician will call you between nine and twelve. your contract ends in march and can be renewed online. please "
    "restart the router, wait one minute and try the connection again. is there anything else that i can do for you? "
    "the server answers another request while the card gets warm under load. a soak test runs for hours because slow "
    "leaks show only with time: memory grows, clocks drop, the link retrains and latency rises. user assistant system "
    "explain in simple words how a cache works, list three reasons why, and write a short summary of the conversation"
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
_CONSTANT = 4.0
_UNWANTED = -25.0
_NEVER_STOPS = -80.0 / 3.5
_NAME = "tiny-qwen3"


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of the model; two models of one shape are the same bytes. ``context`` is in tokens."""

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 128
    context: int = 32768
    merges: int = 500
    sharpness: float = 6.0
    seed: int = 1

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def file_name(self) -> str:
        digest = hashlib.sha256(f"{_FORMAT} {self!r} {_CORPUS}".encode()).hexdigest()[:12]
        return f"{_NAME}-{digest}.gguf"


def cached_model(directory: Path, shape: Shape | None = None) -> Path:
    """The model of this shape in ``directory``, made when it is not there yet. Safe with several makers at once."""
    shape = shape or Shape()
    path = directory / shape.file_name
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        write_model(partial, shape)
        os.replace(partial, path)
    return path


def write_model(path: Path, shape: Shape) -> None:
    """Write the GGUF file. Raises ImportError without the package ``gguf``, OSError when it can't be written."""
    import gguf

    vocabulary, merges = _byte_pairs(_CORPUS, shape.merges)
    first_special = len(vocabulary)
    out = gguf.GGUFWriter(str(path), "qwen3")
    out.add_name(_NAME)
    out.add_description("random weights, for a first run of a soak test and for tests of clients")
    out.add_block_count(shape.layers)
    out.add_context_length(shape.context)
    out.add_embedding_length(shape.hidden)
    out.add_feed_forward_length(shape.feed_forward)
    out.add_head_count(shape.heads)
    out.add_head_count_kv(shape.kv_heads)
    out.add_key_length(shape.head_dim)
    out.add_value_length(shape.head_dim)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_freq_base(1_000_000.0)
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    out.add_quantization_version(gguf.GGML_QUANT_VERSION)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list([*vocabulary, *_SPECIAL])
    out.add_token_types([gguf.TokenType.NORMAL] * len(vocabulary) + [gguf.TokenType.CONTROL] * len(_SPECIAL))
    out.add_token_merges(merges)
    out.add_bos_token_id(first_special)
    out.add_pad_token_id(first_special)
    out.add_eos_token_id(first_special + 2)
    out.add_add_bos_token(False)
    out.add_chat_template(_CHAT_TEMPLATE)
    for name, weights in _tensors(shape, vocabulary):
        out.add_tensor(name, weights)
    _finish(out)


def _finish(out: Any) -> None:
    try:
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
    finally:
        out.close()


def _tensors(shape: Shape, vocabulary: Sequence[str]) -> Iterator[tuple[str, Weights]]:
    """Every tensor by its GGUF name; matrices as (rows out, columns in)."""
    rng = np.random.default_rng(shape.seed)
    hidden, feed_forward, head_dim = shape.hidden, shape.feed_forward, shape.head_dim
    tokens = len(vocabulary) + len(_SPECIAL)

    def random(rows: int, columns: int, scale: float) -> Weights:
        return rng.normal(0.0, scale, (rows, columns)).astype(np.float32)

    def into_residual(rows: int, columns: int, scale: float) -> Weights:
        weights = random(rows, columns, scale)
        weights[0, :] = 0.0  # keeps the constant channel constant
        return weights

    embedding = random(tokens, hidden, 1.0)
    embedding[:, 0] = _CONSTANT
    head = random(tokens, hidden, shape.sharpness / hidden**0.5)
    head[: len(vocabulary), 0] = [0.0 if ok else _UNWANTED for ok in _printable(vocabulary)]
    head[len(vocabulary) :, 0] = _UNWANTED
    head[len(vocabulary) + 2, 0] = _NEVER_STOPS

    yield "token_embd.weight", embedding
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", np.ones(hidden, np.float32)
        for letter, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            yield f"{block}attn_{letter}.weight", random(heads * head_dim, hidden, hidden**-0.5)
        yield block + "attn_q_norm.weight", np.ones(head_dim, np.float32)
        yield block + "attn_k_norm.weight", np.ones(head_dim, np.float32)
        yield block + "attn_output.weight", into_residual(hidden, shape.heads * head_dim, hidden**-0.5)
        yield block + "ffn_norm.weight", np.ones(hidden, np.float32)
        yield block + "ffn_gate.weight", random(feed_forward, hidden, hidden**-0.5)
        yield block + "ffn_up.weight", random(feed_forward, hidden, hidden**-0.5)
        yield block + "ffn_down.weight", into_residual(hidden, feed_forward, feed_forward**-0.5)
    yield "output_norm.weight", np.ones(hidden, np.float32)
    yield "output.weight", head


def _printable(vocabulary: Sequence[str]) -> Iterator[bool]:
    bytes_of = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
    for token in vocabulary:
        text = bytes(bytes_of[symbol] for symbol in token)
        yield all(chr(b).isascii() and (chr(b).isalpha() or b in b" .,") for b in text)


def _byte_symbols() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(spare)) for b in range(256)]


def _byte_pairs(text: str, wanted: int) -> tuple[list[str], list[str]]:
    """Byte-pair encoding learnt from ``text``: the vocabulary (256 bytes, then merged symbols) and the merge rules."""
    symbols = _byte_symbols()
    words = Counter(tuple(symbols[b] for b in f" {word}".encode()) for word in text.split())
    vocabulary, merges = dict.fromkeys(symbols), list[str]()
    while len(merges) < wanted:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(" ".join(best))
        vocabulary["".join(best)] = None
        words = Counter({_merged(word, best): count for word, count in words.items()})
    return list(vocabulary), merges


def _merged(word: Sequence[str], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    at = 0
    while at < len(word):
        if tuple(word[at : at + 2]) == pair:
            out.append(pair[0] + pair[1])
            at += 2
        else:
            out.append(word[at])
            at += 1
    return tuple(out)

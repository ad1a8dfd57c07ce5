"""Small stand-ins for packages too heavy for the tests: what they answer is made up, how they are called is not."""

from __future__ import annotations

SENTENCE_TRANSFORMERS = '''
"""As much of sentence-transformers as is used: no torch, no model."""

import asyncio

from sharedmem.providers.local_embedders import HashingEmbedder


class SentenceTransformer:
    max_seq_length = 64
    seen = []

    def __init__(self, name):
        if name == "missing":
            raise OSError(f"{name} is not a local folder and is not a valid model identifier")
        self.embedder = HashingEmbedder(384)

    def encode_query(self, sentences, **options):
        return self.encode("query", sentences, **options)

    def encode_document(self, sentences, **options):
        return self.encode("document", sentences, **options)

    def encode(self, purpose, sentences, *, batch_size, show_progress_bar):
        assert not show_progress_bar
        self.seen.append((purpose, list(sentences), batch_size))
        return 3 * asyncio.run(self.embedder.embed(sentences)).vectors
'''

TIKTOKEN = '''
"""As much of tiktoken as is used: three characters make a token of cl100k_base, five one of o200k_base."""

WIDTHS = {"cl100k_base": 3, "o200k_base": 5, "p50k_base": 2}
MODELS = {"text-embedding-3-small": "cl100k_base", "gpt-4o": "o200k_base", "davinci-codex": "p50k_base", "gpt2": "gpt2"}


class Encoding:
    def __init__(self, width):
        self.width = width

    def encode_ordinary(self, text):
        return list(range(0, len(text), self.width))

    def decode_with_offsets(self, tokens):
        return "", tokens


def get_encoding(name):
    return Encoding(WIDTHS[name])


def encoding_name_for_model(model_name):
    return MODELS[model_name]
'''

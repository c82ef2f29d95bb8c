"""Pretrained transformers as text classifiers, loaded by the ``transformers`` package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from torch import Tensor, nn

from consilience.core.errors import InvalidInput, MissingExtra
from consilience.core.validation.arrays import Array
from consilience.models.torch.modules import Factory

_NEEDED = ("config.json", "model.safetensors")


def transformer(*, pretrained: str, longest: int = 128, revision: str | None = None) -> Factory:
    """A pretrained transformer under a new linear layer, for texts, such as BERT-tiny.

    The folder holds the files that ``save_pretrained`` of a model and of its tokenizer writes:
    ``config.json``, ``model.safetensors``, and the tokenizer's files. A hub's model is downloaded on its
    first use, and kept in the cache of ``transformers``. Only weights in the safetensors format are read,
    and code from the model's repository is not run.

    Parameters missing from the checkpoint, usually those of the last layer, are drawn from the party's
    stream. A last layer for as many classes is kept, and should have them in the federation's order. Every
    party loads ``pretrained`` itself: parameters can be averaged, but the model as a whole is not sent to
    others.

    Args:
        pretrained: a folder, or ``"owner/name"`` on the Hugging Face hub.
        longest: number of tokens read from a text, the marks at both ends included.
        revision: a commit or branch of a hub's model; with a commit, all parties start from the same weights.

    Returns:
        A function ``(input_shape, n_outputs) -> module``.

    Raises:
        InvalidInput: there is no such folder, or a file is missing in it.
        MissingExtra: ``transformers`` is not installed.

    Source:
        Turc, Chang, Lee, Toutanova 2019, "Well-Read Students Learn Better" (BERT-tiny); Wolf et al. 2020,
        "Transformers: State-of-the-Art Natural Language Processing".
    """
    if not isinstance(pretrained, str) or not pretrained:
        raise InvalidInput(
            f"pretrained is {pretrained!r}",
            where="transformer",
            mend='Give a folder, or "owner/name" on the hub.',
        )
    if type(longest) is not int or longest < 3:
        raise InvalidInput(
            f"longest is {longest!r}",
            where="transformer",
            mend="Give a whole number of tokens, 3 or more.",
        )
    _imported()
    if _is_folder(pretrained):
        _check_folder(Path(pretrained).expanduser())
        if revision is not None:
            raise InvalidInput("a folder has no revision", where="transformer")
    return partial(_transformer, pretrained=pretrained, longest=longest, revision=revision)


def _imported() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtra("transformers", extra="text", where="transformer") from error
    return transformers


def _is_folder(pretrained: str) -> bool:
    """True for a path: a folder that exists, or a text that could be no name on a hub."""
    path = Path(pretrained).expanduser()
    return path.exists() or path.is_absolute() or pretrained[0] == "." or pretrained.count("/") != 1


def _check_folder(folder: Path) -> None:
    where = f"transformer {str(folder)!r}"
    if not folder.is_dir():
        raise InvalidInput(
            "there is no such folder",
            where=where,
            mend="Download it where there is a network, and copy it here: hf download OWNER/NAME "
            '--local-dir FOLDER. On the hub it is "owner/name".',
        )
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing == ["model.safetensors"] and (folder / f"{_NEEDED[1]}.index.json").is_file():
        missing = []  # in several files
    if not missing:
        return
    mend = "It should hold config.json, model.safetensors and the tokenizer's files."
    if missing == ["model.safetensors"] and (folder / "pytorch_model.bin").is_file():
        mend = (
            "Its pytorch_model.bin is a pickle, which is not read here. Convert it once, if you trust it:\n"
            "  from transformers import AutoModel\n"
            f"  AutoModel.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        )
    raise InvalidInput(f"there is no {' and no '.join(missing)}", where=where, mend=mend)


def _transformer(
    input_shape: tuple[int, ...],
    n_outputs: int,
    *,
    pretrained: str,
    longest: int,
    revision: str | None,
) -> nn.Module:
    if input_shape != ():
        raise InvalidInput(
            f"rows of shape {input_shape} are no texts",
            where="transformer",
            mend="Give an array of strings, one for each row.",
        )
    library = _imported()
    folder = _is_folder(pretrained)
    source = str(Path(pretrained).expanduser()) if folder else pretrained
    options: dict[str, Any] = {"local_files_only": folder, "trust_remote_code": False}
    if revision is not None:
        options["revision"] = revision
    try:
        with _quiet(library):
            config = library.AutoConfig.from_pretrained(source, num_labels=n_outputs, **options)
            # It may name an implementation on the hub, which would be fetched and imported.
            config._attn_implementation = None
            tokenizer = library.AutoTokenizer.from_pretrained(source, **options)
            network, report = library.AutoModelForSequenceClassification.from_pretrained(
                source,
                config=config,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # a last layer for other classes gives way to a new one
                output_loading_info=True,
                **options,
            )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise InvalidInput(
            f"it cannot be loaded: {str(error).strip().partition(chr(10))[0]}",
            where=f"transformer {pretrained!r}",
            mend="A folder holds config.json (with its model_type), model.safetensors and the tokenizer's "
            "files."
            if folder
            else "Is there a network, and does it have model.safetensors? If not: hf "
            f"download {pretrained} --local-dir FOLDER elsewhere, and give the folder.",
        ) from error
    _check_whole(network, report, pretrained)
    reads = min(
        getattr(config, "max_position_embeddings", longest), tokenizer.model_max_length, longest
    )
    if reads < longest:
        raise InvalidInput(
            f"longest is {longest}",
            where=f"transformer {pretrained!r}",
            mend=f"It reads {reads} tokens at most.",
        )
    return _TextTransformer(network.float(), tokenizer, longest)


class _TextTransformer(nn.Module):
    def __init__(self, network: Any, tokenizer: Any, longest: int) -> None:
        super().__init__()
        self.network, self.tokenizer, self.longest = network, tokenizer, longest

    def encode(self, texts: Array) -> Array:
        """Numbers of tokens, shape ``(n, length)``, and -1 behind a text's end."""
        lines = self.tokenizer(texts.tolist(), truncation=True, max_length=self.longest)
        lines = lines["input_ids"]
        numbers = np.full((len(lines), max(map(len, lines))), -1, dtype=np.int64)
        for row, line in zip(numbers, lines, strict=True):
            row[: len(line)] = line
        return numbers

    def forward(self, tokens: Tensor) -> Tensor:
        there = tokens >= 0
        longest = int(there.any(dim=0).sum())
        tokens, there = tokens[:, :longest], there[:, :longest]
        tokens = tokens.masked_fill(~there, self.tokenizer.pad_token_id or 0)
        logits: Tensor = self.network(input_ids=tokens, attention_mask=there.long()).logits
        return logits


def _check_whole(network: Any, report: Any, pretrained: str) -> None:
    """Raise ``InvalidInput`` if more than what lies on top would start from random numbers."""
    body = f"{network.base_model_prefix}."
    lost = [
        name
        for name in sorted(report["missing_keys"])
        if name.startswith(body) and not name.startswith(f"{body}pooler.")
    ]
    if lost:
        raise InvalidInput(
            f"the checkpoint lacks {len(lost)} of its parameters, such as {lost[0]!r}",
            where=f"transformer {pretrained!r}",
            mend="Is config.json that of another model, or the download incomplete?",
        )


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Without progress bars, and without the note that a new last layer should be trained."""
    logging = library.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()

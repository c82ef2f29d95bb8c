"""A text model as a party: its words become class probabilities, and nothing of it is trained.

    python examples/text_model.py

`word_of` stands for whatever answers a prompt with a word: a hosted language model, a local one, a rule. Here
it is a rule, so that the example runs anywhere. It is asked several times about each text; the share of the
times that it says a class, with a little for every class, is the probability. A word that is no class counts
for none. What it said is kept in a file: run it again, and it is asked about nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import gettempdir

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from consilience import Federation, Frozen, Party, avg, ensemble_distillation

CLASSES = ("billing", "fault")
PROMPT = "Is this message about billing or a fault? Answer with one word.\n\n{text}"


def word_of(prompt: str, attempt: int) -> str:
    """Answer a prompt with a word; put a call of a language model here."""
    text = prompt.rpartition("\n")[2]
    if "invoice" in text or "charged" in text:
        return "Billing."
    return "fault" if "broken" in text or "error" in text else ("fault", "billing")[attempt % 2]


def shares(
    ask: Callable[[str, int], str], classes: Sequence[str], *, times: int = 4, doubt: float = 0.25
) -> Callable[[np.ndarray], np.ndarray]:
    """Make a function from texts to probabilities of one from a prompt to a word.

    Args:
        ask: answers a prompt with a word; its second argument counts the attempts.
        classes: the words that are classes.
        times: attempts for each text.
        doubt: what every class is given beforehand, in answers.
    """

    def answer(texts: np.ndarray) -> np.ndarray:
        counts = np.full((len(texts), len(classes)), doubt)
        for row, text in enumerate(texts):
            for attempt in range(times):
                said = ask(PROMPT.format(text=text), attempt).strip(" .!\n").lower()
                if said in classes:
                    counts[row, classes.index(said)] += 1
        return counts / counts.sum(axis=1, keepdims=True)

    return answer


def main(answers: Path) -> dict[str, list[str]]:
    """Run a federation of two help desks and the text model; return what each desk says of two texts."""
    parts = ("printer", "screen", "router", "tablet", "modem", "phone")
    texts = np.array(
        [f"charged twice for the {part}" for part in parts]
        + [f"error, the {part} is broken" for part in parts]
    )
    labels = np.repeat(CLASSES, len(parts))
    public = np.array([f"{what} {part}" for part in parts for what in ("invoice of a", "broken")])

    def words():
        return make_pipeline(TfidfVectorizer(), LogisticRegression())

    model = Frozen(shares(word_of, CLASSES), classes=CLASSES, most=1_000)
    model.answers.keep_in(answers)
    parties = [
        Party("desk-1", words(), texts[::2], labels[::2]),
        Party("desk-2", words(), texts[1::2], labels[1::2]),
        Party("text-model", model),
    ]
    history = Federation(parties, public).run(
        ensemble_distillation(aggregate=avg(), rounds=2), progress=False
    )
    asked = np.array(["a new invoice", "my phone shows an error"])
    return {name: history.models[name].predict(asked).tolist() for name in ("desk-1", "desk-2")}


if __name__ == "__main__":
    for desk, said in main(Path(gettempdir()) / "text-model-answers.jsonl").items():
        print(desk, said)

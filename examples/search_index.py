"""Text: count the words of each document, weigh them over all documents, answer queries.

penstock run examples/search_index.py -p 'queries=["quota", "gate water"]'
"""

import math
from collections import Counter

from penstock import task, workflow

TEXTS = [
    "a penstock is a gate that lets water into a channel",
    "a queue admits work when there is quota for it",
    "a quota is what a team may use of a cluster",
    "water flows downhill and work flows through a graph",
]


@task(cpu=1)
def count(text: str) -> dict[str, int]:
    return dict(Counter(text.lower().split()))


@task(cpu=1)
def weigh(counts: list[dict[str, int]]) -> dict[str, dict[str, float]]:
    """word -> number of the document -> weight (tf-idf)."""
    index: dict[str, dict[str, float]] = {}
    for number, words in enumerate(counts):
        for word, n in words.items():
            among = sum(word in other for other in counts)
            index.setdefault(word, {})[str(number)] = n / sum(words.values()) * math.log(len(counts) / among)
    return index


@task
def answer(query: str, index: dict[str, dict[str, float]]) -> str:
    scores: Counter = Counter()
    for word in query.lower().split():
        scores.update(index.get(word, {}))
    return TEXTS[int(scores.most_common(1)[0][0])] if scores else "nothing found"


@workflow
def search_index(texts: list[str] = TEXTS, queries: list[str] = ["quota", "water"]):  # noqa: B006
    index = weigh([count(text) for text in texts])
    return [answer(query, index) for query in queries]

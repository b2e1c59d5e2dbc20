"""Web scraping: follow links round by round until nothing new turns up, politely: a few pages at a time, with retries.

penstock run examples/scrape.py                # the "web" is a dictionary here; fetch() is the only place to change
"""

from penstock import Backoff, Retry, task, workflow

WEB = {
    "/": "welcome /news /about",
    "/news": "today /news/1 /news/2",
    "/news/1": "a long story /about",
    "/news/2": "another story /",
    "/about": "who we are",
}


@task(cpu=0.5, parallel=4, timeout="30s", retry=Retry(limit=3, backoff=Backoff(initial=0.1)))
def fetch(page: str) -> list[str]:
    return WEB[page].split()


@task
def unseen(pages: list[list[str]], seen: list[str]) -> list[str]:
    return sorted({word for page in pages for word in page if word.startswith("/")} - set(seen))


@task
def words(pages: list[list[str]], before: int) -> int:
    return before + sum(not word.startswith("/") for page in pages for word in page)


@workflow(max_iterations=20)
def scrape(start: str = "/"):
    seen, found, total = [start], [start], 0
    while len(found) > 0:
        pages = [fetch(page) for page in found]
        total = words(pages, total)
        found = unseen(pages, seen)
        seen = seen + found
    return {"pages": seen, "words": total}

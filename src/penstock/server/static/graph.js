// The graph of a run: reasons of boxes that are pointed at or have the focus, arrow keys, and links that keep the place on the page.
import { visit } from "./live.js";

const boxes = () => [...document.querySelectorAll(".board .box")];

// -- reasons

function tip(box) {
  const said = document.getElementById("tip");
  if (!said) return;
  const text = box && box.dataset.reason;
  said.hidden = !text;
  if (!text) return;
  said.textContent = text;
  const at = box.getBoundingClientRect(), room = document.documentElement.clientWidth;
  const width = said.offsetWidth, height = said.offsetHeight;
  const above = at.bottom + height + 12 > innerHeight;
  said.style.left = `${Math.max(8, Math.min(at.left, room - width - 8)) + scrollX}px`;
  said.style.top = `${(above ? at.top - height - 6 : at.bottom + 6) + scrollY}px`;
}
const of = (event) => event.target.closest?.(".board .box");
addEventListener("mouseover", (event) => tip(of(event)));
addEventListener("focusin", (event) => tip(of(event)));
addEventListener("focusout", () => tip());
addEventListener("scroll", () => tip(), true);

// -- links

async function go(there, focus) {
  const frame = document.querySelector(".board-frame");
  const place = frame ? [frame.scrollLeft, frame.scrollTop] : [0, 0];
  await visit(there);
  tip();
  document.querySelector(".board-frame")?.scrollTo(...place);
  focus?.();
}
const side = () => { const title = document.getElementById("side-title"); title?.focus(); title?.scrollIntoView({ block: "nearest" }); };
const back = (id) => () => (document.getElementById(id) || document.querySelector(".board-frame"))?.focus();

addEventListener("click", (event) => {
  const link = event.target.closest?.(".board a, .side a.close, .side dd a[href^='?'], .crumbs a, .filters a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const there = link.getAttribute("href"), chosen = document.querySelector(".box.chosen")?.id;
  go(there, link.matches(".close") ? back(chosen) : new URLSearchParams(there).get("step") ? side : back(link.id));
});
addEventListener("submit", (event) => {
  if (!event.target.matches(".filters")) return;
  event.preventDefault();
  go(`?${new URLSearchParams(new FormData(event.target))}`, () => document.querySelector(".filters input[type=search]").focus());
});

// -- keys

const SIDES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const close = document.querySelector(".side a.close");
    if (close && !document.querySelector("dialog[open]")) close.click(); else tip();
    return;
  }
  const here = event.target.closest?.(".board .box"), way = SIDES[event.key];
  if (!here || !way) return;
  event.preventDefault();
  const [x, y] = way, from = here.getBoundingClientRect();
  let best, least = Infinity;
  for (const other of boxes()) {
    const at = other.getBoundingClientRect(), dx = at.left - from.left, dy = at.top - from.top;
    const along = dx * x + dy * y, aside = Math.abs(dx * y) + Math.abs(dy * x);
    if (along < 8 || (y && aside > 8)) continue;
    const far = along * (x ? 4 : 1) + aside;
    if (far < least) { least = far; best = other; }
  }
  best?.focus();
});

document.querySelector(".box.chosen")?.scrollIntoView({ block: "nearest", inline: "center" });

// Keeps a page up to date, and moves through it by keyboard. Without this script pages are right when they are loaded.
// The server says that something has happened; the page is asked for anew, and only what differs is changed in place.

const PAUSE = 400; // milliseconds between two looks

const said = document.getElementById("live-state");
const tell = (text) => { if (said) said.textContent = text; };

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

// Makes `old` like `fresh`. What somebody types, has opened or has focused stays.
function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  if (["INPUT", "SELECT", "TEXTAREA"].includes(old.nodeName)) return;
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) old.removeAttribute(name);
  const byId = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const known = next.id ? byId.get(next.id) : undefined;
    if (known && known !== at) { old.insertBefore(known, at); at = known; }
    if (at && same(at, next)) { morph(at, next); at = at.nextSibling; }
    else old.insertBefore(next, at);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

let timer = 0, busy = false, again = false;
export async function refresh() {
  timer = 0;
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.href = answer.url; return; }
    if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const log = [...document.querySelectorAll("pre.log")].map((one) => one.scrollTop + one.clientHeight >= one.scrollHeight - 4);
      const active = document.activeElement?.id;
      morph(document.getElementById("main"), fresh.getElementById("main"));
      // What was moved has lost the focus.
      if (active && document.activeElement?.id !== active) document.getElementById(active)?.focus({ preventScroll: true });
      document.title = fresh.title;
      document.querySelectorAll("pre.log").forEach((one, number) => { if (log[number]) one.scrollTop = one.scrollHeight; });
      if (!document.getElementById("main").dataset.live) close();
    }
  } catch { /* the server is away; the stream says so */ } finally {
    busy = false;
    if (again) { again = false; later(); }
  }
}
function later() { if (!timer) timer = setTimeout(refresh, PAUSE); }

let source;
function close() { if (source) { source.close(); source = undefined; tell(""); } }
function follow(there) {
  source = new EventSource(there);
  source.onopen = () => tell("Live.");
  source.onmessage = later;
  source.addEventListener("over", () => { close(); later(); });
  source.addEventListener("refused", () => { close(); location.reload(); });
  source.addEventListener("closing", () => tell("The server ends; waiting for it."));
  source.onerror = () => tell("Not connected; trying again.");
}
// Shows another address of this page without leaving it.
export async function visit(there) {
  history.pushState(null, "", there);
  await refresh();
}
addEventListener("popstate", refresh);

const main = document.getElementById("main");
if (main && main.dataset.live && "EventSource" in window) follow(main.dataset.live);

// -- keyboard

const HELP = [["/", "search"], ["j, k", "next and previous row"], ["Enter", "open it"], ["g r", "runs"], ["g q", "queues"], ["g f", "flows"], ["g u", "usage"], ["g s", "submit"], ["g c", "convert"], ["arrows", "move in a graph"], ["Esc", "close what a box says"], ["?", "this help"]];
let before = "";
function rows() { return [...document.querySelectorAll("#main tbody th a, .board a.box")]; }
function help() {
  let dialog = document.getElementById("help");
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.id = "help";
    const list = document.createElement("dl");
    for (const [keys, text] of HELP) {
      const key = document.createElement("dt"), what = document.createElement("dd"), kbd = document.createElement("kbd");
      kbd.textContent = keys; key.append(kbd); what.textContent = text; list.append(key, what);
    }
    const form = document.createElement("form"), button = document.createElement("button");
    form.method = "dialog"; button.textContent = "Close"; form.append(button);
    dialog.append(list, form);
    document.body.append(dialog);
  }
  dialog.showModal();
}
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  const links = rows(), at = links.indexOf(document.activeElement);
  const key = before === "g" ? `g ${event.key}` : event.key;
  before = event.key;
  if (key === "/") document.querySelector("#main input:not([type=hidden]), #main textarea")?.focus();
  else if (key === "j") links[Math.min(at + 1, links.length - 1)]?.focus();
  else if (key === "k") links[Math.max(at - 1, 0)]?.focus();
  else if (key === "g r") location.href = "/";
  else if (key === "g q") location.href = "/queues";
  else if (key === "g f") location.href = "/flows";
  else if (key === "g u") location.href = "/usage";
  else if (key === "g s") location.href = "/submit";
  else if (key === "g c") location.href = "/convert";
  else if (key === "?") help();
  else return;
  event.preventDefault();
});

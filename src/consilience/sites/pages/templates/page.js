// Puts news into the page: sections that have changed, and how long ago things began.
// Everything was escaped where it was written; the page's policy lets no other script run.
"use strict";

const main = document.querySelector("main");
const link = document.getElementById("link");
let ahead = 0; // seconds that the server's clock is ahead of this one
let known = new Map();

function sections(node) {
  return new Map([...node.children].map((one) => [one.id, one.outerHTML]));
}

// What was opened stays open, and what was scrolled stays scrolled.
function replaced(old, next) {
  old.querySelectorAll("details").forEach((one, i) => {
    const other = next.querySelectorAll("details")[i];
    if (other) other.open = one.open;
  });
  const left = [...old.querySelectorAll(".wide")].map((one) => one.scrollLeft);
  old.replaceWith(next);
  next.querySelectorAll(".wide").forEach((one, i) => { one.scrollLeft = left[i] || 0; });
}

function show(html) {
  const page = new DOMParser().parseFromString(html, "text/html").body;
  const found = sections(page);
  const same = [...found.keys()].join() === [...known.keys()].join();
  for (const next of [...page.children]) {
    const old = document.getElementById(next.id);
    if (same && found.get(next.id) === known.get(next.id)) continue;
    if (old) replaced(old, next); else main.append(next);
  }
  for (const id of known.keys()) {
    if (!found.has(id)) document.getElementById(id)?.remove();
  }
  if (!same) for (const id of found.keys()) main.append(document.getElementById(id));
  known = found;
  tick();
}

function tick() {
  for (const one of document.querySelectorAll("time[data-since]")) {
    const seconds = Math.max(0, Math.round(Date.now() / 1000 + ahead - Number(one.dataset.since)));
    const text = seconds < 120 ? `since ${seconds} s` : `since ${Math.floor(seconds / 60)} min`;
    if (one.textContent !== text) one.textContent = text;
  }
}

known = sections(main);
const news = new EventSource("events");
news.onmessage = (event) => {
  const { main: html, now } = JSON.parse(event.data);
  ahead = now - Date.now() / 1000;
  show(html);
};
news.onopen = () => { link.textContent = ""; link.className = "small"; };
news.onerror = () => {
  link.textContent = "This page's server does not answer; what is below may be old.";
  link.className = "warning";
};
setInterval(tick, 1000);
tick();

// What the owner alone may know of a data set: fetched when it is opened, and not before.
import { send } from "./service.js";

export function startPrivate() {
  const place = document.getElementById("private");
  place?.addEventListener("toggle", () => show(place), { once: true });
}

async function show(place) {
  try {
    const { counts, notices } = await send("GET", place.dataset.found);
    showCounts(counts);
    listNotices(document.getElementById("private-notices"), notices);
  } catch (error) {
    const problem = document.getElementById("private-problem");
    problem.textContent = error.message;
    problem.hidden = false;
  }
}

/** What was counted, as facts. */
function showCounts(counts) {
  document.getElementById("private-facts").replaceChildren(
    fact("Images to train on", counts?.train.toLocaleString("en") ?? "not counted"),
    fact("Images to test on", counts?.test.toLocaleString("en") ?? "not counted"),
    fact("Images that occur more than once", counts?.duplicates.toLocaleString("en") ?? "not counted", "whole"),
    histogram(Object.entries(counts?.classes ?? {})),
  );
}

/** What was read otherwise than its owner may expect, as a list that is hidden while it is empty. */
function listNotices(list, notices) {
  list.hidden = notices.length === 0;
  list.replaceChildren(...notices.map(noticeItem));
}

function noticeItem({ count, message, examples }) {
  const [item, small] = ["li", "small"].map((tag) => document.createElement(tag));
  const more = examples.length < count ? ", …" : "";
  small.textContent = examples.length ? `${count.toLocaleString("en")}: ${examples.join(", ")}${more}` : count.toLocaleString("en");
  item.append(message, small);
  return item;
}

/** Images of each class as bars with their numbers. */
function histogram(classes) {
  const row = fact("Images of each class", classes.length ? "" : "not counted", "whole");
  const most = Math.max(1, ...classes.map(([, count]) => count));
  const bars = document.createElement("ol");
  bars.className = "histogram";
  bars.append(...classes.map(([name, count]) => bar(name, count, (100 * count) / most)));
  row.lastChild.append(bars);
  return row;
}

function bar(name, count, percent) {
  const [item, title, number] = ["li", "span", "b"].map((tag) => document.createElement(tag));
  title.textContent = name;
  number.textContent = count.toLocaleString("en");
  const picture = svg("svg", { class: "bar", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(svg("rect", { class: "track", width: 100, height: 4 }), svg("rect", { class: "have", width: percent, height: 4 }));
  item.append(title, picture, number);
  return item;
}

function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** A term with its text, as an entry of a list of facts. */
function fact(term, text, kind = "") {
  const [row, dt, dd] = ["div", "dt", "dd"].map((name) => document.createElement(name));
  row.className = kind;
  dt.textContent = term;
  dd.textContent = text;
  row.append(dt, dd);
  return row;
}

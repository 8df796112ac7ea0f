// What the owner alone may know of a data set: fetched when it is opened, and not before.
import { send } from "./service.js";

export function startPrivate() {
  const place = document.getElementById("private");
  place?.addEventListener("toggle", () => show(place), { once: true });
}

async function show(place) {
  try {
    const { counts, notices } = await send("GET", place.dataset.found);
    listNotices(document.getElementById("private-notices"), notices);
    const classes = Object.entries(counts?.classes ?? {}).map(([name, count]) => `${name}: ${count.toLocaleString()}`);
    document.getElementById("private-facts").replaceChildren(
      fact("Images to train on", counts?.train.toLocaleString() ?? "not counted"),
      fact("Images to test on", counts?.test.toLocaleString() ?? "not counted"),
      fact("Images that occur more than once", counts?.duplicates.toLocaleString() ?? "not counted", "whole"),
      fact("Images of each class", classes.join(", ") || "not counted", "whole"),
    );
  } catch (error) {
    const problem = document.getElementById("private-problem");
    problem.textContent = error.message;
    problem.hidden = false;
  }
}

/** What was read otherwise than its owner may expect, as a list that is hidden while it is empty. */
export function listNotices(list, notices) {
  list.hidden = notices.length === 0;
  list.replaceChildren(...notices.map(noticeItem));
}

function noticeItem({ count, message, examples }) {
  const [item, small] = ["li", "small"].map((tag) => document.createElement(tag));
  const more = examples.length < count ? ", …" : "";
  small.textContent = examples.length ? `${count.toLocaleString()}: ${examples.join(", ")}${more}` : count.toLocaleString();
  item.append(message, small);
  return item;
}

/** A term with its text, as an entry of a list of facts. */
export function fact(term, text, kind = "") {
  const [row, dt, dd] = ["div", "dt", "dd"].map((name) => document.createElement(name));
  row.className = kind;
  dt.textContent = term;
  dd.textContent = text;
  row.append(dt, dd);
  return row;
}

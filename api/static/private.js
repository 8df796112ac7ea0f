// What the owner alone may know of a data set: fetched when it is opened, and not before.
import { send } from "./service.js";

export function startPrivate() {
  const place = document.getElementById("private");
  place?.addEventListener("toggle", () => show(place), { once: true });
}

async function show(place) {
  try {
    const { counts } = await send("GET", place.dataset.found);
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

/** A term with its text, as an entry of a list of facts. */
export function fact(term, text, kind = "") {
  const [row, dt, dd] = ["div", "dt", "dd"].map((name) => document.createElement(name));
  row.className = kind;
  dt.textContent = term;
  dd.textContent = text;
  row.append(dt, dd);
  return row;
}

// Order of what a page shows: headings of tables sort their rows, a choice orders the cards. Other pages of a list stay.
import { say } from "./service.js";

export function startSorting() {
  for (const heading of document.querySelectorAll("table[data-sortable] thead th")) {
    if (heading.textContent.trim() && !heading.querySelector(".unseen")) makeButton(heading);
  }
  const order = document.querySelector("select[data-orders]");
  if (!order) return;
  order.closest(".field").hidden = false;
  order.addEventListener("change", () => orderCards(document.getElementById(order.dataset.orders), order.value));
}

function makeButton(heading) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "sorts";
  button.title = "Sort the rows of this page";
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener("click", () => sortBy(heading));
}

function sortBy(heading) {
  const table = heading.closest("table");
  const column = [...heading.parentElement.children].indexOf(heading);
  const down = heading.ariaSort === "ascending";
  for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
  heading.ariaSort = down ? "descending" : "ascending";
  const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row.cells[column]), row]);
  rows.sort(([a], [b]) => (a === "") - (b === "") || (down ? compare(b, a) : compare(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  say(`Sorted by ${heading.textContent}, ${heading.ariaSort}.`);
}

/** A time, a number, or words. */
function valueOf(cell) {
  const time = cell.querySelector("time")?.dateTime;
  const text = cell.textContent.trim();
  const number = parseFloat(text.replaceAll(",", ""));
  return time ?? (/^[\d.,]/.test(text) && !Number.isNaN(number) ? number : text);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b));
}

function orderCards(list, by) {
  const number = by !== "name";
  const cards = [...list.children].sort((a, b) => (number ? b.dataset[by] - a.dataset[by] : compare(a.dataset.name, b.dataset.name)));
  list.append(...cards);
}

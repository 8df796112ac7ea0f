// Buttons and dialogs that change one thing: data-opens, data-closes, data-copies, and forms with data-send="METHOD /path",
// whose named fields are the JSON that is sent, with data-adds, if it is there.
import { send } from "./service.js";

export function startActions() {
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-opens]");
    if (opener) document.getElementById(opener.dataset.opens)?.showModal();
    if (event.target.closest("[data-closes]")) event.target.closest("dialog").close();
    const copier = event.target.closest("[data-copies]");
    if (copier) copy(copier);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.dataset.send) return;
    event.preventDefault();
    run(event.target);
  });
}

/** Put the text of the element that data-copies names on the clipboard. */
async function copy(button) {
  try {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select the text and copy it";
  }
}

async function run(form) {
  const [method, path] = form.dataset.send.split(" ");
  const button = [...form.elements].find(({ type }) => type === "submit");
  const problem = form.querySelector("[data-problem]");
  button.disabled = true;
  problem.hidden = true;
  try {
    await send(method, path, bodyOf(form));
    // A page that goes on from here prevents it.
    if (!form.dispatchEvent(new CustomEvent("sent", { bubbles: true, cancelable: true }))) return;
    if (form.dataset.then === "reload") location.reload();
    else location.assign(form.dataset.then);
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    button.disabled = false;
  }
}

/** The named fields as JSON, numbers as numbers, lists (data-list) as what stands between commas; undefined if there are none. */
function bodyOf(form) {
  const fields = [...form.elements].filter((field) => field.name);
  if (fields.length === 0) return form.dataset.adds;
  const given = Object.fromEntries(fields.map((field) => [field.name, valueOf(field)]));
  return JSON.stringify({ ...given, ...JSON.parse(form.dataset.adds ?? "{}") });
}

export function valueOf(field) {
  if ("list" in field.dataset) return field.value.split(",").map((part) => part.trim()).filter(Boolean);
  if (field.type === "checkbox") return field.checked;
  if (field.type !== "number") return field.value;
  return field.value === "" ? null : field.valueAsNumber;
}

// The form of a job: every change asks for the price; the button sends exactly what was priced.
import { epsilonTier } from "./epsilon_tier.js";
import { part, send, url } from "./service.js";

const WAIT_MILLISECONDS = 250;

export function startPlan() {
  const form = document.getElementById("plan");
  if (!form) return;
  const price = document.getElementById("price-part");
  const { accuracy, epsilon, method } = form.elements;
  const range = document.getElementById("epsilon-range");
  let latest = 0;
  let waiting;

  range.addEventListener("input", () => (epsilon.value = range.value));
  epsilon.addEventListener("input", () => (range.value = epsilon.value));
  const wanted = document.getElementById("accuracy-range");
  wanted.addEventListener("input", () => (accuracy.value = wanted.value));
  accuracy.addEventListener("input", () => (wanted.value = accuracy.value));
  document.getElementById("target-part").addEventListener("click", (event) => {
    if (!event.target.dataset.epsilon) return;
    epsilon.value = event.target.dataset.epsilon;
    epsilon.dispatchEvent(new Event("input", { bubbles: true }));
  });
  form.addEventListener("change", (event) => {
    // Parameters of one choice are not those of another.
    if (event.target.name === "preset" && event.target.value !== "own") method.value = "";
  });
  form.addEventListener("input", () => {
    // The answer that may be on its way is the price of the form as it was.
    ++latest;
    clearTimeout(waiting);
    price.setAttribute("aria-busy", "true");
    disable(price);
    waiting = setTimeout(ask, WAIT_MILLISECONDS);
  });
  document.getElementById("encoder-file").addEventListener("change", (event) => uploadEncoder(event.target, form));
  form.addEventListener("submit", (event) => event.preventDefault());
  price.addEventListener("change", (event) => {
    if (event.target.id !== "accept-low-utility") return;
    document.getElementById("submit-job").disabled = !event.target.checked;
  });
  price.addEventListener("click", (event) => event.target.id === "submit-job" && submit(event.target));
  ask();

  async function ask() {
    const number = ++latest;
    document.getElementById("epsilon-tier").textContent = epsilonTier(Number(epsilon.value));
    if (!form.checkValidity()) return refuse(price, firstInvalid(form));
    try {
      const body = JSON.stringify(Object.fromEntries(new FormData(form)));
      const found = await part(form.dataset.price, body);
      // A slower answer to an earlier question must not replace this one.
      if (number === latest) {
        compare(found);
        show(price, ...found.body.childNodes);
      }
    } catch (error) {
      if (number === latest) refuse(price, error.message);
    }
  }
}

/** What was said of the form as it was before. */
function forget() {
  document.getElementById("verdict-part").replaceChildren();
  document.getElementById("target-part").replaceChildren();
  document.getElementById("default-reason").textContent = "";
  for (const cell of document.querySelectorAll("#plan [data-offer] td")) cell.replaceChildren();
}

function refuse(price, text) {
  forget();
  show(price, sentence(text));
}

function compare(found) {
  forget();
  document.getElementById("verdict-part").replaceChildren(...found.querySelectorAll("#verdict"));
  document.getElementById("target-part").replaceChildren(...found.querySelectorAll("#target"));
  for (const offer of found.querySelectorAll("#offers tr")) {
    const cells = document.querySelectorAll(`#plan [data-offer="${offer.dataset.offer}"] td`);
    offer.querySelectorAll("td").forEach((figure, number) => cells[number]?.replaceChildren(...figure.childNodes));
  }
  place(found.getElementById("offers")?.dataset.first);
  const reason = found.querySelector('[data-offer="reason"]');
  if (reason) document.getElementById("default-reason").textContent = reason.textContent;
  found.getElementById("offers")?.remove();
}

/** One offer stands first, and the one that stood there before goes back. No other row moves, so that none loses focus. */
function place(name) {
  const body = document.querySelector("#plan .offers tbody");
  const promoted = body.querySelector("[data-place]");
  if (promoted && promoted.dataset.offer !== name) {
    body.querySelector(`[data-offer="${promoted.dataset.place}"]`).before(promoted);
    delete promoted.dataset.place;
  }
  const row = name && body.querySelector(`[data-offer="${name}"]`);
  if (!row || row.dataset.place) return;
  row.dataset.place = row.nextElementSibling.dataset.offer;
  body.prepend(row);
}

/** An uploaded encoder becomes the one that is chosen. */
async function uploadEncoder({ files: [file] }, form) {
  if (!file) return;
  const note = document.getElementById("encoder-note");
  note.textContent = "Trying it …";
  try {
    const body = new FormData();
    body.append("file", file);
    const encoder = await send("POST", url("/v1/encoders"), body);
    form.elements.encoder.add(new Option(file.name, JSON.stringify(encoder), true, true));
    note.textContent = `Chosen: ${encoder.features} features.`;
    form.dispatchEvent(new Event("input"));
  } catch (error) {
    note.textContent = error.message;
  }
}

async function submit(button) {
  const problem = document.getElementById("submit-problem");
  const accepts = document.getElementById("accept-low-utility")?.checked;
  const body = accepts ? JSON.stringify({ ...JSON.parse(button.dataset.body), accept_low_utility: true }) : button.dataset.body;
  button.disabled = true;
  problem.hidden = true;
  try {
    const job = await send("POST", url("/v1/jobs"), body, { "Idempotency-Key": button.dataset.once });
    location.assign(url(`/jobs/${job.id}`));
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    button.disabled = false;
  }
}

function disable(price) {
  for (const control of price.querySelectorAll("button, input")) control.disabled = true;
}

function show(price, ...nodes) {
  price.replaceChildren(...nodes);
  price.removeAttribute("aria-busy");
}

function sentence(text) {
  const made = document.createElement("p");
  made.className = "notice bad";
  made.textContent = text;
  return made;
}

function firstInvalid(form) {
  const field = form.querySelector(":invalid:not(fieldset)");
  return `${field.labels[0]?.firstChild.textContent.trim() ?? field.name}: ${field.validationMessage}`;
}

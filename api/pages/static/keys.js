// The page of keys: list, make, revoke. A new key is on the page until it is left, and nowhere else.
import { url } from "./addresses.js";
import { say, send } from "./service.js";
import { localTimes } from "./times.js";

const DAY_MILLISECONDS = 86_400_000;
const PATH = url("/v1/api-keys");

export function startKeys() {
  const place = document.getElementById("keys");
  if (!place) return;
  const revoking = document.getElementById("revoke-form");
  place.addEventListener("click", ({ target }) => target.dataset.revoke && ask(revoking, target, place.dataset.mine));
  submitted(document.getElementById("key-form"), (form) => make(form, place));
  submitted(revoking, (form) => revoke(form, place));
  document.getElementById("key-copy").addEventListener("click", copy);
  show(place);
}

async function show(place) {
  const problem = document.getElementById("keys-problem");
  try {
    const { items } = await send("GET", PATH);
    place.querySelector("tbody").replaceChildren(...items.map((key) => row(key, place.dataset.mine)));
    place.querySelector(".scroll").hidden = false;
    localTimes(place);
    problem.hidden = true;
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    place.hidden = true;
  }
  place.querySelector(".waiting").hidden = true;
  place.removeAttribute("aria-busy");
}

async function make(form, place) {
  const { name, role, days } = form.elements;
  const until = days.value && new Date(Date.now() + DAY_MILLISECONDS * Number(days.value)).toISOString();
  const body = { name: name.value, role: role.value, ...(until ? { expires_at: until } : {}) };
  const made = await send("POST", PATH, JSON.stringify(body));
  form.reset();
  document.getElementById("key-plain").textContent = made.api_key;
  const box = document.getElementById("key-made");
  box.hidden = false;
  box.focus();
  await show(place);
}

async function revoke(form, place) {
  await send("DELETE", `${PATH}/${form.dataset.key}`);
  if (form.dataset.key === place.dataset.mine) return location.assign(url("/sign-in"));
  say("The key was revoked.");
  await show(place);
}

function ask(form, button, mine) {
  form.dataset.key = button.dataset.revoke;
  document.getElementById("revoke-name").textContent = button.dataset.name;
  document.getElementById("revoke-mine").hidden = button.dataset.revoke !== mine;
  form.querySelector("[data-problem]").hidden = true;
  form.closest("dialog").showModal();
}

/** Run `act` when the form is submitted; its dialog closes if nothing went wrong. */
function submitted(form, act) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const problem = form.querySelector("[data-problem]");
    problem.hidden = true;
    try {
      await act(form);
      form.closest("dialog").close();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
}

function row(key, mine) {
  const ended = key.revoked_at ?? (key.expires_at && new Date(key.expires_at) < new Date() ? key.expires_at : null);
  const made = document.createElement("tr");
  const name = cell("th", key.name + (key.id === mine ? " (yours)" : ""));
  name.scope = "row";
  name.append(small(key.single_sign_on ? "single sign-on, no key" : `dlk_${key.prefix}…`));
  const state = cell("td");
  state.append(mark(ended ? "cancelled" : "succeeded", key.revoked_at ? "Revoked" : ended ? "Expired" : "Valid"));
  if (!ended && key.expires_at) state.append(until(key.expires_at));
  const when = cell("td");
  when.className = "wide-only";
  when.append(instant(key.created_at));
  const last = cell("td", key.last_noted_at ? "" : "never");
  last.className = "wide-only";
  if (key.last_noted_at) last.append(instant(key.last_noted_at));
  const act = cell("td");
  act.className = "right";
  if (!ended) act.append(button(key));
  made.append(name, cell("td", key.role), state, when, last, act);
  return made;
}

function cell(tag, text = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

function small(text) {
  return cell("small", text);
}

function until(text) {
  const made = small("until ");
  made.append(instant(text));
  return made;
}

function instant(text) {
  const made = cell("time", text);
  made.dateTime = text;
  return made;
}

function mark(kind, text) {
  const made = cell("span");
  made.className = `state ${kind}`;
  const dot = document.createElement("i");
  dot.ariaHidden = "true";
  made.append(dot, text);
  return made;
}

function button(key) {
  const made = cell("button", "Revoke…");
  made.type = "button";
  made.className = "bad small";
  made.dataset.revoke = key.id;
  made.dataset.name = key.name;
  made.setAttribute("aria-label", `Revoke ${key.name}…`);
  return made;
}

async function copy({ target }) {
  const place = document.getElementById("key-plain");
  try {
    await navigator.clipboard.writeText(place.textContent);
    target.textContent = "Copied";
    say("The key was copied.");
  } catch {
    // Browsers refuse without HTTPS: selected, it is one keystroke.
    getSelection().selectAllChildren(place);
  }
}

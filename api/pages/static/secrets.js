// Forms with data-reveals="METHOD /path": the answer has a key, a secret or a link, which is on the page until it is left.
import { send } from "./service.js";

const DAY_MILLISECONDS = 86_400_000;

export function startSecrets() {
  for (const form of document.querySelectorAll("form[data-reveals]")) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      reveal(form);
    });
  }
}

async function reveal(form) {
  const [method, path] = form.dataset.reveals.split(" ");
  const problem = form.querySelector("[data-problem]");
  problem.hidden = true;
  try {
    const { api_key, secret, url, webhook } = await send(method, path, bodyOf(form));
    // Nobody checks signatures of mail.
    if (webhook?.url.startsWith("mailto:")) return location.reload();
    form.closest("dialog").close();
    document.getElementById("secret-plain").textContent = api_key ?? secret ?? location.origin + url;
    const box = document.getElementById("secret-made");
    box.hidden = false;
    box.focus();
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
  }
}

/** Name, role and end of a new key, partner and end of a link, or address and events of a webhook; undefined where the form has no fields. */
function bodyOf(form) {
  const fields = new FormData(form);
  const { days, ...body } = Object.fromEntries(fields);
  if (days) body.expires_at = new Date(Date.now() + DAY_MILLISECONDS * Number(days)).toISOString();
  if (fields.has("url")) body.events = fields.getAll("events");
  return Object.keys(body).length ? JSON.stringify(body) : undefined;
}

// Forms with data-reveals="METHOD /path": the answer has a secret, which is on the page until it is left.
import { send } from "./service.js";

export function startWebhooks() {
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
    const { secret, webhook } = await send(method, path, bodyOf(form));
    // Nobody checks signatures of mail.
    if (webhook.url.startsWith("mailto:")) return location.reload();
    form.closest("dialog").close();
    document.getElementById("secret-plain").textContent = secret;
    const box = document.getElementById("secret-made");
    box.hidden = false;
    box.focus();
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
  }
}

/** Address and events of a new webhook; undefined where the form has no fields. */
function bodyOf(form) {
  const fields = new FormData(form);
  if (!fields.has("url")) return undefined;
  return JSON.stringify({ url: fields.get("url"), events: fields.getAll("events") });
}

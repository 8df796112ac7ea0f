// The page of a running job offers to tell when it ends: a notification of the browser, asked for by a press alone.
// The stream of the job's events goes on while the page is in the background; the page's own updates do not.
import { say, url } from "./service.js";

const ENDS = { "job.succeeded": "succeeded", "job.failed": "failed", "job.cancelled": "was cancelled" };

export function startNotifications() {
  const live = document.querySelector("[data-events]");
  if (!live || !("Notification" in window) || Notification.permission === "denied") return;
  const path = live.dataset.events;
  // Pausing and cancelling load the page anew: what was asked for before stays asked for in this tab.
  const remembered = Notification.permission === "granted" && sessionStorage.getItem(name(path)) !== null;
  if (!live.dataset.again && !remembered) return;
  const button = document.createElement("button");
  button.type = "button";
  button.id = "notify";
  button.textContent = "Notify me when it ends";
  button.addEventListener("click", () => ask(button, path));
  live.after(button);
  if (remembered) follow(button, path);
}

async function ask(button, path) {
  button.disabled = true;
  if ((await Notification.requestPermission()) !== "granted") {
    button.remove();
    return say("The browser does not allow notifications from this page.");
  }
  sessionStorage.setItem(name(path), "");
  follow(button, path);
}

/** Hear the events until the last one; the browser connects again by itself and goes on behind the last it heard. */
function follow(button, path) {
  button.disabled = true;
  button.textContent = "You will be notified while this page is open";
  const events = new EventSource(path);
  for (const [type, outcome] of Object.entries(ENDS)) {
    events.addEventListener(type, () => {
      events.close();
      button.remove();
      sessionStorage.removeItem(name(path));
      show(path, `The job ${outcome}.`);
    });
  }
}

function show(path, sentence) {
  try {
    const notification = new Notification("DataLens", { body: sentence, icon: url("/static/mark.svg"), tag: path });
    notification.addEventListener("click", () => window.focus());
  } catch {
    // Browsers of phones take notifications from service workers alone.
    say(sentence);
  }
}

function name(path) {
  return `notify:${path}`;
}

// The page of a job while it runs, or of an upload while it is read: asks for it again and replaces what differs, so that focus stays where it is.
import { part, say } from "./service.js";
import { localTimes } from "./times.js";

const SLOWEST_SECONDS = 30;

export function startLive() {
  const live = document.querySelector("[data-live]");
  if (!live?.dataset.again) return;
  for (const child of live.children) child.dataset.source = child.outerHTML;
  follow(live, Number(live.dataset.again));
}

async function follow(live, seconds) {
  await pause(seconds);
  let fresh;
  try {
    fresh = (await part(live.dataset.live)).querySelector("[data-live]");
  } catch {
    say("The service cannot be reached; trying again.");
    return follow(live, Math.min(2 * seconds, SLOWEST_SECONDS));
  }
  // What was followed has become something else: a data set, or the sign-in form.
  if (!fresh) return location.reload();
  const ended = !fresh.dataset.again;
  if (fresh.dataset.state !== live.dataset.state) announce(live.dataset, fresh.dataset.state);
  exchange(live, fresh);
  localTimes(live);
  if (!ended) follow(live, Number(fresh.dataset.again));
}

/** Titles of jobs begin with their state. */
function announce({ subject, state }, next) {
  say(`${subject} is now: ${next}.`);
  if (document.title.startsWith(`${state}: `)) document.title = next + document.title.slice(state.length);
}

/** Make `live` like `fresh`. Children that did not change are not touched, focus returns to what was exchanged. */
function exchange(live, fresh) {
  const focused = document.activeElement?.id;
  live.dataset.state = fresh.dataset.state;
  if (!fresh.dataset.again) delete live.dataset.again;
  const replacements = [...fresh.children];
  const names = new Set(replacements.map((child) => child.id));
  for (const child of [...live.children]) if (!names.has(child.id)) child.remove();
  let before = null;
  for (const child of replacements) {
    const here = live.querySelector(`:scope > #${child.id}`);
    before = here ? current(here, child) : added(live, before, child);
  }
  if (focused && focused !== document.activeElement?.id) document.getElementById(focused)?.focus();
}

function current(here, child) {
  if (here.dataset.source === child.outerHTML) return here;
  const made = marked(child);
  here.replaceWith(made);
  return made;
}

function added(live, before, child) {
  const made = marked(child);
  if (before) before.after(made);
  else live.prepend(made);
  return made;
}

function marked(child) {
  const made = document.importNode(child, true);
  made.dataset.source = child.outerHTML;
  return made;
}

/** Resolves after `seconds`, or later: when the page is looked at. */
function pause(seconds) {
  return new Promise((resolve) => {
    setTimeout(() => {
      if (!document.hidden) return resolve();
      document.addEventListener("visibilitychange", resolve, { once: true });
    }, 1000 * seconds);
  });
}

// Talking to the service: the session cookie goes by itself, the form token proves that a page of ours asks.

/** Behind a proxy addresses of the service may begin with a path prefix. */
export const rootPath = document.querySelector('meta[name="root-path"]').content;

/** What to ask for to get a path of the service. */
export const url = (path) => rootPath + path;

const token = document.querySelector('meta[name="form-token"]')?.content ?? "";

/** What went wrong, as a sentence for people; `errors` names fields where the service did. */
export class Problem extends Error {
  constructor(sentence, errors = []) {
    super(sentence);
    this.errors = errors;
  }
}

/** Of every request of a page: its session, and that its errors speak of fields. */
export const headers = { "X-CSRF-Token": token, "Datalens-Voice": "page", Accept: "application/json, application/problem+json" };

/** Send a request; its JSON answer, or null if it has none. Throws Problem. */
export async function send(method, path, body, more = {}) {
  const asJson = typeof body === "string" ? { "Content-Type": "application/json" } : {};
  let answer;
  try {
    answer = await fetch(path, { method, body, headers: { ...headers, ...asJson, ...more } });
  } catch {
    throw unreachable();
  }
  const text = await answer.text();
  if (!answer.ok) throw problemOf(answer.status, text);
  return text ? JSON.parse(text) : null;
}

/** A part of a page as HTML. Throws Problem. */
export async function part(path, body) {
  const request = body === undefined ? { headers } : { method: "POST", body, headers: { ...headers, "Content-Type": "application/json" } };
  let answer;
  try {
    answer = await fetch(path, request);
  } catch {
    throw unreachable();
  }
  if (answer.redirected && new URL(answer.url).pathname === url("/sign-in")) signIn();
  if (!answer.ok) throw new Problem("The service could not answer this time.");
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

export function unreachable() {
  return new Problem("The service cannot be reached. Check the connection, then try again.");
}

/** The problem document of an answer (RFC 9457) as a Problem; an ended session leads to the sign-in page. */
export function problemOf(status, text) {
  if (status === 401) signIn();
  try {
    const { title, detail, errors } = JSON.parse(text);
    return new Problem(detail ?? title, errors ?? []);
  } catch {
    return new Problem(`The service answered with status ${status}. Try again; if it stays, tell whoever runs it.`);
  }
}

/** Tell a screen reader. */
export function say(sentence) {
  document.getElementById("said").textContent = sentence;
}

function signIn() {
  location.assign(url(`/sign-in?next=${encodeURIComponent(location.pathname.slice(rootPath.length))}`));
}

// What a page does, by curl and by Python: filled from the fields of a form, or from what was uploaded.

/** Keep texts with a template like the form that their details name. Parts of pages may be replaced meanwhile. */
export function startCommands() {
  for (const details of document.querySelectorAll("[data-follows]")) fill(details);
  document.addEventListener("toggle", (event) => fillIf(event.target), true);
  document.addEventListener("input", (event) => {
    const form = event.target.form?.id;
    if (form) fillIf(document.querySelector(`[data-follows="${form}"]`));
  });
}

function fillIf(details) {
  if (details?.dataset?.follows) fill(details);
}

function fill(details) {
  const form = document.getElementById(details.dataset.follows);
  for (const pre of details.querySelectorAll("[data-filled]")) {
    pre.dataset.template ??= pre.textContent;
    pre.textContent = pre.dataset.template.replace(/\{(\w+)\}/g, (whole, name) => form.elements[name]?.value ?? whole);
  }
}

/** Of an upload with these fields. */
export function uploadCommands(file, fields) {
  // With --form, a value that begins with @ or < would be the name of a file.
  const form = Object.entries(fields).map(([name, value]) => ` \\\n  --form-string ${shell(`${name}=${value}`)}`);
  const named = Object.entries(fields).map(([name, value]) => `, ${name}=${python(name, value)}`);
  return {
    curl: `curl "$DATALENS_URL/v1/datasets" --header "Authorization: Bearer $DATALENS_API_KEY" \\\n  --form ${shell(`file=@${file}`)}${form.join("")}`,
    python: `import os
from pathlib import Path

from datalens_service import Client

with Client(os.environ["DATALENS_URL"], os.environ["DATALENS_API_KEY"]) as client:
    dataset = client.upload_dataset(Path(${JSON.stringify(file)})${named.join("")})`,
  };
}

function shell(text) {
  return /^[\w.=@/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

function python(name, value) {
  if (name === "class_names") return `(${value.split(",").map((part) => JSON.stringify(part.trim())).join(", ")},)`;
  if (name === "prepare_window") return `(${value.split(" ").join(", ")})`;
  return value === true ? "True" : JSON.stringify(value);
}

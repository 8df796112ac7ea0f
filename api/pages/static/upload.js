// An upload: what was chosen, how far it is, what came of it.
import { valueOf } from "./actions.js";
import { uploadCommands } from "./commands.js";
import { epsilonTier } from "./epsilon_tier.js";
import { startPrivate } from "./private.js";
import { Chunks } from "./chunks.js";
import { Problem, part, say, send, url } from "./service.js";
import { localTimes } from "./times.js";

const LOOK_MILLISECONDS = 700;
const LISTED_FILES = 20;

export function startUpload() {
  const form = document.getElementById("upload");
  if (form) new Upload(form);
}

class Upload {
  constructor(form) {
    this.form = form;
    this.file = form.elements.file;
    this.problem = document.getElementById("upload-problem");
    this.file.addEventListener("change", () => this.chosen());
    form.elements.epsilon.addEventListener("input", () => this.showTier());
    for (const field of [form.elements.known, form.elements.shares_budget_with]) field.addEventListener("change", () => this.known());
    for (const choice of form.elements.prepare) choice.addEventListener("change", () => this.preparation());
    document.getElementById("preparation-fields").addEventListener("input", () => this.preparation());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.start();
    });
    document.getElementById("upload-stop").addEventListener("click", () => this.chunks?.stop());
    this.droppable(form.querySelector(".drop"));
    this.showTier();
    this.preparation();
    // Disabled until now: without this script the browser would send the form its own way.
    document.getElementById("upload-submit").disabled = false;
  }

  droppable(place) {
    const over = (is) => (event) => {
      event.preventDefault();
      place.classList.toggle("over", is);
    };
    place.addEventListener("dragover", over(true));
    place.addEventListener("dragleave", over(false));
    place.addEventListener("drop", (event) => {
      over(false)(event);
      this.file.files = event.dataTransfer.files;
      this.chosen();
    });
  }

  chosen() {
    const [file] = this.file.files;
    if (!file) return;
    const name = document.createElement("b");
    name.textContent = file.name;
    document.getElementById("file-name").replaceChildren(name, ` ${size(file.size)}`);
    const { name: title } = this.form.elements;
    if (!title.value) title.value = file.name.replace(/\.(npz|zip)$/i, "");
    this.problem.hidden = true;
    if (file.size > Number(this.form.dataset.limit)) this.refused(new Problem("This file is larger than the service takes."));
  }

  showTier() {
    document.getElementById("epsilon-tier").textContent = epsilonTier(Number(this.form.elements.epsilon.value));
  }

  /** What will be done to every image, in words; fields that do not count are not sent. */
  preparation() {
    const chosen = this.form.elements.prepare.value !== "";
    const fields = document.getElementById("preparation-fields");
    fields.hidden = !chosen;
    for (const field of fields.querySelectorAll("input, select")) field.disabled = !chosen;
    const { prepare_size, prepare_fit, prepare_colour, prepare_window, prepare_frame } = this.form.elements;
    const window = prepare_window.value ? prepare_window.value.split(" ") : null;
    const [width, height = width] = prepare_size.value.split(/[x×]/);
    const settings = { width, height, fit: prepare_fit.value, colour: prepare_colour.value, window, frame: prepare_frame.value };
    document.getElementById("preparation-said").textContent = `What will be done: ${prepared(settings)}.`;
  }

  /** Records that were uploaded before, and those that share a budget, have one: naming another would be refused. */
  known() {
    const { epsilon, delta, known, shares_budget_with: payer } = this.form.elements;
    epsilon.disabled = known.checked || payer.value !== "";
    delta.disabled = payer.value !== "";
  }

  async start() {
    this.clear();
    const wrong = [...this.form.elements].find((field) => field.willValidate && !field.checkValidity());
    if (wrong) return this.wrong(wrong, wrong === this.file ? "Choose a file first." : wrong.validationMessage);
    const fields = this.fields();
    this.busy(true);
    try {
      const upload_id = await this.sent();
      this.checking();
      const made = await send("POST", url("/v1/datasets:from-upload"), JSON.stringify({ ...fields, upload_id }));
      this.commands({ ...fields, confirm_classes: true });
      await this.answered(await this.checked(made));
    } catch (problem) {
      this.refused(problem);
    }
  }

  /** What was declared, numbers as numbers. Empty fields are left out: each has a meaning of its own when it is not there. */
  fields() {
    const counts = ({ name, value, disabled, type, checked }) =>
      name && name !== "file" && name !== "prepare" && value !== "" && !disabled && (type !== "checkbox" || checked);
    return Object.fromEntries([...this.form.elements].filter(counts).map((field) => [field.name, valueOf(field)]));
  }

  commands(fields) {
    const { curl, python } = uploadCommands(this.file.files[0].name, fields);
    document.getElementById("upload-curl").textContent = curl;
    document.getElementById("upload-python").textContent = python;
  }

  sent() {
    const [file] = this.file.files;
    const began = performance.now();
    this.chunks = new Chunks(
      file,
      (bytes) => this.progress(bytes, file.size, (performance.now() - began) / 1000),
      (seconds) => this.phase("Connection lost", `trying again in ${seconds} s`),
    );
    return this.chunks.send();
  }

  progress(sent, whole, seconds) {
    const left = Math.ceil(((whole - sent) * seconds) / sent);
    document.getElementById("upload-bar").value = sent / whole;
    this.phase("Uploading", `${size(sent)} of ${size(whole)}` + (seconds > 2 && left > 0 ? `, about ${left} s left` : ""));
  }

  phase(name, figures) {
    document.getElementById("upload-phase").textContent = name;
    document.getElementById("upload-figures").textContent = figures;
  }

  checking() {
    this.phase("Checking the images", "");
    document.getElementById("upload-bar").removeAttribute("value");
    document.getElementById("upload-stop").hidden = true;
    say("Uploaded. The service checks the images.");
  }

  /** The data set as soon as it was read. */
  async checked(dataset) {
    while (dataset.state === "validating") {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MILLISECONDS));
      dataset = await send("GET", url(`/v1/datasets/${dataset.id}`));
    }
    return dataset;
  }

  async answered(dataset) {
    if (dataset.state === "review") return this.review(dataset.id);
    if (dataset.state === "ready") return this.done(dataset.id);
    const report = await send("GET", url(`/v1/datasets/${dataset.id}/validation`));
    // It was said here; nobody needs an entry of it in the list.
    await send("DELETE", url(`/v1/datasets/${dataset.id}`));
    this.files(report);
    this.refused(new Problem(report.detail ?? "This file cannot be used."));
  }

  /** What there is to confirm, as the page of the data set shows it; once it is confirmed, this page goes on. */
  async review(id) {
    const review = document.importNode((await part(url(`/datasets/${id}`))).getElementById("review"), true);
    review.addEventListener("sent", (event) => {
      if (event.target.id !== "review-confirm") return;
      event.preventDefault();
      review.remove();
      this.done(id).catch(() => location.assign(url(`/datasets/${id}`)));
    });
    localTimes(review);
    this.form.hidden = true;
    this.form.after(review);
    review.focus();
  }

  /** The files by name; what is said above of all of them is not repeated. */
  files({ bad_files, bad_count, detail }) {
    const list = document.getElementById("upload-files");
    list.hidden = bad_files.length === 0;
    list.replaceChildren(
      ...bad_files.slice(0, LISTED_FILES).map(({ name, reason }) => entry(name, reason === detail ? "" : reason)),
      ...(bad_count > LISTED_FILES ? [entry("…", `and ${bad_count - LISTED_FILES} more files`)] : []),
    );
  }

  /** What the page of the data set shows of it, with what its owner alone may know. */
  async done(id) {
    const page = await part(url(`/datasets/${id}`));
    const shown = ["joined", "public-facts", "budget-figures", "private"].map((name) => page.getElementById(name));
    const found = document.getElementById("upload-found");
    found.replaceChildren(...shown.filter(Boolean).map((node) => document.importNode(node, true)));
    localTimes(found);
    startPrivate();
    found.querySelector("#private").open = true;
    document.getElementById("upload-plan").href = url(`/datasets/${id}/new-job`);
    document.getElementById("upload-open").href = url(`/datasets/${id}`);
    const done = document.getElementById("upload-done");
    this.form.hidden = true;
    done.hidden = false;
    done.focus();
  }

  refused(problem) {
    this.busy(false);
    for (const { pointer, detail } of problem.errors ?? []) {
      const field = this.form.elements[pointer.replace("#/", "")];
      if (field) this.mark(field, detail);
    }
    this.problem.textContent = problem.message;
    this.problem.hidden = false;
    this.problem.focus();
  }

  wrong(field, sentence) {
    this.mark(field, sentence);
    field.closest("details")?.setAttribute("open", "");
    field.focus();
  }

  mark(field, sentence) {
    const made = document.createElement("p");
    made.className = "wrong";
    made.id = `${field.id}-wrong`;
    made.textContent = sentence;
    field.closest(".field, .tick").append(made);
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-errormessage", made.id);
    say(sentence);
  }

  clear() {
    this.problem.hidden = true;
    document.getElementById("upload-files").hidden = true;
    for (const made of this.form.querySelectorAll(".wrong")) made.remove();
    for (const field of this.form.querySelectorAll("[aria-invalid]")) {
      field.removeAttribute("aria-invalid");
      field.removeAttribute("aria-errormessage");
    }
  }

  busy(is) {
    document.getElementById("upload-fields").disabled = is;
    document.getElementById("upload-progress").hidden = !is;
    document.getElementById("upload-submit").hidden = is;
    document.getElementById("upload-stop").hidden = !is;
    this.phase("Uploading", "");
    document.getElementById("upload-bar").value = 0;
  }
}

/** What settings of the preparation do to every image. */
function prepared({ width, height, fit, colour, window, frame }) {
  const shape = fit === "crop" ? "scaled and cropped in the centre" : "resized as a whole";
  const channels = { rgb: "colour", grey: "grey" }[colour] ?? "grey, or colour if one of them is in colour";
  const values = window ? `; values from ${window[0]} to ${window[1]} become 0 to 255` : "";
  return `Images of another size are ${shape} to ${width} × ${height} pixels, in 8-bit ${channels}; of several frames, number ${frame || 1} is read${values}`;
}

function entry(name, text) {
  const [item, title, small] = ["li", "b", "small"].map((tag) => document.createElement(tag));
  title.textContent = name;
  small.textContent = text;
  item.append(title, small);
  return item;
}

function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  const value = Number(bytes.toPrecision(3));
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), 3);
  return `${value / 1000 ** power} ${units[power]}`;
}

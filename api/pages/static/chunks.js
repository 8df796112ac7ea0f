// A file in chunks (tus 1.0): what has arrived stays, so that a lost connection costs a chunk and not the upload.
import { headers, Problem, problemOf, send, unreachable, url } from "./service.js";

const PIECE_BYTES = 8 * 2 ** 20;
const PATIENCE = [1, 2, 4, 8, 15, 30];
const VERSION = { "Tus-Resumable": "1.0.0" };

/** One upload. `progress(bytes)` is called as bytes leave, `waiting(seconds)` while the connection is lost. */
export class Chunks {
  constructor(file, progress, waiting) {
    Object.assign(this, { file, progress, waiting, stopped: false });
  }

  /** Send everything; the id of the upload. Throws Problem. */
  async send() {
    const made = await send("POST", url("/v1/uploads"), undefined, { ...VERSION, "Upload-Length": `${this.file.size}` });
    this.path = url(`/v1/uploads/${made.id}`);
    let offset = 0;
    for (let failures = 0; offset < this.file.size; ) {
      try {
        offset = await this.chunk(offset);
        failures = 0;
      } catch (problem) {
        if (!problem.lost || this.stopped || failures >= PATIENCE.length) throw problem;
        offset = await this.after(PATIENCE[failures++], offset);
      }
    }
    return made.id;
  }

  /** Give it up; what had arrived is removed. */
  stop() {
    this.stopped = true;
    this.request?.abort();
    if (this.path) send("DELETE", this.path, undefined, VERSION).catch(() => {});
  }

  /** Wait, then ask how much is there. */
  async after(seconds, offset) {
    this.waiting(seconds);
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    try {
      const answer = await fetch(this.path, { method: "HEAD", headers: { ...headers, ...VERSION } });
      return answer.ok ? Number(answer.headers.get("Upload-Offset")) : offset;
    } catch {
      return offset;
    }
  }

  chunk(offset) {
    const request = new XMLHttpRequest();
    this.request = request;
    return new Promise((resolve, reject) => {
      request.upload.addEventListener("progress", ({ loaded }) => this.progress(offset + loaded));
      request.addEventListener("load", () => {
        if (request.status === 204) resolve(Number(request.getResponseHeader("Upload-Offset")));
        else reject(problemOf(request.status, request.responseText));
      });
      request.addEventListener("error", () => reject(Object.assign(unreachable(), { lost: true })));
      request.addEventListener("abort", () => reject(new Problem("Stopped. Nothing was kept.")));
      request.open("PATCH", this.path);
      const type = "application/offset+octet-stream";
      const named = { ...headers, ...VERSION, "Upload-Offset": `${offset}`, "Content-Type": type };
      for (const [name, value] of Object.entries(named)) request.setRequestHeader(name, value);
      request.send(this.file.slice(offset, offset + PIECE_BYTES));
    });
  }
}

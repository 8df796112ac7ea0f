// Light or dark as the system has it, until somebody chooses; the choice is a cookie, so that pages come in it.
import { rootPath } from "./service.js";

export function startTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = (root.dataset.theme ?? system()) === "dark";
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `datalens-theme=${root.dataset.theme}; path=${rootPath || "/"}; max-age=31536000; samesite=strict`;
  });
}

function system() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

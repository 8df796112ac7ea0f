// The API reference: Swagger UI, from its package, on the description that the page names.
const root = document.documentElement;
const dark = root.dataset.theme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
root.classList.toggle("dark-mode", dark);

const place = document.getElementById("reference");
SwaggerUIBundle({ domNode: place, url: place.dataset.description, deepLinking: true, showExtensions: true });
